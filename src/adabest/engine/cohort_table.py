"""The table of the clients that train at the same time: all that a training needs from the host, in one copy."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adabest import random
from adabest.engine.arrival import send
from adabest.engine.interface import Request
from adabest.tasks.classification import ClassificationTask

DrawKeys = tuple[Tensor, Tensor, Tensor]
"""What names the draws of clients: seed, word of the round (``random.round_word``) and client, int64 ``[clients]``."""


@dataclass(frozen=True)
class CohortTable:
    """Whole numbers of the clients of several runs, one client after another.

    Attributes:
        keys: What names each client's draws, on the device.
        steps: K_i on the device, int64 ``[clients]``.
        samples: n_i on the device, int64 ``[clients]``.
        starts: The place of each client's first sample in ``indices``, on the device.
        indices: The samples of all clients of each partition, on the device; places count through all of them.
        host_steps: K_i on the host.
        host_samples: n_i on the host.
    """

    keys: DrawKeys
    steps: Tensor
    samples: Tensor
    starts: Tensor
    indices: tuple[Tensor, ...]
    host_steps: np.ndarray
    host_samples: np.ndarray

    @classmethod
    def of(cls, cohorts: Sequence[tuple[Request, Sequence[int]]]) -> "CohortTable":
        """The table of some clients of each of several runs whose tasks are classifications on one device."""
        columns = np.concatenate([_columns(*cohort) for cohort in cohorts], axis=1)
        tasks = {id(task.partition): task for task in (_task(request) for request, _ in cohorts)}
        first = dict(zip(tasks, np.cumsum([0, *(len(task.indices) for task in tasks.values())]), strict=False))
        columns[5] += np.repeat(
            [first[id(_task(request).partition)] for request, _ in cohorts], [len(clients) for _, clients in cohorts]
        )
        indices = tuple(task.indices for task in tasks.values())
        seed, round_number, client, steps, samples, starts = send(columns, torch.int64, indices[0].device)
        return cls(
            keys=(seed, round_number, client),
            steps=steps,
            samples=samples,
            starts=starts,
            indices=indices,
            host_steps=columns[3],
            host_samples=columns[4],
        )

    def rows(self, parts: Sequence[slice]) -> "CohortTable":
        """The table of the clients in some of its rows, without waiting for a device."""

        def chosen(values: Any) -> Any:
            cut = [values[part] for part in parts]
            return torch.cat(cut) if isinstance(values, Tensor) else np.concatenate(cut)

        seed, round_word, client = map(chosen, self.keys)
        return replace(
            self,
            keys=(seed, round_word, client),
            steps=chosen(self.steps),
            samples=chosen(self.samples),
            starts=chosen(self.starts),
            host_steps=chosen(self.host_steps),
            host_samples=chosen(self.host_samples),
        )


def _columns(request: Request, clients: Sequence[int]) -> np.ndarray:
    """Seed, word of the round, client, K_i, n_i and first sample of some clients of a run, int64 ``[6, clients]``."""
    task, count = _task(request), len(clients)
    chosen = np.asarray(clients, dtype=np.int64)
    starts, samples = task.partition.spans(chosen)
    return np.stack(
        [
            np.full(count, random.signed(task.seed), dtype=np.int64),
            np.full(count, request.round_word, dtype=np.int64),
            chosen,
            request.steps(clients),
            samples,
            starts,
        ]
    )


def _task(request: Request) -> ClassificationTask:
    assert isinstance(request.task, ClassificationTask)
    return request.task
