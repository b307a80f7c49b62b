"""The interface of trainers, with which the batched engine trains clients: one job per run, one result per job.

There is one for the cores of a CPU (``engine.cpu.trainer``) and one for a GPU (``engine.gpu.trainer``). The engine is
given a function that makes the trainer of a task, so that engine and trainers don't import each other.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from adabest.algorithms.base import ClientContext, Correction
from adabest.engine.cohort_table import CohortTable
from adabest.engine.interface import Request, TrainingScores
from adabest.tasks.base import Heartbeat
from adabest.tasks.classification import ClassificationTask


class TrainingJob(NamedTuple):
    """Clients of one run that train at the same time.

    Attributes:
        request: What the run asked for: the task, the settings of training, the round.
        clients: Which of its clients.
        table: What is known of the clients of all runs that train at the same time.
        first: The place of the first of its clients in the table.
        states: Their states, stacked.
        context: Their contexts, stacked.
        correction: Where they start, and the correction of their gradients; each field is one client's after another's
            (``[clients, ...]``) or the same for all of them.
    """

    request: Request
    clients: list[int]
    table: CohortTable
    first: int
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
        own: list[int] = self.table.host_steps[self.first : self.first + len(self.clients)].tolist()
        return own


class TrainingResult(NamedTuple):
    """The clients of a job after their work.

    Attributes:
        models: Their models, ``[clients, P]``; or their gradients, if those are what was asked for.
        scores: How their training went; None if they didn't train.
        velocities: Their last m, ``[clients, P]``; None without momentum.
    """

    models: Tensor
    scores: TrainingScores | None
    velocities: Tensor | None = None


ClientWork = Callable[[Sequence[TrainingJob], Heartbeat], list[TrainingResult]]
"""The work of clients in a phase: trains them, or computes their full gradients at their starts. One result per job."""


class Unbatchable(Exception):
    """A model, loss or augmentation can't be computed for many clients at once. Its message says why.

    Attributes:
        way: How clients train then, in words.
    """

    way = "one client after another"


class Trainer(Protocol):
    """Trains clients whose tasks are of one kind (see ``ClassificationTask.kind``)."""

    @property
    def mixes_runs(self) -> bool:
        """Whether clients of several runs may train at the same time with the last bits of each run alone."""

    @property
    def cuts_runs_as_alone(self) -> bool:
        """Whether a run that doesn't fit at once is cut into the same jobs as if no other run trained beside it."""

    @property
    def full_gradients(self) -> ClientWork | None:
        """Computes gradients over all samples, with the jobs that ``train`` takes; None if only the task can."""

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
