"""Which samples many clients use in each of their steps, and how their images are moved: tables for a whole round.

They are drawn where they are used, on the device, for clients of several runs at once: a draw is named by its run's
seed, its round and its client, so it is the same as if the client were alone.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from adabest import random
from adabest.data.augmentation import PADDING, flip_crop_moves
from adabest.federation.batches import batch_table, batches_per_epoch
from adabest.random import Purpose
from adabest.tasks.classification import ClassificationTask

_SPAN = 2 * PADDING + 1
_MIRRORED = 128


class Member(NamedTuple):
    """A client of one of several runs that are trained together."""

    task: ClassificationTask
    client: int
    round: int


class Names(NamedTuple):
    """What names the draws of clients, int64 ``[clients]``."""

    seed: Tensor
    round: Tensor
    client: Tensor


def names(members: Sequence[Member], device: torch.device) -> Names:
    """The names of clients' draws."""
    rows = [[random.signed(member.task.seed), member.round, member.client] for member in members]
    return Names(*torch.tensor(rows, dtype=torch.int64).T.contiguous().to(device))


def chosen_samples(members: Sequence[Member], named: Names, steps: Tensor) -> Tensor:
    """The samples of each step, int32 ``[steps, clients, batch]``; rows after a client's last step are arbitrary."""
    device = named.client.device
    batch = members[0].task.batch_size
    samples = np.array([member.task.samples(member.client) for member in members])
    per_epoch = batches_per_epoch(samples, batch)
    epochs = int((-(-steps.cpu().numpy() // per_epoch)).max())
    table = batch_table(
        named.seed, named.round, named.client, torch.from_numpy(samples).to(device), epochs=epochs, batch_size=batch
    )
    step = torch.arange(int(steps.max()), device=device)[:, None]
    each = torch.from_numpy(per_epoch).to(device)
    epoch = (step // each).clamp(max=epochs - 1)
    positions = table[torch.arange(len(members), device=device), epoch, step % each]
    indices, starts = _indices(members, device)
    return indices[starts[:, None] + positions].to(torch.int32)


def _indices(members: Sequence[Member], device: torch.device) -> tuple[Tensor, Tensor]:
    """The sample indices of all clients of all runs, one after another, and where each member's begin."""
    tasks = list({id(member.task.partition): member.task for member in members}.values())
    sizes = np.cumsum([0, *(len(task.partition.indices) for task in tasks)])
    base = {id(task.partition): int(size) for task, size in zip(tasks, sizes, strict=False)}
    starts = [base[id(m.task.partition)] + int(m.task.partition.offsets[m.client]) for m in members]
    everything = tasks[0].indices if len(tasks) == 1 else torch.cat([task.indices for task in tasks])
    return everything, torch.tensor(starts, device=device)


def moves(named: Names, steps: int, batch: int) -> Tensor:
    """How flip-crop moves each image, int32 ``[steps, clients, batch]`` (see ``kernels.buffers.Source``)."""
    device = named.client.device
    step, place = torch.arange(steps, device=device)[:, None, None], torch.arange(batch, device=device)
    seed, round_number, client = (name[:, None] for name in named)
    keys = random.bits(seed, Purpose.AUGMENTATION, round_number, client, step, place)
    mirrored, down, right = flip_crop_moves(keys)
    return (mirrored * _MIRRORED + (down + PADDING) * _SPAN + right + PADDING).to(torch.int32)
