"""Per-client pooling as Triton kernels. The twins say what each computes; here is how.

Pooling only moves memory. Forward, every input is read once: for a mean, a program takes all pixels of a few windows at
a time, so that the mean over whole images, too, has many programs. Backward, a program has pixels of the input, and
gathers what the windows around each give it: every pixel is written once, in a row, and nothing is added in memory.
"""

import triton
import triton.language as tl
from torch import Tensor

from adabest.engine.gpu.kernels.buffers import Pace
from adabest.engine.gpu.kernels.launches import jit, launch
from adabest.engine.shapes import CUT_OFF, PoolShape


@jit
def _mean(
    x, y, step, steps,
    IMAGES: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STORED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, KERNEL_ROWS: tl.constexpr, KERNEL_COLUMNS: tl.constexpr,
    STRIDE_DOWN: tl.constexpr, STRIDE_RIGHT: tl.constexpr, PAD_DOWN: tl.constexpr, PAD_RIGHT: tl.constexpr,
    DOWN: tl.constexpr, RIGHT: tl.constexpr,
    BLOCK_CELLS: tl.constexpr, BLOCK_TAPS: tl.constexpr, BLOCK_CHANNELS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    taps: tl.constexpr = KERNEL_ROWS * KERNEL_COLUMNS
    channel = tl.program_id(1) * BLOCK_CHANNELS + tl.arange(0, BLOCK_CHANNELS)
    cell = tl.program_id(0) * BLOCK_CELLS + tl.arange(0, BLOCK_CELLS)
    there, known = cell < IMAGES * ROWS * COLUMNS, channel < STORED
    image, row, column = cell // (ROWS * COLUMNS), (cell // COLUMNS) % ROWS, cell % COLUMNS
    inputs = x + client * (IMAGES * HEIGHT * WIDTH * STORED)
    total = tl.zeros((BLOCK_CELLS, BLOCK_CHANNELS), tl.float32)
    for begin in range(0, taps, BLOCK_TAPS):
        tap = begin + tl.arange(0, BLOCK_TAPS)
        down = (row * STRIDE_DOWN - PAD_DOWN)[:, None] + (tap // KERNEL_COLUMNS)[None, :]
        across = (column * STRIDE_RIGHT - PAD_RIGHT)[:, None] + (tap % KERNEL_COLUMNS)[None, :]
        inside = there[:, None] & (tap < taps)[None, :]
        inside = inside & (down >= 0) & (down < HEIGHT) & (across >= 0) & (across < WIDTH)
        place = ((image[:, None] * HEIGHT + down) * WIDTH + across)[:, :, None] * STORED + channel[None, None, :]
        value = tl.load(inputs + place, mask=inside[:, :, None] & known[None, None, :], other=0.0)
        total += tl.sum(value.to(tl.float32), 1)
    place = ((image * (ROWS + 2 * DOWN) + row + DOWN) * (COLUMNS + 2 * RIGHT) + column + RIGHT) * STORED
    into = y + client * (IMAGES * (ROWS + 2 * DOWN) * (COLUMNS + 2 * RIGHT) * STORED)
    mask = there[:, None] & known[None, :]
    tl.store(into + (place[:, None] + channel[None, :]), (total / taps).to(y.dtype.element_ty), mask=mask)


@jit
def _largest(
    x, y, kind, step, steps,
    IMAGES: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STORED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, KERNEL_ROWS: tl.constexpr, KERNEL_COLUMNS: tl.constexpr,
    STRIDE_DOWN: tl.constexpr, STRIDE_RIGHT: tl.constexpr, PAD_DOWN: tl.constexpr, PAD_RIGHT: tl.constexpr,
    DOWN: tl.constexpr, RIGHT: tl.constexpr, RELU: tl.constexpr, DEAD: tl.constexpr,
    BLOCK_CELLS: tl.constexpr, BLOCK_CHANNELS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    cells: tl.constexpr = IMAGES * ROWS * COLUMNS
    channel = tl.program_id(1) * BLOCK_CHANNELS + tl.arange(0, BLOCK_CHANNELS)
    cell = tl.program_id(0) * BLOCK_CELLS + tl.arange(0, BLOCK_CELLS)
    there, known = cell < cells, (channel < STORED)[None, :]
    image, row, column = cell // (ROWS * COLUMNS), (cell // COLUMNS) % ROWS, cell % COLUMNS
    inputs = x + client * (IMAGES * HEIGHT * WIDTH * STORED)
    best = tl.full((BLOCK_CELLS, BLOCK_CHANNELS), -float("inf"), tl.float32)
    taken = tl.zeros((BLOCK_CELLS, BLOCK_CHANNELS), tl.int32)
    for tap in range(KERNEL_ROWS * KERNEL_COLUMNS):
        down = row * STRIDE_DOWN - PAD_DOWN + tap // KERNEL_COLUMNS
        across = column * STRIDE_RIGHT - PAD_RIGHT + tap % KERNEL_COLUMNS
        inside = there & (down >= 0) & (down < HEIGHT) & (across >= 0) & (across < WIDTH)
        place = ((image * HEIGHT + down) * WIDTH + across)[:, None] * STORED + channel[None, :]
        value = tl.load(inputs + place, mask=inside[:, None] & known, other=-float("inf")).to(tl.float32)
        taken = tl.where(value > best, tap, taken)
        best = tl.maximum(best, value, propagate_nan=tl.PropagateNan.ALL)  # NaN tells of a divergence
    if RELU:
        taken = tl.where(best > 0, taken, DEAD)
        best = tl.where(best < 0, 0.0, best)  # not a maximum, which would hide NaN
    place = ((image * (ROWS + 2 * DOWN) + row + DOWN) * (COLUMNS + 2 * RIGHT) + column + RIGHT) * STORED
    into = y + client * (IMAGES * (ROWS + 2 * DOWN) * (COLUMNS + 2 * RIGHT) * STORED)
    mask = there[:, None] & known
    tl.store(into + (place[:, None] + channel[None, :]), best.to(y.dtype.element_ty), mask=mask)
    where = kind + client * (cells * STORED) + (cell[:, None] * STORED + channel[None, :])
    tl.store(where, taken.to(tl.uint8), mask=mask)


@jit
def _gradient(
    dy, kind, dx, step, steps,
    IMAGES: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, STORED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, KERNEL_ROWS: tl.constexpr, KERNEL_COLUMNS: tl.constexpr,
    STRIDE_DOWN: tl.constexpr, STRIDE_RIGHT: tl.constexpr, PAD_DOWN: tl.constexpr, PAD_RIGHT: tl.constexpr,
    HAS_KIND: tl.constexpr, BLOCK_PIXELS: tl.constexpr, BLOCK_CHANNELS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    pixels: tl.constexpr = IMAGES * HEIGHT * WIDTH
    # The most windows that a pixel is in, down and across.
    windows_down: tl.constexpr = (KERNEL_ROWS + STRIDE_DOWN - 1) // STRIDE_DOWN
    windows_across: tl.constexpr = (KERNEL_COLUMNS + STRIDE_RIGHT - 1) // STRIDE_RIGHT
    channel = tl.program_id(1) * BLOCK_CHANNELS + tl.arange(0, BLOCK_CHANNELS)
    pixel = tl.program_id(0) * BLOCK_PIXELS + tl.arange(0, BLOCK_PIXELS)
    there, known = pixel < pixels, (channel < STORED)[None, :]
    image, down, across = pixel // (HEIGHT * WIDTH), (pixel // WIDTH) % HEIGHT + PAD_DOWN, pixel % WIDTH + PAD_RIGHT
    first = client * (IMAGES * ROWS * COLUMNS * STORED)
    total = tl.zeros((BLOCK_PIXELS, BLOCK_CHANNELS), tl.float32)
    for window in tl.static_range(windows_down * windows_across):
        row = down // STRIDE_DOWN - window // windows_across
        column = across // STRIDE_RIGHT - window % windows_across
        tap_row, tap_column = down - row * STRIDE_DOWN, across - column * STRIDE_RIGHT
        inside = there & (row >= 0) & (row < ROWS) & (column >= 0) & (column < COLUMNS)
        inside = inside & (tap_row < KERNEL_ROWS) & (tap_column < KERNEL_COLUMNS)
        place = first + (((image * ROWS + row) * COLUMNS + column)[:, None] * STORED + channel[None, :])
        gradient = tl.load(dy + place, mask=inside[:, None] & known, other=0.0).to(tl.float32)
        if HAS_KIND:
            taken = tl.load(kind + place, mask=inside[:, None] & known, other=0)
            gradient = tl.where(taken == (tap_row * KERNEL_COLUMNS + tap_column)[:, None], gradient, 0.0)
        total += gradient
    if not HAS_KIND:
        total = total / (KERNEL_ROWS * KERNEL_COLUMNS)
    into = dx + client * (pixels * STORED) + (pixel[:, None] * STORED + channel[None, :])
    tl.store(into, total.to(dx.dtype.element_ty), mask=there[:, None] & known)


# Elements of a program: a few loads for each thread of its four warps.
_BLOCK = 2048


def pool(shape: PoolShape, pace: Pace, x: Tensor, y: Tensor, kind: Tensor | None) -> None:
    """See ``twins.pool``."""
    clients, images = x.shape[:2]
    (rows, columns), channels = shape.pooled, _channel_block(shape)
    border = (y.shape[2] - rows) // 2, (y.shape[3] - columns) // 2
    common = (images, shape.height, shape.width, shape.stored, rows, columns, *_windows(shape), *border)
    taps = 1 if kind is not None else min(triton.next_power_of_2(shape.taps), _BLOCK // channels)
    cells = max(1, _BLOCK // (channels * taps))
    # There may be more than 65,535 blocks of cells, the most that the second and the third axis of a grid take.
    grid = (triton.cdiv(images * rows * columns, cells), triton.cdiv(shape.stored, channels), clients)
    if kind is None:
        launch(_mean, grid, x, y, pace.step, pace.steps, *common, cells, taps, channels, num_warps=4)
    else:
        launch(
            _largest, grid, x, y, kind, pace.step, pace.steps, *common, shape.relu, CUT_OFF, cells, channels,
            num_warps=4,
        )  # fmt: skip


def pool_gradient(shape: PoolShape, pace: Pace, dy: Tensor, kind: Tensor | None, dx: Tensor) -> None:
    """See ``twins.pool_gradient``."""
    clients, images, height, width = dx.shape[:4]
    channels = _channel_block(shape)
    pixels = _BLOCK // channels
    launch(
        _gradient, (triton.cdiv(images * height * width, pixels), triton.cdiv(shape.stored, channels), clients),
        dy, dy if kind is None else kind, dx, pace.step, pace.steps,
        images, height, width, shape.stored, *shape.pooled, *_windows(shape), kind is not None, pixels, channels,
        num_warps=4,
    )  # fmt: skip


def _windows(shape: PoolShape) -> tuple[int, ...]:
    return *shape.kernel, *shape.stride, *shape.padding


def _channel_block(shape: PoolShape) -> int:
    return min(64, int(triton.next_power_of_2(shape.stored)))
