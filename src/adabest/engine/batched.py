"""The batched engine: all clients of a cohort, and of all runs that are advanced together, as one tensor program."""

import contextlib
import itertools
import warnings
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import torch

from adabest.algorithms.base import ClientContext, Correction, Work
from adabest.engine.cpu.trainer import Loop
from adabest.engine.gpu.trainer import Bench, Group, Precision, Trained, Unbatchable
from adabest.engine.interface import Answer, Answers, Request, stacked_context, stacked_states
from adabest.engine.reference import ReferenceEngine
from adabest.engine.sample_table import Member
from adabest.errors import Diverged, InputError
from adabest.tasks.base import Heartbeat, Task
from adabest.tasks.classification import ClassificationTask


class BatchedEngine:
    """Trains clients side by side.

    What isn't local training of a classifier (full gradients, tasks of other kinds) goes through the reference engine.
    """

    def __init__(
        self,
        heartbeat: Heartbeat,
        *,
        precision: Precision | None = None,
        clients_in_parallel: int | None = None,
        threads: int | None = None,
    ) -> None:
        """Is ready for any run.

        Args:
            heartbeat: Called between local steps; may raise.
            precision: In what numbers clients train; by default those of the model.
            clients_in_parallel: At most so many clients train at a time; by default as many as fit.
            threads: So many clients train side by side on a CPU; by default one on each core.
        """
        if clients_in_parallel is not None and clients_in_parallel < 1:
            raise InputError(f"clients_in_parallel = {clients_in_parallel}: at least one client must train at a time")
        self._heartbeat = heartbeat
        self._precision = precision or Precision()
        self._most = clients_in_parallel
        self._threads = threads
        self._reference = ReferenceEngine(heartbeat)
        self._benches: dict[Hashable, Bench | Loop] = {}
        self._one_by_one = set[Hashable]()  # what can't be batched
        self._tasks: dict[Hashable, Task] = {}  # one of each kind, so that no other can come to be of that kind

    def exchange(self, requests: Sequence[Request]) -> list[Answers]:
        """What several runs ask for: those whose models and batches have the same shapes at once."""
        answers: dict[int, Answers] = {}
        alike: dict[Hashable, list[int]] = {}
        for number, request in enumerate(requests):
            task, trains = request.task, request.work is Work.TRAIN
            if trains and isinstance(task, ClassificationTask) and task.kind not in self._one_by_one:
                alike.setdefault(task.kind, []).append(number)
            else:
                answers[number] = self._reference.exchange([request])[0]
        for kind, numbers in alike.items():
            of_kind = {number: requests[number] for number in numbers}
            task = self._tasks.setdefault(kind, requests[numbers[0]].task)
            assert isinstance(task, ClassificationTask)
            try:
                with _on(task.model.vector.device):
                    answers |= self._train(kind, of_kind)
            except Unbatchable as error:
                self._one_by_one.add(kind)
                warnings.warn(
                    f"clients train one after another, which is slower, since the model, the loss or the augmentation "
                    f"can't be computed for many of them at once: {error}",
                    stacklevel=2,
                )
                answers |= dict(zip(of_kind, self._reference.exchange(list(of_kind.values())), strict=True))
        return [answers[number] for number in range(len(requests))]

    def _train(self, kind: Hashable, requests: dict[int, Request]) -> dict[int, Answers]:
        """Local training for several runs, together if that changes no bit of any of them."""
        if kind not in self._benches:
            task = next(iter(requests.values())).task
            assert isinstance(task, ClassificationTask)
            on_cpu = task.model.vector.device.type == "cpu"
            if on_cpu and not self._precision.half:
                self._benches[kind] = Loop(task, self._most, self._threads)
            else:
                # A CPU's products of many matrices at once may sum in an order that depends on how many there are.
                self._benches[kind] = Bench(task, self._precision, 1 if on_cpu else self._most)
        bench = self._benches[kind]
        if isinstance(bench, Loop) or bench.mixes_runs:
            return self._train_together(bench, requests)
        return {n: self._train_together(bench, {n: request})[n] for n, request in requests.items()}

    def _train_together(self, bench: Bench | Loop, requests: dict[int, Request]) -> dict[int, Answers]:
        """Local training of the clients of several runs, in as few chunks as fit."""
        answers: dict[int, Answers] = {number: [] for number in requests}
        everyone = [
            _Waiting(number, place, client)
            for number, request in requests.items()
            for place, client in enumerate(request.clients)
        ]
        while everyone:
            chunk = _first_chunk(everyone, bench.capacity(len(everyone)), whole=isinstance(bench, Loop))
            by_run = itertools.groupby(chunk, key=lambda one: one.run)
            try:
                pieces = {run: _Piece.of(requests[run], [one.client for one in own]) for run, own in by_run}
                trained = bench.train([piece.group() for piece in pieces.values()], self._heartbeat)
            except RuntimeError as error:
                if not _ran_out_of_memory(error):
                    raise
                bench.take_fewer_than(len(chunk))
                continue
            everyone = everyone[len(chunk) :]
            for (number, piece), of_piece in zip(pieces.items(), trained, strict=True):
                so_far, more = answers[number], piece.finish(of_piece)
                if isinstance(so_far, list):
                    answers[number] = so_far + more if isinstance(more, list) else more
        return answers


