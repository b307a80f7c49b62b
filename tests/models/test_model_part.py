"""Parts of models, by names, layers and kinds of layers."""

import pytest
import torch
from torch import nn

from adabest.errors import InputError
from adabest.model_part import Part
from adabest.models.vector import VectorModel, parameters_of


def made() -> nn.Module:
    """Parameters of 8, 2, 2, 2, 6, 3 numbers, and some that aren't trained."""
    head = nn.Linear(2, 3)
    body = nn.Sequential(nn.Linear(4, 2), nn.LayerNorm(2), nn.ReLU(), nn.Linear(2, 2))
    body[3].requires_grad_(False)
    return nn.Sequential(nn.ModuleDict({"body": body, "head": head}))


def chosen(part: Part, module: nn.Module) -> set[str]:
    """The names of the parameters in a part, as the flat model shows them."""
    model = VectorModel(module, torch.device("cpu"), torch.float32)
    places = model.unflatten(part.mask(parameters_of(module)))
    assert all(bool(place.all()) == bool(place.any()) for place in places.values())
    return {name for name, place in places.items() if place.any()}


@pytest.mark.parametrize(
    ("part", "names"),
    [
        (Part(("0.head",)), {"head.weight", "head.bias"}),
        (Part(("0.head.*",)), {"head.weight", "head.bias"}),
        (Part(("*.head.bias",)), {"head.bias"}),
        (Part(("*.bias",)), {"body.0.bias", "body.1.bias", "head.bias"}),
        (Part(("0.body.[01]",)), {"body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias"}),
        (Part(("0.body.0.bias", "0.head.bias")), {"body.0.bias", "head.bias"}),
        (Part(last_layers=1), {"head.weight", "head.bias"}),
        (Part(last_layers=2), {"body.1.weight", "body.1.bias", "head.weight", "head.bias"}),
        (Part(normalisation=True), {"body.1.weight", "body.1.bias"}),
    ],
    ids=lambda value: str(value) if isinstance(value, Part) else "",  # a set has no order
)
def test_a_part_has_the_parameters_that_it_tells(part: Part, names: set[str]) -> None:
    assert chosen(part, made()) == {f"0.{name}" for name in names}


@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm1d(4), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm1d(4, affine=True), nn.RMSNorm(4)],
    ids=lambda layer: type(layer).__name__,
)
def test_every_kind_of_normalisation_is_known_by_its_type(layer: nn.Module) -> None:
    module = nn.Sequential(nn.Linear(4, 4), layer)
    names = {f"1.{name}" for name, _ in layer.named_parameters()}
    assert chosen(Part(normalisation=True), module) == names


def test_a_layer_of_two_names_is_told_by_the_first() -> None:
    norm = nn.LayerNorm(4)
    module = nn.Sequential(norm, nn.Linear(4, 4), norm)
    assert chosen(Part(normalisation=True), module) == {"0.weight", "0.bias"}


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (Part(("0.haed",)), r"'0\.haed' is the name of no parameter and of no layer.*did you mean '0\.head\.bias'\?"),
        (
            Part(("0.head", "4.*")),
            r"'4\.\*' is the name of no parameter.*Known: 0\.body\.0\.bias, 0\.body\.0\.weight, ",
        ),
        (Part(("0.body.3",)), r"'0\.body\.3' is the name of no"),  # it isn't trained
        (
            Part(("*",)),
            r"that is the whole model, and nothing of it would be shared; .*: leave at least one of them out",
        ),
        (Part(last_layers=3), r"that is the whole model"),
        (Part(), r"the model has no such parameters; it has 0\.body\.0\.weight, "),
    ],
    ids=str,
)
def test_a_part_that_is_not_there_is_refused_with_the_models_names(part: Part, words: str) -> None:
    with pytest.raises(InputError, match=words):
        part.mask(parameters_of(made()))


def test_normalisation_that_is_not_there_is_refused() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 2))
    with pytest.raises(
        InputError,
        match=r"no normalisation layers .*; it has 0\.weight, 0\.bias, 2\.weight, 2\.bias: take one with GroupNorm",
    ):
        Part(normalisation=True).mask(parameters_of(module))
