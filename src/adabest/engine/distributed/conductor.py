"""The conductor: rank 0's side of runs whose clients are shared out among ranks.

It orders every rank to train its share of a round's clients, and judges and takes in the replies. Between orders the
other ranks wait.
"""

import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from adabest.algorithms.forms import forms_of
from adabest.engine.distributed.parcels import spec_of
from adabest.engine.distributed.phase_exchange import Order, PhaseReport
from adabest.engine.distributed.placement import Slices, share_out
from adabest.engine.distributed.ranks import Ranks
from adabest.engine.distributed.run_share import RunParts, RunShare
from adabest.engine.distributed.service import RankService
from adabest.engine.evaluation import EvaluationRequest, EvaluationResult
from adabest.engine.gate import Columns, Verdict, judge, remember
from adabest.engine.interface import Request, TrainingScores
from adabest.engine.private_part import private_bytes
from adabest.engine.receipt import Received
from adabest.engine.reduction import ReducedReplies
from adabest.tasks.base import Heartbeat, Scores, Task, ValidationScores

T = TypeVar("T")


class SharedRun:
    """A run whose clients are shared out, as rank 0 knows it.

    Attributes:
        number: Its number.
        share: Rank 0's own share of it.
        homes: The rank at which each client lives that has taken part.
        placed: The rank at which each client of the round under way trains.
        begun: How many rounds were begun.
        is_kept: Whether the last of them was kept. One that diverged, or was abandoned, never is.
    """

    def __init__(self, number: int, share: RunShare) -> None:
        self.number, self.share = number, share
        self.homes: dict[int, int] = {}
        self.placed: dict[int, int] = {}
        self.begun = 0
        self.is_kept = True


class Conductor:
    """Orders ranks about.

    Attributes:
        ranks: The ranks.
        service: What carries out orders on rank 0.
    """

    def __init__(self, ranks: Ranks, service: RankService) -> None:
        self.ranks, self.service = ranks, service
        self._runs: dict[int, SharedRun] = {}
        self._numbers = 0
        self._to_keep: dict[int, tuple[Mapping[int, int], bool]] = {}
        self._gone: deque[SharedRun] = deque()

    def next_number(self) -> int:
        """The number of the next run."""
        self._numbers += 1
        return self._numbers

    def add(self, number: int, parts: RunParts) -> SharedRun:
        """Sets up rank 0's share of a run, of which all ranks have been told."""
        parameters = parts.task.initial_model().numel()
        share = RunShare(parts, Slices(parameters, self.ranks.size), 0)
        self.service.shares[number] = share
        run = self._runs[number] = SharedRun(number, share)
        return run

    def _run_of(self, task: Task) -> SharedRun:
        """The run that a task belongs to."""
        return next(run for run in self._runs.values() if run.share.parts.task is task)

    def forget_when_gone(self, run: SharedRun, owner: Any) -> None:
        """Has all ranks forget a run with the next order after its owner is gone."""
        # The garbage collector may call it at any time and in any thread, so it only leaves a note.
        weakref.finalize(owner, self._gone.append, run).atexit = False

    def forget_all(self) -> None:
        """Has all ranks forget all runs with the next order."""
        self._gone.extend(self._runs.values())

    def keep(self, run: SharedRun, *, scored: bool) -> None:
        """Has what was prepared of a run kept, with the next order; its clients live where they have trained."""
        self._to_keep[run.number] = (run.placed, scored)
        run.homes |= run.placed
        run.is_kept = True

    def carry_out(self, what: str, work: Callable[[Order], T], **about: Any) -> T:
        """Has all ranks do something, rank 0 included. Before that they keep and forget what was left to.

        Args:
            what: The name of the order.
            work: Does rank 0's part.
            **about: What belongs to the order, as JSON.

        Raises:
            BaseException: What ended the work. If the other ranks don't know of it, they wait in the middle of it, and
                nothing can be exchanged with them any more.
        """
        order: Order = {"do": what, **about}
        if self._to_keep:
            order["keep"] = [[number, list(homes.items()), scored] for number, (homes, scored) in self._to_keep.items()]
            self._to_keep = {}
        gone = [self._gone.popleft() for _ in range(len(self._gone))]
        if gone:
            order["drop"] = [run.number for run in gone]
        try:
            self.ranks.tell(order)
            self.service.tidy(order)
            for run in gone:  # after their last round was kept
                self._runs.pop(run.number, None)
            return work(order)
        except BaseException as error:
            if error is not self.service.agreed_failure:
                self.ranks.give_up(error)
            raise

    def tidy(self) -> None:
        """Has what was prepared kept now."""
        if self._to_keep:
            self.carry_out("tidy", lambda order: None)

    def exchange(self, requests: Sequence[Request]) -> list[Received]:
        """Has all ranks train the clients of several runs, each its share of all steps."""
        runs = [self._run_of(request.task) for request in requests]
        asked = self._asked(requests, runs)
        verdicts: list[Verdict] = []

        def judged(reports: list[PhaseReport]) -> list[list[bool]]:
            verdicts.extend(map(_verdict, requests, reports))
            return [list(verdict.accepted) for verdict in verdicts]

        messages = [request.message for request in requests]
        found = self.carry_out("exchange", lambda order: self.service.exchange(order, messages, judged), requests=asked)
        assert found is not None
        return [
            _received(request, verdict, report, means)
            for request, verdict, (report, means) in zip(requests, verdicts, found, strict=True)
        ]

    def _asked(self, requests: Sequence[Request], runs: Sequence[SharedRun]) -> list[Order]:
        """The part of an order about each run: its clients, and where they train."""
        everyone = [
            (run, request, client) for run, request in zip(runs, requests, strict=True) for client in request.clients
        ]
        steps = [int(count) for request in requests for count in request.steps(list(request.clients))]
        ranks = iter(share_out(steps, [run.homes.get(client) for run, _, client in everyone], self.ranks.size))
        asked = []
        for run, request in zip(runs, requests, strict=True):
            clients, phase = list(request.clients), request.context.phase
            chosen = [next(ranks) for _ in clients]
            if phase == 0:
                run.is_kept = False
                run.begun += 1
                run.placed = dict(zip(clients, chosen, strict=True))
            places = [run.placed[client] for client in clients]  # a client stays where it is until the round ends
            moves = [
                [client, run.homes[client], place]
                for client, place in zip(clients, places, strict=True)
                if phase == 0 and run.homes.get(client, place) != place and run.share.state_specs
            ]
            asked.append(
                {
                    "run": run.number,
                    "work": request.work.name,
                    "round": request.context.round,
                    "seed": request.context.noise.seed,
                    "phase": phase,
                    "clients": clients,
                    "ranks": places,
                    "moves": moves,
                    "message": [spec_of(field) for field in request.message],
                    "limit": [request.gate.limit.value, request.gate.limit.of_median],
                    "confirmed": request.gate.state_commit == "confirmed",
                    "models": run.share.has_models(phase),
                    "cohort": list(run.placed),
                }
            )
        return asked

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[EvaluationResult]:
        """Has models judged, each by one rank."""
        units: list[Order] = []
        models = []
        places: dict[tuple[int, str | None], int] = {}  # of tests by name, of validations by None
        for number, request in enumerate(requests):
            known: dict[int, int] = {}  # a model that has two names is judged once
            run = self._run_of(request.task).number
            wanted: list[tuple[str | None, Any]] = list(request.models.items())
            wanted += [] if request.validated is None else [(None, request.validated)]
            for name, model in wanted:
                if name is not None and id(model) in known:
                    places[number, name] = known[id(model)]
                    continue
                place = places[number, name] = len(units)
                known.setdefault(id(model), place)
                units.append({"run": run, "rank": place % self.ranks.size, "validates": name is None, "number": place})
                models.append(model)
        found = self.carry_out("evaluate", lambda order: self.service.evaluate(order, models), units=units)
        assert found is not None
        results = []
        for number, request in enumerate(requests):
            tests = {name: Scores(*found[places[number, name]]) for name in request.models}
            validation = found[places[number, None]] if (number, None) in places else None
            results.append(EvaluationResult(tests, None if validation is None else ValidationScores(*validation)))
        return results


