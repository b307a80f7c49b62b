"""Per-client normalisation as Triton kernels. The twins say what each computes; here is how.

A program has whole groups of an image, as a block of pixels × channels. It reads its inputs once from the device's
memory and keeps them in registers, unless there are more than ``_MOST``: then it reads them again, in pieces, from a
cache. In bfloat16 the least that must move is 4 bytes for each element forward, and 6 backward, and nothing else does:
what relu and pools have taken is found out anew from the inputs, which the gradients need anyway, so it isn't written
down.

Channels are taken 16 or more at a time where groups allow it, so that what a pixel adds is whole sectors of 32 bytes.
"""

import math
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from adabest.engine.gpu.kernels.buffers import Pace
from adabest.engine.gpu.kernels.convolution import better
from adabest.engine.gpu.kernels.launches import jit, launch
from adabest.engine.shapes import NormShape


@triton.jit
def _of_groups(sums, group, GROUPS: tl.constexpr):
    """The sum over the group of each channel. Channels that there aren't have zeros."""
    if GROUPS == 1:
        result = tl.zeros_like(sums) + tl.sum(sums, 0)
    else:
        result = tl.sum(tl.where(group[:, None] == group[None, :], sums[None, :], 0.0), 1)
    return result


@triton.jit
def _pixels(x, cell, position: tl.constexpr, channel, there, CELLS: tl.constexpr, ACROSS: tl.constexpr,
            HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STORED: tl.constexpr, POOL: tl.constexpr):  # fmt: skip
    """The inputs at one position of each cell, where they lie, and which of them there are.

    A cell is a pool, or the part of one that the image ends in.
    """
    row, column = (cell // ACROSS) * POOL + position // POOL, (cell % ACROSS) * POOL + position % POOL
    inside = ((cell < CELLS) & (row < HEIGHT) & (column < WIDTH))[:, None] & there[None, :]
    place = (row * WIDTH + column)[:, None] * STORED + channel[None, :]
    return tl.load(x + place, mask=inside, other=0.0).to(tl.float32), place, inside


@triton.jit
def _parameters(weight, bias, channel, real, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr):
    """Weight and bias of channels, in float32; zero for those that there aren't."""
    scale = tl.where(real, 1.0, 0.0)
    shift = tl.zeros_like(scale)
    if HAS_WEIGHT:
        scale = tl.load(weight + channel, mask=real, other=0.0).to(tl.float32)
    if HAS_BIAS:
        shift = tl.load(bias + channel, mask=real, other=0.0).to(tl.float32)
    return scale, shift


@jit
def _normalise(
    x, weight, bias, y, means, inverses, step, steps,
    weight_stride, bias_stride, eps,
    IMAGES: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, STORED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DOWN: tl.constexpr, RIGHT: tl.constexpr,
    GROUPS: tl.constexpr, GROUP: tl.constexpr, POOL: tl.constexpr, RELU: tl.constexpr,
    HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr,
    UNIT: tl.constexpr, GROUPS_OF_UNIT: tl.constexpr, BLOCK_CHANNELS: tl.constexpr, BLOCK_CELLS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    across: tl.constexpr = (WIDTH + POOL - 1) // POOL
    cells: tl.constexpr = across * ((HEIGHT + POOL - 1) // POOL)
    size: tl.constexpr = GROUP * HEIGHT * WIDTH
    image = client * IMAGES + tl.program_id(1)
    within = tl.arange(0, BLOCK_CHANNELS)
    channel = tl.program_id(0) * UNIT + within
    there, real = (within < UNIT) & (channel < STORED), (within < UNIT) & (channel < CHANNELS)
    group = tl.where(real, channel // GROUP, -1)
    inputs = x + image * (HEIGHT * WIDTH * STORED)
    sums = tl.zeros((BLOCK_CHANNELS,), tl.float32)
    for begin in range(0, cells, BLOCK_CELLS):
        cell = begin + tl.arange(0, BLOCK_CELLS)
        total = tl.zeros((BLOCK_CELLS, BLOCK_CHANNELS), tl.float32)
        for position in tl.static_range(POOL * POOL):
            value, _, _ = _pixels(inputs, cell, position, channel, there, cells, across, HEIGHT, WIDTH, STORED, POOL)
            total += value
        sums += tl.sum(total, 0)
    mean = _of_groups(tl.where(real, sums, 0.0), group, GROUPS_OF_UNIT) / size
    squares = tl.zeros((BLOCK_CHANNELS,), tl.float32)
    for begin in range(0, cells, BLOCK_CELLS):
        cell = begin + tl.arange(0, BLOCK_CELLS)
        total = tl.zeros((BLOCK_CELLS, BLOCK_CHANNELS), tl.float32)
        for position in tl.static_range(POOL * POOL):
            value, _, inside = _pixels(
                inputs, cell, position, channel, there, cells, across, HEIGHT, WIDTH, STORED, POOL
            )
            centred = tl.where(inside, value - mean[None, :], 0.0)
            total += centred * centred
        squares += tl.sum(total, 0)
    variance = _of_groups(tl.where(real, squares, 0.0), group, GROUPS_OF_UNIT) / size
    inverse = 1.0 / tl.sqrt(variance + eps)
    scale, shift = _parameters(
        weight + client * weight_stride, bias + client * bias_stride, channel, real, HAS_WEIGHT, HAS_BIAS
    )
    outputs = y + image * ((ROWS + 2 * DOWN) * (COLUMNS + 2 * RIGHT) * STORED)
    for begin in range(0, cells, BLOCK_CELLS):
        cell = begin + tl.arange(0, BLOCK_CELLS)
        value, _, _ = _pixels(inputs, cell, 0, channel, there, cells, across, HEIGHT, WIDTH, STORED, POOL)
        best = (value - mean[None, :]) * inverse[None, :] * scale[None, :] + shift[None, :]
        taken = tl.zeros((BLOCK_CELLS, BLOCK_CHANNELS), tl.int32)
        for position in tl.static_range(1, POOL * POOL):
            value, _, _ = _pixels(inputs, cell, position, channel, there, cells, across, HEIGHT, WIDTH, STORED, POOL)
            score = (value - mean[None, :]) * inverse[None, :] * scale[None, :] + shift[None, :]
            best, taken = better(best, taken, score, position)
        if RELU:
            best = tl.where(best < 0, 0.0, best)  # not a maximum, which would hide NaN
        row, column = cell // across, cell % across
        place = ((row + DOWN) * (COLUMNS + 2 * RIGHT) + column + RIGHT)[:, None] * STORED + channel[None, :]
        whole = ((row < ROWS) & (column < COLUMNS))[:, None] & there[None, :]
        tl.store(outputs + place, tl.where(real[None, :], best, 0.0).to(y.dtype.element_ty), mask=whole)
    # After all loads: the compiler keeps what was loaded no longer than until the first store.
    first = real & (channel % GROUP == 0)
    tl.store(means + image * GROUPS + channel // GROUP, mean, mask=first)
    tl.store(inverses + image * GROUPS + channel // GROUP, inverse, mask=first)


@triton.jit
def _routed(
    x, dy, cell, channel, there, mean, inverse, scale, shift,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, CELLS: tl.constexpr, ACROSS: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STORED: tl.constexpr, POOL: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """The gradient of each cell's output, and which of its inputs it goes to; 4 for none, where relu cut it off."""
    value, _, _ = _pixels(x, cell, 0, channel, there, CELLS, ACROSS, HEIGHT, WIDTH, STORED, POOL)
    best = (value - mean[None, :]) * inverse[None, :] * scale[None, :] + shift[None, :]
    taken = tl.zeros(best.shape, tl.int32)
    for position in tl.static_range(1, POOL * POOL):
        value, _, _ = _pixels(x, cell, position, channel, there, CELLS, ACROSS, HEIGHT, WIDTH, STORED, POOL)
        score = (value - mean[None, :]) * inverse[None, :] * scale[None, :] + shift[None, :]
        best, taken = better(best, taken, score, position)
    if RELU:
        taken = tl.where(best > 0, taken, 4)
    row, column = cell // ACROSS, cell % ACROSS
    whole = ((row < ROWS) & (column < COLUMNS))[:, None] & there[None, :]
    place = (row * COLUMNS + column)[:, None] * STORED + channel[None, :]
    return tl.load(dy + place, mask=whole, other=0.0).to(tl.float32), taken


@jit
def _gradients(
    x, dy, weight, bias, means, inverses, dx, of_weight, of_bias, step, steps,
    weight_stride, bias_stride,
    IMAGES: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, STORED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    GROUPS: tl.constexpr, GROUP: tl.constexpr, POOL: tl.constexpr, RELU: tl.constexpr,
    HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_DX: tl.constexpr, PART: tl.constexpr,
    UNIT: tl.constexpr, GROUPS_OF_UNIT: tl.constexpr, BLOCK_CHANNELS: tl.constexpr, BLOCK_CELLS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    across: tl.constexpr = (WIDTH + POOL - 1) // POOL
    cells: tl.constexpr = across * ((HEIGHT + POOL - 1) // POOL)
    size: tl.constexpr = GROUP * HEIGHT * WIDTH
    part = tl.program_id(1)
    within = tl.arange(0, BLOCK_CHANNELS)
    channel = tl.program_id(0) * UNIT + within
    there, real = (within < UNIT) & (channel < STORED), (within < UNIT) & (channel < CHANNELS)
    group = tl.where(real, channel // GROUP, -1)
    scale, shift = _parameters(
        weight + client * weight_stride, bias + client * bias_stride, channel, real, HAS_WEIGHT, HAS_BIAS
    )
    by_weight = tl.zeros((BLOCK_CHANNELS,), tl.float32)
    by_bias = tl.zeros((BLOCK_CHANNELS,), tl.float32)
    for number in range(part * PART, tl.minimum(IMAGES, part * PART + PART)):
        image = client * IMAGES + number
        if GROUPS_OF_UNIT == 1:  # one load instead of one for each channel
            mean = tl.zeros_like(shift) + tl.load(means + image * GROUPS + tl.program_id(0))
            inverse = tl.zeros_like(shift) + tl.load(inverses + image * GROUPS + tl.program_id(0))
        else:
            mean = tl.load(means + image * GROUPS + channel // GROUP, mask=real, other=0.0)
            inverse = tl.load(inverses + image * GROUPS + channel // GROUP, mask=real, other=0.0)
        inputs, gradients = x + image * (HEIGHT * WIDTH * STORED), dy + image * (ROWS * COLUMNS * STORED)
        along = tl.zeros((BLOCK_CHANNELS,), tl.float32)
        straight = tl.zeros((BLOCK_CHANNELS,), tl.float32)
        for begin in range(0, cells, BLOCK_CELLS):
            cell = begin + tl.arange(0, BLOCK_CELLS)
            gradient, taken = _routed(
                inputs, gradients, cell, channel, there, mean, inverse, scale, shift,
                ROWS, COLUMNS, cells, across, HEIGHT, WIDTH, STORED, POOL, RELU,
            )  # fmt: skip
            chosen = tl.zeros((BLOCK_CELLS, BLOCK_CHANNELS), tl.float32)
            for position in tl.static_range(POOL * POOL):
                value, _, _ = _pixels(
                    inputs, cell, position, channel, there, cells, across, HEIGHT, WIDTH, STORED, POOL
                )
                chosen = tl.where(taken == position, (value - mean[None, :]) * inverse[None, :], chosen)
            gradient = tl.where(taken < 4, gradient, 0.0)
            straight += tl.sum(gradient, 0)
            along += tl.sum(gradient * chosen, 0)
        by_weight += along
        by_bias += straight
        if HAS_DX:
            mean_slope = _of_groups(scale * straight, group, GROUPS_OF_UNIT) / size
            mean_along = _of_groups(scale * along, group, GROUPS_OF_UNIT) / size
            into = dx + image * (HEIGHT * WIDTH * STORED)
            for begin in range(0, cells, BLOCK_CELLS):
                cell = begin + tl.arange(0, BLOCK_CELLS)
                gradient, taken = _routed(
                    inputs, gradients, cell, channel, there, mean, inverse, scale, shift,
                    ROWS, COLUMNS, cells, across, HEIGHT, WIDTH, STORED, POOL, RELU,
                )  # fmt: skip
                for position in tl.static_range(POOL * POOL):
                    value, place, inside = _pixels(
                        inputs, cell, position, channel, there, cells, across, HEIGHT, WIDTH, STORED, POOL
                    )
                    normal = (value - mean[None, :]) * inverse[None, :]
                    slope = tl.where(taken == position, gradient, 0.0) * scale[None, :]
                    result = (slope - mean_slope[None, :] - normal * mean_along[None, :]) * inverse[None, :]
                    result = tl.where(real[None, :], result, 0.0)
                    tl.store(into + place, result.to(dx.dtype.element_ty), mask=inside)
    row = (client * tl.num_programs(1) + part) * STORED
    tl.store(of_weight + row + channel, by_weight, mask=real)
    tl.store(of_bias + row + channel, by_bias, mask=real)


def normalise(
    shape: NormShape,
    pace: Pace,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    y: Tensor,
    means: Tensor,
    inverses: Tensor,
) -> None:
    """See ``twins.normalise``."""
    clients, images = x.shape[:2]
    rows, columns = shape.pooled
    cut = _cut(shape)
    launch(
        _normalise, (cut.units, images, clients),
        x, x if weight is None else weight, x if bias is None else bias, y, means, inverses, pace.step, pace.steps,
        0 if weight is None else weight.stride(0), 0 if bias is None else bias.stride(0), shape.eps,
        images, shape.height, shape.width, shape.channels, shape.stored,
        rows, columns, (y.shape[2] - rows) // 2, (y.shape[3] - columns) // 2,
        shape.groups, shape.group, shape.pool, shape.relu, weight is not None, bias is not None,
        cut.unit, cut.groups, cut.channels, cut.cells,
        num_warps=cut.warps,
    )  # fmt: skip


def normalise_gradients(
    shape: NormShape,
    pace: Pace,
    x: Tensor,
    dy: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    means: Tensor,
    inverses: Tensor,
    dx: Tensor | None,
    of_weight: Tensor,
    of_bias: Tensor,
) -> None:
    """See ``twins.normalise_gradients``."""
    clients, images = x.shape[:2]
    cut = _cut(shape)
    launch(
        _gradients, (cut.units, norm_parts(shape, images), clients),
        x, dy, x if weight is None else weight, x if bias is None else bias, means, inverses,
        x if dx is None else dx, of_weight, of_bias, pace.step, pace.steps,
        0 if weight is None else weight.stride(0), 0 if bias is None else bias.stride(0),
        images, shape.height, shape.width, shape.channels, shape.stored, *shape.pooled,
        shape.groups, shape.group, shape.pool, shape.relu, weight is not None, bias is not None, dx is not None,
        _images_of_part(shape, images), cut.unit, cut.groups, cut.channels, cut.cells,
        num_warps=min(8, 2 * cut.warps),  # for two blocks; with 16 warps the largest spill registers
    )  # fmt: skip


def norm_parts(shape: NormShape, images: int) -> int:
    """How many partial sums the gradients of weight and bias are. It depends on the shape alone, as in convolutions."""
    return int(triton.cdiv(images, _images_of_part(shape, images)))


# Elements of a program: so many that it is worth its start, where groups may be taken together; so many that registers
# hold, 64 a thread of eight warps; so many of a piece, where there are more; so many of the images of a part.
_FEWEST, _MOST, _PIECE, _PART = 4096, 16384, 4096, 32768
_MOST_CHANNELS = 64  # of several groups, whose sums are made by comparing each channel with each
_MOST_IMAGES = 8  # of a part: one after another


class _Cut(NamedTuple):
    """How a layer is cut into programs.

    Attributes:
        units: How many programs an image has.
        unit: Channels of a program.
        groups: Groups of a program.
        channels: Channels of its block.
        cells: Pools, or pixels, of its block.
        warps: Its warps.
    """

    units: int
    unit: int
    groups: int
    channels: int
    cells: int
    warps: int


def _cut(shape: NormShape) -> _Cut:
    """Whole groups for each program, which end at multiples of 16 channels if that takes few groups."""
    groups = 16 // math.gcd(16, shape.group)
    if groups * shape.group > 2 * _MOST_CHANNELS:
        groups = max(1, _MOST_CHANNELS // shape.group)
    pixels = shape.height * shape.width
    while 2 * groups * shape.group <= _MOST_CHANNELS and 2 * groups * shape.group * pixels <= _FEWEST:
        groups *= 2
    groups = min(groups, shape.groups)
    unit = shape.stored if groups == shape.groups else groups * shape.group
    channels = int(triton.next_power_of_2(unit))
    cells = math.ceil(shape.height / shape.pool) * math.ceil(shape.width / shape.pool)
    block = int(triton.next_power_of_2(cells))
    width = channels * shape.pool**2
    if block * width > _MOST:
        block = max(1, _PIECE // width)
    return _Cut(
        units=1 if groups == shape.groups else int(triton.cdiv(shape.groups, groups)),
        unit=unit,
        groups=groups,
        channels=channels,
        cells=block,
        warps=max(1, min(8, block * width // 1024)),
    )


def _images_of_part(shape: NormShape, images: int) -> int:
    return max(1, min(images, _MOST_IMAGES, round(_PART / (_cut(shape).unit * shape.height * shape.width))))
