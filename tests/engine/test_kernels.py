"""Every Triton kernel equals its twin, and every twin what plain torch computes.

Without a GPU the kernels run in Triton's interpreter (see ``conftest.py``), one program after another in NumPy.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import odd_models
import pytest
import torch
from extended import PARTS, Extended
from side_by_side import Case, StackedEngine, distance, simulate
from small import assert_same
from torch import Tensor, nn
from torch.nn import functional

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.feddane import FedDane
from adabest.data.augmentation import flip_crop
from adabest.engine.cohort_table import CohortTable
from adabest.engine.gpu import trainer
from adabest.engine.gpu.kernels import twins
from adabest.engine.gpu.kernels.buffers import Direction, Moments, Pace, Rates, Region, Source
from adabest.engine.gpu.packing import packing
from adabest.engine.lanes import advance_together
from adabest.engine.layer_plan import ConvolutionLayer, LinearLayer
from adabest.engine.local_step import Adam, LocalTraining
from adabest.engine.reference import ReferenceEngine
from adabest.engine.sample_table import all_samples, flip_crop_codes
from adabest.engine.shapes import ConvolutionShape, LinearShape, NormShape, PoolShape, flat, padded, unfolded_or_not
from adabest.federation.batches import MISSING, Batching
from adabest.random import Purpose, bits
from adabest.tasks.base import no_heartbeat

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

triton = pytest.importorskip("triton", reason="Triton isn't installed")
from adabest.engine.gpu.kernels import convolution, normalisation  # noqa: E402
from adabest.engine.gpu.kernels.fused import Fused  # noqa: E402

KERNELS: Any = Fused("ieee")
CLIENTS, BATCH = 3, 5  # five images: the last part of two has only one
ALONE = 1  # the client that has made all its steps
FINE: Any = {"rtol": 1e-9, "atol": 1e-10}
COARSE: Any = {"rtol": 1e-4, "atol": 2e-5}


@pytest.fixture(autouse=True)
def drawn() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=dtype).to(DEVICE)


def nothing(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """What a kernel must overwrite."""
    return torch.full(shape, torch.nan if dtype.is_floating_point else 77, dtype=dtype, device=DEVICE)


def pace() -> Pace:
    steps = torch.full((CLIENTS,), 3, dtype=torch.int32)
    steps[ALONE] = 1
    return Pace(torch.ones(1, dtype=torch.int32, device=DEVICE), steps.to(DEVICE))


def others(tensor: Tensor) -> Tensor:
    """Without the client that is left alone."""
    return tensor[[client for client in range(CLIENTS) if client != ALONE]]


def assert_twins(found: Tensor, expected: Tensor, poison: Tensor) -> None:
    """A kernel's result is its twin's, except for the client that must be as it was."""
    assert not torch.isnan(others(expected.double())).any()
    torch.testing.assert_close(others(found), others(expected), **COARSE)
    torch.testing.assert_close(found[ALONE], poison[ALONE], rtol=0, atol=0, equal_nan=True)


def direction(size: int, slots: int, *, has_offset: bool, dtype: torch.dtype = torch.float32) -> Direction:
    return Direction(
        d=nothing(CLIENTS, size, dtype=dtype),
        w=random(CLIENTS, size, dtype=dtype),
        offset=random(CLIENTS, size, dtype=dtype) if has_offset else None,
        scale=random(CLIENTS, dtype=dtype),
        rho=random(CLIENTS, dtype=dtype) if has_offset else torch.zeros(CLIENTS, dtype=dtype, device=DEVICE),
        squares=nothing(CLIENTS, slots, dtype=dtype),
    )


def fresh(whole: Direction) -> Direction:
    return replace(whole, d=nothing(*whole.d.shape, dtype=whole.d.dtype))


# --- Convolutions -----------------------------------------------------------------------------------------------------

SHAPES = [
    ConvolutionShape(3, 8, 9, 5, (5, 5), pool=2, relu=True, unfolded=True),
    ConvolutionShape(1, 7, 6, 16, (3, 3), padding=(1, 1), relu=True, unfolded=True),
    ConvolutionShape(3, 5, 5, 5, (2, 3), padding=(0, 2), bias=False, pool=2, unfolded=True),
    ConvolutionShape(16, 6, 5, 5, (3, 3), padding=(1, 1), pool=2, relu=True),
    ConvolutionShape(20, 4, 5, 70, (2, 3), relu=True),
    ConvolutionShape(16, 5, 4, 16, (1, 1), bias=False),
    ConvolutionShape(3, 5, 6, 16, (3, 3), padding=(2, 1), pool=2),
    ConvolutionShape(20, 4, 5, 5, (5, 5), padding=(2, 2), bias=False, relu=True, pool=2),
    ConvolutionShape(16, 7, 6, 16, (3, 3), padding=(1, 1), bias=False, stride=(2, 2)),
    ConvolutionShape(20, 5, 8, 33, (1, 1), bias=False, stride=(2, 2)),
    ConvolutionShape(16, 9, 7, 5, (5, 3), padding=(3, 1), relu=True, pool=2, stride=(1, 2)),
    ConvolutionShape(5, 8, 7, 16, (2, 3), padding=(2, 2), stride=(3, 4)),
    ConvolutionShape(3, 9, 11, 5, (7, 5), padding=(3, 2), relu=True, pool=2, unfolded=True, stride=(2, 2)),
    ConvolutionShape(2, 5, 4, 16, (1, 2), padding=(0, 2), unfolded=True, stride=(2, 3)),
]


def name_of(shape: ConvolutionShape) -> str:
    strided = "" if shape.stride == (1, 1) else f" by {shape.stride[0]}x{shape.stride[1]}"
    return f"{shape.channels}x{shape.height}x{shape.width}-{shape.outputs}{strided}"


every_shape = pytest.mark.parametrize("shape", SHAPES, ids=name_of)


class Convolution:
    """A convolution's buffers, filled with numbers that plain torch has as well."""

    def __init__(self, shape: ConvolutionShape, dtype: torch.dtype, border: tuple[int, int] = (0, 0)) -> None:
        self.shape, self.dtype = shape, dtype
        names = {"w": (shape.outputs, shape.channels, *shape.kernel), "b": (shape.outputs,)}
        layer = ConvolutionLayer(shape, "w", "b" if shape.bias else None)
        if not shape.bias:
            del names["b"]
        self.packing = packing((layer,), names, twins, DEVICE)
        self.images = random(CLIENTS, BATCH, shape.channels, shape.height, shape.width, dtype=dtype)
        self.weight = random(CLIENTS, *names["w"], dtype=dtype)
        self.bias = random(CLIENTS, shape.outputs, dtype=dtype)
        vectors = torch.cat([self.weight.flatten(1), self.bias] if shape.bias else [self.weight.flatten(1)], dim=1)
        regions = self.packing.regions[0]
        packed = self.packing.pack(vectors)
        self.w, self.b = regions[0].of(packed), regions[1].of(packed) if shape.bias else None
        self.x = torch.zeros((CLIENTS, BATCH, *shape.stored_input), dtype=dtype, device=DEVICE)
        twins.place(unfolded_or_not(shape), self.images.flatten(0, 1), self.x)
        rows, columns = shape.pooled
        stored = (CLIENTS, BATCH, rows + 2 * border[0], columns + 2 * border[1], shape.stored_outputs)
        self.y = torch.zeros(stored, dtype=dtype, device=DEVICE)
        twins.interior(self.y, shape.pooled).fill_(torch.nan)
        self.kind = nothing(CLIENTS, BATCH, rows, columns, shape.stored_outputs, dtype=torch.uint8)
        self.dy = random(*self.kind.shape, dtype=dtype)
        self.dy[..., shape.outputs :] = 0.0

    def forward(self, operators: Any) -> tuple[Tensor, Tensor]:
        y, kind = self.y.clone(), self.kind.clone()
        operators.convolve(self.shape, pace(), self.x, self.w, self.b, y, kind)
        return y, kind

    def empty_dense(self) -> Tensor:
        """Poisoned where pools are: what doesn't fill a pool is never written, and zero."""
        shape = self.shape
        dense = torch.zeros((CLIENTS, BATCH, *shape.dense, shape.stored_outputs), dtype=self.dtype, device=DEVICE)
        dense[:, :, : shape.pooled[0] * shape.pool, : shape.pooled[1] * shape.pool] = torch.nan
        return dense

    def spread(self, operators: Any, kind: Tensor) -> tuple[Tensor, Tensor]:
        parts = operators.parts(self.shape, BATCH).spread
        bias = nothing(CLIENTS, parts, self.shape.stored_outputs, dtype=self.dtype)
        dense = self.empty_dense()
        operators.spread(self.shape, pace(), self.dy, kind, dense, bias)
        return dense, bias

    def empty_input_gradient(self) -> Tensor:
        shape = self.shape
        return nothing(CLIENTS, BATCH, shape.height, shape.width, padded(shape.channels), dtype=self.dtype)

    def input_gradient(self, operators: Any, dense: Tensor) -> Tensor:
        dx = self.empty_input_gradient()
        operators.input_gradient(self.shape, pace(), dense, self.w, dx)
        return dx

    def weight_gradient(self, operators: Any, dense: Tensor) -> Tensor:
        parts = operators.parts(self.shape, BATCH).weight
        partial = nothing(CLIENTS, parts, self.shape.depth * self.shape.stored_outputs, dtype=self.dtype)
        operators.weight_gradient(self.shape, pace(), self.x, dense, partial)
        return partial

    def weight_gradient_of_pools(self, operators: Any, kind: Tensor) -> tuple[Tensor, Tensor]:
        parts = operators.parts(self.shape, BATCH).pools
        partial = nothing(CLIENTS, parts, self.shape.depth * self.shape.stored_outputs, dtype=self.dtype)
        bias = nothing(CLIENTS, parts, self.shape.stored_outputs, dtype=self.dtype)
        operators.weight_gradient_of_pools(self.shape, pace(), self.x, self.dy, kind, partial, bias)
        return partial, bias


