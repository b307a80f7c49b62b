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
        """The task of the clients."""
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
    def of_clients(cls, clients: Sequence[tuple[Tensor, Tensor, Tensor]]) -> "TrainingResult":
        """The result of clients that were trained one by one.

        Args:
            clients: For each client its model ``[P]``, and of each of its steps the loss and the accuracy, float64
                ``[K_i]``.
        """
        bad = [torch.nonzero(~torch.isfinite(losses)).flatten().tolist()[:1] for _, losses, _ in clients]
        return cls(
            models=torch.stack([model for model, _, _ in clients]),
            losses=[float(losses.mean()) for _, losses, _ in clients],
            accuracies=[float(accuracies.mean()) for _, _, accuracies in clients],
            bad_steps=[steps[0] if steps else -1 for steps in bad],
            bad_losses=[float(own[1][steps[0]]) if steps else 0.0 for own, steps in zip(clients, bad, strict=True)],
        )


class Unbatchable(Exception):
    """A model, loss or augmentation can't be computed for many clients at once. Its message says why."""


class Trainer(Protocol):
    """Trains clients whose tasks are of one kind (see ``ClassificationTask.kind``)."""

    @property
    def mixes_runs(self) -> bool:
        """Whether clients of several runs may train at the same time with the last bits of each run alone."""

    @property
    def cuts_runs_as_alone(self) -> bool:
        """Whether a run that doesn't fit at once is cut into the same jobs as if no other run trained beside it."""

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
