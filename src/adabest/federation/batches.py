"""Batches: the samples that a client uses in each local step."""

from typing import Any

import numpy as np
import torch

from adabest import random
from adabest.random import Purpose

_LAST = 2**63 - 1


def batches_per_epoch(samples: Any, batch_size: int) -> Any:
    """⌈n_i / batch size⌉."""
    return -(-samples // batch_size)


def batch_table(
    seed: Any,
    round_number: Any,
    clients: Any,
    samples: Any,
    *,
    epochs: int,
    batch_size: int,
    most_samples: int | None = None,
) -> Any:
    """The batches of several clients in one round, as positions among each client's own samples.

    An epoch is a random permutation of the client's samples; its last batch is topped up with uniform draws from all of
    them, so every batch is full. A client's rows don't depend on which other clients are in the table.

    Args:
        seed: The run's seed, or one for each client, like ``clients``.
        round_number: t, or one for each client, like ``clients``.
        clients: ``[clients]`` int64, NumPy or torch.
        samples: n_i of those clients, ``[clients]`` int64 of the same library.
        epochs: How many epochs.
        batch_size: Samples in a batch.
        most_samples: The largest n_i, if it is known; else ``samples`` are asked, which waits for a GPU.

    Returns:
        ``[clients, epochs, batches, batch size]`` int64 of the same library. ``batches`` is the largest client's; a
        smaller client uses its first ``batches_per_epoch``.
    """
    where: Any = np.where
    arange: Any = np.arange
    if isinstance(clients, torch.Tensor):
        device = clients.device
        where, arange = torch.where, lambda count: torch.arange(count, device=device)
    batches = int(batches_per_epoch(samples.max() if most_samples is None else most_samples, batch_size))
    client, own = clients[:, None, None], samples[:, None, None]
    seed, round_number = (word if isinstance(word, int) else word[:, None, None] for word in (seed, round_number))
    epoch, place = arange(epochs)[:, None], arange(batches * batch_size)
    keys = random.bits(seed, Purpose.BATCH_ORDER, round_number, client, epoch, place)
    shuffled = random.order(where(place < own, keys, _LAST))
    top_up = random.below(random.bits(seed, Purpose.BATCH_TOP_UP, round_number, client, epoch, place), own)
    return where(place < own, shuffled, top_up).reshape(len(clients), epochs, batches, batch_size)
