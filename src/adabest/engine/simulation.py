"""The simulation of a federation: rounds of cohort, exchange with the clients, server step and evaluation.

A round changes the state at its end, after the evaluation. An exception before that leaves the state of the last round.
"""

import functools
import math
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, Population, ServerContext, Update, Work
from adabest.engine.arrival import Arrival
from adabest.engine.client_store import ClientStore, OneByOne, Pieces
from adabest.engine.estimate_norms import estimate_norms
from adabest.engine.evaluation import EvaluationRequest, EvaluationResult
from adabest.engine.interface import Answers, Engine, Request, TrainingScores
from adabest.engine.lanes import Lane, advance
from adabest.engine.local_step import LocalTraining
from adabest.engine.memory_tiers import Memory, ran_out_of_memory
from adabest.engine.metrics import Metrics, measure
from adabest.engine.reduction import reduce_replies
from adabest.engine.reference import ReferenceEngine
from adabest.engine.scored_model import AveragedModel, ScoredModel
from adabest.engine.sections import Observer, unobserved
from adabest.engine.server_step import ServerStep
from adabest.engine.state import Snapshot, State, View
from adabest.errors import Diverged, InputError
from adabest.federation.roster import Attendance, Roster
from adabest.tasks.base import Heartbeat, Task, no_heartbeat

# The columns of the client store: the fields of the algorithm's own state, and the latest model.
_STATE, _MODEL = "state.", "model"
_ROSTER = "roster."


@dataclass(frozen=True)
class Rules:
    """The rules of rounds that don't depend on the algorithm.

    Attributes:
        server_rate: η_g, how far the cloud model moves towards the algorithm's.
        scored_clients: Whether the scored model is the mean over the clients ``seen`` so far, or over ``all`` of them
            with unseen ones holding the initial model, as in the reference code.
        average_from: The first round whose θ̄ counts in the averaged model; None for no averaged model.
    """

    server_rate: float = 1.0
    scored_clients: Literal["seen", "all"] = "seen"
    average_from: int | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.server_rate) and self.server_rate > 0):
            raise InputError(f"server_rate = {self.server_rate}: it must be above 0 and finite")


