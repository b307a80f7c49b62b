"""Sums of two activations, and of their gradients, as Triton kernels; see the twins for what they compute."""

import triton
import triton.language as tl
from torch import Tensor

from adabest.engine.gpu.kernels.buffers import Pace
from adabest.engine.gpu.kernels.launches import jit, launch, strides

# Elements of a program: four wide loads of eight bfloat16 for each of 128 threads. A sum is bound by memory, and there
# are thousands of programs, so it doesn't matter much.
_ELEMENTS, _WARPS = 4096, 4


@jit
def _add(
    a, b, shown, y, step, steps,
    PIXELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, CHANNELS: tl.constexpr,
    A_CLIENT: tl.constexpr, A_IMAGE: tl.constexpr, A_ROW: tl.constexpr, A_PIXEL: tl.constexpr,
    B_CLIENT: tl.constexpr, B_IMAGE: tl.constexpr, B_ROW: tl.constexpr, B_PIXEL: tl.constexpr,
    S_CLIENT: tl.constexpr, S_IMAGE: tl.constexpr, S_ROW: tl.constexpr, S_PIXEL: tl.constexpr,
    Y_CLIENT: tl.constexpr, Y_IMAGE: tl.constexpr, Y_ROW: tl.constexpr, Y_PIXEL: tl.constexpr,
    HAS_B: tl.constexpr, RELU: tl.constexpr, HAS_SHOWN: tl.constexpr,
    BLOCK_PIXELS: tl.constexpr, BLOCK_CHANNELS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    pixel = tl.program_id(0) * BLOCK_PIXELS + tl.arange(0, BLOCK_PIXELS)
    channel = (tl.program_id(1) * BLOCK_CHANNELS + tl.arange(0, BLOCK_CHANNELS))[None, :]
    known = (pixel < PIXELS)[:, None] & (channel < CHANNELS)
    image, row, column = pixel // (ROWS * COLUMNS), (pixel // COLUMNS) % ROWS, pixel % COLUMNS
    at = (image * A_IMAGE + row * A_ROW + column * A_PIXEL)[:, None] + channel
    total = tl.load(a + client * A_CLIENT + at, mask=known, other=0.0).to(tl.float32)
    if HAS_B:
        at = (image * B_IMAGE + row * B_ROW + column * B_PIXEL)[:, None] + channel
        total += tl.load(b + client * B_CLIENT + at, mask=known, other=0.0).to(tl.float32)
    if RELU:
        total = tl.where(total < 0, 0.0, total)  # NaN stays, and tells of a divergence
    if HAS_SHOWN:
        at = (image * S_IMAGE + row * S_ROW + column * S_PIXEL)[:, None] + channel
        total = tl.where(tl.load(shown + client * S_CLIENT + at, mask=known, other=0.0) > 0, total, 0.0)
    at = (image * Y_IMAGE + row * Y_ROW + column * Y_PIXEL)[:, None] + channel
    tl.store(y + client * Y_CLIENT + at, total.to(y.dtype.element_ty), mask=known)


def add(pace: Pace, a: Tensor, b: Tensor | None, y: Tensor, *, relu: bool = False, shown: Tensor | None = None) -> None:
    """See ``twins.add``."""
    clients, images, rows, columns, channels = y.shape
    block_channels = min(64, triton.next_power_of_2(channels))
    block_pixels = _ELEMENTS // block_channels
    pixels = images * rows * columns
    second, third = a if b is None else b, a if shown is None else shown
    launch(
        _add, (triton.cdiv(pixels, block_pixels), triton.cdiv(channels, block_channels), clients),
        a, second, third, y, pace.step, pace.steps,
        pixels, rows, columns, channels, *(stride for one in (a, second, third, y) for stride in strides(one)),
        b is not None, relu, shown is not None, block_pixels, block_channels,
        num_warps=_WARPS,
    )  # fmt: skip
