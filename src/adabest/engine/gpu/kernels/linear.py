"""Per-client linear layers as Triton kernels; see the twins for what they compute."""

import triton
import triton.language as tl
from torch import Tensor

from adabest.engine.gpu.kernels.buffers import Direction, Pace, Region
from adabest.engine.gpu.kernels.launches import jit, launch
from adabest.engine.gpu.kernels.updates import corrected, pointers, presence
from adabest.engine.shapes import LinearShape


@jit
def _linear(
    x, w, bias, y, step, steps, w_stride, bias_stride,
    BATCH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, STORED: tl.constexpr,
    RELU: tl.constexpr, HAS_BIAS: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_BATCH: tl.constexpr, BLOCK_OUTPUTS: tl.constexpr, BLOCK_INPUTS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    sample = tl.program_id(1) * BLOCK_BATCH + tl.arange(0, BLOCK_BATCH)
    output = tl.program_id(0) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    there, known = (sample < BATCH)[:, None], output < OUTPUTS
    weight = w + client * w_stride
    total = tl.zeros((BLOCK_BATCH, BLOCK_OUTPUTS), tl.float32)
    for begin in range(0, INPUTS, BLOCK_INPUTS):
        k = begin + tl.arange(0, BLOCK_INPUTS)
        some = k < INPUTS
        at = x + client * (BATCH * INPUTS) + (sample[:, None] * INPUTS + k[None, :])
        values = tl.load(at, mask=there & some[None, :], other=0.0)
        rows = tl.load(weight + output[None, :] * INPUTS + k[:, None], mask=some[:, None] & known[None, :], other=0.0)
        total = tl.dot(values, rows, total, input_precision=PRECISION)
    if HAS_BIAS:
        total += tl.load(bias + client * bias_stride + output, mask=known, other=0.0).to(tl.float32)[None, :]
    if RELU:
        total = tl.where(total < 0, 0.0, total)
    into = y + client * (BATCH * STORED) + (sample[:, None] * STORED + output[None, :])
    tl.store(into, total.to(y.dtype.element_ty), mask=there & (output < STORED)[None, :])


@jit
def _input_gradient(
    dy, w, x, dx, step, steps, w_stride,
    BATCH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, STORED: tl.constexpr,
    THROUGH_RELU: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_BATCH: tl.constexpr, BLOCK_INPUTS: tl.constexpr, BLOCK_OUTPUTS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(2).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    sample = tl.program_id(1) * BLOCK_BATCH + tl.arange(0, BLOCK_BATCH)
    k = tl.program_id(0) * BLOCK_INPUTS + tl.arange(0, BLOCK_INPUTS)
    there, known = (sample < BATCH)[:, None], (k < INPUTS)[None, :]
    weight = w + client * w_stride
    total = tl.zeros((BLOCK_BATCH, BLOCK_INPUTS), tl.float32)
    for begin in range(0, OUTPUTS, BLOCK_OUTPUTS):
        output = begin + tl.arange(0, BLOCK_OUTPUTS)
        some = output < OUTPUTS
        at = dy + client * (BATCH * STORED) + (sample[:, None] * STORED + output[None, :])
        gradient = tl.load(at, mask=there & some[None, :], other=0.0)
        rows = tl.load(weight + output[:, None] * INPUTS + k[None, :], mask=some[:, None] & known, other=0.0)
        total = tl.dot(gradient, rows, total, input_precision=PRECISION)
    first = client * (BATCH * INPUTS)
    place = sample[:, None] * INPUTS + k[None, :]
    if THROUGH_RELU:
        total = tl.where(tl.load(x + first + place, mask=there & known, other=0.0) > 0, total, 0.0)
    tl.store(dx + first + place, total.to(dx.dtype.element_ty), mask=there & known)


@jit
def _weight_gradient(
    x, dy, d, w, offset, diagonal, minus, velocity, scale, rho, momentum, squares, step, steps,
    parameters, weight, bias, slots, slot, bias_slot,
    BATCH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, STORED: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_OFFSET: tl.constexpr, HAS_DIAGONAL: tl.constexpr, HAS_MINUS: tl.constexpr,
    HAS_VELOCITY: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_BATCH: tl.constexpr, BLOCK_OUTPUTS: tl.constexpr, BLOCK_INPUTS: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    if tl.load(step) >= tl.load(steps + client):
        return
    input_blocks: tl.constexpr = (INPUTS + BLOCK_INPUTS - 1) // BLOCK_INPUTS
    k = (tl.program_id(0) % input_blocks) * BLOCK_INPUTS + tl.arange(0, BLOCK_INPUTS)
    output_block = tl.program_id(0) // input_blocks
    output = output_block * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    known, some = output < OUTPUTS, k < INPUTS
    total = tl.zeros((BLOCK_OUTPUTS, BLOCK_INPUTS), tl.float32)
    sums = tl.zeros((BLOCK_OUTPUTS,), tl.float32)
    for begin in range(0, BATCH, BLOCK_BATCH):
        sample = begin + tl.arange(0, BLOCK_BATCH)
        there = sample < BATCH
        at = dy + client * (BATCH * STORED) + (sample[None, :] * STORED + output[:, None])
        gradient = tl.load(at, mask=known[:, None] & there[None, :], other=0.0)
        at = x + client * (BATCH * INPUTS) + (sample[:, None] * INPUTS + k[None, :])
        values = tl.load(at, mask=there[:, None] & some[None, :], other=0.0)
        total = tl.dot(gradient, values, total, input_precision=PRECISION)
        sums += tl.sum(gradient.to(tl.float32), 1)
    first = client * parameters
    mask = known[:, None] & some[None, :]
    place = weight + output[:, None] * INPUTS + k[None, :]
    result = corrected(
        total, first, place, mask, w, offset, diagonal, minus, velocity, scale, rho, momentum, client,
        HAS_OFFSET, HAS_DIAGONAL, HAS_MINUS, HAS_VELOCITY,
    )  # fmt: skip
    tl.store(d + first + place, result, mask=mask)
    tl.store(
        squares + client * slots + slot + tl.program_id(0), tl.sum(tl.sum(tl.where(mask, result * result, 0.0), 1), 0)
    )
    if HAS_BIAS:
        if tl.program_id(0) % input_blocks == 0:
            bias_result = corrected(
                sums, first, bias + output, known, w, offset, diagonal, minus, velocity, scale, rho, momentum, client,
                HAS_OFFSET, HAS_DIAGONAL, HAS_MINUS, HAS_VELOCITY,
            )  # fmt: skip
            tl.store(d + first + bias + output, bias_result, mask=known)
            square = tl.sum(tl.where(known, bias_result * bias_result, 0.0), 0)
            tl.store(squares + client * slots + bias_slot + output_block, square)


# Inputs and outputs of a program's block, and its warps; measured on an H200 with the paper's CNN.
WEIGHT_BLOCKS = (64, 32, 4)


def linear(
    shape: LinearShape, pace: Pace, x: Tensor, w: Tensor, bias: Tensor | None, y: Tensor, precision: str
) -> None:
    """See ``twins.linear``."""
    clients, batch = x.shape[:2]
    block_batch, block_outputs = _batch_block(batch), _block(shape.outputs, 64)
    grid = (triton.cdiv(shape.stored_outputs, block_outputs), triton.cdiv(batch, block_batch), clients)
    launch(
        _linear, grid,
        x, w, w if bias is None else bias, y, pace.step, pace.steps,
        w.stride(0), 0 if bias is None else bias.stride(0),
        batch, shape.inputs, shape.outputs, shape.stored_outputs, shape.relu, bias is not None, precision,
        block_batch, block_outputs, _block(shape.inputs, 64 if x.element_size() == 2 else 32),
        num_warps=4, num_stages=4,
    )  # fmt: skip


def linear_input_gradient(
    shape: LinearShape, pace: Pace, dy: Tensor, w: Tensor, x: Tensor | None, dx: Tensor, precision: str
) -> None:
    """See ``twins.linear_input_gradient``."""
    clients, batch = dy.shape[:2]
    block_batch, block_inputs = _batch_block(batch), _block(shape.inputs, 64)
    grid = (triton.cdiv(shape.inputs, block_inputs), triton.cdiv(batch, block_batch), clients)
    launch(
        _input_gradient, grid,
        dy, w, dy if x is None else x, dx, pace.step, pace.steps, w.stride(0),
        batch, shape.inputs, shape.outputs, shape.stored_outputs, x is not None, precision,
        block_batch, block_inputs, _block(shape.outputs, 64 if dy.element_size() == 2 else 32),
        num_warps=4, num_stages=3,
    )  # fmt: skip


def linear_weight_gradient(
    shape: LinearShape,
    pace: Pace,
    x: Tensor,
    dy: Tensor,
    direction: Direction,
    weight: Region,
    bias: Region | None,
    precision: str,
) -> None:
    """See ``twins.linear_weight_gradient``."""
    clients, batch = x.shape[:2]
    block_inputs, block_outputs = _weight_blocks(shape)
    launch(
        _weight_gradient, (linear_slots(shape)[0], clients),
        x, dy, *pointers(direction), pace.step, pace.steps,
        direction.d.stride(0), weight.start, 0 if bias is None else bias.start,
        direction.squares.stride(0), weight.slot, 0 if bias is None else bias.slot,
        batch, shape.inputs, shape.outputs, shape.stored_outputs,
        bias is not None, *presence(direction), precision,
        _batch_block(batch), block_outputs, block_inputs,
        num_warps=WEIGHT_BLOCKS[2], num_stages=2,
    )  # fmt: skip


def linear_slots(shape: LinearShape) -> tuple[int, int]:
    """How many partial sums of squares the weight and the bias take."""
    block_inputs, block_outputs = _weight_blocks(shape)
    of_bias = int(triton.cdiv(shape.outputs, block_outputs))
    return int(triton.cdiv(shape.inputs, block_inputs)) * of_bias, of_bias


def _weight_blocks(shape: LinearShape) -> tuple[int, int]:
    return _block(shape.inputs, WEIGHT_BLOCKS[0]), _block(shape.outputs, WEIGHT_BLOCKS[1])


def _batch_block(batch: int) -> int:
    return _block(batch, 64)


def _block(count: int, most: int) -> int:
    return min(most, max(16, triton.next_power_of_2(count)))
