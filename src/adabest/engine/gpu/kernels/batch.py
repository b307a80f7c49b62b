"""Batches and losses as Triton kernels; see the twins for what they compute."""

import triton
import triton.language as tl
from torch import Tensor

from adabest.engine.gpu.kernels.buffers import Pace, Source
from adabest.engine.gpu.kernels.launches import jit, launch
from adabest.engine.shapes import InputShape

_BLOCK = 2048


@jit
def _gather(
    inputs, mean, deviation, chosen, codes, out, step, steps,
    BATCH: tl.constexpr, CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    RUN: tl.constexpr, DOWN: tl.constexpr, RIGHT: tl.constexpr,
    COLUMNS: tl.constexpr, STEP: tl.constexpr, STORED_RUN: tl.constexpr, PIXELS: tl.constexpr, HAS_CODES: tl.constexpr,
    HAS_MISSING: tl.constexpr,
    RUN_BLOCK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    now = tl.load(step)
    if now >= tl.load(steps + client):
        return
    clients = tl.num_programs(1).to(tl.int64)
    sample = client * BATCH + tl.program_id(0)
    entry = now.to(tl.int64) * clients * BATCH + sample
    index = tl.load(chosen + entry)
    if HAS_MISSING:
        # The batch's first sample stands in the place of a missing one.
        index = tl.where(index < 0, tl.load(chosen + entry - tl.program_id(0)), index)
    image = inputs + index.to(tl.int64) * (CHANNELS * HEIGHT * WIDTH)
    if HAS_CODES:
        # What data.augmentation.decode_flip_crop does; a kernel can't call it.
        code = tl.load(codes + entry)
        mirrored = code // 128
        rows_down, columns_right = (code % 128) // 9 - 4, (code % 128) % 9 - 4
    # What depends on the pixel and what depends on the place in its run are worked out once each, not for every pair.
    within = tl.arange(0, RUN_BLOCK)
    of_run = tl.where(within < RUN * CHANNELS, within // CHANNELS, 0)
    for begin in range(0, PIXELS, BLOCK):
        pixel = begin + tl.arange(0, BLOCK)
        if RUN == 0:
            channel = (pixel // (HEIGHT * WIDTH))[:, None]
            row, column = ((pixel // WIDTH) % HEIGHT)[:, None], (pixel % WIDTH)[:, None]
            known = channel < CHANNELS
        else:
            channel = (within % CHANNELS)[None, :]
            row = (pixel // COLUMNS - DOWN)[:, None]
            column = (pixel % COLUMNS * STEP - RIGHT)[:, None] + of_run[None, :]
            known = (within < RUN * CHANNELS)[None, :] & (pixel < PIXELS)[:, None]
        # What lies outside the image is a convolution's padding.
        known = known & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
        if HAS_CODES:
            row += rows_down
            column += columns_right
            known = known & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
            column = tl.where(mirrored == 1, WIDTH - 1 - column, column)
        value = tl.load(image + ((channel * HEIGHT + row) * WIDTH + column), mask=known, other=0).to(tl.float32)
        value = value - tl.load(mean + channel, mask=channel < CHANNELS, other=0.0)
        value = value * (1.0 / tl.load(deviation + channel, mask=channel < CHANNELS, other=1.0))
        place = pixel[:, None] * STORED_RUN + within[None, :]
        into = out + sample * (PIXELS * STORED_RUN) + place
        inside = (pixel < PIXELS)[:, None] & (within < STORED_RUN)[None, :]
        tl.store(into, tl.where(known, value, 0.0).to(out.dtype.element_ty), mask=inside)


@jit
def _cross_entropy(
    scores, labels, chosen, counts, dy, losses, right, step, steps,
    BATCH: tl.constexpr, CLASSES: tl.constexpr, STORED: tl.constexpr, HAS_MISSING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    client = tl.program_id(1).to(tl.int64)
    now = tl.load(step)
    if now >= tl.load(steps + client):
        return
    clients = tl.num_programs(1).to(tl.int64)
    sample = client * BATCH + tl.program_id(0)
    entry = now.to(tl.int64) * clients * BATCH + sample
    index = tl.load(chosen + entry)
    if HAS_MISSING:
        there = index >= 0
        index = tl.maximum(index, 0)
    label = tl.load(labels + index).to(tl.int32)
    which = tl.arange(0, BLOCK)
    known = which < CLASSES
    score = tl.load(scores + sample * STORED + which, mask=known, other=-float("inf")).to(tl.float32)
    highest = tl.max(score, 0)
    weight = tl.exp(score - highest)
    total = tl.sum(weight, 0)
    true = tl.sum(tl.where(which == label, score, 0.0), 0)
    loss = tl.log(total) + highest - true
    hit = tl.min(tl.where(score == highest, which, BLOCK), 0) == label
    gradient = weight / total - tl.where(which == label, 1.0, 0.0)
    if HAS_MISSING:
        count = tl.load(counts + now.to(tl.int64) * clients + client).to(tl.float32)
        loss, hit = tl.where(there, loss, 0.0), hit & there
        gradient = tl.where(there, gradient / count, 0.0)
    else:
        gradient = gradient / BATCH
    tl.store(losses + entry, loss)
    tl.store(right + entry, hit.to(right.dtype.element_ty))
    into = dy + sample * STORED + which
    tl.store(into, tl.where(known, gradient, 0.0).to(dy.dtype.element_ty), mask=which < STORED)


def gather(shape: InputShape, source: Source, pace: Pace, out: Tensor) -> None:
    """See ``twins.gather``."""
    clients, batch = out.shape[:2]
    columns, stored_run = (1, 1) if shape.run == 0 else shape.stored[1:]
    pixels, run_block = out[0, 0].numel() // stored_run, triton.next_power_of_2(stored_run)
    launch(
        _gather, (batch, clients),
        source.inputs, source.mean, source.deviation, source.chosen,
        source.chosen if source.flip_crop_codes is None else source.flip_crop_codes, out, pace.step, pace.steps,
        batch, shape.channels, shape.height, shape.width, shape.run, *shape.padding,
        columns, shape.step, stored_run, pixels, source.flip_crop_codes is not None, source.counts is not None,
        run_block, max(16, _BLOCK // run_block),
        num_warps=4,
    )  # fmt: skip


def cross_entropy(
    source: Source, pace: Pace, scores: Tensor, classes: int, dy: Tensor, losses: Tensor, right: Tensor
) -> None:
    """See ``twins.cross_entropy``."""
    clients, batch, stored = scores.shape
    launch(
        _cross_entropy, (batch, clients),
        scores, source.labels, source.chosen, source.chosen if source.counts is None else source.counts,
        dy, losses, right, pace.step, pace.steps,
        batch, classes, stored, source.counts is not None, triton.next_power_of_2(stored),
        num_warps=1,
    )  # fmt: skip
