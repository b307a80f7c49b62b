"""One client's local training, as the loops on CPU cores get it and give it back."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from adabest import random
from adabest.data.augmentation import flip_crop, none
from adabest.errors import AdabestError
from adabest.random import Purpose
from adabest.tasks.classification import ClassificationTask


class Job(NamedTuple):
    """A client that is to be trained.

    Attributes:
        task: What it learns.
        client: Who it is.
        round: t.
        chosen: The samples of its steps, int64 ``[K_i, batch]``.
        labels: Their labels, likewise.
        start: Where it starts, ``[P]``.
        offset: o, likewise; None for none.
        scale: s.
        rho: ρ.
        eta: η_t.
        clip: The largest norm of the corrected gradient; 0 for none.
        decay: λ + ρ′.
    """

    task: ClassificationTask
    client: int
    round: int
    chosen: Tensor
    labels: Tensor
    start: Tensor
    offset: Tensor | None
    scale: float
    rho: float
    eta: float
    clip: float
    decay: float


class Done(NamedTuple):
    """A client after its training.

    Attributes:
        model: Its model, ``[P]``.
        losses: The loss of each step, float64 ``[K_i]``.
        accuracies: The accuracy of each step's batch, likewise.
    """

    model: Tensor
    losses: Tensor
    accuracies: Tensor


def batch(jobs: Sequence[Job], step: int, room: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Inputs, normalised and augmented, and labels of one step, one after another for all jobs.

    Args:
        jobs: Who makes the step.
        step: Its number.
        room: Where to put the inputs, if there is room for them.
    """
    task, size = jobs[0].task, jobs[0].chosen.shape[1]
    inputs = task.inputs(_rows([job.chosen for job in jobs], step), room)
    if task.augmentation is not none:
        seeds, rounds, clients = (
            torch.tensor([[random.signed(word)] for word in words])
            for words in zip(*((job.task.seed, job.round, job.client) for job in jobs), strict=True)
        )
        keys = random.bits(seeds, Purpose.AUGMENTATION, rounds, clients, step, torch.arange(size))
        # A user's own may look at the whole batch, which must be one client's.
        batches = (
            [(inputs, keys.view(-1))]
            if task.augmentation is flip_crop
            else zip(torch.split(inputs, size), keys, strict=True)
        )
        moved = torch.cat([task.augmentation(own, of_own) for own, of_own in batches])
        inputs = moved if room is None else room.copy_(moved)
    return inputs, _rows([job.labels for job in jobs], step)


def _rows(tables: Sequence[Tensor], step: int) -> Tensor:
    """The rows of one step."""
    return torch.cat([table[step] for table in tables]) if len(tables) > 1 else tables[0][step]


def clip_factor(norm: float, clip: float) -> float:
    """What a direction of this norm is multiplied by. A norm too large for a number must end the run."""
    if norm <= clip or clip == 0:
        return 1.0
    return clip / norm if norm < float("inf") else float("nan")


@dataclass
class Place:
    """Which step is being made."""

    step: int = 0


@contextlib.contextmanager
def told_where(jobs: Sequence[Job]) -> Iterator[Place]:
    """Adds to an exception in which local step of which clients it was raised."""
    place = Place()
    try:
        yield place
    except AdabestError:
        raise
    except Exception as error:
        error.add_note(f"in local step {place.step}")
        clients = ", ".join(str(job.client) for job in jobs)
        error.add_note(f"in round {jobs[0].round}, client {clients}")
        raise
