"""The batched engine: all clients of a cohort, and of all runs that are advanced together, train at the same time."""

import contextlib
import itertools
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from adabest.algorithms.base import Work
from adabest.algorithms.forms import blank, find_fault
from adabest.engine import algorithm_calls as calls
from adabest.engine.cohort_table import CohortTable
from adabest.engine.device_clock import DeviceClock
from adabest.engine.evaluation import EvaluationRequest, EvaluationResult, Evaluators, MakeEvaluator
from adabest.engine.gate import sound_states
from adabest.engine.interface import Answers, Request, context_of, stacked_states
from adabest.engine.memory_tiers import ran_out_of_memory
from adabest.engine.reference import ReferenceEngine
from adabest.engine.trainer import ClientWork, MakeTrainer, Trainer, TrainingJob, TrainingResult, Unbatchable
from adabest.tasks.base import Heartbeat, Task
from adabest.tasks.classification import ClassificationTask


class BatchedEngine:
    """Trains clients side by side, or has them compute their full gradients.

    Tasks that aren't classification go through the reference engine.
    """

    def __init__(
        self,
        heartbeat: Heartbeat,
        make_trainer: MakeTrainer,
        make_evaluator: MakeEvaluator = lambda task: None,
        device_clock: DeviceClock | None = None,
    ) -> None:
        """Makes an engine for any number of runs.

        Args:
            heartbeat: Called between local steps; may raise.
            make_trainer: Makes the trainer of a task, such as ``engine.cpu.trainer.CpuTrainer``.
            make_evaluator: Makes what judges the models of a task; by default they are judged one by one.
            device_clock: What the trainers and evaluators measure a GPU's work with, if they do.
        """
        self._device_clock = device_clock
        self._evaluators = Evaluators(heartbeat, make_evaluator)
        self._heartbeat = heartbeat
        self._make_trainer = make_trainer
        self._reference = ReferenceEngine(heartbeat)
        self._trainers: dict[Hashable, Trainer | None] = {}  # None for kinds of tasks that can't be batched
        self._tasks: dict[Hashable, Task] = {}  # keeps one task of each kind alive: a kind contains id()s

    def exchange(self, requests: Sequence[Request]) -> list[Answers]:
        """Executes requests, those whose models and batches have the same shapes at the same time."""
        answers: dict[int, Answers] = {}
        alike: dict[tuple[Hashable, Work], dict[int, Request]] = {}
        for number, request in enumerate(requests):
            if isinstance(request.task, ClassificationTask):
                alike.setdefault((request.task.kind, request.work), {})[number] = request
            else:
                answers |= self._one_after_another({number: request})
        for (kind, work), own in alike.items():
            trainer = self._trainer(kind, next(iter(own.values())).task)
            if trainer is None or (work is Work.GRADIENT and trainer.full_gradients is None):
                answers |= self._one_after_another(own)
            else:
                with _current_device(next(iter(own.values())).message.cloud.device):
                    answers |= self._train(trainer, own)
        return [answers[number] for number in range(len(requests))]

    def _one_after_another(self, requests: Mapping[int, Request]) -> dict[int, Answers]:
        return dict(zip(requests, self._reference.exchange(list(requests.values())), strict=True))

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[EvaluationResult]:
        """Judges the models of several runs, those of one kind at the same time."""
        return self._evaluators.evaluate(requests)

    def device_share(self) -> float | None:
        """The share of the time in which a GPU works; None if there is none, or nothing was measured yet."""
        return None if self._device_clock is None else self._device_clock.share()

    def _trainer(self, kind: Hashable, task: Task) -> Trainer | None:
        """The trainer for tasks of a kind; None if they can't be batched."""
        if kind not in self._trainers:
            task = self._tasks.setdefault(kind, task)
            assert isinstance(task, ClassificationTask)
            try:
                with _current_device(task.model.vector.device):
                    self._trainers[kind] = self._make_trainer(task)
            except Unbatchable as error:
                self._trainers[kind] = None
                warnings.warn(
                    f"clients train one after another, which is slower, since the model, the loss or the augmentation "
                    f"can't be computed for many of them at once: {error}",
                    stacklevel=3,
                )
        return self._trainers[kind]

    def _train(self, trainer: Trainer, requests: Mapping[int, Request]) -> dict[int, Answers]:
        """Local training for several runs, together if that changes no bit of any of them."""
        if trainer.mixes_runs:
            return self._train_together(trainer, requests)
        return {n: self._train_together(trainer, {n: request})[n] for n, request in requests.items()}

    def _train_together(self, trainer: Trainer, requests: Mapping[int, Request]) -> dict[int, Answers]:
        """The work of the clients of several runs, the same for all of them, in as few chunks as fit."""
        parts: dict[int, list[Answers]] = {number: [] for number in requests}
        everyone = [
            _Waiting(number, place, client)
            for number, request in requests.items()
            for place, client in enumerate(request.clients)
        ]
        while everyone:
            chunk = _first_chunk(everyone, trainer.capacity(len(everyone)), as_alone=trainer.cuts_runs_as_alone)
            by_run = itertools.groupby(chunk, key=lambda one: one.run)
            cohorts = {run: [one.client for one in own] for run, own in by_run}
            try:
                jobs = _started([(requests[run], clients) for run, clients in cohorts.items()])
                results = _work_of(trainer, jobs)(jobs, self._heartbeat)
            except RuntimeError as error:
                if not ran_out_of_memory(error):
                    raise
                trainer.take_fewer_than(len(chunk))
                continue
            everyone = everyone[len(chunk) :]
            for number, job, result in zip(cohorts, jobs, results, strict=True):
                parts[number].append(_finished(job, result))
        return {number: Answers.joined(own) for number, own in parts.items()}


