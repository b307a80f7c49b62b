"""The simulation of a federation: rounds of cohort, exchange with the clients, server step and evaluation.

A round changes the state at its end, after the evaluation. An exception before that leaves the state of the last round.
"""

import functools
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, Population, ServerContext, Update, Work
from adabest.engine import algorithm_calls as calls
from adabest.engine.client_side import ClientSide, LocalClients
from adabest.engine.client_store import Pieces
from adabest.engine.evaluation import EvaluationRequest, EvaluationResult
from adabest.engine.gate import MOST_SKIPPED, GateNotes, Suspicions
from adabest.engine.gate_rules import Gate
from adabest.engine.interface import Answers, Engine, Request, client_context, server_context
from adabest.engine.lanes import Lane, advance
from adabest.engine.local_step import LocalTraining
from adabest.engine.memory_tiers import Memory, ran_out_of_memory
from adabest.engine.metrics import Metrics, measure
from adabest.engine.private_part import PrivatePart, private_bytes
from adabest.engine.receipt import Received
from adabest.engine.reference import ReferenceEngine
from adabest.engine.round_health import RoundHealth
from adabest.engine.scored_model import AveragedModel, ScoredSum
from adabest.engine.sections import Observer, unobserved
from adabest.engine.server_step import ServerStep
from adabest.engine.state import Snapshot, State, View
from adabest.errors import Diverged, InputError
from adabest.federation.roster import Attendance, Roster
from adabest.tasks.base import Heartbeat, Task, no_heartbeat

_ROSTER = "roster."
_SHOWN_CLIENTS = 8  # in messages

MakeClientSide = Callable[[Algorithm, Task, Tensor, Memory], ClientSide]
"""Makes the client side of a run out of its algorithm, its task, θ_0 and the memory for what clients keep."""


@dataclass(frozen=True)
class Rules:
    """The rules of rounds that don't depend on the algorithm.

    Attributes:
        server_rate: η_g, how far the cloud model moves towards the algorithm's.
        scored_clients: Whether the scored model is the mean over the clients ``seen`` so far, or over ``all`` of them
            with unseen ones holding the initial model, as in the reference code.
        average_from: The first round whose θ̄ counts in the averaged model; None for no averaged model.
        gate: The rules of the gate that replies pass.
        score: The model that is judged on validation clients; where there is no ``scored`` one, the aggregate.
    """

    server_rate: float = 1.0
    scored_clients: Literal["seen", "all"] = "seen"
    average_from: int | None = None
    gate: Gate = field(default_factory=Gate)
    score: Literal["scored", "aggregate", "cloud", "averaged"] = "scored"

    def __post_init__(self) -> None:
        if self.score == "averaged" and self.average_from is None:
            raise InputError("score averaged: only runs with --average-from have that model; add --average-from 0.5")
        if not (np.isfinite(self.server_rate) and self.server_rate > 0):
            raise InputError(f"server_rate = {self.server_rate}: it must be above 0 and finite")


