"""Models have the paper's sizes, start from the seed alone, are one vector, and leak nothing between clients."""

import copy
import functools
import pickle
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from adabest import random
from adabest.errors import InputError
from adabest.models.factory import MODELS, build_model
from adabest.models.keyed import KeyedDropout, prepare, set_dropout_key
from adabest.models.vector import VectorModel
from adabest.random import Purpose

CPU = torch.device("cpu")
INPUTS = torch.linspace(-1, 1, 12).reshape(3, 4)


def parameters_of(model: str, shape: tuple[int, ...], classes: int) -> int:
    return sum(p.numel() for p in build_model(model, torch.zeros(2, *shape), classes, seed=0).parameters())


def weights_of(module: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(module.parameters()).detach()


def own_module(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> None:
    (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)


class TestClassifiers:
    @pytest.mark.parametrize(
        ("model", "shape", "classes", "count"),
        [
            ("cnn", (3, 32, 32), 10, 797_962),
            ("cnn", (3, 32, 32), 100, 815_332),
            ("mlp,hidden=50", (1, 8, 8), 10, 64 * 50 + 50 + 50 * 10 + 10),
            ("mlp", (1, 28, 28), 10, 89_610),
            ("mlp,hidden=100x100", (784,), 10, 89_610),
            ("mlp,hidden=", (5,), 3, 18),
            ("logistic", (1, 8, 8), 10, 650),
            ("resnet", (3, 32, 32), 10, 77_850),
            ("resnet,width=8,blocks=2", (1, 28, 28), 10, 44_130),
        ],
    )
    def test_parameter_counts_are_the_papers(
        self, model: str, shape: tuple[int, ...], classes: int, count: int
    ) -> None:
        assert parameters_of(model, shape, classes) == count

    def test_layers_are_in_the_papers_order(self) -> None:
        def types(model: str, shape: tuple[int, ...]) -> list[str]:
            return [type(layer).__name__ for layer in build_model(model, torch.zeros(2, *shape), 10, 0).children()]

        assert types("logistic", (4,)) == ["Flatten", "Linear"]
        assert types("mlp", (4,)) == ["Flatten", "Linear", "ReLU", "Linear", "ReLU", "Linear"]
        convolution = ["Conv2d", "ReLU", "MaxPool2d"]
        assert types("cnn", (3, 32, 32)) == [*convolution * 2, "Flatten", *["Linear", "ReLU"] * 2, "Linear"]

    @pytest.mark.parametrize("shape", [(3, 16, 16), (1, 17, 31), (2, 28, 28)])
    def test_cnn_takes_other_images(self, shape: tuple[int, ...]) -> None:
        assert build_model("cnn", torch.zeros(2, *shape), 7, 0)(torch.zeros(5, *shape)).shape == (5, 7)

    @pytest.mark.parametrize("shape", [(3, 15, 32), (3, 32, 15), (32, 32), (3072,)])
    def test_cnn_refuses_what_is_too_small(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(InputError, match="cnn needs images of channels × 16 × 16 or larger"):
            build_model("cnn", torch.zeros(2, *shape), 10, 0)

    @pytest.mark.parametrize("shape", [(3, 4, 4), (1, 9, 17), (2, 28, 28)])
    def test_resnet_takes_any_images_and_keeps_no_state(self, shape: tuple[int, ...]) -> None:
        module = build_model("resnet,width=8", torch.zeros(2, *shape), 7, 0)
        assert list(module.buffers()) == []
        scores = module(torch.randn(5, *shape, generator=torch.Generator().manual_seed(0)))
        assert scores.shape == (5, 7)
        alone = module(torch.randn(5, *shape, generator=torch.Generator().manual_seed(0))[:1])
        torch.testing.assert_close(alone[0], scores[0])  # no sample's scores depend on the others in its batch

    @pytest.mark.parametrize(
        ("model", "shape", "message"),
        [
            ("resnet", (3, 3, 32), "resnet needs images of channels × 4 × 4 or larger"),
            ("resnet", (3072,), "resnet needs images"),
            ("resnet,width=12", (3, 32, 32), "width = 12: it must be a multiple of 8"),
            ("resnet,width=0", (3, 32, 32), "width = 0: it must be a multiple of 8, from 8"),
            ("resnet,blocks=0", (3, 32, 32), "blocks = 0: a stage needs at least one"),
        ],
    )
    def test_resnet_refuses_impossible_options(self, model: str, shape: tuple[int, ...], message: str) -> None:
        with pytest.raises(InputError, match=message):
            build_model(model, torch.zeros(2, *shape), 10, 0)

    @pytest.mark.parametrize(
        ("model", "message"),
        [
            ("mpl", "unknown model 'mpl'; did you mean 'mlp'"),
            ("mlp,hiden=3", "model 'mlp' has no option 'hiden'; did you mean 'hidden'"),
            ("mlp,hidden=wide", "hidden should be a whole number, not 'wide'"),
            ("mlp,hidden=0", r"hidden = \(0,\): a layer needs at least one unit"),
            ("mlp,classes=3", "model 'mlp' has no option 'classes'"),
            ("logistic,hidden=3", "model 'logistic' has no option 'hidden'; it has none"),
        ],
    )
    def test_bad_specifications_are_refused(self, model: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            build_model(model, INPUTS, 3, 0)


class TestInitialModel:
    def test_the_initial_model_depends_on_the_seed_alone(self) -> None:
        torch.manual_seed(1)
        first = weights_of(build_model("mlp", INPUTS, 3, seed=5))
        torch.manual_seed(2)
        assert torch.equal(weights_of(build_model("mlp", INPUTS * 2, 3, seed=5)), first)
        assert not torch.equal(weights_of(build_model("mlp", INPUTS, 3, seed=6)), first)

    def test_the_initial_model_is_torchs_default(self) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(random.torch_seed(5, Purpose.INITIAL_MODEL))
            expected = nn.Linear(4, 3)
        assert torch.equal(weights_of(build_model("logistic", INPUTS, 3, seed=5)), weights_of(expected))

    def test_making_a_model_leaves_torchs_generator_alone(self) -> None:
        before = torch.get_rng_state()
        build_model("mlp", INPUTS, 3, seed=5)
        assert torch.equal(torch.get_rng_state(), before)

    @pytest.mark.parametrize("seed", [-1, 2**63, 2**100 + 1])
    def test_any_integer_is_a_seed(self, seed: int) -> None:
        assert torch.isfinite(weights_of(build_model("logistic", INPUTS, 3, seed=seed))).all()

    def test_a_module_keeps_its_weights_and_is_left_alone(self) -> None:
        module = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)).eval()
        before = weights_of(module).clone()
        built = build_model(module, INPUTS, 3, seed=5)
        assert torch.equal(weights_of(built), before)
        VectorModel(built, CPU, torch.float64).load(torch.zeros(15))
        assert torch.equal(weights_of(module), before)
        assert isinstance(module[1], nn.Dropout)
        assert not module.training


@pytest.mark.usefixtures("trusting")
class TestOnesOwn:
    def test_functions_classes_and_modules_make_models(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        own_module(
            tmp_path,
            monkeypatch,
            "own_models",
            "from torch import nn\n"
            "def made(input_shape, classes, width: int = 2):\n"
            "    return nn.Sequential(nn.Linear(input_shape[0], width), nn.Linear(width, classes))\n"
            "class Net(nn.Linear):\n"
            "    def __init__(self, input_shape, classes):\n        super().__init__(input_shape[0], classes)\n"
            "ready = nn.Linear(4, 3)\nnumber = 3\n"
            "def wrong(input_shape, classes): return 3\ndef lonely(input_shape): return None\n",
        )
        assert build_model("own_models:made,width=5", INPUTS, 3, 0)[0].out_features == 5  # type: ignore[index]
        assert build_model("own_models:Net", INPUTS, 3, 0)(INPUTS).shape == (3, 3)
        ready = build_model("own_models:ready", INPUTS, 3, 0)
        assert torch.equal(weights_of(ready), weights_of(sys.modules["own_models"].ready))
        with pytest.raises(InputError, match="'own_models:number' is a int, not something that makes"):
            build_model("own_models:number", INPUTS, 3, 0)
        with pytest.raises(InputError, match="'own_models:wrong' gave a int, not an"):
            build_model("own_models:wrong", INPUTS, 3, 0)
        with pytest.raises(InputError, match=r"own_models:lonely\(input_shape\) can't be called"):
            build_model("own_models:lonely", INPUTS, 3, 0)

    def test_a_partial_is_a_factory_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        own = functools.partial(MODELS.find("mlp"), hidden=(6,))
        monkeypatch.setattr(sys.modules[__name__], "small_mlp", own, raising=False)
        assert build_model(f"{__name__}:small_mlp", INPUTS, 3, 0)(INPUTS).shape == (3, 3)

    def test_the_number_of_class_scores_is_checked(self) -> None:
        # Otherwise the first batch with the missing label ends the run, perhaps after hours.
        with pytest.raises(InputError, match="5"):
            build_model(nn.Linear(4, 5), INPUTS, 10, 0)


class TestVector:
    def test_parameters_are_views_of_one_vector(self) -> None:
        model = VectorModel(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), CPU, torch.float64)
        assert model.vector.shape == (23,)
        assert model.vector.dtype == torch.float64
        assert model.shapes == {"0.weight": (3, 4), "0.bias": (3,), "1.weight": (2, 3), "1.bias": (2,)}
        assert torch.equal(weights_of(model.module), model.vector)
        other = torch.linspace(0, 1, 23, dtype=torch.float64)
        model.load(other)
        assert torch.equal(weights_of(model.module), other)
        other.zero_()
        assert model.vector.abs().sum() > 0  # loaded, not aliased

    def test_a_vector_taken_apart_is_the_module(self) -> None:
        model = VectorModel(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), CPU, torch.float32)
        pieces = model.unflatten(model.vector)
        for name, parameter in model.module.named_parameters():
            assert torch.equal(pieces[name], parameter)

    def test_backward_fills_the_gradient(self) -> None:
        torch.manual_seed(0)
        model = VectorModel(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), CPU, torch.float64)
        inputs = INPUTS.double()

        def loss() -> Tensor:
            return functional.cross_entropy(model.module(inputs), torch.tensor([0, 1, 1]))

        expected = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss(), list(model.module.parameters()))])
        for _ in range(2):  # the second pass must land in the same memory
            model.gradient.zero_()
            loss().backward()  # type: ignore[no-untyped-call]
            torch.testing.assert_close(model.gradient, expected, rtol=1e-12, atol=0)

    def test_tied_parameters_are_there_once(self) -> None:
        first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        second.weight = first.weight
        model = VectorModel(prepare(nn.Sequential(first, second), INPUTS), CPU, torch.float32)
        assert model.vector.shape == (16,)
        model.load(torch.eye(4).reshape(-1) * 2)
        assert torch.equal(model.module(INPUTS), INPUTS * 4)
        model.module(INPUTS).sum().backward()
        # d/dW of 1ᵀ W W x: both uses add up.
        total = INPUTS.sum(0)
        torch.testing.assert_close(model.gradient.reshape(4, 4), 2 * 2 * total.expand(4, 4))

    def test_frozen_parameters_stay_out(self) -> None:
        frozen = nn.Linear(4, 4).requires_grad_(False)
        module = nn.Sequential(frozen, nn.Linear(4, 2))
        model = VectorModel(prepare(module, INPUTS), CPU, torch.float32)
        assert list(model.shapes) == ["1.weight", "1.bias"]
        model.load(torch.zeros(10))
        assert torch.equal(model.module.get_parameter("0.weight"), frozen.weight)
        assert torch.equal(model.module(INPUTS), torch.zeros(3, 2))

    def test_unused_parameters_have_no_gradient(self) -> None:
        class Half(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.used, self.unused = nn.Linear(4, 2), nn.Linear(4, 2)

            def forward(self, x: Tensor) -> Tensor:
                return self.used(x)  # type: ignore[no-any-return]

        model = VectorModel(Half(), CPU, torch.float32)
        model.module(INPUTS).sum().backward()
        assert model.gradient[:10].abs().sum() > 0
        assert torch.equal(model.gradient[10:], torch.zeros(10))


def dropped(layer: nn.Module, key: tuple[int, int, int, int], shape: tuple[int, ...] = (50, 40)) -> Tensor:
    set_dropout_key(layer, *key)
    return layer(torch.ones(shape))  # type: ignore[no-any-return]


class TestDropout:
    def test_every_part_of_the_key_gives_another_mask(self) -> None:
        layer = KeyedDropout(0.5, layer=0)
        keys = [(0, 1, 2, 3), (9, 1, 2, 3), (0, 9, 2, 3), (0, 1, 9, 3), (0, 1, 2, 9), (0, 2, 1, 3)]
        masks = [dropped(layer, key) for key in keys] + [dropped(KeyedDropout(0.5, 1), keys[0])]
        for i, mask in enumerate(masks):
            for other in masks[:i]:
                # Two independent masks agree in half of their 2,000 places.
                assert 0.42 < float((mask == other).double().mean()) < 0.58
        assert torch.equal(dropped(layer, keys[0]), masks[0])

    def test_torchs_generator_has_no_part_in_it(self) -> None:
        layer = KeyedDropout(0.5, 0)
        torch.manual_seed(0)
        mask, state = dropped(layer, (0, 1, 2, 3)), torch.get_rng_state()
        torch.manual_seed(1)
        assert torch.equal(dropped(layer, (0, 1, 2, 3)), mask)
        torch.manual_seed(0)
        assert torch.equal(torch.get_rng_state(), state)

    @pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
    def test_dropout_keeps_its_rate_and_scale(self, probability: float) -> None:
        mask = dropped(KeyedDropout(probability, 0), (0, 1, 2, 3), (100, 200))
        zeros = float((mask == 0).double().mean())
        assert abs(zeros - probability) < 5 * (probability * (1 - probability) / 20_000) ** 0.5
        kept = mask[mask != 0]
        torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - probability)))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_dropout_is_exact_at_both_ends_and_off_in_evaluation(self, dtype: torch.dtype) -> None:
        x = torch.ones(5, 5, dtype=dtype, requires_grad=True)
        assert torch.equal(KeyedDropout(0.0, 0)(x), x)
        gone = KeyedDropout(1.0, 0)(x)
        assert torch.equal(gone, torch.zeros_like(x))
        gone.sum().backward()
        assert torch.equal(x.grad, torch.zeros_like(x))  # type: ignore[arg-type]
        assert torch.equal(KeyedDropout(0.7, 0).eval()(x), x)
        assert KeyedDropout(0.7, 0)(x).dtype == dtype

    @pytest.mark.parametrize(
        ("layer", "shape"),
        [(nn.Dropout1d(0.5), (8, 6, 7)), (nn.Dropout2d(0.5), (8, 6, 7, 5)), (nn.Dropout3d(0.5), (8, 6, 7, 5, 2))],
    )
    def test_channel_dropout_drops_whole_channels(self, layer: nn.Module, shape: tuple[int, ...]) -> None:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.drop, self.end = layer, nn.Linear(1, 1)

            def forward(self, x: Tensor) -> Tensor:
                return self.drop(x).flatten(1)  # type: ignore[no-any-return]

        net = prepare(Net(), torch.ones(shape))
        channels = dropped(net, (0, 1, 2, 3), shape).reshape(8, 6, -1)
        assert bool((channels == channels[:, :, :1]).all())
        assert 0 < int((channels[:, :, 0] == 0).sum()) < 48
        assert not torch.equal(channels[0], channels[1])  # each image has channels of its own

    def test_prepare_numbers_the_layers(self) -> None:
        nested = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2)))
        module = prepare(nested, INPUTS)
        layers = [layer for layer in module.modules() if isinstance(layer, KeyedDropout)]
        assert [(layer.draws.layer, layer.probability) for layer in layers] == [(0, 0.5), (1, 0.2)]
        set_dropout_key(module, 4, 3, 2, 1)
        assert {layer.draws.key for layer in layers} == {(4, 3, 2, 1)}

    def test_one_layer_used_twice_draws_twice(self) -> None:
        # One self.dropout for the whole forward pass is how many write it.
        class Twice(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.drop, self.end = nn.Dropout(0.5), nn.Linear(1, 1)

            def forward(self, x: Tensor) -> Tensor:
                return torch.cat([self.drop(x), self.drop(x)], dim=1)

        both = dropped(prepare(Twice(), torch.ones(50, 40)), (0, 1, 2, 3))
        assert not torch.equal(both[:, :40], both[:, 40:])

    def test_one_layer_under_two_names_is_replaced_under_both(self) -> None:
        drop = nn.Dropout(0.5)
        module = prepare(nn.Sequential(nn.Linear(4, 4), drop, nn.Linear(4, 4), drop), INPUTS)
        assert not any(isinstance(layer, nn.Dropout) for layer in module.modules())


class Functional(nn.Module):
    """A classifier out of one function of its inputs."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.end = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        scores: Tensor = self.end(x)
        if self.name == "list":
            return [scores]
        if self.name == "tuple":
            return scores, scores
        if self.name == "logits":
            return SimpleNamespace(logits=scores, loss=None)
        if self.name == "logits of a list":
            return SimpleNamespace(logits=[scores])
        if self.name == "scalar":
            return scores.sum()
        if self.name == "one row":
            return scores.sum(0, keepdim=True)
        if self.name == "raises":
            raise ValueError("out of cheese")
        return functional.dropout(scores, 0.5)


def random_below_zero() -> nn.Module:
    """RReLU draws only for negative inputs, so it gets some."""
    linear = nn.Linear(4, 3)
    nn.init.constant_(linear.bias, -9.0)
    return nn.Sequential(linear, nn.RReLU())


class TestLogits:
    def test_class_scores_are_taken_out_of_an_output_object(self) -> None:
        mine = Functional("logits")
        module = prepare(mine, INPUTS, classes=3)
        assert torch.equal(module(INPUTS), mine.end(INPUTS))
        assert isinstance(mine(INPUTS), SimpleNamespace)
        assert list(module.state_dict()) == list(mine.state_dict())

    def test_copies_of_the_model_have_their_own_weights(self) -> None:
        module = prepare(Functional("logits"), INPUTS)
        copies: list[Any] = [copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
        for other in copies:
            nn.init.zeros_(other.end.weight)
            assert not torch.equal(other(INPUTS), module(INPUTS))
            assert torch.equal(other(INPUTS), other.end(INPUTS))

    def test_a_forward_pass_that_a_library_has_put_there_is_kept(self) -> None:
        mine: Any = nn.Linear(4, 3)
        mine.forward = DoubledLogits(mine)
        module = prepare(mine, INPUTS)
        torch.testing.assert_close(module(INPUTS), 2 * nn.Linear.forward(mine, INPUTS))


class DoubledLogits:
    """A forward pass that is an attribute of its module."""

    def __init__(self, module: nn.Linear) -> None:
        self.module = module

    def __call__(self, x: Tensor) -> Any:
        return SimpleNamespace(logits=2 * nn.Linear.forward(self.module, x))


class HiddenState(nn.Module):
    """Goes on with the hidden state of the last batch, as a reader of a long text does."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = nn.GRU(4, 3)
        self.hidden: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        y, hidden = self.reader(x[None], self.hidden)
        self.hidden = hidden.detach()
        first: Tensor = y[0]
        return first


class CallCounter(nn.Linear):
    """Counts its calls, and says more with each."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.calls * super().forward(functional.dropout(x, training=self.training))


class Caching(nn.Linear):
    """Keeps a mask once it is made, writes into its input, and drops some of it."""

    def __init__(self, odd: float) -> None:
        super().__init__(4, 3)
        self.odd = odd
        self.mask: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.mask is None:
            self.mask = torch.tensor([1.0, self.odd, 1.0])
        return super().forward(functional.dropout(x.mul_(2), 0.5, self.training)) * self.mask


class TestRefusals:
    def test_batch_norm_is_named(self) -> None:
        module = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.BatchNorm1d(4), nn.ReLU()))
        with pytest.raises(InputError, match=r"layer '1\.0' \(BatchNorm1d\) .*batch_norm=group puts nn\.GroupNorm"):
            prepare(module, INPUTS)

    def test_norms_without_memory_are_fine(self) -> None:
        module = nn.Sequential(
            nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.GroupNorm(2, 4), nn.LayerNorm(4)
        )
        assert prepare(module, INPUTS)(INPUTS).shape == (3, 4)

    def test_constant_buffers_are_fine(self) -> None:
        module = nn.Sequential(nn.Linear(4, 4))
        module.register_buffer("mask", torch.tensor([1.0, float("-inf")]))
        assert "mask" in dict(prepare(module, INPUTS).named_buffers())

    @pytest.mark.parametrize(
        ("module", "message"),
        [
            (
                Functional("always"),
                "draws random numbers in evaluation, too; give .* training=self.training",
            ),
            (random_below_zero(), "draws random numbers from torch's global generator.*nn.RReLU's, must go"),
            (Functional("list"), r"the model gives a list; it should give a tensor .* or an object .* as \.logits"),
            (Functional("tuple"), r"the model gives a tuple; it should give a tensor .* or an object .* as \.logits"),
            (Functional("logits of a list"), "the model gives a SimpleNamespace; it should give a tensor"),
            (Functional("scalar"), r"one row of class scores for each input, not \(\)"),
            (Functional("one row"), r"one row of class scores for each input, not \(1, 3\)"),
            (nn.Sequential(nn.Linear(4, 3), nn.Unflatten(1, (3, 1))), r"not \(3, 3, 1\)"),
            (Functional("raises"), r"can't take inputs of shape \(3, 4\): out of cheese"),
            (nn.Linear(7, 3), r"can't take inputs of shape \(3, 4\)"),
            (nn.Flatten(), "the model has no trainable parameter"),
            (nn.Linear(4, 3).requires_grad_(False), "the model has no trainable parameter"),
            (nn.Dropout(0.5), "the model has no trainable parameter"),
        ],
    )
    def test_modules_that_cannot_be_simulated_are_named(self, module: nn.Module, message: str) -> None:
        with pytest.raises(InputError, match=message):
            prepare(module, INPUTS)

    @pytest.mark.parametrize(("nested", "part"), [(False, "the model"), (True, "layer '1'")])
    def test_what_torch_jit_has_compiled_is_named(self, nested: bool, part: str) -> None:
        """Its copies get no gradients, so runs ended with the model that they began with."""
        with warnings.catch_warnings(action="ignore"):
            compiled = torch.jit.script(nn.Linear(4, 3))
        module = nn.Sequential(nn.Linear(4, 4), compiled) if nested else compiled
        with pytest.raises(
            InputError, match=rf"{part} was compiled by torch\.jit.*as it was before torch\.jit\.script"
        ):
            prepare(module, INPUTS)

    @pytest.mark.parametrize("module", [HiddenState(), CallCounter()])
    def test_what_is_remembered_between_calls_is_refused(self, module: nn.Module) -> None:
        with pytest.raises(
            InputError, match=r"remembers something, such as a hidden state.*every call of forward anew"
        ):
            prepare(module, INPUTS)

    @pytest.mark.parametrize("odd", [1.0, float("nan"), float("inf")])
    def test_what_is_merely_cached_is_fine(self, odd: float) -> None:
        assert prepare(Caching(odd), INPUTS)(INPUTS.clone()).shape == (3, 3)
