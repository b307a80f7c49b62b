"""Tables for many clients and a whole round: the samples of each local step, and how images are flipped and cropped.

They are drawn where they are used, on the device, for clients of several runs at once. A draw is named by its run's
seed, its round and its client, so it is the same as if the client were alone.
"""

import torch
from torch import Tensor

from adabest import random
from adabest.data.augmentation import encode_flip_crop, flip_crop_draws
from adabest.engine.cohort_table import CohortTable, DrawKeys
from adabest.federation.batches import MISSING, Batching, batch_table, batches_per_epoch
from adabest.random import Purpose


def chosen_samples(table: CohortTable, batch: int, batching: Batching = "top-up") -> Tensor:
    """The samples of each step, int32 ``[steps, clients, batch]``; rows after a client's last step are arbitrary.

    ``MISSING`` stands for what short batches don't have.
    """
    device = table.steps.device
    most, per_epoch = int(table.host_samples.max()), batches_per_epoch(table.host_samples, batch)
    epochs = int((-(-table.host_steps // per_epoch)).max())
    positions = batch_table(
        *table.keys, table.samples, epochs=epochs, batch_size=batch, batching=batching, most_samples=most
    )
    step = torch.arange(int(table.host_steps.max()), device=device)[:, None]
    each = batches_per_epoch(table.samples, batch)
    epoch = (step // each).clamp(max=epochs - 1)
    chosen = positions[torch.arange(len(table.samples), device=device), epoch, step % each]
    indices = table.indices[0] if len(table.indices) == 1 else torch.cat(table.indices)
    if batching != "short":
        return indices[table.starts[:, None] + chosen].to(torch.int32)
    found = indices[table.starts[:, None] + chosen.clamp(min=0)].to(torch.int32)
    return found.masked_fill_(chosen == MISSING, MISSING)


def all_samples(table: CohortTable, batch: int) -> Tensor:
    """All samples of each client in their own order, cut into batches, int32 ``[batches, clients, batch]``.

    ``MISSING`` stands for what is beyond a client's last sample.
    """
    batches = int(batches_per_epoch(table.host_samples.max(), batch))
    place = torch.arange(batches * batch, device=table.samples.device).view(batches, 1, batch)
    own = table.samples[:, None]
    indices = table.indices[0] if len(table.indices) == 1 else torch.cat(table.indices)
    found = indices[table.starts[:, None] + torch.minimum(place, own - 1)].to(torch.int32)
    return found.masked_fill_(place >= own, MISSING)


def flip_crop_codes(keys: DrawKeys, steps: int, batch: int) -> Tensor:
    """How each image is flipped and cropped, int32 ``[steps, clients, batch]`` (see ``data.augmentation``)."""
    device = keys[0].device
    step, place = torch.arange(steps, device=device)[:, None, None], torch.arange(batch, device=device)
    seed, round_number, client = (key[:, None] for key in keys)
    bits = random.bits(seed, Purpose.AUGMENTATION, round_number, client, step, place)
    return encode_flip_crop(*flip_crop_draws(bits))
