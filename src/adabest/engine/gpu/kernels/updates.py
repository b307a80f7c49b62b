"""The correction of gradients and the update of parameters as Triton kernels; see the twins for what they compute."""

import triton
import triton.language as tl
from torch import Tensor

from adabest.engine.gpu.kernels.buffers import Direction, Moments, Pace, Rates, Region
from adabest.engine.gpu.kernels.launches import jit, launch

_BLOCK = 1024
_UPDATE_BLOCK = 4096


@triton.jit
def corrected(
    gradient, first, place, mask, w, offset, diagonal, minus, velocity, scale, rho, momentum, client,
    HAS_OFFSET: tl.constexpr, HAS_DIAGONAL: tl.constexpr, HAS_MINUS: tl.constexpr, HAS_VELOCITY: tl.constexpr,
):  # fmt: skip
    """What ``twins.correct`` does. ``first`` is where the client's parameters begin, ``place`` counts from there."""
    if HAS_MINUS:
        gradient = gradient - tl.load(minus + first + place, mask=mask, other=0.0)
    result = tl.load(scale + client) * gradient
    if HAS_DIAGONAL:
        result = result * tl.load(diagonal + first + place, mask=mask, other=0.0)
    if HAS_OFFSET:
        result += tl.load(offset + first + place, mask=mask, other=0.0)
    pull = tl.load(rho + client)
    if pull != 0.0:
        result += pull * tl.load(w + first + place, mask=mask, other=0.0)
    if HAS_VELOCITY:
        if tl.load(momentum + client) == 1.0:
            result += tl.load(velocity + first + place, mask=mask, other=0.0)
    return result