@every_shape
def test_twins_of_convolutions_agree_with_autograd(shape: ConvolutionShape) -> None:
    case = Convolution(shape, torch.float64, border=(1, 2))
    y, kind = case.forward(twins)
    dense, bias = case.spread(twins, kind)
    partial = case.weight_gradient(twins, dense)
    regions = case.packing.regions[0]
    packed = torch.zeros((CLIENTS, case.packing.size), dtype=torch.float64, device=DEVICE)
    regions[0].of(packed).copy_(partial.sum(dim=1))
    if shape.bias:
        regions[1].of(packed).copy_(bias.sum(dim=1))
    gradient = case.packing.unpack(packed)
    for client in range(CLIENTS):
        image, weight, offset = (t[client].clone().requires_grad_() for t in (case.images, case.weight, case.bias))
        added = offset if shape.bias else None
        expected = functional.conv2d(image, weight, added, stride=shape.stride, padding=shape.padding)
        expected = functional.max_pool2d(expected, shape.pool)
        expected = expected.relu() if shape.relu else expected
        inside = twins.interior(y, shape.pooled)[client]
        torch.testing.assert_close(inside[..., : shape.outputs].permute(0, 3, 1, 2), expected, **FINE)
        expected.backward(case.dy[client, ..., : shape.outputs].permute(0, 3, 1, 2))  # type: ignore[no-untyped-call]
        leaves = [weight, offset] if shape.bias else [weight]
        flat_gradient = torch.cat([leaf.grad.flatten() for leaf in leaves if leaf.grad is not None])
        torch.testing.assert_close(gradient[client], flat_gradient, **FINE)
        if not shape.unfolded:
            dx = case.input_gradient(twins, dense)[client]
            assert image.grad is not None
            torch.testing.assert_close(dx[..., : shape.channels].permute(0, 3, 1, 2), image.grad, **FINE)
            assert not dx[..., shape.channels :].any()
    assert not y[..., shape.outputs :].any(), "padding stays zero"
    assert float(y.abs().sum()) == pytest.approx(float(twins.interior(y, shape.pooled).abs().sum())), "so does a border"
    of_pools = case.weight_gradient_of_pools(twins, kind)
    torch.testing.assert_close(of_pools[0].sum(dim=1), partial.sum(dim=1), **FINE)
    torch.testing.assert_close(of_pools[1].sum(dim=1), bias.sum(dim=1), **FINE)