class _Waiting(NamedTuple):
    """A client that is yet to train: the number of its run, its place in the cohort, and its own number."""

    run: int
    place: int
    client: int


def _first_chunk(everyone: list[_Waiting], capacity: int, *, as_alone: bool) -> list[_Waiting]:
    """The clients that train first.

    Args:
        everyone: The clients that are waiting.
        capacity: How many can train at a time.
        as_alone: Whether a run's clients are cut into the same jobs as if the run were alone, so that an algorithm
            that computes on all clients of a job can't see who else trains.
    """
    ends = range(capacity, 0, -1) if as_alone and capacity < len(everyone) else ()
    end = next((end for end in ends if everyone[end].place % capacity == 0), capacity)
    return everyone[:end]


def _started(cohorts: Sequence[tuple[Request, list[int]]]) -> list[TrainingJob]:
    """The jobs of training clients of several runs, after their algorithms' starts."""
    table, jobs, first = CohortTable.of(cohorts), list[TrainingJob](), 0
    like = cohorts[0][0].message.cloud
    steps, samples = (counts.to(like.dtype)[:, None] for counts in (table.steps, table.samples))
    for request, clients in cohorts:
        own = slice(first, first + len(clients))
        states = stacked_states([request.clients[client] for client in clients])
        context = context_of(request, tuple(clients), steps[own], samples[own])
        correction = calls.correction(request.algorithm, states, request.message, context, leading=(len(clients),))
        jobs.append(TrainingJob(request, clients, table, first, states, context, correction))
        first = own.stop
    return jobs


def _work_of(trainer: Trainer, jobs: Sequence[TrainingJob]) -> ClientWork:
    """What a trainer does for the clients of jobs: train them, or compute their full gradients."""
    if jobs[0].request.work is Work.TRAIN:
        return trainer.train
    assert trainer.full_gradients is not None
    return trainer.full_gradients


def _finished(job: TrainingJob, result: TrainingResult) -> Answers:
    """The clients' answers, after the algorithm's finish on them."""
    request, count = job.request, len(job.clients)
    algorithm, like = request.algorithm, request.message.cloud
    context = replace(job.context, velocity=result.velocities)
    states, replies = calls.finish(algorithm, job.states, request.message, result.models, context, leading=(count,))
    kind = algorithm.reply_type(request.context.phase)
    states, replies = (calls.expanded(each, (count,)) for each in (states, replies))
    fault = find_fault(kind, replies, like, leading=(count,))
    return Answers(
        clients=job.clients,
        # On a GPU nobody waits for the answer; there the simulation looks at them later.
        states=states if like.is_cuda else sound_states(states, job.states),
        replies=replies if fault is None else stacked_states([blank(kind, like)] * count),
        steps=[0] * count if result.scores is None else job.steps,
        scores=() if result.scores is None else (result.scores,),
        faults={} if fault is None else dict.fromkeys(job.clients, fault),
    )


def _current_device(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Makes a GPU the current one, on which kernels are launched and steps captured, whatever the tensors' device."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