@jit
def _fold(
    partial, bias_partial, d, w, offset, diagonal, minus, velocity, scale, rho, momentum, squares, step, steps,
    parameters, weight, bias, slots, slot, bias_slot,
    SIZE: tl.constexpr, PARTS: tl.constexpr, BIAS_SIZE: tl.constexpr, BIAS_PARTS: tl.constexpr,
    HAS_OFFSET: tl.constexpr, HAS_DIAGONAL: tl.constexpr, HAS_MINUS: tl.constexpr, HAS_VELOCITY: tl.constexpr,
    BLOCK: tl.constexpr,
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
    result = corrected(
        total, first, place, mask, w, offset, diagonal, minus, velocity, scale, rho, momentum, client,
        HAS_OFFSET, HAS_DIAGONAL, HAS_MINUS, HAS_VELOCITY,
    )  # fmt: skip
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


@triton.jit
def _clip_factor(squares, clip, client, slots, SLOTS: tl.constexpr):
    slot = tl.arange(0, SLOTS)
    norm = tl.sqrt(tl.sum(tl.load(squares + client * slots + slot, mask=slot < slots, other=0.0), 0))
    most = tl.load(clip + client)
    factor = most / norm
    factor = tl.where(factor > 1.0, 1.0, factor)
    # A norm too large for a number must end the run, not shrink the step to nothing.
    factor = tl.where(norm == float("inf"), float("nan"), factor)
    return tl.where(most == float("inf"), 1.0, factor)


@jit
def _whole_update(
    d, w, half, squares, velocity, previous, mean, square,
    eta, clip, decay, momentum, beta1, beta2, eps, unbiased1, unbiased2, step, steps,
    slots, PARAMETERS: tl.constexpr, SLOTS: tl.constexpr, HAS_HALF: tl.constexpr,
    HAS_VELOCITY: tl.constexpr, HAS_PREVIOUS: tl.constexpr, HAS_MOMENTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    factor = _clip_factor(squares, clip, client, slots, SLOTS)
    element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = element < PARAMETERS
    place = client * PARAMETERS + element
    before = tl.load(w + place, mask=mask, other=0.0)
    direction = tl.load(d + place, mask=mask, other=0.0)
    move = factor * direction
    if HAS_VELOCITY:
        b = tl.load(momentum + client)
        carried = b * tl.load(velocity + place, mask=mask, other=0.0) + move
        carried = tl.where(b == 1.0, direction, carried)
        move = tl.where(b == 1.0, move, carried)
        tl.store(velocity + place, carried, mask=mask)
    if HAS_MOMENTS:
        share1, share2 = tl.load(beta1 + client), tl.load(beta2 + client)
        a = share1 * tl.load(mean + place, mask=mask, other=0.0) + (1.0 - share1) * move
        v = share2 * tl.load(square + place, mask=mask, other=0.0) + (1.0 - share2) * move * move
        tl.store(mean + place, a, mask=mask)
        tl.store(square + place, v, mask=mask)
        root = tl.sqrt(v / tl.load(unbiased2 + client)) + tl.load(eps + client)
        move = a / tl.load(unbiased1 + client) / root
    if HAS_PREVIOUS:
        tl.store(previous + place, before.to(previous.dtype.element_ty), mask=mask)
    after = before - tl.load(eta + client) * (move + tl.load(decay + client) * before)
    tl.store(w + place, after, mask=mask)
    if HAS_HALF:
        tl.store(half + place, after.to(half.dtype.element_ty), mask=mask)


@jit
def _displace(
    w, shift, gradient, squares, point, radius, step, steps,
    slots, PARAMETERS: tl.constexpr, SLOTS: tl.constexpr,
    HAS_SHIFT: tl.constexpr, HAS_RADIUS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = element < PARAMETERS
    place = client * PARAMETERS + element
    moved = tl.load(w + place, mask=mask, other=0.0)
    if HAS_SHIFT:
        moved += tl.load(shift + place, mask=mask, other=0.0)
    if HAS_RADIUS:
        slot = tl.arange(0, SLOTS)
        norm = tl.sqrt(tl.sum(tl.load(squares + client * slots + slot, mask=slot < slots, other=0.0), 0))
        # A gradient of zero has no direction. A norm too large for a number must end the run.
        factor = tl.load(radius + client) / tl.where(norm == 0.0, 1.0, norm)
        factor = tl.where(norm == 0.0, 0.0, factor)
        factor = tl.where(norm == float("inf"), float("nan"), factor)
        moved += factor * tl.load(gradient + place, mask=mask, other=0.0)
    tl.store(point + place, moved.to(point.dtype.element_ty), mask=mask)


def pointers(direction: Direction) -> tuple[Tensor, ...]:
    """The tensors of a direction in the order in which kernels take them; d stands for those that there aren't."""
    vectors = (direction.offset, direction.diagonal, direction.minus, direction.velocity)
    numbers = (direction.scale, direction.rho, direction.scale if direction.momentum is None else direction.momentum)
    there = (direction.d if vector is None else vector for vector in vectors)
    return direction.d, direction.w, *there, *numbers, direction.squares


def presence(direction: Direction) -> tuple[bool, ...]:
    """Which of the vectors there are, in the order of ``pointers``."""
    vectors = (direction.offset, direction.diagonal, direction.minus, direction.velocity)
    return tuple(vector is not None for vector in vectors)


def fold(
    direction: Direction, pace: Pace, weight: Region, partial: Tensor, bias: Region | None, bias_partial: Tensor
) -> None:
    """See ``twins.fold``."""
    clients, parts, size = partial.shape
    bias_size = 0 if bias is None else bias.size
    launch(
        _fold, (slots(size) + (slots(bias_size) if bias_size else 0), clients),
        partial, bias_partial, *pointers(direction), pace.step, pace.steps,
        direction.d.stride(0), weight.start, 0 if bias is None else bias.start,
        direction.squares.stride(0), weight.slot, 0 if bias is None else bias.slot,
        size, parts, bias_size, bias_partial.shape[1], *presence(direction), _BLOCK,
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


def whole_update(
    direction: Direction, pace: Pace, rates: Rates, half: Tensor, previous: Tensor | None, moments: Moments | None
) -> None:
    """See ``twins.whole_update``."""
    clients, parameters = direction.w.shape
    count, d, eta = direction.squares.shape[1], direction.d, rates.eta
    numbers = (eta,) * 5
    if moments is not None:
        numbers = (moments.beta1, moments.beta2, moments.eps, moments.unbiased1, moments.unbiased2)
    launch(
        _whole_update, (triton.cdiv(parameters, _UPDATE_BLOCK), clients),
        d, direction.w, half, direction.squares,
        d if direction.velocity is None else direction.velocity, half if previous is None else previous,
        d if moments is None else moments.first, d if moments is None else moments.second,
        eta, rates.clip, rates.decay, eta if direction.momentum is None else direction.momentum, *numbers,
        pace.step, pace.steps,
        count, parameters, triton.next_power_of_2(count), half is not direction.w,
        direction.velocity is not None, previous is not None, moments is not None, _UPDATE_BLOCK,
        num_warps=8,
    )  # fmt: skip


def displace(direction: Direction, pace: Pace, shift: Tensor | None, radius: Tensor | None, point: Tensor) -> None:
    """See ``twins.displace``."""
    clients, parameters = direction.w.shape
    count = direction.squares.shape[1]
    launch(
        _displace, (triton.cdiv(parameters, _UPDATE_BLOCK), clients),
        direction.w, direction.w if shift is None else shift, direction.d, direction.squares, point,
        direction.scale if radius is None else radius, pace.step, pace.steps,
        count, parameters, triton.next_power_of_2(count), shift is not None, radius is not None, _UPDATE_BLOCK,
        num_warps=8,
    )  # fmt: skip
