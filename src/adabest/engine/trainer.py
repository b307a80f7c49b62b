"""The interface of trainers, with which the batched engine trains clients: one job per run, one result per job.

There is one for the cores of a CPU (``engine.cpu.trainer``) and one for a GPU (``engine.gpu.trainer``). The engine is
given a function that makes the trainer of a task, so that engine and trainers don't import each other.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from adabest.algorithms.base import ClientContext, Correction
from adabest.engine.interface import Request
from adabest.tasks.base import Heartbeat
from adabest.tasks.classification import ClassificationTask


class TrainingJob(NamedTuple):
    """Clients of one run that train at the same time.

    Attributes:
        request: What the run asked for: the task, the settings of training, the round.
        clients: Which of its clients.
        states: Their states, stacked.
        context: Their contexts, stacked.
        correction: Where they start, and the correction of their gradients; each field is one client's after another's
            (``[clients, ...]``) or the same for all of them.
    """

    request: Request
    clients: list[int]
    states: Any
    context: ClientContext
    correction: Correction

    @property
    def task(self) -> ClassificationTask:
        """What the clients learn."""
        assert isinstance(self.request.task, ClassificationTask)
        return self.request.task

    @property
    def round(self) -> int:
        """T."""
        return self.request.context.round

    @property
    def eta(self) -> Any:
        """η_t."""
        return self.request.context.eta

    @property
    def steps(self) -> list[int]:
        """K_i."""
        return [self.request.task.steps(client) for client in self.clients]


class TrainingResult(NamedTuple):
    """The clients of a job, or some of them, after their local training.

    Attributes:
        models: Their models, ``[clients, P]``.
        losses: Mean training loss over each client's steps.
        accuracies: Mean training accuracy over each client's steps.
        bad_steps: Each client's first step whose loss isn't finite; −1 where all are.
        bad_losses: The loss of that step.
    """

    models: Tensor
    losses: list[float]
    accuracies: list[float]
    bad_steps: list[int]
    bad_losses: list[float]

    @classmethod
    def of_client(cls, model: Tensor, losses: Tensor, accuracies: Tensor) -> "TrainingResult":
        """The result of a single client.

        Args:
            model: Its model, ``[P]``.
            losses: The loss of each step, float64 ``[K_i]``.
            accuracies: The accuracy of each step's batch, float64 ``[K_i]``.
        """
        bad = torch.nonzero(~torch.isfinite(losses)).flatten().tolist()
        return cls(
            models=model[None],
            losses=[float(losses.mean())],
            accuracies=[float(accuracies.mean())],
            bad_steps=[bad[0] if bad else -1],
            bad_losses=[float(losses[bad[0]]) if bad else 0.0],
        )

    @classmethod
    def joined(cls, results: Sequence["TrainingResult"]) -> "TrainingResult":
        """The results of several clients as one, in memory of its own."""
        columns = [[value for own in column for value in own] for column in list(zip(*results, strict=True))[1:]]
        return cls(torch.cat([result.models for result in results]), *columns)


class Unbatchable(Exception):
    """A model, loss or augmentation does something that can't be done for many clients at once. Carries what."""


class Trainer(Protocol):
    """Trains clients whose tasks are of one kind (see ``ClassificationTask.kind``)."""

    @property
    def mixes_runs(self) -> bool:
        """Whether clients of several runs may train at the same time with the last bits of each run alone."""

    @property
    def cuts_runs_as_alone(self) -> bool:
        """Whether a run that doesn't fit at once is cut into the same jobs whoever trains beside it."""

    def capacity(self, wanted: int) -> int:
        """How many of the clients that want to train may do so at the same time.

        Raises:
            InputError: If there isn't enough memory for a single one.
        """

    def take_fewer_than(self, clients: int) -> None:
        """Lowers the capacity after memory has run out with a number of clients.

        Raises:
            InputError: If that was a single one.
        """

    def train(self, jobs: Sequence[TrainingJob], heartbeat: Heartbeat) -> list[TrainingResult]:
        """Trains the clients of several runs; one result per job.

        Args:
            jobs: The clients. If the trainer doesn't mix runs, there is one job.
            heartbeat: Called between local steps; may raise.
        """


MakeTrainer = Callable[[ClassificationTask], Trainer]
"""Makes the trainer for all tasks of a task's kind; raises ``Unbatchable`` if there can be none."""
