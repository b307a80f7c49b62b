"""Tables of samples and of flips and crops as Triton kernels; see ``engine.sample_table`` for what they compute.

They draw by the hash of ``adabest.random``, which a kernel can't call: in torch every operation on words is a launch of
its own, some three hundred in a round.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from adabest import random
from adabest.engine import sample_table
from adabest.engine.cohort_table import CohortTable, DrawKeys
from adabest.engine.gpu.kernels.launches import jit, launch
from adabest.federation.batches import MISSING, Batching, batches_per_epoch
from adabest.random import Purpose

_GAMMA = tl.constexpr(random.signed(random.GAMMA))
_FIRST_FACTOR = tl.constexpr(random.signed(random.FIRST_FACTOR))
_SECOND_FACTOR = tl.constexpr(random.signed(random.SECOND_FACTOR))
_ORDER = tl.constexpr(int(Purpose.BATCH_ORDER))
_TOP_UP = tl.constexpr(int(Purpose.BATCH_TOP_UP))
_AUGMENTATION = tl.constexpr(int(Purpose.AUGMENTATION))
_LAST = tl.constexpr(2**63 - 1)
_MISSING = tl.constexpr(MISSING)
_BLOCK = 1024
_LONGEST_GRID = 65_535  # in its second and third dimension


@triton.jit
def _shift_right(x, BY: tl.constexpr):
    """Logical shift of int64, whose own shift copies the sign."""
    return (x >> BY) & ((1 << (64 - BY)) - 1)


@triton.jit
def _hash(state, word):
    """``state`` and one more word of a draw's name: what ``random.bits`` does for each word."""
    x = (state ^ word) + _GAMMA
    x = (x ^ _shift_right(x, 30)) * _FIRST_FACTOR
    x = (x ^ _shift_right(x, 27)) * _SECOND_FACTOR
    return x ^ _shift_right(x, 31)


@triton.jit
def _below(bits, bound):
    return _shift_right(_shift_right(bits, 32) * bound, 32)


@triton.jit
def _of_client(seed, round_number, client, row, PURPOSE: tl.constexpr):
    """The hash of the first four words: seed, purpose, round and client."""
    nothing = tl.zeros((1,), tl.int64)
    state = _hash(nothing, tl.load(seed + row))
    state = _hash(state, PURPOSE)
    state = _hash(state, tl.load(round_number + row))
    return _hash(state, tl.load(client + row))


@jit
def _order_keys(seed, round_number, client, samples, keys, epochs, places, BLOCK: tl.constexpr):
    row, epoch = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    state = _hash(_of_client(seed, round_number, client, row, _ORDER), epoch)
    drawn = tl.where(place < tl.load(samples + row), _hash(state, place), _LAST)
    tl.store(keys + (row * epochs + epoch) * places + place, drawn, mask=place < places)


@jit
def _chosen(
    seed, round_number, client, samples, starts, order, indices, out,
    epochs, places, BATCH: tl.constexpr, BATCHING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, step = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    clients = tl.num_programs(0).to(tl.int64)
    sample = tl.arange(0, BLOCK)
    there = sample < BATCH
    own = tl.load(samples + row)
    batches = (own + BATCH - 1) // BATCH
    epoch = tl.minimum(step // batches, epochs - 1)
    place = (step % batches) * BATCH + sample
    inside = there & (place < own)
    if BATCHING != "replacement":
        shuffled = tl.load(order + (row * epochs + epoch) * places + place, mask=inside, other=0)
    if BATCHING == "short":
        position = shuffled
    else:
        state = _hash(_of_client(seed, round_number, client, row, _TOP_UP), epoch)
        position = _below(_hash(state, place), own)
    if BATCHING == "top-up":
        position = tl.where(place < own, shuffled, position)
    found = tl.load(indices + tl.load(starts + row) + position, mask=there, other=0)
    if BATCHING == "short":
        found = tl.where(inside, found, _MISSING)
    tl.store(out + (step * clients + row) * BATCH + sample, found.to(tl.int32), mask=there)


@jit
def _codes(seed, round_number, client, out, BATCH: tl.constexpr, BLOCK: tl.constexpr):
    row, step = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    clients = tl.num_programs(0).to(tl.int64)
    sample = tl.arange(0, BLOCK).to(tl.int64)
    word = _hash(_hash(_of_client(seed, round_number, client, row, _AUGMENTATION), step), sample)
    # What data.augmentation.flip_crop_draws and encode_flip_crop do: a draw is below a half if its first bit is 0.
    image = _hash(_hash(_hash(tl.zeros((BLOCK,), tl.int64), 0), _AUGMENTATION), word)
    mirrored, cropped = _hash(image, 0) >= 0, _hash(image, 1) >= 0
    down = tl.where(cropped, _below(_hash(image, 2), 9), 4)
    right = tl.where(cropped, _below(_hash(image, 3), 9), 4)
    code = tl.where(mirrored, 128, 0) + down * 9 + right
    tl.store(out + (step * clients + row) * BATCH + sample, code.to(tl.int32), mask=sample < BATCH)


def chosen_samples(table: CohortTable, batch: int, batching: Batching = "top-up") -> Tensor:
    """See ``sample_table.chosen_samples``."""
    clients, device = len(table.samples), table.samples.device
    per_epoch = batches_per_epoch(table.host_samples, batch)
    epochs, steps = int((-(-table.host_steps // per_epoch)).max()), int(table.host_steps.max())
    if max(clients, steps, epochs) > _LONGEST_GRID:
        return sample_table.chosen_samples(table, batch, batching)
    places = int(per_epoch.max()) * batch
    order = table.samples  # is read only where there is an order
    if batching != "replacement":
        keys = torch.empty((clients, epochs, places), dtype=torch.int64, device=device)
        launch(
            _order_keys, (triton.cdiv(places, _BLOCK), clients, epochs),
            *table.keys, table.samples, keys, epochs, places, _BLOCK,
            num_warps=4,
        )  # fmt: skip
        order = random.order(keys)
    indices = table.indices[0] if len(table.indices) == 1 else torch.cat(table.indices)
    out = torch.empty((steps, clients, batch), dtype=torch.int32, device=device)
    launch(
        _chosen, (clients, steps),
        *table.keys, table.samples, table.starts, order, indices, out,
        epochs, places, batch, batching, triton.next_power_of_2(batch),
        num_warps=1,
    )  # fmt: skip
    return out


def flip_crop_codes(keys: DrawKeys, steps: int, batch: int) -> Tensor:
    """See ``sample_table.flip_crop_codes``."""
    clients = len(keys[0])
    if steps > _LONGEST_GRID:
        return sample_table.flip_crop_codes(keys, steps, batch)
    out = torch.empty((steps, clients, batch), dtype=torch.int32, device=keys[0].device)
    launch(_codes, (clients, steps), *keys, out, batch, triton.next_power_of_2(batch), num_warps=1)
    return out
