"""Per-client convolutions as Triton kernels. The twins say what each computes; here is how.

A convolution is a matrix product over the ``depth`` of the kernel: position k of it lies ``(k // run) · row + k % run``
behind the first pixel under the kernel, whatever the kernel's size. Blocks of outputs × depth are loaded from there and
multiplied on the matrix units. Sizes are compile-time constants, so that divisions become shifts and loads wide.

A stride is but a larger step from output to output. Only the gradient of the input goes the other way: an input column
lies under those columns of the kernel alone that are a multiple of the stride away, so a program takes columns that are
a stride apart, which share them. No product is made in vain.
"""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from adabest.engine.gpu.kernels.buffers import Pace, Parts
from adabest.engine.gpu.kernels.launches import jit, launch, shared_memory, strides
from adabest.engine.shapes import ConvolutionShape


@dataclass(frozen=True)
class Blocks:
    """How a kernel is cut into programs.

    Attributes:
        pixels: Outputs of a program; for weight gradients, outputs that are summed over at a time.
        depth: How much of the kernel's depth is taken at a time, at most.
        warps: Warps of a program.
        stages: How many blocks are on their way from memory.
    """

    pixels: int
    depth: int
    warps: int
    stages: int


# Measured on an H200 with the paper's CNN; by the size of an operand in bytes.
BLOCKS = {
    ("convolve", 2): Blocks(64, 32, 4, 5),
    ("convolve", 4): Blocks(64, 32, 4, 2),
    ("convolve unfolded", 2): Blocks(64, 16, 4, 4),
    ("convolve unfolded", 4): Blocks(64, 16, 4, 2),
    ("input gradient", 2): Blocks(128, 64, 4, 3),
    ("input gradient", 4): Blocks(64, 32, 4, 2),
    ("weight gradient", 2): Blocks(32, 64, 4, 4),
    ("weight gradient", 4): Blocks(32, 32, 4, 2),
    ("weight gradient of pools", 2): Blocks(64, 32, 4, 2),
    ("weight gradient of pools", 4): Blocks(32, 32, 4, 2),
}


@triton.jit
def better(value, position, other, other_position: tl.constexpr):
    """The larger of two values, and its position; of equal ones the first."""
    best = tl.maximum(value, other, propagate_nan=tl.PropagateNan.ALL)  # NaN tells of a divergence
    return best, tl.where(other > value, other_position, position)


