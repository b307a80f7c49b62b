"""What becomes of models in the batched engine: which layers get operators of their own, and that nothing is lost."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from odd_models import CLASSES, INPUT, MODELS, ONE_BY_ONE, make
from torch import Tensor, nn

from adabest.engine.layer_plan import (
    ConvolutionLayer,
    FunctionalLayer,
    Layer,
    LinearLayer,
    NormLayer,
    PoolLayer,
    SumLayer,
    plan_layers,
    plan_model,
)
from adabest.errors import InputError
from adabest.models.factory import build_model
from adabest.models.keyed import prepare

EXAMPLE = torch.linspace(-1, 1, 2 * 72).reshape(2, *INPUT)


def plan_of(module: nn.Module, example: Tensor = EXAMPLE) -> tuple[Layer, ...]:
    return plan_layers(prepare(module, example), example)


def short(layer: Layer) -> str:
    """A layer in a word: C, L, N or S with p for pooling and r for relu, P for pooling alone, F for functional ones."""
    match layer:
        case ConvolutionLayer(shape=shape):
            return "C" + "p" * (shape.pool == 2) + "r" * shape.relu
        case NormLayer(shape=shape):
            return "N" + "p" * (shape.pool == 2) + "r" * shape.relu
        case PoolLayer(shape=shape):
            return "P" + "r" * shape.relu
        case LinearLayer(shape=shape):
            return "L" + "r" * shape.relu
        case SumLayer(shape=shape):
            return "S" + "r" * shape.relu
        case FunctionalLayer():
            return "F"


def row_of(module: nn.Module, example: Tensor = EXAMPLE) -> str:
    return " ".join(short(layer) for layer in plan_of(module, example))


ROWS = {
    "functions": "Cpr Lr L",
    "residual": "C F L",
    "shortcuts": "Cr Cr C Sr Cr C C Sr L",
    "shortcuts of features": "Lr Lr L S L L S",
    "many ways": "C F Cpr C S C Sr C L",
    "pooled shortcuts": "C C P S P S N C Sr P L",
    "ways in one": "C F L",
    "changed in place": "C F L",
    "unread": "C F L",
    "changed under another name": "F",
    "changed at first by nothing": "F",
    "hooked relu": "C F L",
    "one relu for all": "C Npr C Nr C N Sr P L",
    "one dropout for all": "F",
    "sum beside a function": "C F C S L",
    "sum beside dropout": "C F C S L",
    "normed images beside": "C F L",
    "normed wide images beside": "C F L",
    "shared": "F",
    "tied": "F",
    "gated": "L F L",
    "patches": "F L",
    "direct parameter": "F",
    "branching": "F",
    "shape of batch": "F",
    "two inputs of one": "F L",
    "logits": "F",
    "dropping functions": "F",
    "attention": "F",
    "scaled attention": "F",
    "transformer": "F",
    "frozen": "F L",
    "buffer": "F",
    "hooked": "F L",
    "unused": "F",
    "weight norm": "F L",
    "pool of three": "Cr P L",
    "overlapping pool": "C Pr L",
    "odd pool": "Cpr L",
    "strided": "Cr L",
    "strided at the end": "Cr C",
    "same padding": "C L",
    "convolutions only": "Cr C",
    "relu at the end": "Lr",
    "normed at the end": "L N",
    "flattened, then normed": "C F L",
    "double relu and pool": "Cr F L",
    "batch statistics": "C F L",
    "in place": "C F L F L",
    "normed at the start": "N Cr L",
    "frozen, then normed": "F Nr L",
    "group norms": "C Npr C N L",
    "pools": "Cr P C P N Pr P N L",
    "means": "C P C F C P P L",
    "layer norms": "N Lr Nr L N F N L N",
    "mixed": "Cpr C N F Cr F Lr L F L",
    "depends on data": "F",
    "recurrent, with dropout": "F",
    "recurrent": "F L",
}


def test_every_model_is_looked_at() -> None:
    assert ROWS.keys() == (MODELS | ONE_BY_ONE).keys()


@pytest.mark.parametrize("name", ROWS)
def test_which_layers_a_model_becomes(name: str) -> None:
    assert row_of(make(name)) == ROWS[name]


WHOLE = {
    "shared": ("its layer inner is used several times", "use a layer of its own at each place"),
    "tied": ("its forward pass reads first.weight, which belongs to no layer of torch", "let layers such as"),
    "branching": ("it can't be traced (", "decides nothing by the values or the shapes of tensors"),
    "logits": ("it gives an object with .logits", "let it give the tensor"),
    "dropping functions": ("its dropout in functions, attention or recurrent layers", "take layers of nn.Dropout"),
    "changed under another name": ("what its forward pass gives isn't what tracing makes of it", "in place"),
    "one dropout for all": ("its layer dropout is used several times", "use a layer of its own at each place"),
    "unused": ("its parameter spare.weight takes part in none of its layers", "leave unused parameters out"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_why_a_model_stays_whole(name: str) -> None:
    plan = plan_model(prepare(make(name), EXAMPLE), EXAMPLE)
    assert plan.whole is not None
    assert len(plan.layers) == len(plan.parts) == 1
    why, change = WHOLE[name]
    assert why in plan.whole.why
    assert change in plan.whole.change


def convolution(**options: Any) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, **{"kernel_size": 3, **options}), nn.Flatten(), nn.LazyLinear(CLASSES))


def pooled(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3), layer, nn.Flatten(), nn.LazyLinear(CLASSES))


def wide_pool() -> nn.Module:
    return pooled(nn.Sequential(nn.ConstantPad2d(8, 0.0), nn.Conv2d(4, 4, 1), nn.MaxPool2d(16)))


def wrapped(layer: nn.Module) -> nn.Module:
    return nn.Sequential(layer, nn.Flatten(), nn.LazyLinear(CLASSES))


@pytest.mark.parametrize(
    ("module", "why", "change"),
    [
        (convolution(dilation=2), "its dilation is 2×2", "take dilation 1"),
        (convolution(groups=2), "it has 2 groups of channels", "take groups=1"),
        (convolution(padding=1, padding_mode="circular"), "it pads with 'circular'", "padding_mode='zeros'"),
        (convolution(padding="same", kernel_size=(3, 2)), "its padding is 'same'", "take a kernel with odd sides"),
        (wrapped(nn.Linear(6, 4)), "it takes several rows of features for each sample", ""),
        (wrapped(nn.Tanh()), "kernels are for nn.Conv2d, nn.Linear, nn.GroupNorm, nn.LayerNorm, sums, relu", ""),
        (wrapped(nn.LayerNorm(INPUT)), "it has a weight for each pixel", "take nn.GroupNorm(1, channels)"),
        (wrapped(nn.LayerNorm(6)), "it takes several rows of features for each sample", ""),
        (make("flattened, then normed"), "it takes flattened images", "take nn.GroupNorm before nn.Flatten"),
        (wrapped(nn.ReLU()), "it isn't right behind a convolution, a linear layer, a norm", "put it right behind one"),
        (wrapped(nn.MaxPool2d(2)), "it isn't right behind a convolution", "put it right behind one"),
        (make("hooked"), "it has hooks", "take them off"),
        (make("weight norm"), "it is a ParametrizedLinear", "use nn.Linear itself"),
        (make("frozen"), "it has parameters that aren't trained", "train all of its parameters"),
        (pooled(nn.MaxPool2d(2, ceil_mode=True)), "its options are unusual", "no more than sizes, strides and padding"),
        (pooled(nn.MaxPool2d(2, dilation=2)), "its options are unusual", "no more than sizes, strides and padding"),
        (pooled(nn.AvgPool2d(2, divisor_override=3)), "its options are unusual", "no more than sizes"),
        (pooled(nn.AdaptiveAvgPool2d(3)), "the sides of its output don't divide those of its images", "other sides"),
        (wide_pool(), "its windows have more than 255 pixels", "take smaller ones"),
        (make("double relu and pool"), "there is a relu before it already", "leave it out"),
        (make("residual"), "as around a shortcut, and ReLU is in the way: others read what comes before it", ""),
        (
            make("ways in one"),
            "and Sum is in the way: it adds tensors of several shapes",
            "add two tensors of the same shape",
        ),
        (make("changed in place"), "and relu changes in place what others read", "make it change a copy"),
        (make("unread"), "as around a shortcut, and nothing reads what second gives", "leave that out"),
        (make("two inputs of one"), "and they come out of the model's inputs", "let a single layer read the inputs"),
        (make("patches"), "what comes in isn't a tensor with one row for each sample", ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_why_a_part_has_no_operators_of_its_own(module: nn.Module, why: str, change: str) -> None:
    with torch.no_grad():
        module(EXAMPLE)  # gives lazy layers their sizes
    plan = plan_model(prepare(module, EXAMPLE), EXAMPLE)
    assert plan.whole is None
    told = [part.obstacle for part in plan.parts if part.obstacle is not None]
    found = next(obstacle for obstacle in told if why in obstacle.why)
    assert change in found.change
    assert change or not found.change


@pytest.mark.parametrize("name", ROWS)
def test_exactly_the_parts_of_functional_layers_have_a_reason(name: str) -> None:
    plan = plan_model(prepare(make(name), EXAMPLE), EXAMPLE)
    for part in plan.parts:
        is_functional = part.layer is not None and isinstance(plan.layers[part.layer], FunctionalLayer)
        assert is_functional == (part.obstacle is not None)
    assert {part.layer for part in plan.parts} - {None} == {*range(len(plan.layers))}


@pytest.mark.parametrize(
    ("model", "shape", "row"),
    [
        ("logistic", (5,), "L"),
        ("mlp,hidden=4x3", (1, 6, 6), "Lr Lr L"),
        ("cnn", (3, 20, 20), "Cpr Cpr Lr Lr L"),
        ("resnet,width=8", (3, 8, 8), "C Nr C Nr C N Sr C Nr C N C Sr C Nr C N C Sr P L"),
    ],
)
def test_the_models_that_come_along(model: str, shape: tuple[int, ...], row: str) -> None:
    example = torch.zeros(2, *shape)
    assert row_of(build_model(model, example, 10, 0), example) == row


@pytest.mark.parametrize("name", MODELS)
def test_every_trained_parameter_is_in_one_layer(name: str) -> None:
    module = prepare(make(name), EXAMPLE)
    found: list[str] = []
    for layer in plan_layers(module, EXAMPLE):
        if isinstance(layer, FunctionalLayer):
            found += layer.parameters
        elif not isinstance(layer, PoolLayer | SumLayer):
            found += [name for name in (layer.weight, layer.bias) if name is not None]
    assert sorted(found) == sorted(n for n, parameter in module.named_parameters() if parameter.requires_grad)


@pytest.mark.parametrize("name", MODELS)
def test_shapes_go_on_where_they_ended(name: str) -> None:
    plan = plan_model(prepare(make(name), EXAMPLE), EXAMPLE)
    outputs = {place: layer.output for place, layer in enumerate(plan.layers)} | {-1: INPUT}
    for place, (layer, sources) in enumerate(zip(plan.layers, plan.sources, strict=True)):
        shape = outputs[sources[0]]
        if isinstance(layer, FunctionalLayer):
            assert torch.Size(layer.input).numel() == torch.Size(shape).numel()
        elif isinstance(layer, ConvolutionLayer):
            assert (layer.shape.channels, layer.shape.height, layer.shape.width) == shape
        elif isinstance(layer, SumLayer):
            assert [outputs[source] for source in sources] == [layer.output] * 2
        assert all(source < place for source in sources)
    assert torch.Size(plan.layers[-1].output).numel() == CLASSES
    read = [source for sources in plan.sources for source in sources]
    assert read.count(-1) == 1, "the first layer alone reads the input"
    assert {*read} == {*range(-1, len(plan.layers) - 1)}, "somebody reads all but the last"


def test_branches_read_what_they_branch_from() -> None:
    plan = plan_model(prepare(make("shortcuts"), EXAMPLE), EXAMPLE)
    assert plan.sources == ((-1,), (0,), (1,), (2, 0), (3,), (4,), (3,), (5, 6), (7,))
    assert [part.reads for part in plan.parts[:4]] == [(-1,), (0,), (1,), (2,)]
    rows = plan_model(prepare(make("mixed"), EXAMPLE), EXAMPLE)
    assert rows.sources == tuple((place - 1,) for place in range(len(rows.layers)))
    assert [part.reads for part in rows.parts] == [(place - 1,) for place in range(len(rows.parts))]


def test_the_shape_of_a_convolution() -> None:
    first, second = plan_of(make("mixed"))[:2]
    assert isinstance(first, ConvolutionLayer)
    assert isinstance(second, ConvolutionLayer)
    assert (first.shape.unfolded, second.shape.unfolded) == (True, False)
    assert (first.shape.kernel, first.shape.padding, first.shape.bias) == ((3, 3), (1, 1), True)
    assert (second.shape.kernel, second.shape.padding, second.shape.bias) == ((2, 3), (1, 1), False)
    assert (first.weight, first.bias, second.weight, second.bias) == ("0.weight", "0.bias", "3.weight", None)
    assert second.shape.dense == (4, 3)


def test_a_linear_layer_knows_how_its_image_lies() -> None:
    layers = plan_of(make("odd pool"))
    assert isinstance(layers[1], LinearLayer)
    assert layers[1].image == (4, 2, 2)
    assert layers[1].shape.inputs == 2 * 2 * 16
    (alone,) = plan_of(nn.Sequential(nn.Flatten(), nn.Linear(72, 3)))
    assert isinstance(alone, LinearLayer)
    assert alone.image is None
    assert alone.shape.inputs == 80


def test_an_image_with_many_channels_is_not_unfolded() -> None:
    example = torch.zeros(2, 16, 4, 4)
    layers = plan_of(nn.Sequential(nn.Conv2d(16, 3, 4), nn.Flatten()), example)
    assert isinstance(layers[0], ConvolutionLayer)
    assert not layers[0].shape.unfolded


def test_a_model_with_a_step_whose_result_nobody_reads_stays_whole() -> None:
    class Doubling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.out = nn.Linear(72, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x.flatten(1))
            x.mul_(2)
            output: Tensor = self.out(x)
            return output

    (layer,) = plan_of(Doubling())
    assert isinstance(layer, FunctionalLayer)
    assert layer.output == (3,)


def test_a_model_is_cut_without_modules_that_take_long_to_import() -> None:
    code = (
        "import sys, torch\nfrom adabest.engine.layer_plan import plan_layers\n"
        "from adabest.models.factory import build_model\n"
        "example = torch.zeros(2, 3, 8, 8)\n"
        "print(len(plan_layers(build_model('resnet,width=8', example, 10, 0), example)))\n"
        "print([name for name in ('sympy', 'torch._dynamo') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["21", "[]"]


def test_values_that_happen_to_have_as_many_rows_as_there_are_inputs() -> None:
    """Sequence first, and the sequence is as long as the batch that shapes are learnt from."""

    class SequenceFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.out = nn.Linear(36, 4), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.inner(x.flatten(2).transpose(0, 1))[0] * 1.0
            scores: Tensor = self.out(torch.cat([x, x], dim=1))
            return scores

    assert row_of(SequenceFirst()) == "F L"


def test_batch_norm_is_refused_by_its_name() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 3))
    with pytest.raises(InputError, match=r"layer '1' \(BatchNorm2d\) changes its .* nn.GroupNorm"):
        prepare(model, EXAMPLE)