def _verdict(request: Request, report: PhaseReport) -> Verdict:
    columns = Columns.of(request.algorithm, request.context.phase, request.gate.limit)
    facts = torch.tensor(report.facts, dtype=torch.float64)
    remembered = None if request.remembered is None else request.remembered.cpu()
    return judge(list(request.clients), facts, columns, request.gate.limit, remembered, faults=report.faults)


def _received(request: Request, verdict: Verdict, report: PhaseReport, means: ReducedReplies | None) -> Received:
    """What the server has of a phase whose replies stay at the ranks."""
    remembered = None
    if request.gate.limit.of_median:
        columns = Columns.of(request.algorithm, request.context.phase, request.gate.limit)
        before = None if request.remembered is None else request.remembered.cpu()
        facts = torch.tensor(report.facts, dtype=torch.float64)
        remembered = remember(before, facts, columns, verdict.accepted)
    clients = list(request.clients)
    return Received(
        request=request,
        clients=clients,
        verdict=verdict,
        reduce=None if means is None else lambda: (means, None),
        steps=report.steps,
        scores=(TrainingScores.of_clients(report.scores),) if report.scores else (),
        bytes_up=len(clients) * _reply_bytes(request),
        remembered=remembered,
    )


def _reply_bytes(request: Request) -> int:
    """The bytes of one reply, without what is private."""
    like, kind = request.message.cloud, request.algorithm.reply_type(request.context.phase)
    forms = [form for form in forms_of(kind).values() if form is not None]
    whole = sum(form.length(like) * form.dtype(like).itemsize for form in forms)
    return whole - private_bytes(request.private, kind, like)


class RankedEngine:
    """The engine of rank 0's runs: the conductor, and a heartbeat."""

    def __init__(self, conductor: Conductor, heartbeat: Heartbeat) -> None:
        """Makes the engine.

        Args:
            conductor: What orders ranks about.
            heartbeat: Called before each order, since rank 0 may have no client to train; may raise.
        """
        self._conductor, self._heartbeat = conductor, heartbeat

    def exchange(self, requests: Sequence[Request]) -> list[Received]:
        """Has all ranks train the clients of several runs."""
        self._heartbeat()
        return self._conductor.exchange(requests)

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[EvaluationResult]:
        """Has models judged, each by one rank."""
        self._heartbeat()
        return self._conductor.evaluate(requests)
