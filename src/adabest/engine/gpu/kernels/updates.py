"""The correction of gradients and the update of parameters as Triton kernels; see the twins for what they compute."""

import triton
import triton.language as tl
from torch import Tensor

from adabest.engine.gpu.kernels.buffers import Direction, Pace, Rates, Region
from adabest.engine.gpu.kernels.launches import jit, launch

_BLOCK = 1024
_UPDATE_BLOCK = 4096


@triton.jit
def corrected(gradient, first, place, mask, w, offset, scale, rho, client, HAS_OFFSET: tl.constexpr):
    """The sum s g + o + ρ w. ``first`` is where the client's parameters begin, ``place`` counts from there."""
    result = tl.load(scale + client) * gradient
    if HAS_OFFSET:
        result += tl.load(offset + first + place, mask=mask, other=0.0)
    pull = tl.load(rho + client)
    if pull != 0.0:
        result += pull * tl.load(w + first + place, mask=mask, other=0.0)
    return result


@jit
def _fold(
    partial, bias_partial, d, w, offset, scale, rho, squares, step, steps,
    parameters, weight, bias, slots, slot, bias_slot,
    SIZE: tl.constexpr, PARTS: tl.constexpr, BIAS_SIZE: tl.constexpr, BIAS_PARTS: tl.constexpr,
    HAS_OFFSET: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    blocks: tl.constexpr = (SIZE + BLOCK - 1) // BLOCK
    program = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    if program < blocks:
        element = program * BLOCK + tl.arange(0, BLOCK)
        mask = element < SIZE
        for part in range(PARTS):
            total += tl.load(partial + (client * PARTS + part) * SIZE + element, mask=mask, other=0.0)
        place = weight + element
        where = slot + program
    else:
        element = (program - blocks) * BLOCK + tl.arange(0, BLOCK)
        mask = element < BIAS_SIZE
        for part in range(BIAS_PARTS):
            total += tl.load(bias_partial + (client * BIAS_PARTS + part) * BIAS_SIZE + element, mask=mask, other=0.0)
        place = bias + element
        where = bias_slot + program - blocks
    first = client * parameters
    result = corrected(total, first, place, mask, w, offset, scale, rho, client, HAS_OFFSET)
    tl.store(d + first + place, result, mask=mask)
    tl.store(squares + client * slots + where, tl.sum(tl.where(mask, result * result, 0.0), 0))


@jit
def _update(
    d, w, half, squares, eta, clip, decay, step, steps,
    slots, PARAMETERS: tl.constexpr, SLOTS: tl.constexpr, HAS_HALF: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    slot = tl.arange(0, SLOTS)
    norm = tl.sqrt(tl.sum(tl.load(squares + client * slots + slot, mask=slot < slots, other=0.0), 0))
    most = tl.load(clip + client)
    factor = most / norm
    factor = tl.where(factor > 1.0, 1.0, factor)
    # A norm too large for a number must end the run, not shrink the step to nothing.
    factor = tl.where(norm == float("inf"), float("nan"), factor)
    factor = tl.where(most == float("inf"), 1.0, factor)
    element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = element < PARAMETERS
    first = client * PARAMETERS
    before = tl.load(w + first + element, mask=mask, other=0.0)
    direction = factor * tl.load(d + first + element, mask=mask, other=0.0) + tl.load(decay + client) * before
    after = before - tl.load(eta + client) * direction
    tl.store(w + first + element, after, mask=mask)
    if HAS_HALF:
        tl.store(half + first + element, after.to(half.dtype.element_ty), mask=mask)


def fold(
    direction: Direction, pace: Pace, weight: Region, partial: Tensor, bias: Region | None, bias_partial: Tensor
) -> None:
    """See ``twins.fold``."""
    clients, parts, size = partial.shape
    bias_size = 0 if bias is None else bias.size
    launch(
        _fold, (slots(size) + (slots(bias_size) if bias_size else 0), clients),
        partial, bias_partial, direction.d, direction.w,
        direction.d if direction.offset is None else direction.offset,
        direction.scale, direction.rho, direction.squares, pace.step, pace.steps,
        direction.d.stride(0), weight.start, 0 if bias is None else bias.start,
        direction.squares.stride(0), weight.slot, 0 if bias is None else bias.slot,
        size, parts, bias_size, bias_partial.shape[1], direction.offset is not None, _BLOCK,
        num_warps=4,
    )  # fmt: skip


def correct(direction: Direction, pace: Pace, region: Region, gradient: Tensor) -> None:
    """See ``twins.correct``."""
    rows = gradient.contiguous()[:, None]
    fold(direction, pace, region, rows, None, rows)


def slots(size: int) -> int:
    """How many partial sums of squares a region takes in ``fold``."""
    return int(triton.cdiv(size, _BLOCK))


def update(direction: Direction, pace: Pace, rates: Rates, half: Tensor) -> None:
    """See ``twins.update``."""
    clients, parameters = direction.w.shape
    count = direction.squares.shape[1]
    launch(
        _update, (triton.cdiv(parameters, _UPDATE_BLOCK), clients),
        direction.d, direction.w, half, direction.squares, rates.eta, rates.clip, rates.decay, pace.step, pace.steps,
        count, parameters, triton.next_power_of_2(count), half is not direction.w, _UPDATE_BLOCK,
        num_warps=8,
    )  # fmt: skip