@jit
def _convolve(
    x, w, bias, y, kind, step, steps,
    w_stride, bias_stride,
    IMAGES: tl.constexpr, IMAGE: tl.constexpr, ROW: tl.constexpr, BELOW: tl.constexpr, BESIDE: tl.constexpr,
    RUN: tl.constexpr, DEPTH: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, OUTPUTS: tl.constexpr,
    DOWN: tl.constexpr, RIGHT: tl.constexpr,
    POOL: tl.constexpr, RELU: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_KIND: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_PIXELS: tl.constexpr, BLOCK_OUTPUTS: tl.constexpr, BLOCK_DEPTH: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    pixels: tl.constexpr = IMAGES * ROWS * COLUMNS
    pixel = tl.program_id(0) * BLOCK_PIXELS + tl.arange(0, BLOCK_PIXELS)
    output = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    there = (pixel < pixels)[:, None]
    known = (output < OUTPUTS)[None, :]
    image, row, column = pixel // (ROWS * COLUMNS), (pixel // COLUMNS) % ROWS, pixel % COLUMNS
    first = image * IMAGE + (row * POOL) * BELOW + (column * POOL) * BESIDE
    inputs = x + client * (IMAGES * IMAGE)
    kernel = w + client * w_stride
    sums = (tl.zeros((BLOCK_PIXELS, BLOCK_OUTPUTS), tl.float32),) * (POOL * POOL)
    for begin in range(0, DEPTH, BLOCK_DEPTH):
        k = begin + tl.arange(0, BLOCK_DEPTH)
        taps = tl.load(kernel + k[:, None] * OUTPUTS + output[None, :], mask=(k < DEPTH)[:, None] & known, other=0.0)
        under = first[:, None] + ((k // RUN) * ROW + k % RUN)[None, :]
        inside = there & (k < DEPTH)[None, :]
        more = ()
        for position in tl.static_range(POOL * POOL):
            shift = (position // POOL) * BELOW + (position % POOL) * BESIDE
            values = tl.load(inputs + shift + under, mask=inside, other=0.0)
            more = more + (tl.dot(values, taps, sums[position], input_precision=PRECISION),)
        sums = more
    best = sums[0]
    position = tl.zeros((BLOCK_PIXELS, BLOCK_OUTPUTS), tl.int32)
    for other in tl.static_range(1, POOL * POOL):
        best, position = better(best, position, sums[other], other)
    if HAS_BIAS:
        best += tl.load(bias + client * bias_stride + output, mask=output < OUTPUTS, other=0.0).to(tl.float32)[None, :]
    if RELU:
        position = tl.where(best > 0, position, 4)
        # Not a maximum, which would turn NaN into 0 and hide a divergence.
        best = tl.where(best < 0, 0.0, best)
    place = ((image * (ROWS + 2 * DOWN) + row + DOWN) * (COLUMNS + 2 * RIGHT) + column + RIGHT) * OUTPUTS
    stored: tl.constexpr = IMAGES * (ROWS + 2 * DOWN) * (COLUMNS + 2 * RIGHT) * OUTPUTS
    into = y + client * stored + (place[:, None] + output[None, :])
    tl.store(into, best.to(y.dtype.element_ty), mask=there & known)
    if HAS_KIND:
        dense = kind + client * (pixels * OUTPUTS) + (pixel[:, None] * OUTPUTS + output[None, :])
        tl.store(dense, position.to(tl.uint8), mask=there & known)


@jit
def _spread(
    dy, kind, dense, bias, step, steps,
    IMAGES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    DENSE_ROWS: tl.constexpr, DENSE_COLUMNS: tl.constexpr,
    OUTPUTS: tl.constexpr, POOL: tl.constexpr, BLOCK_PIXELS: tl.constexpr, BLOCK_OUTPUTS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    pixels: tl.constexpr = IMAGES * ROWS * COLUMNS
    pixel = tl.program_id(0) * BLOCK_PIXELS + tl.arange(0, BLOCK_PIXELS)
    output = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    known = (pixel < pixels)[:, None] & (output < OUTPUTS)[None, :]
    image, row, column = pixel // (ROWS * COLUMNS), (pixel // COLUMNS) % ROWS, pixel % COLUMNS
    first = client * (pixels * OUTPUTS)
    pooled = pixel[:, None] * OUTPUTS + output[None, :]
    gradient = tl.load(dy + first + pooled, mask=known, other=0.0)
    position = tl.load(kind + first + pooled, mask=known, other=4)
    alive = tl.sum(tl.where(position < 4, gradient.to(tl.float32), 0.0), 0)
    part = client * tl.num_programs(0) + tl.program_id(0)
    tl.store(bias + part * OUTPUTS + output, alive, mask=output < OUTPUTS)
    place = ((image * DENSE_ROWS + row * POOL) * DENSE_COLUMNS + column * POOL) * OUTPUTS
    into = dense + client * (IMAGES * DENSE_ROWS * DENSE_COLUMNS * OUTPUTS) + (place[:, None] + output[None, :])
    for which in tl.static_range(POOL * POOL):
        shift = ((which // POOL) * DENSE_COLUMNS + which % POOL) * OUTPUTS
        tl.store(into + shift, tl.where(position == which, gradient, 0.0).to(dense.dtype.element_ty), mask=known)


@jit
def _input_gradient(
    dense, w, other, dx, step, steps,
    w_stride,
    IMAGES: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr,
    DENSE_ROWS: tl.constexpr, DENSE_COLUMNS: tl.constexpr, OUTPUTS: tl.constexpr,
    KERNEL_ROWS: tl.constexpr, KERNEL_COLUMNS: tl.constexpr, ROW_STRIDE: tl.constexpr, COLUMN_STRIDE: tl.constexpr,
    DOWN: tl.constexpr, RIGHT: tl.constexpr, HAS_OTHER: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_PIXELS: tl.constexpr, BLOCK_CHANNELS: tl.constexpr, BLOCK_OUTPUTS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    channel_blocks: tl.constexpr = (CHANNELS + BLOCK_CHANNELS - 1) // BLOCK_CHANNELS
    columns: tl.constexpr = (WIDTH + COLUMN_STRIDE - 1) // COLUMN_STRIDE
    row = tl.program_id(1) // (channel_blocks * COLUMN_STRIDE) + DOWN
    channel = (tl.program_id(1) % channel_blocks) * BLOCK_CHANNELS + tl.arange(0, BLOCK_CHANNELS)
    pixel = tl.program_id(0) * BLOCK_PIXELS + tl.arange(0, BLOCK_PIXELS)
    there = pixel < IMAGES * columns
    known = (channel < CHANNELS)[None, :]
    image, column = pixel // columns, pixel % columns + RIGHT
    above, before = 0, 0  # rows and columns of the kernel in front of the first that these inputs lie under
    down, across = KERNEL_ROWS, KERNEL_COLUMNS  # how many of its rows and columns they lie under
    if ROW_STRIDE > 1:
        above = row % ROW_STRIDE
        down = (KERNEL_ROWS - above + ROW_STRIDE - 1) // ROW_STRIDE
    if COLUMN_STRIDE > 1:
        column = pixel % columns * COLUMN_STRIDE + (tl.program_id(1) // channel_blocks) % COLUMN_STRIDE
        there = there & (column < WIDTH)
        column += RIGHT
        before = ((tl.program_id(1) // channel_blocks) % COLUMN_STRIDE + RIGHT) % COLUMN_STRIDE
        across = (KERNEL_COLUMNS - before + COLUMN_STRIDE - 1) // COLUMN_STRIDE
    gradients = dense + client * (IMAGES * DENSE_ROWS * DENSE_COLUMNS * OUTPUTS)
    first = image * (DENSE_ROWS * DENSE_COLUMNS * OUTPUTS)
    kernel = w + client * w_stride
    total = tl.zeros((BLOCK_PIXELS, BLOCK_CHANNELS), tl.float32)
    # Only the kernel rows whose outputs exist.
    lowest, rightmost = row // ROW_STRIDE, column // COLUMN_STRIDE
    begin, end = tl.maximum(0, lowest - DENSE_ROWS + 1), tl.minimum(down - 1, lowest) + 1
    divisor = across
    if COLUMN_STRIDE > KERNEL_COLUMNS:
        divisor = tl.maximum(across, 1)  # a remainder may be computed before the loop, also if that isn't entered
    for turn in range(begin * across, end * across):
        source = rightmost - turn % divisor
        inside = (there & (source >= 0) & (source < DENSE_COLUMNS))[:, None]
        at = ((lowest - turn // divisor) * DENSE_COLUMNS + source) * OUTPUTS
        tap = turn
        if ROW_STRIDE * COLUMN_STRIDE > 1:
            tap = (above + turn // divisor * ROW_STRIDE) * KERNEL_COLUMNS + before + turn % divisor * COLUMN_STRIDE
        for begin_output in tl.static_range(0, OUTPUTS, BLOCK_OUTPUTS):
            output = begin_output + tl.arange(0, BLOCK_OUTPUTS)
            some = output < OUTPUTS
            from_output = gradients + ((first + at)[:, None] + output[None, :])
            gradient = tl.load(from_output, mask=inside & some[None, :], other=0.0)
            taps = kernel + ((tap * CHANNELS + channel)[None, :] * OUTPUTS + output[:, None])
            total = tl.dot(
                gradient, tl.load(taps, mask=some[:, None] & known, other=0.0), total, input_precision=PRECISION
            )
    place = (image * HEIGHT + row - DOWN) * WIDTH + column - RIGHT
    if HAS_OTHER:
        of_other = other + client * (IMAGES * HEIGHT * WIDTH * CHANNELS)
        of_other += place[:, None] * CHANNELS + channel[None, :]
        total += tl.load(of_other, mask=there[:, None] & known, other=0.0).to(tl.float32)
    into = dx + client * (IMAGES * HEIGHT * WIDTH * CHANNELS) + (place[:, None] * CHANNELS + channel[None, :])
    tl.store(into, total.to(dx.dtype.element_ty), mask=there[:, None] & known)


@jit
def _weight_gradient(
    x, dense, partial, step, steps,
    IMAGES: tl.constexpr, IMAGE: tl.constexpr, ROW: tl.constexpr, BELOW: tl.constexpr, BESIDE: tl.constexpr,
    RUN: tl.constexpr, DEPTH: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, OUTPUTS: tl.constexpr, PRECISION: tl.constexpr,
    PART: tl.constexpr, BLOCK_PIXELS: tl.constexpr, BLOCK_OUTPUTS: tl.constexpr, BLOCK_DEPTH: tl.constexpr,
    BLOCKS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    output_blocks: tl.constexpr = (OUTPUTS + BLOCK_OUTPUTS - 1) // BLOCK_OUTPUTS
    part = tl.program_id(1)
    begin = (tl.program_id(0) // output_blocks) * (BLOCK_DEPTH * BLOCKS)
    output = (tl.program_id(0) % output_blocks) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    known = (output < OUTPUTS)[None, :]
    image_pixels: tl.constexpr = ROWS * COLUMNS
    pixels = tl.minimum(PART, IMAGES - part * PART) * image_pixels
    inputs = x + client * (IMAGES * IMAGE) + part * (PART * IMAGE)
    gradients = dense + (client * IMAGES + part * PART) * (image_pixels * OUTPUTS)
    sums = (tl.zeros((BLOCK_DEPTH, BLOCK_OUTPUTS), tl.float32),) * BLOCKS
    for first in range(0, PART * image_pixels, BLOCK_PIXELS):
        pixel = first + tl.arange(0, BLOCK_PIXELS)
        there = pixel < pixels
        inside = pixel % image_pixels
        at = (pixel // image_pixels) * IMAGE + (inside // COLUMNS) * BELOW + (inside % COLUMNS) * BESIDE
        of_output = gradients + (pixel[:, None] * OUTPUTS + output[None, :])
        gradient = tl.load(of_output, mask=there[:, None] & known, other=0.0)
        more = ()
        for block in tl.static_range(BLOCKS):
            k = begin + block * BLOCK_DEPTH + tl.arange(0, BLOCK_DEPTH)
            under = at[None, :] + ((k // RUN) * ROW + k % RUN)[:, None]
            values = tl.load(inputs + under, mask=there[None, :] & (k < DEPTH)[:, None], other=0.0)
            more = more + (tl.dot(values, gradient, sums[block], input_precision=PRECISION),)
        sums = more
    into = partial + (client * tl.num_programs(1) + part) * (DEPTH * OUTPUTS)
    for block in tl.static_range(BLOCKS):
        k = begin + block * BLOCK_DEPTH + tl.arange(0, BLOCK_DEPTH)
        tl.store(into + (k[:, None] * OUTPUTS + output[None, :]), sums[block], mask=(k < DEPTH)[:, None] & known)


@jit
def _weight_gradient_of_pools(
    x, dy, kind, partial, bias, step, steps,
    IMAGES: tl.constexpr, IMAGE: tl.constexpr, ROW: tl.constexpr, BELOW: tl.constexpr, BESIDE: tl.constexpr,
    RUN: tl.constexpr, DEPTH: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, OUTPUTS: tl.constexpr, POOL: tl.constexpr, PRECISION: tl.constexpr,
    PART: tl.constexpr, BLOCK_PIXELS: tl.constexpr, BLOCK_OUTPUTS: tl.constexpr, BLOCK_DEPTH: tl.constexpr,
    BLOCKS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    output_blocks: tl.constexpr = (OUTPUTS + BLOCK_OUTPUTS - 1) // BLOCK_OUTPUTS
    part = tl.program_id(1)
    depth_block = tl.program_id(0) // output_blocks
    begin = depth_block * (BLOCK_DEPTH * BLOCKS)
    output = (tl.program_id(0) % output_blocks) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    known = (output < OUTPUTS)[:, None]
    image_pixels: tl.constexpr = ROWS * COLUMNS
    pixels = tl.minimum(PART, IMAGES - part * PART) * image_pixels
    inputs = x + client * (IMAGES * IMAGE) + part * (PART * IMAGE)
    pooled = (client * IMAGES + part * PART) * (image_pixels * OUTPUTS)
    sums = (tl.zeros((BLOCK_OUTPUTS, BLOCK_DEPTH), tl.float32),) * BLOCKS
    alive = tl.zeros((BLOCK_OUTPUTS,), tl.float32)
    for first in range(0, PART * image_pixels, BLOCK_PIXELS):
        pixel = first + tl.arange(0, BLOCK_PIXELS)
        there = pixel < pixels
        inside = pixel % image_pixels
        at = (pixel // image_pixels) * IMAGE
        at += (inside // COLUMNS) * (POOL * BELOW) + (inside % COLUMNS) * (POOL * BESIDE)
        place = pixel[None, :] * OUTPUTS + output[:, None]
        gradient = tl.load(dy + pooled + place, mask=there[None, :] & known, other=0.0)
        position = tl.load(kind + pooled + place, mask=there[None, :] & known, other=4)
        alive += tl.sum(tl.where(position < 4, gradient.to(tl.float32), 0.0), 1)
        for which in tl.static_range(POOL * POOL):
            shift = (which // POOL) * BELOW + (which % POOL) * BESIDE
            mine = tl.where(position == which, gradient, 0.0).to(gradient.dtype)
            more = ()
            for block in tl.static_range(BLOCKS):
                k = begin + block * BLOCK_DEPTH + tl.arange(0, BLOCK_DEPTH)
                under = at[:, None] + ((k // RUN) * ROW + k % RUN)[None, :]
                values = tl.load(inputs + shift + under, mask=there[:, None] & (k < DEPTH)[None, :], other=0.0)
                more = more + (tl.dot(mine, values, sums[block], input_precision=PRECISION),)
            sums = more
    row = client * tl.num_programs(1) + part
    for block in tl.static_range(BLOCKS):
        k = begin + block * BLOCK_DEPTH + tl.arange(0, BLOCK_DEPTH)
        into = partial + row * (DEPTH * OUTPUTS) + (k[None, :] * OUTPUTS + output[:, None])
        tl.store(into, sums[block], mask=(k < DEPTH)[None, :] & known)
    if depth_block == 0:
        tl.store(bias + row * OUTPUTS + output, alive, mask=output < OUTPUTS)


def convolve(
    shape: ConvolutionShape,
    pace: Pace,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    y: Tensor,
    kind: Tensor | None,
    precision: str,
) -> None:
    """See ``twins.convolve``."""
    clients, images = x.shape[:2]
    (rows, columns), outputs = shape.pooled, shape.stored_outputs
    blocks = BLOCKS["convolve unfolded" if shape.unfolded else "convolve", x.element_size()]
    block_outputs = _block(outputs)
    grid = (triton.cdiv(images * rows * columns, blocks.pixels), triton.cdiv(outputs, block_outputs), clients)
    launch(
        _convolve, grid,
        x, w, w if bias is None else bias, y, y if kind is None else kind, pace.step, pace.steps,
        w.stride(0), 0 if bias is None else bias.stride(0),
        images, *_strides(shape, x), shape.run, shape.depth,
        rows, columns, outputs,
        (y.shape[2] - rows) // 2, (y.shape[3] - columns) // 2,
        shape.pool, shape.relu, bias is not None, kind is not None, precision,
        blocks.pixels, block_outputs, _depth_block(shape, blocks.depth),
        num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip


def spread(shape: ConvolutionShape, pace: Pace, dy: Tensor, kind: Tensor, dense: Tensor, bias: Tensor) -> None:
    """See ``twins.spread``."""
    clients, images = dense.shape[:2]
    outputs = shape.stored_outputs
    block_outputs = _block(outputs)
    grid = (parts(shape, images).spread, triton.cdiv(outputs, block_outputs), clients)
    launch(
        _spread, grid,
        dy, kind, dense, bias, pace.step, pace.steps,
        images, *shape.pooled, *shape.dense, outputs, shape.pool, _SPREAD_PIXELS, block_outputs,
        num_warps=4,
    )  # fmt: skip


def input_gradient(
    shape: ConvolutionShape,
    pace: Pace,
    dense: Tensor,
    w: Tensor,
    dx: Tensor,
    other: Tensor | None = None,
    *,
    precision: str,
) -> None:
    """See ``twins.input_gradient``."""
    clients, images, height, width, channels = dx.shape
    blocks = BLOCKS["input gradient", dx.element_size()]
    block_channels = _block(channels)
    columns, programs = triton.cdiv(width, shape.stride[1]), shape.stride[1] * triton.cdiv(channels, block_channels)
    # What a turn of the loop over the kernel loads, for all outputs, is one stage of its pipeline.
    stage = shape.stored_outputs * (blocks.pixels + block_channels) * dx.element_size()
    grid = (triton.cdiv(images * columns, blocks.pixels), height * programs, clients)
    launch(
        _input_gradient, grid,
        dense, w, dx if other is None else other, dx, pace.step, pace.steps,
        w.stride(0),
        images, height, width, channels, *shape.dense, shape.stored_outputs,
        *shape.kernel, *shape.stride, *shape.padding, other is not None, precision,
        blocks.pixels, block_channels, _block(shape.stored_outputs, blocks.depth),
        num_warps=blocks.warps, num_stages=max(1, min(blocks.stages, shared_memory(dx.device) // stage)),
    )  # fmt: skip


def weight_gradient(
    shape: ConvolutionShape, pace: Pace, x: Tensor, dense: Tensor, partial: Tensor, precision: str
) -> None:
    """See ``twins.weight_gradient``."""
    clients, images = x.shape[:2]
    outputs = shape.stored_outputs
    blocks = BLOCKS["weight gradient", x.element_size()]
    block_outputs, block_depth = _block(outputs), _block(shape.depth, blocks.depth)
    count = triton.cdiv(shape.depth, block_depth)
    together = _blocks_per_program(count)
    grid = (count // together * triton.cdiv(outputs, block_outputs), parts(shape, images).weight, clients)
    launch(
        _weight_gradient, grid,
        x, dense, partial, pace.step, pace.steps,
        images, *_strides(shape, x), shape.run, shape.depth, *shape.dense, outputs, precision,
        _images_of_part(shape, images, _PART), blocks.pixels, block_outputs, block_depth, together,
        num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip


def weight_gradient_of_pools(
    shape: ConvolutionShape,
    pace: Pace,
    x: Tensor,
    dy: Tensor,
    kind: Tensor,
    partial: Tensor,
    bias: Tensor,
    precision: str,
) -> None:
    """See ``twins.weight_gradient_of_pools``."""
    clients, images = x.shape[:2]
    outputs = shape.stored_outputs
    blocks = BLOCKS["weight gradient of pools", x.element_size()]
    block_outputs, block_depth = _block(outputs), _block(shape.depth, blocks.depth)
    count = triton.cdiv(shape.depth, block_depth)
    together = _blocks_per_program(count)
    programs = count // together * triton.cdiv(outputs, block_outputs)
    launch(
        _weight_gradient_of_pools, (programs, parts(shape, images).pools, clients),
        x, dy, kind, partial, bias, pace.step, pace.steps,
        images, *_strides(shape, x), shape.run, shape.depth, *shape.pooled, outputs, shape.pool, precision,
        _images_of_part(shape, images, _POOL_PART), blocks.pixels, block_outputs, block_depth, together,
        num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip


_SPREAD_PIXELS = 64
_PART, _POOL_PART = 1536, 4096  # dense pixels that one program sums over: enough to be worth it, few enough for many


def parts(shape: ConvolutionShape, images: int) -> Parts:
    """See ``Parts``. They depend on the shape alone, so that results don't depend on how many clients there are."""
    return Parts(
        spread=triton.cdiv(images * shape.pooled[0] * shape.pooled[1], _SPREAD_PIXELS),
        weight=triton.cdiv(images, _images_of_part(shape, images, _PART)),
        pools=triton.cdiv(images, _images_of_part(shape, images, _POOL_PART)),
    )


def _images_of_part(shape: ConvolutionShape, images: int, pixels: int) -> int:
    return max(1, min(images, round(pixels / (shape.dense[0] * shape.dense[1]))))


def _strides(shape: ConvolutionShape, x: Tensor) -> tuple[int, int, int, int]:
    """From one input image and row to the next, and from what lies under an output to that below and beside it."""
    _, image, row, pixel = strides(x)
    down, right = shape.step
    return image, row, down * row, right * pixel


def _block(count: int, most: int = 64) -> int:
    return min(most, max(16, triton.next_power_of_2(count)))


def _blocks_per_program(count: int) -> int:
    """How many blocks one program takes, which share what it loads of the gradients."""
    return max(number for number in range(1, 6) if count % number == 0)


def _depth_block(shape: ConvolutionShape, most: int) -> int:
    """A block of the depth that lies within one run, if it can, so that loads are wide."""
    block = 16
    while block < most and shape.run % (2 * block) == 0:
        block *= 2
    return block