@pytest.mark.parametrize("parts", [1, 2], ids=["one part", "several parts"])
@every_shape
def test_kernels_of_convolutions_agree_with_their_twins(
    shape: ConvolutionShape, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if parts > 1:
        for name in ("_PART", "_POOL_PART"):
            monkeypatch.setattr(convolution, name, 2 * shape.dense[0] * shape.dense[1] - 3)
        monkeypatch.setattr(convolution, "_SPREAD_PIXELS", 16)
        assert convolution.parts(shape, BATCH).weight >= 2
    case = Convolution(shape, torch.float32, border=(parts, 2))
    y, kind = case.forward(twins)
    found_y, found_kind = case.forward(KERNELS)
    assert_twins(found_y, y, case.y)
    assert_twins(found_kind, kind, case.kind)
    for operators in (twins, KERNELS):
        alone = case.y.clone()
        operators.convolve(shape, pace(), case.x, case.w, case.b, alone, None)
        torch.testing.assert_close(others(alone), others(y if operators is twins else found_y), rtol=0, atol=0)
    dense, bias = case.spread(twins, kind)
    found_dense, found_bias = case.spread(KERNELS, kind)
    assert_twins(found_dense, dense, case.empty_dense())
    assert_twins(found_bias.sum(dim=1), bias.sum(dim=1), nothing(*bias[:, 0].shape))
    if not shape.unfolded:
        dx = case.input_gradient(twins, dense)
        assert_twins(case.input_gradient(KERNELS, dense), dx, case.empty_input_gradient())
    partial = case.weight_gradient(twins, dense).sum(dim=1)
    assert_twins(case.weight_gradient(KERNELS, dense).sum(dim=1), partial, nothing(*partial.shape))
    of_pools = case.weight_gradient_of_pools(KERNELS, kind)
    assert_twins(of_pools[0].sum(dim=1), partial, nothing(*partial.shape))
    assert_twins(of_pools[1].sum(dim=1), bias.sum(dim=1), nothing(*bias[:, 0].shape))


@pytest.mark.parametrize("operators", [twins, KERNELS], ids=["twins", "kernels"])
def test_a_divergence_isnt_hidden_by_relu_or_pooling(operators: Any) -> None:
    case = Convolution(SHAPES[0], torch.float32)
    case.w[0] = torch.nan
    case.x[2, 0, :, 0] = torch.nan  # only some of the inputs of some pools
    y, _ = case.forward(operators)
    assert bool(torch.isnan(y[0, ..., : SHAPES[0].outputs]).all())
    assert bool(torch.isnan(y[2, 0, 0, 0, : SHAPES[0].outputs]).all())


def test_a_convolution_reads_a_part_of_a_wider_border() -> None:
    """Several convolutions read one output, whose border is that of the largest padding."""
    case = Convolution(SHAPES[3], torch.float32)
    wide = torch.zeros(CLIENTS, BATCH, *(side + extra for side, extra in zip(case.x.shape[2:], (4, 2, 0), strict=True)))
    wide = wide.to(DEVICE)
    case.x = twins.interior(wide, (case.x.shape[2], case.x.shape[3])).copy_(case.x)
    (y, kind), (found_y, _) = case.forward(twins), case.forward(KERNELS)
    assert_twins(found_y, y, case.y)
    dense, _ = case.spread(twins, kind)
    partial = case.weight_gradient(twins, dense).sum(dim=1)
    assert_twins(case.weight_gradient(KERNELS, dense).sum(dim=1), partial, nothing(*partial.shape))
    image, weight = (t[0].clone().requires_grad_() for t in (case.images, case.weight))
    expected = functional.conv2d(image, weight, case.bias[0], padding=case.shape.padding)
    expected = functional.max_pool2d(expected, 2).relu()
    torch.testing.assert_close(y[0, ..., : case.shape.outputs].permute(0, 3, 1, 2), expected, **COARSE)


@pytest.mark.parametrize("shape", [SHAPES[4], SHAPES[8]], ids=name_of)
def test_the_gradient_of_an_input_is_added_to_that_by_others(shape: ConvolutionShape) -> None:
    case = Convolution(shape, torch.float32)
    _, kind = case.forward(twins)
    dense, _ = case.spread(twins, kind)
    other, alone = random(*case.empty_input_gradient().shape), case.input_gradient(twins, dense)
    for operators in (twins, KERNELS):
        dx = case.empty_input_gradient()
        operators.input_gradient(shape, pace(), dense, case.w, dx, other)
        torch.testing.assert_close(others(dx), others(alone + other), **COARSE)
        if operators is KERNELS:
            assert bool(torch.isnan(dx[ALONE]).all())


@pytest.mark.parametrize("relu", [True, False], ids=["relu", "plain"])
@pytest.mark.parametrize("shape", [(5, 4, 16), (3, 7, 48), (1, 1, 144)], ids=lambda shape: "x".join(map(str, shape)))
def test_the_kernel_of_sums_agrees_with_its_twin(shape: tuple[int, int, int], relu: bool) -> None:
    """Each operand within a border of its own."""
    rows, columns, channels = shape

    def bordered(down: int, right: int) -> Tensor:
        return random(CLIENTS, BATCH, rows + 2 * down, columns + 2 * right, channels)

    a, b, shown = (twins.interior(bordered(*border), (rows, columns)) for border in ((1, 2), (0, 0), (2, 0)))
    a[0, 0, 0, 0, 0] = torch.nan
    for second, mask in ((b, None), (b, shown), (None, shown)):
        found = []
        for operators in (twins, KERNELS):
            y = torch.full_like(bordered(1, 0), 7.0)
            operators.add(pace(), a, second, twins.interior(y, (rows, columns)), relu=relu, shown=mask)
            found.append(y)
        expected = a if second is None else a + second
        expected = expected.relu() if relu else expected
        expected = expected if mask is None else torch.where(mask > 0, expected, 0.0)
        inside = [twins.interior(y, (rows, columns)) for y in found]
        for one in inside:
            torch.testing.assert_close(others(one), others(expected), rtol=0, atol=0, equal_nan=True)
        assert bool((found[1][ALONE] == 7.0).all())
        assert bool((found[1][:, :, [0, -1]] == 7.0).all()), "the border stays"


# --- Linear layers ----------------------------------------------------------------------------------------------------

LINEAR = [(16, 5, 4), (48, 16, 20), (80, 70, 3), (144, 33, 70)]  # inputs, outputs, samples
every_linear = pytest.mark.parametrize(("inputs", "outputs", "batch"), LINEAR)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "plain"])
@every_linear
def test_twins_and_kernels_of_linear_layers_agree_with_autograd(
    inputs: int, outputs: int, batch: int, bias: bool
) -> None:
    for relu, dtype, operators in ((True, torch.float64, twins), (False, torch.float32, KERNELS)):
        _linear(LinearShape(inputs, outputs, bias, relu), batch, dtype, operators)
        _linear(LinearShape(inputs, outputs, bias, not relu), batch, dtype, operators)


def _linear(shape: LinearShape, batch: int, dtype: torch.dtype, operators: Any) -> None:
    """Forward and backward, against autograd; the kernels write more of their buffers than the twins."""
    close = FINE if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    layer = LinearLayer(shape, "w", "b" if shape.bias else None, None)
    names = {"w": (shape.outputs, shape.inputs), "b": (shape.outputs,)}
    if not shape.bias:
        del names["b"]
    layout = packing((layer,), names, operators, DEVICE)
    vectors = random(CLIENTS, len(layout.target), dtype=dtype)
    regions, packed = layout.regions[0], layout.pack(vectors)
    weight, bias = regions[0].of(packed), regions[1].of(packed) if shape.bias else None
    x = random(CLIENTS, batch, shape.inputs, dtype=dtype).relu()
    y = torch.zeros((CLIENTS, batch, shape.stored_outputs), dtype=dtype, device=DEVICE)
    y[..., : shape.outputs if operators is twins else None] = torch.nan
    empty = y.clone()
    operators.linear(shape, pace(), x, weight, bias, y)
    dy = random(*y.shape, dtype=dtype)
    dy[..., shape.outputs :] = 0
    dx, through = nothing(*x.shape, dtype=dtype), nothing(*x.shape, dtype=dtype)
    operators.linear_input_gradient(shape, pace(), dy, weight, None, dx)
    operators.linear_input_gradient(shape, pace(), dy, weight, x, through)
    corrected = direction(layout.size, layout.slots, has_offset=True, dtype=dtype)
    straight = direction(layout.size, layout.slots, has_offset=False, dtype=dtype)
    for one in (corrected, straight):
        operators.linear_weight_gradient(shape, pace(), x, dy, one, regions[0], regions[1] if shape.bias else None)
    for client in range(CLIENTS):
        if client == ALONE and operators is KERNELS:
            for poisoned in (dx, through, corrected.d, straight.d, corrected.squares):
                assert bool(torch.isnan(poisoned[client]).all())
            torch.testing.assert_close(y[client], empty[client], equal_nan=True)
            continue
        leaves = [x[client].clone().requires_grad_(), vectors[client].clone().requires_grad_()]
        matrix = leaves[1][: shape.outputs * shape.inputs].view(shape.outputs, shape.inputs)
        score = functional.linear(leaves[0], matrix, leaves[1][shape.outputs * shape.inputs :] if shape.bias else None)
        score.backward(dy[client, :, : shape.outputs])  # type: ignore[no-untyped-call]
        expected = score.relu() if shape.relu else score
        torch.testing.assert_close(y[client, :, : shape.outputs], expected, **close)
        assert not y[client, :, shape.outputs :].any()
        assert leaves[0].grad is not None
        assert leaves[1].grad is not None
        torch.testing.assert_close(dx[client], leaves[0].grad, **close)
        torch.testing.assert_close(through[client], leaves[0].grad * (x[client] > 0), **close)
        for one in (corrected, straight):
            gradient = one.scale[client] * leaves[1].grad + one.rho[client] * layout.unpack(one.w)[client]
            if one.offset is not None:
                gradient = gradient + layout.unpack(one.offset)[client]
            torch.testing.assert_close(layout.unpack(one.d)[client], gradient, **close)
            if operators is KERNELS:
                assert float(one.squares[client].sum()) == pytest.approx(float(gradient.square().sum()), rel=1e-4)


# --- Normalisation ----------------------------------------------------------------------------------------------------

