"""Batches: the samples that a client uses in each local step."""

from typing import Any, Literal

import numpy as np
import torch

from adabest import random
from adabest.random import Purpose

Batching = Literal["top-up", "short", "replacement"]
"""How the samples of an epoch become batches; see ``batch_table``."""

MISSING = -1
"""What stands in the place of a sample that a short batch doesn't have."""

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
    batching: Batching = "top-up",
    most_samples: int | None = None,
) -> Any:
    """The batches of several clients in one round, as positions among each client's own samples.

    ===============  ==============================================================================================
    ``batching``     an epoch of a client
    ===============  ==============================================================================================
    ``top-up``       a random permutation of its samples; the last batch is filled with uniform draws from all of them
    ``short``        the same permutation; the last batch has only the samples that are left
    ``replacement``  uniform draws from all of its samples, as many as ``top-up`` has
    ===============  ==============================================================================================

    A client's rows don't depend on which other clients are in the table.

    Args:
        seed: The run's seed, or one for each client, like ``clients``.
        round_number: t, or one for each client, like ``clients``.
        clients: ``[clients]`` int64, NumPy or torch.
        samples: n_i of those clients, ``[clients]`` int64 of the same library.
        epochs: How many epochs.
        batch_size: Samples in a batch.
        batching: How an epoch's batches are made.
        most_samples: The largest n_i, if it is known; else ``samples`` are asked, which waits for a GPU.

    Returns:
        ``[clients, epochs, batches, batch size]`` int64 of the same library. ``batches`` is the largest client's; a
        smaller client uses its first ``batches_per_epoch``. ``MISSING`` stands for what short batches don't have,
        always after the samples that they have.
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
    beyond: Any = MISSING
    if batching != "short":
        beyond = random.below(random.bits(seed, Purpose.BATCH_TOP_UP, round_number, client, epoch, place), own)
    table = beyond
    if batching != "replacement":
        keys = random.bits(seed, Purpose.BATCH_ORDER, round_number, client, epoch, place)
        table = where(place < own, random.order(where(place < own, keys, _LAST)), beyond)
    return table.reshape(len(clients), epochs, batches, batch_size)