class Simulation:
    """One algorithm on one task: call ``step`` once a round.

    Attributes:
        state: The state of the federation after its last round.
        observer: What counts or times the sections of a round, if anything does.
        told: What the gate had noted in the rounds that the last row of metrics tells of.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        task: Task,
        clients: np.ndarray,
        *,
        samples: np.ndarray | None = None,
        training: LocalTraining | None = None,
        attendance: Attendance | None = None,
        rules: Rules | None = None,
        engine: Callable[[Heartbeat], Engine] = ReferenceEngine,
        memory: Memory | None = None,
        client_side: MakeClientSide = LocalClients,
        heartbeat: Heartbeat = no_heartbeat,
    ) -> None:
        """Sets a federation up before its first round.

        Args:
            algorithm: The algorithm.
            task: The objectives of the clients, and how models are judged.
            clients: The training clients, ascending.
            samples: n_i of each, if they are known; else the task is asked, client by client.
            training: The settings of local training.
            attendance: Which clients are present in a round, and which of them take part.
            rules: The rules of rounds.
            engine: Makes the engine of ``step``; rounds that are advanced as lanes don't need it.
            memory: How much of device, memory and disk the clients' states and models may take.
            client_side: Makes what reaches the clients; by default they live in this process.
            heartbeat: Called between local steps; what it raises abandons the round.
        """
        self._algorithm = algorithm
        self._task = task
        self._clients = np.asarray(clients, dtype=np.int64)
        self._training = training or LocalTraining()
        self._attendance = attendance or Attendance()
        self._rules = rules or Rules()
        self._heartbeat = heartbeat
        self._initial = task.initial_model()
        self._memory = memory or Memory(self._initial.device)
        self._make_engine = engine
        self.observer: Observer = unobserved
        self.told = GateNotes()
        self._unsettled: deque[_Unsettled] = deque()
        self._samples = np.array([task.samples(c) for c in self._clients.tolist()]) if samples is None else samples
        self._roster = self._roster_before_round_one()
        calls.refuse_wrong_declarations(algorithm)
        self._private = PrivatePart.of(algorithm, task)
        weighted = algorithm.scored_weight == "samples"
        self._everyone = float(self._samples.sum() if weighted else len(self._samples))
        fresh = calls.initial_client(algorithm, self._initial)
        cohort = max(1, round(self._attendance.participation * len(self._clients)))
        self._memory.refuse_too_little(cohort, message_bytes([*fresh, self._initial]))
        self._client_side = client_side(algorithm, task, self._initial, self._memory)
        kept, scored = self._client_side.begin()
        # A judgement would hold up every round; with a limit of norms it can't be avoided.
        self._assumes = self._client_side.answers_late and not self._rules.gate.limit.is_set
        self._judged_rounds = set[int]()  # which are made again, with a judgement
        self.state = State(
            round=0,
            cloud=self._initial,
            aggregate=self._initial,
            server=calls.initial_server(algorithm, self._initial),
            h=None,
            scored=scored,
            averaged=None if self._rules.average_from is None else AveragedModel.empty(self._initial),
            clients=kept,
        )

    @property
    def training(self) -> LocalTraining:
        """The settings of local training."""
        return self._training

    def scored_model(self) -> Tensor | None:
        """The mean of the latest models of the clients that have taken part.

        None where the models of clients can't be told from their replies.
        """
        return self._scored_value(self.state.scored)

    def averaged_model(self) -> Tensor | None:
        """The mean of θ̄ over the last part of the run; None where it isn't asked for or that part hasn't begun."""
        return self._averaged_value(self.state)

    def cohort(self, round_number: int) -> np.ndarray:
        """The clients that take part in a round, past or to come; empty if no client is present."""
        roster = self._roster_before_round_one()
        roster.advance(round_number)
        return roster.cohort()

    def client_state(self, client: int) -> Any:
        """The algorithm's state on a client, fresh if the client has never taken part."""
        return self._client_side.state(self.state.clients, client)

    def client_model(self, client: int) -> Tensor:
        """The latest model of a client, θ_0 if it has never taken part.

        Raises:
            InputError: If no such client trains.
        """
        if client not in self._clients:
            names = ", ".join(map(str, self._clients[:_SHOWN_CLIENTS]))
            rest = f" and {more} more" if (more := len(self._clients) - _SHOWN_CLIENTS) > 0 else ""
            raise InputError(f"client {client} doesn't train; clients that do are {names}{rest}")
        model = self._client_side.model(self.state.clients, client)
        return (self._initial if model is None else model).clone()

    def personal_model(self, client: int) -> Tensor:
        """The model that a client uses for itself: the algorithm's personal one, else its latest.

        Raises:
            InputError: If no such client trains.
        """
        latest = self.client_model(client)
        found = self._personal_model(client)
        return latest if found is None else found.clone()

    def clients_with_models(self) -> list[int]:
        """The clients that have taken part, ascending; none where their models are known to nobody."""
        clients = sorted(self.state.clients)
        is_known = self.state.scored is not None or (clients and self._personal_model(clients[0]) is not None)
        return clients if is_known else []

    def _personal_model(self, client: int) -> Tensor | None:
        """The algorithm's personal model of a client under the message of the next round, if it has one."""
        if self._algorithm.needs_population and self._roster.size == 0:
            return None  # there is no message
        context = self.context(self.state.round + 1)
        message = calls.message(self._algorithm, self.state.server, self.state.cloud, context)
        request = self._request(self._algorithm.phases[0], {}, message, context)
        own = client_context(request, client)
        return calls.personal_model(self._algorithm, self.client_state(client), message, own)

    def context(self, round_number: int, phase: int = 0) -> ServerContext:
        """The context of a phase of the round that is under way, or of the next."""
        known = None
        if self._algorithm.needs_population:
            known = Population(self._roster.size, self._roster.mean_samples)
        return server_context(self._training, round_number, phase, known, seed=self._attendance.seed)

    @functools.cached_property
    def engine(self) -> Engine:
        """The engine of ``step``, made when it is first used. Lanes are advanced by an engine that they share."""
        return self._make_engine(self._heartbeat)

    def step(self, *, evaluate: bool = False, cohort: np.ndarray | None = None) -> Metrics | None:
        """Moves the federation by one round.

        Args:
            evaluate: Whether to measure the models that the round leads to.
            cohort: Who takes part; by default drawn from the seed and the round.

        Returns:
            The metrics, if they were asked for.

        Raises:
            Diverged: If the cloud model isn't finite, a bad reply ends the run, or no reply has been accepted for too
                long. The state is that of the round before, but for the gate's notes.
            InputError: If the given cohort is empty or has others than training clients.
        """
        return advance(self.round(evaluate=evaluate, cohort=cohort), self.engine)

    def round(
        self, *, evaluate: bool = False, cohort: np.ndarray | None = None, settled: bool = True
    ) -> Lane[Metrics | None]:
        """A round as a generator: yields what its clients, its server and its evaluation need, and is sent the results.

        It lets several runs be advanced together, as lanes. Arguments, result and errors are those of ``step``, but for
        a round that needn't be settled: on a GPU it is only begun, so that the next one can be prepared meanwhile. Its
        replies are assumed to be good. If that turns out to be wrong, in a later round or in ``settle``, the state goes
        back to the one before, and the round is made again, with a judgement.
        """
        target = self.state.round + 1
        while True:
            self._settle(but=1)
            number = self.state.round + 1
            is_last = number == target
            result = yield from self._attempt(
                evaluate=evaluate and is_last,
                cohort=cohort if is_last else None,
                settled=settled or evaluate,
                assumed=self._assumes and number not in self._judged_rounds,
            )
            if result is not None:
                self._judged_rounds.discard(number)
                if is_last:
                    return result.metrics

    def _attempt(
        self, *, evaluate: bool, cohort: np.ndarray | None, settled: bool, assumed: bool
    ) -> "Lane[_Made | None]":
        """Makes the next round, unless it turns out that a round has to be made again, with a judgement.

        Args:
            evaluate: Whether to measure the models that the round leads to.
            cohort: Who takes part; by default drawn from the seed and the round.
            settled: Whether to wait until it is computed.
            assumed: Whether all replies are assumed to be good.

        Returns:
            The result; None if the round wasn't made.
        """
        self._roster.advance(self.state.round + 1)
        chosen = self._roster.cohort() if cohort is None else self._checked(cohort)
        after, received, doubts = self._skipped_round(), list[Received](), list[Suspicions]()
        if len(chosen) > 0:
            made = yield from self._round(chosen.tolist(), assumed=assumed)
            if made is None:
                if self._settle(but=0):
                    self._go_back(self.state)
                return None
            after, received, doubts = made
        with self.observer("scored"):
            scored = self._client_side.prepare(self.state.clients, self.state.scored, received)
            after = replace(after, scored=scored)
        health = RoundHealth.of(after, received, doubts)
        if not assumed:
            after = self._noted(after, health)
        elif received:
            after = replace(after, notes=after.notes.with_round(after.round, [], answered=True))
        evaluation: EvaluationResult | None = None
        if evaluate:
            evaluation = yield self._evaluation_request(after)
        if settled and not self._settle(but=0):
            return None
        if settled and assumed and not health.is_sound():
            self._go_back(self.state)
            return None
        metrics = None
        if evaluation is not None:
            metrics = self._measured(after, evaluation, health)
            self.told, after = after.notes, replace(after, notes=after.notes.told())
        is_final = settled or not assumed
        if not is_final:
            self._unsettled.append(_Unsettled(self.state, health))
        self._client_side.keep(after.clients, final=is_final)
        self.state = after
        return _Made(metrics)

    def _measured(self, after: State, evaluation: EvaluationResult, health: RoundHealth) -> Metrics:
        """The metrics of a round.

        Raises:
            Diverged: If a model's test loss isn't finite.
        """
        answered = health.received and not after.notes.unanswered_in_a_row
        try:
            return measure(
                self.state,
                after,
                evaluation=evaluation,
                metrics_of_task=self._task.metrics,
                scores=health.accepted_scores(),
                cohort=len(health.received[-1].clients) if answered else 0,
                present=self._roster.size,
                estimate_norms=self._estimate_norms(after),
                server_numbers=calls.server_numbers(self._algorithm, after.server),
            )
        except Diverged:
            self.state = replace(self.state, notes=after.notes)
            raise

    def settle(self) -> None:
        """Waits until all rounds so far are computed.

        If one of them had a bad reply, or has diverged, the state goes back to that of the round before. The next
        ``round`` makes it again, and finds out which.
        """
        self._settle(but=0)

    def untold(self) -> GateNotes:
        """What the gate has noted and no row of metrics has told yet."""
        return self.state.notes

    def _settle(self, *, but: int) -> bool:
        """Settles all rounds so far but the last ones; whether all were as assumed."""
        while len(self._unsettled) > but:
            before, health = self._unsettled.popleft()
            if not health.is_sound():
                self._go_back(before)
                return False
            self._client_side.finish_oldest(before.clients)
        return True

    def _go_back(self, before: State) -> None:
        """Goes back to the state before a round, which is then made again, with a judgement."""
        self._judged_rounds.add(before.round + 1)
        self._unsettled.clear()
        self._client_side.forget()
        self.state = before
        self._roster = self._roster_before_round_one()
        self._roster.advance(before.round)

    def view(self, rows: np.ndarray | None = None) -> View:
        """The state as tensors and numbers, to be read before the next round; it holds no second copy of anything.

        Args:
            rows: The numbers of the clients' rows that it has, ascending (``ClientStore.changed_since``); None for all.

        Rounds that aren't settled are settled first (see ``settle``).
        """
        self.settle()
        tensors, numbers = self.state.view(rows)
        arrays, counts = self._roster.state()
        tensors |= {_ROSTER + name: Pieces.of(torch.from_numpy(array)) for name, array in arrays.items()}
        return View(tensors, numbers | {_ROSTER + name: count for name, count in counts.items()})

    def held(self, view: View) -> View | None:
        """A copy of a view, which another thread may read while rounds go on; None if it would take too much memory.

        The copies of all runs share a budget, into which a copy's bytes go back when it isn't used any more.
        """
        budget, size = self._memory.copy_budget(), view.bytes
        if size > budget.free:
            return None
        try:
            copy = view.held()
        except RuntimeError as error:
            if not ran_out_of_memory(error):
                raise
            return None
        budget.take(size)
        weakref.finalize(next(iter(copy.tensors.values())), budget.give_back, size).atexit = False
        return copy

    def snapshot(self) -> Snapshot:
        """A copy of the state as tensors and numbers; later rounds don't change it."""
        return self.view().copy()

    def restore(self, snapshot: Snapshot) -> None:
        """Continues from a snapshot, which must come from the same set-up."""
        self._unsettled.clear()
        self._judged_rounds.clear()
        self._client_side.forget()
        self.state = State.from_snapshot(snapshot, type(self.state.server), self._memory.device, self._client_side)
        self._roster = self._roster_before_round_one()
        self._roster.restore(
            {name: tensor.cpu().numpy() for name, tensor in _with_prefix(_ROSTER, snapshot.tensors).items()},
            {name: int(number) for name, number in _with_prefix(_ROSTER, snapshot.numbers).items()},
        )
        self._roster.advance(self.state.round)

    def _roster_before_round_one(self) -> Roster:
        return Roster(self._clients, self._samples, self._attendance)

    def _checked(self, cohort: np.ndarray) -> np.ndarray:
        """A given cohort in the order of the clients, if it is one."""
        chosen = np.unique(cohort)
        if len(chosen) == 0 or len(chosen) < len(cohort) or not np.isin(chosen, self._roster.present()).all():
            raise InputError(
                f"the cohort {cohort.tolist()} should be one or more of the training clients present, each once"
            )
        return chosen

    def _skipped_round(self) -> State:
        """The state after a round without present clients: only the number of the round changes."""
        return replace(self.state, round=self.state.round + 1, skipped_rounds=self.state.skipped_rounds + 1)

    def _round(
        self, cohort: list[int], *, assumed: bool
    ) -> Lane[tuple[State, list[Received], list[Suspicions]] | None]:
        """All phases of a round.

        Args:
            cohort: Who takes part.
            assumed: Whether all replies are assumed to be good.

        Returns:
            The state they lead to, except for the clients' own, what was received, and what tells later that a reply
            isn't good; None if a reply isn't though it was assumed to be.
        """
        before = self.state
        after = replace(before, round=before.round + 1)
        received, doubts = list[Received](), list[Suspicions]()
        clients = self._client_side.states(before.clients, cohort)
        for phase, work in enumerate(self._algorithm.phases):
            context = self.context(after.round, phase)
            with self.observer("server"):
                message = calls.message(self._algorithm, after.server, after.cloud, context)
            request = self._request(work, clients, message, context)._replace(
                gate=self._rules.gate, remembered=after.remembered_norms.get(phase)
            )
            hidden = private_bytes(self._private, type(message), after.cloud)
            answers: Answers | Received = yield request
            if assumed and isinstance(answers, Answers) and answers.faults:
                return None
            one = self._client_side.receive(request, answers, assumed=assumed)
            if after.round == 1:
                calls.refuse_wrong_replies(self._algorithm, one.verdict.faults, len(one.clients))
            received.append(one)
            after = replace(
                after,
                bytes_down=after.bytes_down + len(clients) * (message_bytes(message) - hidden),
                bytes_up=after.bytes_up + one.bytes_up,
                local_steps=after.local_steps + sum(one.steps),
                remembered_norms=after.remembered_norms
                if one.remembered is None
                else {**after.remembered_norms, phase: one.remembered},
            )
            if one.reduce is None:
                return _without_server_step(before, after), received, doubts
            with self.observer("server"):
                replies, doubt = one.reduce()
                update: Update = yield ServerStep(self._algorithm, after.server, after.cloud, replies, context)
            calls.check_update(self._algorithm, update, after.cloud)
            if self._private is not None:
                update = self._private.kept(update, after.cloud)
            doubts += [] if doubt is None else [doubt]
            after = replace(after, server=update.server, aggregate=update.aggregate, cloud=update.cloud, h=update.h)
            if phase + 1 < len(self._algorithm.phases):
                clients = self._client_side.states_after(one, one.verdict.accepted_clients())
        if self._rules.server_rate != 1.0:
            after = replace(after, cloud=before.cloud + self._rules.server_rate * (after.cloud - before.cloud))
        if after.averaged is not None and self._is_averaged(after.round):
            after = replace(after, averaged=after.averaged.with_model(after.aggregate))
        return after, received, doubts

    def _is_averaged(self, round_number: int) -> bool:
        first = self._rules.average_from
        return first is not None and round_number >= first

    def _noted(self, state: State, health: RoundHealth) -> State:
        """A state with the notes of a round that has come to be known.

        Raises:
            Diverged: If a model isn't finite, a bad reply ends the run, or no reply has been accepted for too long.
        """
        notes, number = state.notes, health.round
        rejections = health.rejections()
        if health.received:
            notes = notes.with_round(number, rejections, answered=health.is_answered())
        reason = health.lost_model()
        if reason is None and rejections and self._rules.gate.policy == "stop":
            reason = rejections[0].words()
        if reason is None and notes.unanswered_in_a_row >= MOST_SKIPPED:
            last = rejections[0].words()
            reason = f"no reply was accepted in {MOST_SKIPPED} rounds in a row; in the last one, {last}"
        if reason is not None:
            self.state = replace(self.state, notes=notes)
            raise Diverged(reason)
        return replace(state, notes=notes)

    def _request(self, work: Work, states: Mapping[int, Any], message: Any, context: ServerContext) -> Request:
        steps = calls.common_steps(self._algorithm, context)
        return Request(
            self._algorithm,
            self._task,
            self._training,
            work,
            states,
            message,
            context,
            common_steps=steps,
            private=self._private,
        )

    def _evaluation_request(self, after: State) -> EvaluationRequest:
        scored = self._scored_value(after.scored)
        models = {} if scored is None else {"scored": scored}
        models |= {"aggregate": after.aggregate, "cloud": after.cloud}
        averaged = self._averaged_value(after)
        if averaged is not None:
            models["averaged"] = averaged
        score = "aggregate" if self._rules.score == "scored" and scored is None else self._rules.score
        return EvaluationRequest(self._task, models, validated=models.get(score))  # averages begin late

    def _estimate_norms(self, after: State) -> Tensor:
        """‖h_i‖ of all clients that have taken part, at the scale of a message to those present.

        If no client is present, an algorithm that needs to know the population has no message to send.
        """
        if self._algorithm.needs_population and self._roster.size == 0:
            return after.cloud.new_empty(0, dtype=torch.float64)
        context = self.context(after.round + 1)
        message = calls.message(self._algorithm, after.server, after.cloud, context)
        request = self._request(self._algorithm.phases[0], {}, message, context)
        return self._client_side.estimate_norms(after.clients, request)

    def _scored_value(self, scored: ScoredSum | None) -> Tensor | None:
        if scored is None:
            return None
        with self.observer("scored"):
            return scored.value(self._initial, self._everyone if self._rules.scored_clients == "all" else None)

    def _averaged_value(self, state: State) -> Tensor | None:
        return None if state.averaged is None else state.averaged.value(self._initial)


class _Made(NamedTuple):
    """A round that was made, and its metrics, if they were asked for."""

    metrics: Metrics | None


class _Unsettled(NamedTuple):
    """A round that was begun, and the state before it."""

    before: State
    health: RoundHealth


def _without_server_step(before: State, after: State) -> State:
    """The state after a round in which no reply was accepted: the server's part is that of the round before."""
    kept = {name: getattr(before, name) for name in ("server", "aggregate", "cloud", "h", "averaged")}
    return replace(after, **kept)


T = TypeVar("T")


def _with_prefix(prefix: str, named: Mapping[str, T]) -> dict[str, T]:
    """The values whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}


def message_bytes(message: Iterable[Tensor]) -> int:
    """The bytes of a message's or a state's tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in message)