NORMS = {
    "one group": NormShape(16, 4, 5, 1, 1e-5),
    "groups of eight": NormShape(32, 6, 6, 4, 1e-5, relu=True, pool=2),
    "groups that end anywhere": NormShape(20, 5, 3, 4, 1e-3, relu=True),
    "groups of three, odd pools": NormShape(6, 5, 7, 2, 1e-5, pool=2),
    "a group for each channel": NormShape(5, 4, 4, 5, 1e-5, relu=True, pool=2),
    "groups that no block can end with": NormShape(39, 2, 3, 3, 1e-5),
    "features": NormShape(33, 1, 1, 1, 1e-5, flat=True, relu=True),
    "groups of features": NormShape(24, 1, 1, 3, 1e-5, flat=True),
}
every_norm = pytest.mark.parametrize("shape", NORMS.values(), ids=NORMS)


class Norm:
    """A normalisation's buffers, filled with numbers that plain torch has as well."""

    def __init__(self, shape: NormShape, parameters: str, dtype: torch.dtype, border: tuple[int, int] = (0, 0)) -> None:
        self.shape, self.dtype = shape, dtype
        self.x = 3 + 2 * random(CLIENTS, BATCH, shape.height, shape.width, shape.stored, dtype=dtype)
        self.dy = random(CLIENTS, BATCH, *shape.pooled, shape.stored, dtype=dtype)
        both = random(2, CLIENTS, shape.stored, dtype=dtype)
        for padding in (self.x, self.dy, both):
            padding[..., shape.channels :] = 0.0
        self.weight = None if parameters == "none" else both[0]
        self.bias = both[1] if parameters == "both" else None
        rows, columns = shape.pooled
        self.y = torch.zeros((CLIENTS, BATCH, rows + 2 * border[0], columns + 2 * border[1], shape.stored), dtype=dtype)
        self.y = self.y.to(DEVICE)
        twins.interior(self.y, shape.pooled)[..., : shape.channels] = torch.nan

    def forward(self, operators: Any) -> tuple[Tensor, Tensor, Tensor]:
        means, inverses = (nothing(CLIENTS, BATCH, self.shape.groups, dtype=self.dtype) for _ in range(2))
        y = self.y.clone()
        operators.normalise(self.shape, pace(), self.x, self.weight, self.bias, y, means, inverses)
        return y, means, inverses

    def empty_gradients(self, operators: Any) -> tuple[Tensor, Tensor, Tensor]:
        dx, parts = torch.zeros_like(self.x), operators.norm_parts(self.shape, BATCH)
        partial = torch.zeros((CLIENTS, parts, self.shape.stored), dtype=self.dtype, device=DEVICE)
        for own in (dx, partial):
            own[..., : self.shape.channels] = torch.nan
        return dx, partial, partial.clone()

    def backward(
        self, operators: Any, means: Tensor, inverses: Tensor, *, first: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        dx, of_weight, of_bias = self.empty_gradients(operators)
        operators.normalise_gradients(
            self.shape, pace(), self.x, self.dy, self.weight, self.bias, means, inverses,
            None if first else dx, of_weight, of_bias,
        )  # fmt: skip
        return dx, of_weight, of_bias


@pytest.mark.parametrize("parameters", ["none", "weight", "both"])
@every_norm
def test_twins_of_normalisation_agree_with_autograd(shape: NormShape, parameters: str) -> None:
    case = Norm(shape, parameters, torch.float64, border=(1, 2))
    y, means, inverses = case.forward(twins)
    dx, of_weight, of_bias = case.backward(twins, means, inverses)
    real = slice(shape.channels)
    for client in range(CLIENTS):
        image = case.x[client, ..., real].permute(0, 3, 1, 2).clone().requires_grad_()
        weight, bias = own = [
            None if p is None else p[client, real].clone().requires_grad_() for p in (case.weight, case.bias)
        ]
        expected = functional.max_pool2d(
            functional.group_norm(image, shape.groups, weight, bias, shape.eps), shape.pool
        )
        expected = expected.relu() if shape.relu else expected
        inside = twins.interior(y, shape.pooled)[client, ..., real]
        torch.testing.assert_close(inside.permute(0, 3, 1, 2), expected, **FINE)
        expected.backward(case.dy[client, ..., real].permute(0, 3, 1, 2))  # type: ignore[no-untyped-call]
        assert image.grad is not None
        torch.testing.assert_close(dx[client, ..., real].permute(0, 3, 1, 2), image.grad, **FINE)
        for parameter, partial in zip(own, (of_weight, of_bias), strict=True):
            if parameter is not None:
                assert parameter.grad is not None
                torch.testing.assert_close(partial[client, :, real].sum(dim=0), parameter.grad, **FINE)
    for padding in (y, dx, of_weight, of_bias):
        assert not padding[..., shape.channels :].any(), "padding stays zero"
    assert float(y.abs().sum()) == pytest.approx(float(twins.interior(y, shape.pooled).abs().sum())), "so does a border"


@pytest.mark.parametrize(("parameters", "pieces"), [("both", False), ("both", True), ("weight", False), ("none", True)])
@every_norm
def test_kernels_of_normalisation_agree_with_their_twins(
    shape: NormShape, parameters: str, pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pieces:  # of images, and parts of two images
        monkeypatch.setattr(normalisation, "_MOST", 256)
        monkeypatch.setattr(normalisation, "_PIECE", 256)
        monkeypatch.setattr(normalisation, "_MOST_IMAGES", 2)
        assert normalisation.norm_parts(shape, BATCH) == 3
    case = Norm(shape, parameters, torch.float32, border=(1, 2))
    expected = case.forward(twins)
    for mine, own, poison in zip(
        case.forward(KERNELS), expected, (case.y, *(nothing(*own.shape) for own in expected[1:])), strict=True
    ):
        assert_twins(mine, own, poison)
    gradients, poisons = case.backward(twins, *expected[1:]), case.empty_gradients(KERNELS)
    found = case.backward(KERNELS, *expected[1:])
    assert_twins(found[0], gradients[0], poisons[0])
    for place in (1, 2):
        assert_twins(found[place].sum(dim=1), gradients[place].sum(dim=1), poisons[place].sum(dim=1))
    first = case.backward(KERNELS, *expected[1:], first=True)
    torch.testing.assert_close(first[0], poisons[0], equal_nan=True)
    assert torch.equal(others(first[1]), others(found[1]))


@pytest.mark.parametrize("operators", [twins, KERNELS], ids=["twins", "kernels"])
def test_a_divergence_isnt_hidden_by_normalisation(operators: Any) -> None:
    case = Norm(NORMS["groups of eight"], "both", torch.float32)
    case.x[2, 1, 3, 3, 9] = torch.nan
    y, _, _ = case.forward(operators)
    assert bool(torch.isnan(y[2, 1, ..., 8:16]).all())
    assert not torch.isnan(y[2, 1, ..., :8]).any()


@every_norm
def test_the_programs_of_a_normalisation_have_each_group_once(shape: NormShape) -> None:
    cut = normalisation._cut(shape)
    assert cut.units * cut.groups >= shape.groups > (cut.units - 1) * cut.groups
    assert cut.channels >= cut.unit >= min(cut.groups, shape.groups) * shape.group
    assert cut.unit * cut.units >= shape.channels


# --- Pooling ----------------------------------------------------------------------------------------------------------

POOLS = {
    "mean of the image": PoolShape(20, 6, 5, (6, 5), (6, 5), mean=True),
    "means of parts": PoolShape(16, 6, 5, (2, 2), (2, 2), mean=True),
    "means that overlap, with padding": PoolShape(5, 4, 5, (3, 2), (1, 1), (1, 1), mean=True),
    "means with gaps": PoolShape(70, 5, 4, (1, 2), (2, 3), mean=True),
    "largest of three": PoolShape(20, 7, 6, (3, 3), (3, 3), relu=True),
    "largest, overlapping, with padding": PoolShape(16, 6, 5, (3, 3), (2, 2), (1, 1), relu=True),
    "largest with gaps": PoolShape(5, 5, 7, (2, 1), (3, 2)),
}
every_pool = pytest.mark.parametrize("shape", POOLS.values(), ids=POOLS)


class Pool:
    """The buffers of pooling."""

    def __init__(self, shape: PoolShape, dtype: torch.dtype, border: tuple[int, int] = (0, 0)) -> None:
        self.shape, (rows, columns) = shape, shape.pooled
        self.x = random(CLIENTS, BATCH, shape.height, shape.width, shape.stored, dtype=dtype)
        self.dy = random(CLIENTS, BATCH, rows, columns, shape.stored, dtype=dtype)
        for padding in (self.x, self.dy):
            padding[..., shape.channels :] = 0.0
        self.y = torch.zeros((CLIENTS, BATCH, rows + 2 * border[0], columns + 2 * border[1], shape.stored), dtype=dtype)
        self.y = self.y.to(DEVICE)
        twins.interior(self.y, shape.pooled).fill_(torch.nan)
        self.kind = None if shape.mean else nothing(*self.dy.shape, dtype=torch.uint8)

    def forward(self, operators: Any) -> tuple[Tensor, Tensor | None]:
        y, kind = self.y.clone(), None if self.kind is None else self.kind.clone()
        operators.pool(self.shape, pace(), self.x, y, kind)
        return y, kind

    def backward(self, operators: Any, kind: Tensor | None) -> Tensor:
        dx = nothing(*self.x.shape, dtype=self.x.dtype)
        operators.pool_gradient(self.shape, pace(), self.dy, kind, dx)
        return dx


@every_pool
def test_twins_of_pooling_agree_with_autograd(shape: PoolShape) -> None:
    case = Pool(shape, torch.float64, border=(1, 2))
    y, kind = case.forward(twins)
    dx = case.backward(twins, kind)
    for client in range(CLIENTS):
        image = case.x[client].permute(0, 3, 1, 2).clone().requires_grad_()
        pooling = functional.avg_pool2d if shape.mean else functional.max_pool2d
        expected = pooling(image, shape.kernel, shape.stride, shape.padding)
        expected = expected.relu() if shape.relu else expected
        inside = twins.interior(y, shape.pooled)[client]
        torch.testing.assert_close(inside.permute(0, 3, 1, 2), expected, **FINE)
        expected.backward(case.dy[client].permute(0, 3, 1, 2))  # type: ignore[no-untyped-call]
        assert image.grad is not None
        # All inputs of padding are equal, and no gradient goes there.
        torch.testing.assert_close(dx[client].permute(0, 3, 1, 2), image.grad, **FINE)
    assert not y[..., shape.channels :].any(), "padding stays zero"
    assert not dx[..., shape.channels :].any(), "padding stays zero"
    assert float(y.abs().sum()) == pytest.approx(float(twins.interior(y, shape.pooled).abs().sum())), "so does a border"


@every_pool
def test_kernels_of_pooling_agree_with_their_twins(shape: PoolShape) -> None:
    case = Pool(shape, torch.float32, border=(1, 2))
    (y, kind), (found_y, found_kind) = case.forward(twins), case.forward(KERNELS)
    assert_twins(found_y, y, case.y)
    if kind is not None and found_kind is not None and case.kind is not None:
        assert_twins(found_kind, kind, case.kind)
    assert_twins(case.backward(KERNELS, kind), case.backward(twins, kind), nothing(*case.x.shape))


@pytest.mark.parametrize("operators", [twins, KERNELS], ids=["twins", "kernels"])
def test_a_divergence_isnt_hidden_by_pooling_over_any_windows(operators: Any) -> None:
    for shape in POOLS.values():
        case = Pool(shape, torch.float32)
        case.x[2, 1, 0, 0, 3] = torch.nan
        y, _ = case.forward(operators)
        assert bool(torch.isnan(y[2, 1, 0, 0, 3]))
        assert int(torch.isnan(y[2]).sum()) <= shape.taps


# --- Corrections and updates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_offset", [True, False])
def test_the_kernel_of_folding_agrees_with_its_twin(has_offset: bool) -> None:
    weight, bias = Region(64, 1500, 1), Region(1600, 48, 3)
    mine = direction(1700, 5, has_offset=has_offset)
    twin = fresh(mine)
    partial, of_bias = random(CLIENTS, 3, weight.size), random(CLIENTS, 2, bias.size)
    KERNELS.fold(mine, pace(), weight, partial, bias, of_bias)
    twins.fold(twin, pace(), weight, partial, bias, of_bias)
    for region, first, last in ((weight, 1, 3), (bias, 3, 4)):
        own = region.of(twin.d)
        assert_twins(region.of(mine.d), own, nothing(*own.shape))
        squares = others(mine.squares[:, first:last]).sum(dim=1)
        torch.testing.assert_close(squares, others(own).square().sum(dim=1), **COARSE)
    untouched = torch.ones(1700, dtype=torch.bool)
    untouched[64:1564] = untouched[1600:1648] = False
    assert bool(torch.isnan(mine.d[:, untouched.to(DEVICE)]).all())
    assert bool(torch.isnan(mine.squares[:, [0, 4]]).all())
    by_hand = mine.scale[0] * partial[0].sum(dim=0) + mine.rho[0] * mine.w[0, 64:1564]
    by_hand = by_hand + mine.offset[0, 64:1564] if mine.offset is not None else by_hand
    torch.testing.assert_close(twin.d[0, 64:1564], by_hand, **COARSE)


def test_correcting_a_gradient_that_doesnt_lie_in_a_row() -> None:
    region, mine = Region(0, 40, 0), direction(64, 1, has_offset=True)
    twin, gradient = fresh(mine), random(40, CLIENTS).T
    KERNELS.correct(mine, pace(), region, gradient)
    twins.correct(twin, pace(), region, gradient)
    assert_twins(region.of(mine.d), region.of(twin.d), nothing(CLIENTS, 40))


@pytest.mark.parametrize("operators", [twins, KERNELS], ids=["twins", "kernels"])
@pytest.mark.parametrize("half", [False, True], ids=["full", "half"])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # the interpreter's NumPy on ∞ / ∞
def test_updates_are_those_of_the_local_step(operators: Any, half: bool) -> None:
    size = 5000  # more than one block
    for clip, huge in ((1.0, False), (1e6, False), (torch.inf, False), (1.0, True), (torch.inf, True)):
        whole = direction(size, 7, has_offset=False)
        whole.d.copy_(random(CLIENTS, size) * (1e30 if huge else 1.0))
        whole.squares.copy_((whole.d.square().sum(dim=1, keepdim=True) / 7).expand(-1, 7))
        rates = Rates(*(torch.full((CLIENTS,), value, device=DEVICE) for value in (0.1, clip, 0.01)))
        before, copied = whole.w.clone(), random(CLIENTS, size).to(torch.bfloat16)
        copied[ALONE] = before[ALONE]
        operators.update(whole, pace(), rates, copied if half else whole.w)
        norm = torch.linalg.vector_norm(whole.d.double(), dim=1, keepdim=True)
        factor = (clip / norm).clamp(max=1.0)
        if huge and clip == 1.0:  # its square is no number in float32
            factor = torch.full_like(factor, torch.nan)
        expected = (before - 0.1 * (factor * whole.d.double() + 0.01 * before)).float()
        expected[ALONE] = before[ALONE]
        torch.testing.assert_close(whole.w, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
        if half:
            # The interpreter cuts bits off where a GPU rounds.
            torch.testing.assert_close(copied.float(), whole.w, rtol=2**-7, atol=0, equal_nan=True)


def extended(mine: Direction) -> Direction:
    """A direction with everything there can be; one client sums its directions up."""
    size, momentum = mine.d.shape[1], torch.tensor([1.0, 0.7, 0.4], device=DEVICE)
    diagonal, minus, velocity = (random(CLIENTS, size) for _ in range(3))
    return replace(mine, diagonal=diagonal, minus=minus, momentum=momentum, velocity=velocity)


def copied_buffers(buffers: Any) -> Any:
    return replace(buffers, **{name: own.clone() for name, own in vars(buffers).items() if own is not None})


def test_the_kernel_of_folding_knows_everything_there_can_be() -> None:
    weight, bias = Region(64, 1500, 1), Region(1600, 48, 3)
    mine = extended(direction(1700, 5, has_offset=True))
    twin = fresh(mine)
    partial, of_bias = random(CLIENTS, 3, weight.size), random(CLIENTS, 2, bias.size)
    KERNELS.fold(mine, pace(), weight, partial, bias, of_bias)
    twins.fold(twin, pace(), weight, partial, bias, of_bias)
    for region in (weight, bias):
        own = region.of(twin.d)
        assert_twins(region.of(mine.d), own, nothing(*own.shape))
    assert mine.minus is not None
    assert mine.diagonal is not None
    assert mine.offset is not None
    assert mine.velocity is not None
    for client, share in ((0, 1.0), (2, 0.0)):
        gradient = partial[client].sum(dim=0) - mine.minus[client, 64:1564]
        by_hand = mine.scale[client] * mine.diagonal[client, 64:1564] * gradient + mine.offset[client, 64:1564]
        by_hand += mine.rho[client] * mine.w[client, 64:1564] + share * mine.velocity[client, 64:1564]
        torch.testing.assert_close(twin.d[client, 64:1564], by_hand, **COARSE)


@pytest.mark.parametrize("bias", [True, False])
def test_the_gradient_of_a_linear_layer_knows_everything_there_can_be(bias: bool) -> None:
    shape = LinearShape(48, 20, bias)
    regions = (Region(0, 960, 0), Region(960, 32, KERNELS.linear_slots(shape)[0]) if bias else None)
    mine = extended(direction(1024, sum(KERNELS.linear_slots(shape)), has_offset=True))
    twin = fresh(mine)
    x, dy = random(CLIENTS, BATCH, 48), random(CLIENTS, BATCH, shape.stored_outputs)
    for operators, own in ((KERNELS, mine), (twins, twin)):
        operators.linear_weight_gradient(shape, pace(), x, dy, own, *regions)
    size = 960 + 20 * bias
    assert_twins(mine.d[:, :size], twin.d[:, :size], nothing(CLIENTS, size))


@pytest.mark.parametrize("half", [False, True], ids=["full", "half"])
@pytest.mark.parametrize(
    ("momentum", "previous", "adam"),
    [(True, False, False), (False, True, False), (False, False, True), (True, True, True)],
)
def test_the_kernel_of_whole_updates_agrees_with_its_twin(
    momentum: bool, previous: bool, adam: bool, half: bool
) -> None:
    size = 5000
    mine = direction(size, 7, has_offset=False)
    mine.d.copy_(random(CLIENTS, size))
    mine.squares.copy_((mine.d.square().sum(dim=1, keepdim=True) / 7).expand(-1, 7))
    if momentum:
        mine = replace(extended(mine), diagonal=None, minus=None)
    rates = Rates(*(torch.full((CLIENTS,), value, device=DEVICE) for value in (0.1, 20.0, 0.01)))
    numbers = (torch.full((CLIENTS,), value, device=DEVICE) for value in (0.9, 0.99, 1e-3, 0.2, 0.03))
    moments = Moments(random(CLIENTS, size), random(CLIENTS, size).square(), *numbers)
    outcomes = []
    for operators in (KERNELS, twins):
        own, of_adam = copied_buffers(mine), copied_buffers(moments)
        copied = own.w.to(torch.bfloat16) if half else own.w
        before = torch.zeros_like(copied)
        operators.whole_update(own, pace(), rates, copied, before if previous else None, of_adam if adam else None)
        outcomes.append(
            [own.w, copied, before, of_adam.first, of_adam.second, own.d if own.velocity is None else own.velocity]
        )
    for found, expected in zip(*outcomes, strict=True):
        # The interpreter cuts bits off where a GPU rounds.
        close = {"rtol": 2**-7, "atol": 1e-5} if found.dtype == torch.bfloat16 else COARSE
        torch.testing.assert_close(others(found), others(expected), **close)
    assert torch.equal(outcomes[0][0][ALONE], mine.w[ALONE])
    assert torch.equal(outcomes[0][3][ALONE], moments.first[ALONE])


@pytest.mark.parametrize("half", [False, True], ids=["full", "half"])
@pytest.mark.parametrize(("shifted", "radius"), [(True, False), (False, True), (True, True)])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_the_kernel_of_displacing_agrees_with_its_twin(shifted: bool, radius: bool, half: bool) -> None:
    size = 5000
    mine = direction(size, 7, has_offset=False)
    mine.d.copy_(random(CLIENTS, size))
    mine.d[2] = 0.0  # no direction
    mine.squares.copy_((mine.d.square().sum(dim=1, keepdim=True) / 7).expand(-1, 7))
    shift = random(CLIENTS, size) if shifted else None
    lengths = torch.tensor([2.0, 1.0, 3.0], device=DEVICE) if radius else None
    found = nothing(CLIENTS, size, dtype=torch.bfloat16 if half else torch.float32)
    expected = found.clone()
    KERNELS.displace(mine, pace(), shift, lengths, found)
    twins.displace(mine, pace(), shift, lengths, expected)
    close = {"rtol": 2**-7, "atol": 1e-5} if half else COARSE
    torch.testing.assert_close(others(found), others(expected), **close)
    assert bool(torch.isnan(found[ALONE]).all())
    if shift is None:
        torch.testing.assert_close(found[2], mine.w[2].to(found.dtype), **close)


@pytest.mark.parametrize(("parts", "model"), [("all", "mlp,hidden=9x5"), ("sarah", "mixed")])
def test_whole_steps_with_the_kernels_agree_with_the_reference(
    parts: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "operators", lambda *_args, **_options: KERNELS)
    case = Case(
        odd_models.make(model) if model in odd_models.MODELS else model,
        odd_models.INPUT,
        dtype=torch.float32,
        options=(("epochs", 1), ("batch_size", 20), ("device", DEVICE)),
    )
    adam = Adam(eps=1e-2) if parts == "all" else None
    training = LocalTraining(clip=0.3, weight_decay=0.01, learning_rate=0.05, optimizer=adam)
    algorithm = Extended(parts=PARTS[parts])
    mine, truth = (simulate(algorithm, case, engine, training) for engine in (StackedEngine, ReferenceEngine))
    task: Any = truth._task
    cohort = np.array(sorted(range(8), key=task.steps)[:2])
    for simulation in (mine, truth):
        simulation.step(cohort=cohort)
        simulation.step(cohort=cohort[1:])
    assert distance(mine, truth) < 1e-4


def test_lanes_of_all_kinds_have_the_bits_of_single_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps with other parts side by side: each has kernels of its own kind."""
    monkeypatch.setattr(trainer, "operators", lambda *_args, **_options: KERNELS)
    options: Any = (("epochs", 1), ("batch_size", 8), ("local_steps", 2), ("device", DEVICE))
    case = Case("logistic", (5,), dtype=torch.float32, kind="logistic", options=options)
    adam = LocalTraining(clip=0.3, learning_rate=0.05, optimizer=Adam())
    runs = [
        (AdaBest(), None),
        (Extended(parts=("radius", "momentum")), None),
        (AdaBest(), adam),
        (Extended(parts=("radius", "momentum")), None),
    ]
    alone, together = ([simulate(algorithm, case, StackedEngine, own) for algorithm, own in runs] for _ in range(2))
    for simulation in alone:
        simulation.step()
    advance_together([simulation.round() for simulation in together], StackedEngine(no_heartbeat))
    for mine, its in zip(together, alone, strict=True):
        assert_same(mine.snapshot(), its.snapshot())


# --- Batches and losses -----------------------------------------------------------------------------------------------


def make_source(inputs: Tensor, *, augmented: bool, classes: int = 5) -> Source:
    channels = inputs.shape[1] if inputs.ndim == 4 else 1
    keys = (torch.arange(CLIENTS), torch.arange(CLIENTS) + 10, torch.arange(CLIENTS) + 20)
    return Source(
        inputs=inputs.to(DEVICE),
        labels=(torch.arange(len(inputs)) % classes).to(DEVICE),
        mean=random(channels),
        deviation=torch.rand(channels).to(DEVICE) + 0.5,
        chosen=torch.randint(len(inputs), (2, CLIENTS, BATCH), dtype=torch.int32).to(DEVICE),
        flip_crop_codes=flip_crop_codes(keys, 2, BATCH).to(DEVICE) if augmented else None,
    )


def with_missing(source: Source) -> Source:
    """Batches of two, all and one of their samples; the mean of the first is over more than it has."""
    chosen = source.chosen.clone()
    chosen[:, 0, 2:] = chosen[:, 2, 1:] = MISSING
    counts = torch.tensor([[9, 9, 9], [7, BATCH, 1]], dtype=torch.int32, device=DEVICE)
    return replace(source, chosen=chosen, counts=counts)


INPUTS = {
    "flat image": flat(3, 5, 7),
    "unfolded": unfolded_or_not(ConvolutionShape(3, 5, 7, 5, (2, 3), padding=(0, 2), unfolded=True)),
    "unfolded, one channel": unfolded_or_not(ConvolutionShape(1, 9, 9, 5, (3, 3), padding=(1, 1), unfolded=True)),
    "unfolded, strided": unfolded_or_not(
        ConvolutionShape(3, 7, 8, 5, (3, 3), padding=(1, 1), unfolded=True, stride=(2, 2))
    ),
    "plain": unfolded_or_not(ConvolutionShape(17, 4, 5, 5, (3, 3), padding=(1, 1))),
}


@pytest.mark.parametrize("missing", [True, False], ids=["missing", "full"])
@pytest.mark.parametrize("augmented", [True, False], ids=["augmented", "plain"])
@pytest.mark.parametrize("floating", [True, False], ids=["floats", "bytes"])
@pytest.mark.parametrize("name", INPUTS)
def test_the_kernel_of_gathering_agrees_with_its_twin(
    name: str, floating: bool, augmented: bool, missing: bool
) -> None:
    shape = INPUTS[name]
    images = torch.randint(0, 256, (9, shape.channels, shape.height, shape.width), dtype=torch.uint8)
    source = make_source(images.float() / 9 if floating else images, augmented=augmented)
    source = with_missing(source) if missing else source
    expected = torch.zeros((CLIENTS, BATCH, *shape.stored), device=DEVICE)
    twins.gather(shape, source, pace(), expected)
    found = nothing(*expected.shape)
    KERNELS.gather(shape, source, pace(), found)
    assert_twins(found, expected, nothing(*expected.shape))


@pytest.mark.parametrize("augmented", [True, False], ids=["augmented", "plain"])
def test_the_twin_of_gathering_agrees_with_the_augmentation(augmented: bool) -> None:
    images = torch.randint(0, 256, (9, 3, 11, 9), dtype=torch.uint8)
    source = make_source(images, augmented=augmented)
    shape = unfolded_or_not(ConvolutionShape(3, 11, 9, 5, (3, 3), padding=(1, 1), unfolded=True))
    found = torch.zeros((CLIENTS, BATCH, *shape.stored), device=DEVICE)
    twins.gather(shape, source, pace(), found)
    plain = (images[source.chosen[1].cpu().long()] - source.mean.cpu().view(-1, 1, 1)) / source.deviation.cpu().view(
        -1, 1, 1
    )
    if augmented:
        words = [(torch.arange(CLIENTS) + 10 * place)[:, None] for place in range(3)]
        plain = flip_crop(plain, bits(words[0], Purpose.AUGMENTATION, *words[1:], 1, torch.arange(BATCH)))
    runs = functional.unfold(plain.flatten(0, 1), 3, padding=1).view(-1, 3, 3, 3, 11, 9)  # channel, row, column of taps
    run = runs[:, :, 1].permute(0, 3, 4, 2, 1).flatten(3)  # the row of the pixel itself
    torch.testing.assert_close(found.flatten(0, 1)[:, 1:-1, :, :9].cpu(), run, **COARSE)
    assert not found[..., 9:].any()
    assert not found[:, :, [0, -1]].any()


@pytest.mark.parametrize("classes", [2, 5, 16, 70])
def test_the_kernel_of_cross_entropy_agrees_with_its_twin(classes: int) -> None:
    source = make_source(torch.zeros(9, 3), augmented=False, classes=classes)
    stored = padded(classes)
    scores = 5 * random(CLIENTS, BATCH, stored)  # whatever is in the padding
    outcomes = []
    for operators in (twins, KERNELS):
        dy = torch.zeros_like(scores)
        dy[..., : classes if operators is twins else None] = torch.nan
        losses, right = nothing(2, CLIENTS, BATCH), nothing(2, CLIENTS, BATCH, dtype=torch.uint8)
        operators.cross_entropy(source, pace(), scores, classes, dy, losses, right)
        assert bool(torch.isnan(losses[0]).all()), "only the current step is written"
        assert bool((right[0] == 77).all())
        outcomes.append((dy, losses[1], right[1]))
    for expected, found in zip(*outcomes, strict=True):
        poison = torch.full_like(found, 77 if found.dtype == torch.uint8 else torch.nan)
        assert_twins(found, expected, poison)
    own = scores[..., :classes].double().requires_grad_()
    labels = source.labels[source.chosen[1].long()]
    plain = functional.cross_entropy(own.flatten(0, 1), labels.flatten(), reduction="none").view(CLIENTS, BATCH)
    plain.mean(dim=1).sum().backward()  # type: ignore[no-untyped-call]
    assert own.grad is not None
    dy, losses, right = outcomes[0]
    torch.testing.assert_close(dy[..., :classes].double(), own.grad, **COARSE)
    assert not dy[..., classes:].any()
    torch.testing.assert_close(losses.double(), plain.detach(), **COARSE)
    assert torch.equal(right.bool(), own.argmax(dim=-1) == labels)


@pytest.mark.parametrize("classes", [2, 5, 70])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # the interpreter's NumPy on what isn't a number
def test_missing_samples_count_for_nothing_in_the_cross_entropy(classes: int) -> None:
    source = with_missing(make_source(torch.zeros(9, 3), augmented=False, classes=classes))
    scores = 5 * random(CLIENTS, BATCH, padded(classes))
    scores[0, 4] = torch.nan  # of a missing sample
    outcomes = []
    for operators in (twins, KERNELS):
        dy, losses = torch.zeros_like(scores), nothing(2, CLIENTS, BATCH)
        right = nothing(2, CLIENTS, BATCH, dtype=torch.uint8)
        operators.cross_entropy(source, pace(), scores, classes, dy, losses, right)
        outcomes.append((dy, losses[1], right[1]))
    for expected, found in zip(*outcomes, strict=True):
        torch.testing.assert_close(others(found), others(expected), **COARSE)
    dy, losses, right = outcomes[0]
    assert source.counts is not None
    for client, there in ((0, 2), (2, 1)):
        assert not dy[client, there:].any()
        assert not losses[client, there:].any()
        assert not right[client, there:].any()
        own = scores[client, :there, :classes].double().requires_grad_()
        labels = source.labels[source.chosen[1, client, :there].long()]
        plain = functional.cross_entropy(own, labels, reduction="none")
        (plain.sum() / source.counts[1, client]).backward()  # type: ignore[no-untyped-call]
        torch.testing.assert_close(dy[client, :there, :classes].double(), own.grad, **COARSE)
        torch.testing.assert_close(losses[client, :there].double(), plain.detach(), **COARSE)


# --- All of them together ---------------------------------------------------------------------------------------------


SHORTCUTS = ["shortcuts", "shortcuts of features", "pooled shortcuts"]


@pytest.mark.parametrize(
    "model", ["mlp,hidden=9x5", "mixed", "strided at the end", "group norms", "layer norms", "pools", *SHORTCUTS]
)
def test_a_round_with_the_kernels_agrees_with_the_reference(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing, slots, borders and clips fit together: two clients with different numbers of steps."""
    monkeypatch.setattr(trainer, "operators", lambda *_args, **_options: KERNELS)
    case = Case(
        odd_models.make(model) if model in odd_models.MODELS else model,
        odd_models.INPUT,
        dtype=torch.float32,
        augmentation=flip_crop,
        options=(("epochs", 1), ("device", DEVICE)),
    )
    training = LocalTraining(clip=0.3, weight_decay=0.01)
    mine, truth = (simulate(AdaBest(mu=0.5), case, engine, training) for engine in (StackedEngine, ReferenceEngine))
    task: Any = truth._task
    cohort = np.array(sorted(range(8), key=task.steps)[:2])
    for simulation in (mine, truth):
        simulation.step(cohort=cohort)
        simulation.step(cohort=cohort[1:])
    assert distance(mine, truth) < 1e-5


@pytest.mark.parametrize("model", ["mlp,hidden=9x5", "mixed"])
def test_full_gradients_with_the_kernels_agree_with_the_reference(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of gradients and short batches in turn, which share their buffers."""
    monkeypatch.setattr(trainer, "operators", lambda *_args, **_options: KERNELS)
    case = Case(
        odd_models.make(model) if model in odd_models.MODELS else model,
        odd_models.INPUT,
        dtype=torch.float32,
        augmentation=flip_crop,
        options=(("epochs", 1), ("device", DEVICE), ("batching", "short")),
    )
    mine, truth = (simulate(FedDane(), case, engine) for engine in (StackedEngine, ReferenceEngine))
    task: Any = truth._task
    cohort = np.array(sorted(range(8), key=task.steps)[:2])
    for simulation in (mine, truth):
        simulation.step(cohort=cohort)
        simulation.step(cohort=cohort[1:])
    assert distance(mine, truth) < 1e-5


NORMED = nn.Sequential(
    nn.Conv2d(1, 6, 2),
    nn.GroupNorm(2, 6),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(6, 5),
    nn.LayerNorm(5),
    nn.Linear(5, 3),
)


@pytest.mark.parametrize("model", ["mlp,hidden=5", NORMED, "shortcuts of features"], ids=["mlp", "norms", "shortcuts"])
def test_lanes_have_the_bits_of_single_runs(model: str | nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short batches and full gradients of two runs side by side, each client with blocks of its own."""
    monkeypatch.setattr(trainer, "operators", lambda *_args, **_options: KERNELS)
    options: Any = (("epochs", 1), ("device", DEVICE), ("batching", "short"))
    cases = [
        Case(
            odd_models.make(model) if model in odd_models.MODELS else model,
            odd_models.INPUT if model in odd_models.MODELS else (1, 3, 3),
            dtype=torch.float32,
            seed=seed,
            kind=str(model),
            options=options,
        )
        for seed in (0, 1)
    ]
    alone = [simulate(FedDane(), case, StackedEngine) for case in cases]
    for simulation in alone:
        simulation.step()
    together = [simulate(FedDane(), case, StackedEngine) for case in cases]
    advance_together([simulation.round() for simulation in together], StackedEngine(no_heartbeat))
    for mine, its in zip(together, alone, strict=True):
        assert torch.equal(mine.state.cloud, its.state.cloud)
        assert mine.state.local_steps == its.state.local_steps


# --- Tables -----------------------------------------------------------------------------------------------------------


def cohort_table(sizes: list[int], steps: list[int], *, partitions: int = 1) -> CohortTable:
    """Clients of several runs, with seeds, rounds and numbers of every size."""
    generator, clients = torch.Generator().manual_seed(1), len(sizes)
    starts = np.cumsum([0, *sizes[:-1]])
    indices = torch.randperm(sum(sizes), generator=generator)
    seeds = torch.tensor([0, -(2**63), 2**63 - 1, 12, -1] * clients)[:clients]
    rounds = torch.tensor([1, 7, 2**40] * clients)[:clients]
    return CohortTable(
        keys=(seeds.to(DEVICE), rounds.to(DEVICE), torch.randperm(clients, generator=generator).to(DEVICE)),
        steps=torch.tensor(steps).to(DEVICE),
        samples=torch.tensor(sizes).to(DEVICE),
        starts=torch.from_numpy(starts).to(DEVICE),
        indices=tuple(part.to(DEVICE) for part in indices.chunk(partitions)),
        host_steps=np.array(steps),
        host_samples=np.array(sizes),
    )


@pytest.mark.parametrize("batching", get_args(Batching))
@pytest.mark.parametrize(("batch", "partitions"), [(1, 1), (4, 3), (45, 1)])
def test_tables_of_samples(batch: int, partitions: int, batching: Batching) -> None:
    """Unequal clients, batches that need topping up, and steps that aren't whole epochs: the same to the last one."""
    sizes = [9, 1, 50, 8]
    steps = [5, 2, 5, 1]
    table = cohort_table(sizes, steps, partitions=partitions)
    expected = twins.chosen_samples(table, batch, batching)
    found = KERNELS.chosen_samples(table, batch, batching)
    for client, made in enumerate(steps):
        assert torch.equal(found[:made, client], expected[:made, client])
    assert found.shape == expected.shape == (max(steps), len(sizes), batch)
    assert bool((expected[: steps[0], 0] == MISSING).any()) == (batching == "short" and batch > 1)


@pytest.mark.parametrize(("batch", "partitions"), [(1, 1), (4, 3), (45, 1)])
def test_tables_of_all_samples(batch: int, partitions: int) -> None:
    sizes = [9, 1, 50, 8]
    table = cohort_table(sizes, [1, 1, 1, 1], partitions=partitions)
    found = all_samples(table, batch)
    assert found.dtype == torch.int32
    assert found.shape == (-(-50 // batch), 4, batch)
    own = torch.split(torch.cat(table.indices), sizes)
    for client, samples in enumerate(own):
        places = found[:, client].flatten()
        assert places[: len(samples)].tolist() == samples.tolist()
        assert bool((places[len(samples) :] == MISSING).all())


def test_tables_of_flips_and_crops() -> None:
    table = cohort_table([9, 3, 5, 8], [1, 2, 3, 4])
    for steps, batch in ((1, 1), (2, 45)):
        expected = twins.flip_crop_codes(table.keys, steps, batch)
        assert torch.equal(KERNELS.flip_crop_codes(table.keys, steps, batch), expected)
    assert len(set(twins.flip_crop_codes(table.keys, 30, 45).flatten().tolist())) == 2 * 81