class Simulation:
    """One algorithm on one task: call ``step`` once a round.

    Attributes:
        state: The state of the federation after its last round.
        observer: What counts or times the sections of a round, if anything does.
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
        self._unsettled: deque[_Unsettled] = deque()
        self._samples = np.array([task.samples(c) for c in self._clients.tolist()]) if samples is None else samples
        self._roster = self._roster_before_round_one()
        weighted = algorithm.scored_weight == "samples"
        self._everyone = float(self._samples.sum() if weighted else len(self._samples))
        fresh = algorithm.client_init(self._initial)
        self._client_type = type(fresh)
        cohort = max(1, round(self._attendance.participation * len(self._clients)))
        self._memory.refuse_too_little(cohort, message_bytes([*fresh, self._initial]))
        self.state = State(
            round=0,
            cloud=self._initial,
            aggregate=self._initial,
            server=algorithm.server_init(self._initial),
            h=None,
            scored=ScoredModel.empty(self._initial),
            averaged=None if self._rules.average_from is None else AveragedModel.empty(self._initial),
            clients=ClientStore(self._memory),
        )

    def scored_model(self) -> Tensor:
        """The mean of the latest models of the clients that have taken part."""
        return self._scored_value(self.state.scored)

    def averaged_model(self) -> Tensor | None:
        """The mean of θ̄ over the last part of the run; None where it isn't asked for or that part hasn't begun."""
        return None if self.state.averaged is None else self.state.averaged.value(self._initial)

    def cohort(self, round_number: int) -> np.ndarray:
        """The clients that take part in a round, past or to come; empty if no client is present."""
        roster = self._roster_before_round_one()
        roster.advance(round_number)
        return roster.cohort()

    def client_state(self, client: int) -> Any:
        """The algorithm's state on a client, fresh if the client has never taken part."""
        if client not in self.state.clients or not self._client_type._fields:
            return self._algorithm.client_init(self._initial)
        kept = self.state.clients.read(client)
        return self._client_type(**{name: kept[_STATE + name] for name in self._client_type._fields})

    def client_model(self, client: int) -> Tensor:
        """The latest model of a client, θ_0 if it has never taken part."""
        kept = self.state.clients.read(client) if client in self.state.clients else {}
        return kept.get(_MODEL, self._initial).clone()

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
            Diverged: If a loss or a model isn't finite. The state is that of the round before.
            InputError: If the given cohort is empty or has others than training clients.
        """
        return advance(self.round(evaluate=evaluate, cohort=cohort), self.engine)

    def round(
        self, *, evaluate: bool = False, cohort: np.ndarray | None = None, settled: bool = True
    ) -> Lane[Metrics | None]:
        """A round as a generator: yields what its clients, its server and its evaluation need, and is sent the results.

        It lets several runs be advanced together, as lanes. Arguments, result and errors are those of ``step``, but for
        a round that needn't be settled: on a GPU it is only begun, so that the next one can be prepared meanwhile, and
        its divergence is raised by the round after the next, or by ``settle``.
        """
        self._settle(but=1)
        self._roster.advance(self.state.round + 1)
        chosen = self._roster.cohort() if cohort is None else self._checked(cohort)
        if len(chosen) > 0:
            after, answers = yield from self._round(chosen.tolist())
        else:
            after, answers = self._skipped_round(), []
        columns = _columns(answers)
        with self.observer("scored"):
            after = replace(after, scored=self._scored(answers, columns))
        health = _Health.of(after, answers)
        if health.is_there:
            health.check()
        evaluation: EvaluationResult | None = None
        if evaluate:
            evaluation = yield self._evaluation_request(after)
        if settled or evaluate:
            self.settle()
            health.check()
        elif not health.is_there:
            self._unsettled.append(_Unsettled(self.state, health))
        metrics = None
        if evaluation is not None:
            metrics = measure(
                self.state,
                after,
                evaluation=evaluation,
                answers=answers,
                present=self._roster.size,
                estimate_norms=self._estimate_norms(after, answers),
                server_numbers=self._algorithm.server_numbers(after.server),
            )
        after.clients.write(_rows(answers, columns))
        self.state = after
        return metrics

    def settle(self) -> None:
        """Waits until all rounds so far are computed, and makes sure that none of them has diverged.

        Raises:
            Diverged: If one has. The state is that of the round before, but for what the clients of later rounds keep.
        """
        self._settle(but=0)

    def _settle(self, *, but: int) -> None:
        """Settles all rounds so far but the last ones."""
        while len(self._unsettled) > but:
            unsettled = self._unsettled.popleft()
            try:
                unsettled.health.check()
            except Diverged:
                self.state = unsettled.before
                self._unsettled.clear()
                raise

    def soundness(self) -> Callable[[], bool]:
        """A function that waits until all rounds so far are computed, and says whether none has diverged.

        Another thread may call it, while later rounds are made.
        """
        unsettled = list(self._unsettled)

        def is_sound() -> bool:
            try:
                for one in unsettled:
                    one.health.check()
            except Diverged:
                return False
            return True

        return is_sound

    def view(self, rows: np.ndarray | None = None, *, settled: bool = True) -> View:
        """The state as tensors and numbers, to be read before the next round; it holds no second copy of anything.

        Args:
            rows: The numbers of the clients' rows that it has, ascending (``ClientStore.changed_since``); None for all.
            settled: Whether to settle all rounds before; else the state may be that of one that has diverged.

        Raises:
            Diverged: If a round that wasn't settled has diverged.
        """
        if settled:
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
        self.state = State.from_snapshot(snapshot, type(self.state.server), self._memory)
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

    def _round(self, cohort: list[int]) -> Lane[tuple[State, list[Answers]]]:
        """All phases of a round: the state they lead to, except for the clients' own, and the clients' answers."""
        after = replace(self.state, round=self.state.round + 1)
        all_answers: list[Answers] = []
        states = {client: self.client_state(client) for client in cohort}
        for phase, work in enumerate(self._algorithm.phases):
            context = self._context(after.round, phase)
            with self.observer("server"):
                message = self._algorithm.downlink(after.server, after.cloud, context)
            if phase > 0:
                states = _states_by_client(all_answers[-1])
            answers: Answers = yield self._request(work, states, message, context)
            for scores in answers.scores:
                if scores.numbers.is_there:
                    scores.read()
            with self.observer("server"):
                replies = reduce_replies(self._algorithm.means, answers.clients, answers.replies)
                update: Update = yield ServerStep(self._algorithm, after.server, after.cloud, replies, context)
            after = replace(
                after,
                server=update.server,
                aggregate=update.aggregate,
                cloud=update.cloud,
                h=update.h,
                bytes_down=after.bytes_down + len(cohort) * message_bytes(message),
                bytes_up=after.bytes_up + message_bytes(answers.replies),
                local_steps=after.local_steps + sum(answers.steps),
            )
            all_answers.append(answers)
        if self._rules.server_rate != 1.0:
            before = self.state.cloud
            after = replace(after, cloud=before + self._rules.server_rate * (after.cloud - before))
        first = self._rules.average_from
        if after.averaged is not None and first is not None and after.round >= first:
            after = replace(after, averaged=after.averaged.with_model(after.aggregate))
        return after, all_answers

    def _request(self, work: Work, states: Mapping[int, Any], message: Any, context: ServerContext) -> Request:
        return Request(self._algorithm, self._task, self._training, work, states, message, context)

    def _context(self, round_number: int, phase: int) -> ServerContext:
        return ServerContext(
            round=round_number,
            phase=phase,
            eta=self._training.eta(round_number),
            base_eta=self._training.learning_rate,
            known_population=self._population() if self._algorithm.needs_population else None,
        )

    def _population(self) -> Population:
        return Population(self._roster.size, self._roster.mean_samples)

    def _scored(self, answers: Sequence[Answers], columns: Mapping[str, Tensor]) -> ScoredModel:
        if _MODEL not in columns:
            return self.state.scored
        clients, kept = answers[-1].clients, self.state.clients
        weighted = self._algorithm.scored_weight == "samples"
        return self.state.scored.with_models(
            columns[_MODEL],
            [kept.read(client)[_MODEL] if client in kept else None for client in clients],
            [float(self._task.samples(client)) if weighted else 1.0 for client in clients],
        )

    def _evaluation_request(self, after: State) -> EvaluationRequest:
        models = {"scored": self._scored_value(after.scored), "aggregate": after.aggregate, "cloud": after.cloud}
        averaged = None if after.averaged is None else after.averaged.value(self._initial)
        if averaged is not None:
            models["averaged"] = averaged
        return EvaluationRequest(self._task, models, validated="scored")

    def _estimate_norms(self, after: State, answers: Sequence[Answers]) -> Tensor:
        """‖h_i‖ of all clients that have taken part, at the scale of a message to those present.

        If no client is present, an algorithm that needs to know the population has no message to send.
        """
        if self._algorithm.needs_population and self._roster.size == 0:
            return after.cloud.new_empty(0, dtype=torch.float64)
        context = self._context(after.round + 1, 0)
        message = self._algorithm.downlink(after.server, after.cloud, context)
        latest = _states_by_client(answers[-1]) if answers else {}
        everyone = dict.fromkeys([*self.state.clients, *latest])
        states = OneByOne(everyone, lambda client: latest[client] if client in latest else self.client_state(client))
        return estimate_norms(self._request(self._algorithm.phases[0], states, message, context))

    def _scored_value(self, scored: ScoredModel) -> Tensor:
        with self.observer("scored"):
            return scored.value(self._initial, self._everyone if self._rules.scored_clients == "all" else None)


class _Health(NamedTuple):
    """What tells whether a round has diverged. On a GPU it may still be on its way.

    Attributes:
        scores: How the training of the clients went.
        largest: The largest numbers in the cloud and in the aggregate, without their signs, ``[2]``.
    """

    scores: tuple[TrainingScores, ...]
    largest: Arrival

    @classmethod
    def of(cls, after: State, answers: Sequence[Answers]) -> "_Health":
        """Asks for the facts about a round."""
        # One operation each, which keeps what isn't a number; isfinite and all would be five.
        largest = [torch.linalg.vector_norm(model, ord=torch.inf) for model in (after.cloud, after.aggregate)]
        return cls(tuple(scores for own in answers for scores in own.scores), Arrival(torch.stack(largest)))

    @property
    def is_there(self) -> bool:
        """Whether nothing needs to be waited for."""
        return self.largest.is_there and all(scores.numbers.is_there for scores in self.scores)

    def check(self) -> None:
        """Waits for the facts.

        Raises:
            Diverged: If a loss or a model isn't finite.
        """
        for scores in self.scores:
            scores.read()
        for name, largest in zip(("cloud", "aggregate"), self.largest.read().tolist(), strict=True):
            if not math.isfinite(largest):
                raise Diverged(f"the {name} model isn't finite")


class _Unsettled(NamedTuple):
    """A round that was begun, and the state before it."""

    before: State
    health: _Health


def _columns(answers: Sequence[Answers]) -> dict[str, Tensor]:
    """The columns of the client store: the clients' last states and their latest models, one row a client."""
    if not answers:
        return {}
    columns = {_STATE + name: value for name, value in answers[-1].states._asdict().items()}
    trained = [own.models for own in answers if own.models is not None]
    return columns | ({_MODEL: trained[-1]} if trained else {})


def _rows(answers: Sequence[Answers], columns: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """Columns as rows, by client."""
    if not answers:
        return {}
    rows = {name: column.unbind() for name, column in columns.items()}
    return {
        client: {name: values[place] for name, values in rows.items()}
        for place, client in enumerate(answers[-1].clients)
    }


def _states_by_client(answers: Answers) -> dict[int, Any]:
    """The states of clients, one by one."""
    kind, rows = type(answers.states), [field.unbind() for field in answers.states]
    return {client: kind(*(row[place] for row in rows)) for place, client in enumerate(answers.clients)}


T = TypeVar("T")


def _with_prefix(prefix: str, named: Mapping[str, T]) -> dict[str, T]:
    """The values whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}


def message_bytes(message: Iterable[Tensor]) -> int:
    """The bytes of a message's or a state's tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in message)
