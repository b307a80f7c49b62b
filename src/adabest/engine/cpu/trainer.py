"""The trainer for CPU cores: each client on one core, by the method that is fastest for its model."""

import collections
import copy
import itertools
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from adabest.data.augmentation import flip_crop, none
from adabest.engine.cpu import malloc
from adabest.engine.cpu.autograd import Replicas, why_not_pool_first
from adabest.engine.cpu.client_rows import ClientRow, TrainedRow, client_rows, vector_of
from adabest.engine.cpu.linear import Chain
from adabest.engine.cpu.workers import number_of_workers, side_by_side
from adabest.engine.interface import TrainingScores
from adabest.engine.layer_plan import Layer, LinearLayer, Obstacle, plan_model
from adabest.engine.trainer import ClientWork, TrainingJob, TrainingResult
from adabest.errors import AdabestError, InputError
from adabest.models.vector import VectorModel
from adabest.tasks.base import Heartbeat
from adabest.tasks.classification import ClassificationTask

_MODEL_BYTES = 2**26  # of clients that are started and finished together, about
_MEBIBYTE = 2**20


def clients_at_once(model_bytes: int) -> int:
    """How many clients with models of a size are started and finished together, by default."""
    return max(1, _MODEL_BYTES // model_bytes)


class CpuTrainer:
    """Trains clients that share a model's structure, a data set and a batch size (a ``Trainer``).

    Linear layers in a row have gradients worked out by hand, everything else goes through autograd. Both were measured
    to be the fastest (see the page *Speed on a CPU*).

    Attributes:
        mixes_runs: True: a client's bits don't depend on who trains beside it.
        cuts_runs_as_alone: True.
        why_not_by_hand: Why gradients go through autograd; None if they are worked out by hand.
        why_not_pool_first: Why a relu is computed before the pooling behind it; None if after it, or if there is none.
    """

    mixes_runs = True
    cuts_runs_as_alone = True

    def __init__(
        self, task: ClassificationTask, clients_in_parallel: int | None = None, threads: int | None = None
    ) -> None:
        """Chooses the method.

        Args:
            task: One of the tasks whose clients are trained.
            clients_in_parallel: The most clients that are started and finished together; by default as many as
                their models take a moderate amount of memory.
            threads: How many clients train side by side; by default one on each core.
        """
        model = task.model
        plan = plan_model(model.module, task.example())
        layers = plan.layers
        self.why_not_by_hand = _why_not_by_hand(task, layers)
        pools = any(
            isinstance(first.operation, nn.ReLU) and isinstance(second.operation, nn.MaxPool2d)
            for first, second in itertools.pairwise(plan.parts)
        )
        self.why_not_pool_first = why_not_pool_first(model.module) if pools else None
        linear = [layer for layer in layers if isinstance(layer, LinearLayer)]
        by_hand = self.why_not_by_hand is None
        self._method: Chain | Replicas = Chain(linear, model) if by_hand else Replicas(model, task.example())
        self._idle_copies: collections.deque[VectorModel] = collections.deque()
        self._threads = threads
        self._bytes = model.vector.nbytes
        self._most = clients_in_parallel or clients_at_once(self._bytes)

    @property
    def way(self) -> str:
        """How all layers are computed, in a few words."""
        return self._method.way

    @property
    def why_not_channels_last(self) -> str | None:
        """Why images don't lie channels last in memory; None if they do, or if there are none."""
        return self._method.why_not_channels_last if isinstance(self._method, Replicas) else None

    def capacity(self, wanted: int) -> int:
        """How many of the clients that want to train are in memory at a time."""
        workers = number_of_workers(self._threads)
        return min(wanted, max(self._most // workers * workers, 1))

    def take_fewer_than(self, clients: int) -> None:
        """Lowers the capacity after memory has run out with a number of clients.

        Raises:
            InputError: If that was a single one.
        """
        if clients == 1:
            raise InputError(
                f"memory ran out with a single client, whose model takes {self._bytes / _MEBIBYTE:.1f} MiB and its "
                "training several times that; use a smaller model or batch size, or fewer lanes"
            )
        self._most = clients // 2

    @property
    def full_gradients(self) -> ClientWork:
        """Computes the gradients of clients over all their samples, as the task does, several clients at a time."""
        return self._full_gradients

    def _full_gradients(self, jobs: Sequence[TrainingJob], heartbeat: Heartbeat) -> list[TrainingResult]:
        for job in jobs:
            _ = job.task.evaluation_batch  # is found out before there are threads
        gradient = self._full_gradient
        pieces = [partial(gradient, job, place) for job in jobs for place in range(len(job.clients))]
        with malloc.freed_memory_kept():
            done = iter(side_by_side(pieces, heartbeat, number_of_workers(self._threads)))
        return [TrainingResult(torch.stack([next(done) for _ in job.clients]), None) for job in jobs]

    def _full_gradient(self, job: TrainingJob, place: int, heartbeat: Heartbeat) -> Tensor:
        """The gradient of one client, computed with a copy of the model that no other thread uses meanwhile."""
        heartbeat()
        client, task = job.clients[place], job.task
        try:
            model = self._idle_copies.pop()
        except IndexError:
            own = task.model
            model = VectorModel(copy.deepcopy(own.module), own.vector.device, own.vector.dtype)
        try:
            return task.full_gradient(vector_of(job.correction.start, place), client, model)
        except AdabestError:
            raise
        except Exception as error:
            error.add_note(f"in round {job.round}, client {client}")
            raise
        finally:
            self._idle_copies.append(model)

    def train(self, jobs: Sequence[TrainingJob], heartbeat: Heartbeat) -> list[TrainingResult]:
        """Trains the clients of several runs, a few of them at a time on each core."""
        rows = [row for job in jobs for row in client_rows(job)]
        size = self._method.clients_at_a_time
        alike = [list(own) for _, own in itertools.groupby(rows, key=_kind)]
        pieces: list[Callable[[Heartbeat], list[TrainedRow]]] = [
            partial(self._method.train, own[first : first + size])
            for own in alike
            for first in range(0, len(own), size)
        ]
        with malloc.freed_memory_kept():
            trained = side_by_side(pieces, heartbeat, number_of_workers(self._threads))
        done = (row for piece in trained for row in piece)
        return [_result(job, [next(done) for _ in job.clients]) for job in jobs]


def _why_not_by_hand(task: ClassificationTask, layers: Sequence[Layer]) -> Obstacle | None:
    """Why gradients of a task can't be worked out by hand; None if they can."""
    if not all(isinstance(layer, LinearLayer) for layer in layers):
        return Obstacle("not all layers are linear ones in a row, with relu between them")
    if isinstance(layers[-1], LinearLayer) and layers[-1].shape.relu:
        return Obstacle("a relu comes last", "leave it out")
    if not task.classifies:
        return Obstacle("the loss isn't cross-entropy of classes")
    if task.batching == "short" and task.augmentation not in (none, flip_crop):
        # An own augmentation may look at the whole batch, in which nothing must stand for a sample.
        return Obstacle("an augmentation of one's own meets batches that may be short", "take batches topped up")
    return None


def _result(job: TrainingJob, trained: Sequence[TrainedRow]) -> TrainingResult:
    """The result of a job whose clients were trained one by one."""
    scores = TrainingScores.of_steps(job.clients, [(row.losses, row.values) for row in trained])
    velocities = [row.velocity for row in trained if row.velocity is not None]
    models = torch.stack([row.model for row in trained])
    return TrainingResult(models, scores, torch.stack(velocities) if velocities else None)


def _kind(row: ClientRow) -> tuple[bool, ...] | None:
    """Equal for clients whose steps may go on in turn."""
    return None if row.parts is None else row.parts.kind
