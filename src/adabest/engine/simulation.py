"""A federation in motion: its state, and the round that moves it.

A round either happens whole or not at all: everything it computes, the evaluation included, is put in place at its end.
What interrupts it earlier leaves the state of the round before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, Population, ServerContext, Update
from adabest.engine.clients import ClientStore
from adabest.engine.local import LocalTraining
from adabest.engine.reduction import reduce_replies
from adabest.engine.reference import Outcome, ReferenceEngine
from adabest.engine.scored import ScoredModel
from adabest.engine.task import Heartbeat, Task, no_heartbeat
from adabest.errors import Diverged, InputError
from adabest.federation import cohort_size, draw_cohort

Metrics = dict[str, float | int | None]


@dataclass(frozen=True)
class Rules:
    """How rounds go.

    Attributes:
        participation: The share of the training clients that takes part in a round.
        server_rate: η_g, how far the cloud model moves towards the algorithm's.
        scored_clients: Whether the scored model is the mean over the clients ``seen`` so far, or over ``all`` of them
            with unseen ones holding the initial model, as in the reference code.
        seed: The run's seed.
    """

    participation: float = 0.1
    server_rate: float = 1.0
    scored_clients: Literal["seen", "all"] = "seen"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.participation <= 1:
            raise InputError(f"participation = {self.participation}: it must be above 0 and at most 1")
        if not (np.isfinite(self.server_rate) and self.server_rate > 0):
            raise InputError(f"server_rate = {self.server_rate}: it must be above 0 and finite")


@dataclass
class State:
    """Everything that a later round depends on.

    Attributes:
        round: The last finished round.
        cloud: θ.
        aggregate: θ̄.
        server: The algorithm's own state.
        h: The server's estimate of the full gradient, if the algorithm has one.
        scored: What the scored model is made of.
        clients: What the clients keep, their latest models included.
        bytes_down: Bytes sent to clients so far.
        bytes_up: Bytes sent by clients so far.
        local_steps: Local steps made so far.
    """

    round: int
    cloud: Tensor
    aggregate: Tensor
    server: Any
    h: Tensor | None
    scored: ScoredModel
    clients: ClientStore = field(default_factory=ClientStore)
    bytes_down: int = 0
    bytes_up: int = 0
    local_steps: int = 0


class Snapshot(NamedTuple):
    """A state as tensors and numbers, ready to be written to disk."""

    tensors: dict[str, Tensor]
    numbers: dict[str, float | int]


class Simulation:
    """One algorithm on one task: call ``step`` once a round.

    Attributes:
        state: Where the federation stands.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        task: Task,
        clients: np.ndarray,
        *,
        training: LocalTraining | None = None,
        rules: Rules | None = None,
        heartbeat: Heartbeat = no_heartbeat,
    ) -> None:
        """Sets a federation up before its first round.

        Args:
            algorithm: What is simulated.
            task: What is learnt.
            clients: The training clients, ascending.
            training: How clients train.
            rules: How rounds go.
            heartbeat: Called between local steps; what it raises abandons the round.
        """
        self._algorithm = algorithm
        self._task = task
        self._clients = np.asarray(clients, dtype=np.int64)
        self._training = training or LocalTraining()
        self._rules = rules or Rules()
        self._heartbeat = heartbeat
        self._engine = ReferenceEngine(algorithm, task, self._training, heartbeat)
        self._initial = task.initial_model()
        samples = [task.samples(client) for client in self._clients.tolist()]
        self._population = Population(len(samples), float(np.mean(samples)))
        self._everyone = float(np.sum(samples)) if algorithm.scored_weight == "samples" else float(len(samples))
        self._client_type = type(algorithm.client_init(self._initial))
        self._server_type = type(algorithm.server_init(self._initial))
        self.state = State(
            round=0,
            cloud=self._initial,
            aggregate=self._initial,
            server=algorithm.server_init(self._initial),
            h=None,
            scored=ScoredModel.empty(self._initial),
        )

    def scored_model(self) -> Tensor:
        """The mean of the latest models of the clients that have taken part."""
        return self._scored_value(self.state.scored)

    def cohort(self, round_number: int) -> np.ndarray:
        """Who takes part in a round."""
        size = cohort_size(self._rules.participation, len(self._clients))
        return draw_cohort(self._rules.seed, round_number, self._clients, size)

    def client_state(self, client: int) -> Any:
        """What a client keeps: its algorithm's state, fresh if it has never taken part."""
        if client not in self.state.clients:
            return self._algorithm.client_init(self._initial)
        kept = self.state.clients.read(client)
        return self._client_type(**{name: kept[name] for name in self._client_type._fields})

    def step(self, *, evaluate: bool = False, cohort: np.ndarray | None = None) -> Metrics | None:
        """Moves the federation by one round.

        Args:
            evaluate: Whether to measure the models that the round leads to.
            cohort: Who takes part; by default drawn from the seed and the round.

        Returns:
            The metrics, if they were asked for.

        Raises:
            Diverged: If a loss or a model isn't finite. The state is that of the round before.
        """
        now = self.state
        round_number = now.round + 1
        chosen = (self.cohort(round_number) if cohort is None else np.sort(cohort)).tolist()
        states: dict[int, Any] = {}
        server, update, outcomes = now.server, None, []
        bytes_down, bytes_up, steps = now.bytes_down, now.bytes_up, now.local_steps
        for phase, work in enumerate(self._algorithm.phases):
            context = self._context(round_number, phase)
            cloud = now.cloud if update is None else update.cloud
            message = self._algorithm.downlink(server, cloud, context)
            known = {client: states[client] if client in states else self.client_state(client) for client in chosen}
            outcomes = self._engine.exchange(work, known, message, context)
            states = {outcome.client: outcome.state for outcome in outcomes}
            replies = reduce_replies(self._algorithm.means, [(o.client, o.reply) for o in outcomes])
            update = self._algorithm.server_step(server, cloud, replies, context)
            server = update.server
            bytes_down += len(outcomes) * _bytes(message)
            bytes_up += sum(_bytes(outcome.reply) for outcome in outcomes)
            steps += sum(outcome.steps for outcome in outcomes)
        assert update is not None, "an algorithm has at least one phase"
        cloud = update.cloud
        if self._rules.server_rate != 1.0:
            cloud = now.cloud + self._rules.server_rate * (update.cloud - now.cloud)
        _check_finite(cloud, "cloud model")
        _check_finite(update.aggregate, "aggregate model")
        after = State(
            round=round_number,
            cloud=cloud,
            aggregate=update.aggregate,
            server=server,
            h=update.h,
            scored=self._score(outcomes),
            clients=now.clients,
            bytes_down=bytes_down,
            bytes_up=bytes_up,
            local_steps=steps,
        )
        changes = {outcome.client: _record(outcome) for outcome in outcomes}
        metrics = self._metrics(after, update, outcomes, changes) if evaluate else None
        after.clients.write(changes)
        self.state = after
        return metrics

    def snapshot(self) -> Snapshot:
        """A copy of the state as tensors and numbers; later rounds don't change it."""
        state = self.state
        tensors = {"cloud": state.cloud, "aggregate": state.aggregate, "scored.total": state.scored.total}
        if state.h is not None:
            tensors["h"] = state.h
        tensors |= {f"server.{name}": value for name, value in state.server._asdict().items()}
        tensors |= {f"clients.{name}": value for name, value in state.clients.state().items()}
        numbers = {
            "round": state.round,
            "scored.weight": state.scored.weight,
            "scored.unit": state.scored.unit,
            "bytes_down": state.bytes_down,
            "bytes_up": state.bytes_up,
            "local_steps": state.local_steps,
        }
        return Snapshot({name: tensor.clone() for name, tensor in tensors.items()}, numbers)

    def restore(self, snapshot: Snapshot) -> None:
        """Continues from a snapshot, which must come from the same set-up."""
        device = self._initial.device
        tensors, numbers = snapshot
        clients = {name.removeprefix("clients."): t for name, t in tensors.items() if name.startswith("clients.")}
        moved = {name: t.to(device) for name, t in tensors.items() if not name.startswith("clients.")}
        self.state = State(
            round=int(numbers["round"]),
            cloud=moved["cloud"],
            aggregate=moved["aggregate"],
            server=self._server_type(**{name: moved[f"server.{name}"] for name in self._server_type._fields}),
            h=moved.get("h"),
            scored=ScoredModel(moved["scored.total"], numbers["scored.weight"], numbers["scored.unit"]),
            clients=ClientStore.from_state(clients, [name for name in clients if name != "ids"], device),
            bytes_down=int(numbers["bytes_down"]),
            bytes_up=int(numbers["bytes_up"]),
            local_steps=int(numbers["local_steps"]),
        )

    def _context(self, round_number: int, phase: int) -> ServerContext:
        return ServerContext(
            round=round_number,
            phase=phase,
            eta=self._training.eta(round_number),
            base_eta=self._training.learning_rate,
            known_population=self._population if self._algorithm.needs_population else None,
        )

    def _score(self, outcomes: list[Outcome]) -> ScoredModel:
        scored = self.state.scored
        for outcome in outcomes:
            if outcome.model is None:
                continue
            seen = outcome.client in self.state.clients
            previous = self.state.clients.read(outcome.client)["model"] if seen else None
            weighted = self._algorithm.scored_weight == "samples"
            samples = float(self._task.samples(outcome.client)) if weighted else 1.0
            scored = scored.with_model(outcome.model, previous, samples)
        return scored

    def _scored_value(self, scored: ScoredModel) -> Tensor:
        return scored.value(self._initial, self._everyone if self._rules.scored_clients == "all" else None)

    def _metrics(
        self, after: State, update: Update, outcomes: list[Outcome], changes: Mapping[int, Mapping[str, Tensor]]
    ) -> Metrics:
        before = self.state
        models = {"scored": self._scored_value(after.scored), "aggregate": after.aggregate, "cloud": after.cloud}
        metrics: Metrics = {"round": after.round}
        for name, model in models.items():
            scores = self._task.test(model, self._heartbeat)
            if not np.isfinite(scores.loss):
                raise Diverged(f"the test loss of the {name} model is {scores.loss}")
            metrics |= {f"{name}_accuracy": scores.accuracy, f"{name}_loss": scores.loss}
        metrics["train_accuracy"] = _mean([o.accuracy for o in outcomes])
        metrics["train_loss"] = _mean([o.loss for o in outcomes])
        validation = self._task.validate(models["scored"], self._heartbeat)
        for name in ("accuracy", "spread", "worst_tenth"):
            metrics[f"validation_{name}"] = None if validation is None else getattr(validation, name)
        metrics["cloud_norm"] = _norm(after.cloud)
        metrics["h_norm"] = None if update.h is None else _norm(update.h)
        metrics["client_h_norm"] = self._mean_estimate_norm(changes)
        metrics["h_cosine"] = _cosine(before.h, before.cloud - update.aggregate)
        metrics |= {"bytes_down": after.bytes_down, "bytes_up": after.bytes_up, "local_steps": after.local_steps}
        return metrics

    def _mean_estimate_norm(self, changes: Mapping[int, Mapping[str, Tensor]]) -> float | None:
        """Mean ‖h_i‖ over all clients that have taken part, this round's changes included."""
        name = "estimate_norm"
        if not all(name in change for change in changes.values()):
            return None
        stored = self.state.clients
        total = float(stored.column(name).sum()) if len(stored) else 0.0
        total -= sum(float(stored.read(client)[name]) for client in changes if client in stored)
        total += sum(float(change[name]) for change in changes.values())
        return total / (len(stored) + sum(client not in stored for client in changes))


def _record(outcome: Outcome) -> dict[str, Tensor]:
    """What is stored of a client: its algorithm's state, its model, and ‖h_i‖."""
    record: dict[str, Tensor] = dict(outcome.state._asdict())
    if outcome.model is not None:
        record["model"] = outcome.model
    if outcome.estimate_norm is not None:
        record["estimate_norm"] = torch.tensor([outcome.estimate_norm], dtype=torch.float64)
    return record


def _bytes(message: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in message)


def _norm(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector, dtype=torch.float64))


def _cosine(a: Tensor | None, b: Tensor) -> float | None:
    """The cosine of an angle; None where a vector is missing or zero."""
    if a is None or _norm(a) == 0 or _norm(b) == 0:
        return None
    product = torch.dot(a.to(torch.float64), b.to(torch.float64))
    return float(product) / (_norm(a) * _norm(b))


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _check_finite(model: Tensor, name: str) -> None:
    if not bool(torch.isfinite(model).all()):
        raise Diverged(f"the {name} isn't finite")