class _Waiting(NamedTuple):
    """A client that is yet to train: of which run, as which of its clients, and who it is."""

    run: int
    place: int
    client: int


def _first_chunk(everyone: list[_Waiting], capacity: int, *, whole: bool) -> list[_Waiting]:
    """Those who train first, of all who are waiting.

    Args:
        everyone: Who is waiting.
        capacity: How many can train at a time.
        whole: Whether a run's clients are to be cut into pieces just as if the run were alone, so that an algorithm
            that computes on all clients of a piece can't see who else trains.
    """
    ends = range(capacity, 0, -1) if whole and capacity < len(everyone) else ()
    end = next((end for end in ends if everyone[end].place % capacity == 0), capacity)
    return everyone[:end]


class _Piece(NamedTuple):
    """Clients of one run that train at the same time."""

    request: Request
    clients: list[int]
    states: Any
    context: ClientContext
    correction: Correction

    @classmethod
    def of(cls, request: Request, clients: list[int]) -> "_Piece":
        """Stacks the clients' states and has them start."""
        states = stacked_states([request.clients[client] for client in clients])
        context = stacked_context(request, clients)
        return cls(request, clients, states, context, request.algorithm.client_start(states, request.message, context))

    def group(self) -> Group:
        """What the bench needs to know."""
        task, server = self.request.task, self.request.context
        assert isinstance(task, ClassificationTask)
        members = [Member(task, client, server.round) for client in self.clients]
        return Group(members, self.correction, server.eta, self.request.training)

    def finish(self, trained: Trained) -> Answers:
        """What the clients keep and reply."""
        for place, client in enumerate(self.clients):
            if trained.bad_steps[place] >= 0:
                return Diverged(
                    f"the training loss of client {client} at local step {trained.bad_steps[place]} is "
                    f"{trained.bad_losses[place]}"
                )
        states, replies = self.request.algorithm.client_finish(
            self.states, self.request.message, trained.models, self.context
        )
        return [
            Answer(
                client,
                _row(states, place),
                _row(replies, place),
                trained.models[place],
                self.request.task.steps(client),
                trained.losses[place],
                trained.accuracies[place],
            )
            for place, client in enumerate(self.clients)
        ]


def _ran_out_of_memory(error: RuntimeError) -> bool:
    """A GPU's allocator has a type for it, a CPU's only words."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _on(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Kernels are launched, and steps captured, on the current GPU, which may be another than the one asked for."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def _row(stacked: Any, place: int) -> Any:
    """One client's part; what has no dimension for the clients is the same for all of them."""
    return type(stacked)(*(field[place] if field.ndim > 1 else field for field in stacked))
