"""Clients of training jobs, one by one, as the cores of a CPU train them."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adabest import random
from adabest.data.augmentation import flip_crop, none
from adabest.engine.cohort_table import CohortTable
from adabest.engine.cpu.whole_steps import Affine, StepParts
from adabest.engine.sample_table import chosen_samples
from adabest.engine.trainer import TrainingJob
from adabest.errors import AdabestError
from adabest.federation.batches import MISSING
from adabest.random import Purpose
from adabest.tasks.classification import ClassificationTask


class ClientRow(NamedTuple):
    """One client of a training job: its row of the job's tensors, with the samples of its steps.

    Attributes:
        task: What it learns.
        client: Its number.
        round: t.
        chosen: The samples of its steps, int64 ``[K_i, batch]``. Where a short batch lacks samples, its first one
            stands in their places.
        labels: Their targets, ``[K_i, batch, ...]``.
        start: Where it starts, ``[P]``.
        offset: o, ``[P]``; None for none.
        scale: s.
        rho: ρ.
        eta: η_t.
        clip: The largest norm of the corrected gradient; 0 for none.
        decay: λ + ρ′.
        counts: How many samples each batch has, the first of its row, int64 ``[K_i]``; None if all batches are full.
        round_word: The word for the round in the names of draws.
        parts: What its steps have beside the affine correction; None for nothing.
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
    counts: Tensor | None = None
    round_word: int = 0
    parts: StepParts | None = None

    @property
    def affine(self) -> Affine:
        """The numbers of a step."""
        return Affine(self.scale, self.rho, self.eta, self.clip, self.decay)


class TrainedRow(NamedTuple):
    """A client after its training.

    Attributes:
        model: Its model, ``[P]``.
        losses: The loss of each of its steps, float64 ``[K_i]``.
        values: The first metric of each of its steps, float64 ``[K_i]``.
        velocity: Its last m, ``[P]``; None without momentum.
    """

    model: Tensor
    losses: Tensor
    values: Tensor
    velocity: Tensor | None = None


def client_rows(job: TrainingJob) -> Iterator[ClientRow]:
    """The clients of a job, in order."""
    steps = job.steps
    task, round_number = job.task, job.round
    chosen = chosen_samples(CohortTable.of([(job.request, job.clients)]), task.batch_size, task.batching)
    chosen = chosen.transpose(0, 1).to(torch.int64, memory_format=torch.contiguous_format)
    counts = None
    if task.batching == "short":
        counts = (chosen != MISSING).sum(dim=2)
        chosen = torch.where(chosen == MISSING, chosen[..., :1], chosen)
    labels = task.data.y_train[chosen]
    correction, training = job.correction, job.request.training
    for place, client in enumerate(job.clients):
        yield ClientRow(
            task=task,
            client=client,
            round=round_number,
            chosen=chosen[place, : steps[place]],
            labels=labels[place, : steps[place]],
            start=vector_of(correction.start, place),
            offset=_vector_or_none(correction.offset, place),
            scale=1.0 if correction.has_diagonal else _number(correction.scale, place),
            rho=_number(correction.rho, place),
            eta=_number(job.eta, place),
            clip=training.clip,
            decay=training.weight_decay + _number(correction.rho_prime, place),
            counts=None if counts is None else counts[place, : steps[place]],
            round_word=job.request.round_word,
            parts=_parts(job, place),
        )


def _parts(job: TrainingJob, place: int) -> StepParts | None:
    """What the steps of one client have beside the affine correction; None for nothing."""
    correction, adam = job.correction, job.request.training.optimizer
    if correction.is_affine and not correction.has_diagonal and adam is None:
        return None
    diagonal = correction.scale if correction.has_diagonal and isinstance(correction.scale, Tensor) else None
    return StepParts(
        diagonal=_vector_or_none(diagonal, place),
        shift=_vector_or_none(correction.shift, place),
        radius=_number(correction.radius, place) if correction.has_radius else None,
        anchor=_vector_or_none(correction.anchor, place),
        previous=correction.previous,
        momentum=_number(correction.momentum, place) if correction.has_momentum else None,
        velocity=_vector_or_none(correction.velocity, place),
        adam=adam,
    )


def _vector_or_none(value: Tensor | None, place: int) -> Tensor | None:
    return None if value is None else vector_of(value, place)


def vector_of(value: Tensor, place: int) -> Tensor:
    """One client's vector; what has no dimension for the clients is the same for all of them."""
    return value if value.ndim == 1 else value[place]


def _number(value: Any, place: int) -> float:
    """One client's number; a single number is the same for all of them."""
    if not isinstance(value, Tensor):
        return float(value)
    return float(value.reshape(-1)[place if value.numel() > 1 else 0])


def batch(rows: Sequence[ClientRow], step: int, buffer: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Inputs, normalised and augmented, and labels of one step, one client's after another's.

    Args:
        rows: The clients that make the step.
        step: Its number.
        buffer: Where to put the inputs; by default in memory of their own.
    """
    task, size = rows[0].task, rows[0].chosen.shape[1]
    inputs = task.inputs(_of_step([row.chosen for row in rows], step), buffer)
    if task.augmentation is not none:
        seeds, rounds, clients = (
            torch.tensor([[random.signed(word)] for word in words])
            for words in zip(*((row.task.seed, row.round_word, row.client) for row in rows), strict=True)
        )
        keys = random.bits(seeds, Purpose.AUGMENTATION, rounds, clients, step, torch.arange(size))
        # An augmentation of the user's own may look at the whole batch, which must be one client's.
        batches = (
            [(inputs, keys.view(-1))]
            if task.augmentation is flip_crop
            else zip(torch.split(inputs, size), keys, strict=True)
        )
        augmented = torch.cat([task.augmentation(own, of_own) for own, of_own in batches])
        inputs = augmented if buffer is None else buffer.copy_(augmented)
    return inputs, _of_step([row.labels for row in rows], step)


def cut_to_samples(row: ClientRow, step: int) -> ClientRow:
    """A client whose batches are as long as that of one step, without what stands for missing samples there."""
    if row.counts is None:
        return row
    count = int(row.counts[step])
    return row._replace(chosen=row.chosen[:, :count], labels=row.labels[:, :count])


def _of_step(tables: Sequence[Tensor], step: int) -> Tensor:
    """The rows of tables that belong to one step, one after another."""
    return torch.cat([table[step] for table in tables]) if len(tables) > 1 else tables[0][step]


@dataclass
class CurrentStep:
    """The number of the local step that is being made."""

    step: int = 0


@contextlib.contextmanager
def place_in_errors(rows: Sequence[ClientRow]) -> Iterator[CurrentStep]:
    """Adds notes to an exception: the local step, the round and the clients in which it was raised."""
    current = CurrentStep()
    try:
        yield current
    except AdabestError:
        raise
    except Exception as error:
        error.add_note(f"in local step {current.step}")
        clients = ", ".join(str(row.client) for row in rows)
        error.add_note(f"in round {rows[0].round}, client {clients}")
        raise
