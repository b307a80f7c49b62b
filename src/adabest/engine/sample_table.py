"""Tables for many clients and a whole round: the samples of each local step, and how images are flipped and cropped.

They are drawn where they are used, on the device, for clients of several runs at once. A draw is named by its run's
seed, its round and its client, so it is the same as if the client were alone.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from adabest import random
from adabest.data.augmentation import encode_flip_crop, flip_crop_draws
from adabest.engine.trainer import TrainingJob
from adabest.federation.batches import batch_table, batches_per_epoch
from adabest.random import Purpose

DrawKeys = tuple[Tensor, Tensor, Tensor]
"""What names the draws of clients: seed, round and client, each int64 ``[clients]``."""


def draw_keys(jobs: Sequence[TrainingJob], device: torch.device) -> DrawKeys:
    """The keys of the clients of jobs, in order."""
    runs = [(random.signed(job.task.seed), job.round, job.clients) for job in jobs]
    rows = [[seed, round_number, client] for seed, round_number, clients in runs for client in clients]
    seed, round_number, client = torch.tensor(rows, dtype=torch.int64).T.contiguous().to(device)
    return seed, round_number, client


def chosen_samples(jobs: Sequence[TrainingJob], keys: DrawKeys, steps: Tensor) -> Tensor:
    """The samples of each step, int32 ``[steps, clients, batch]``; rows after a client's last step are arbitrary."""
    seed, round_number, client = keys
    device, batch = client.device, jobs[0].task.batch_size
    samples = np.array([job.request.task.samples(client) for job in jobs for client in job.clients])
    per_epoch = batches_per_epoch(samples, batch)
    epochs = int((-(-steps.cpu().numpy() // per_epoch)).max())
    table = batch_table(
        seed, round_number, client, torch.from_numpy(samples).to(device), epochs=epochs, batch_size=batch
    )
    step = torch.arange(int(steps.max()), device=device)[:, None]
    each = torch.from_numpy(per_epoch).to(device)
    epoch = (step // each).clamp(max=epochs - 1)
    positions = table[torch.arange(len(samples), device=device), epoch, step % each]
    indices, starts = _indices(jobs, device)
    return indices[starts[:, None] + positions].to(torch.int32)


def _indices(jobs: Sequence[TrainingJob], device: torch.device) -> tuple[Tensor, Tensor]:
    """The sample indices of all clients of all runs, one after another, and where those of each client begin."""
    tasks = list({id(job.task.partition): job.task for job in jobs}.values())
    sizes = np.cumsum([0, *(len(task.partition.indices) for task in tasks)])
    base = {id(task.partition): int(size) for task, size in zip(tasks, sizes, strict=False)}
    starts = list[int]()
    for job in jobs:
        partition = job.task.partition
        starts += [base[id(partition)] + int(partition.offsets[client]) for client in job.clients]
    everything = tasks[0].indices if len(tasks) == 1 else torch.cat([task.indices for task in tasks])
    return everything, torch.tensor(starts, device=device)


def flip_crop_codes(keys: DrawKeys, steps: int, batch: int) -> Tensor:
    """How each image is flipped and cropped, int32 ``[steps, clients, batch]`` (see ``data.augmentation``)."""
    device = keys[0].device
    step, place = torch.arange(steps, device=device)[:, None, None], torch.arange(batch, device=device)
    seed, round_number, client = (key[:, None] for key in keys)
    bits = random.bits(seed, Purpose.AUGMENTATION, round_number, client, step, place)
    return encode_flip_crop(*flip_crop_draws(bits))
