"""Timed rounds of one algorithm: a real simulation, observed from outside."""

from collections.abc import Sequence
from fractions import Fraction

from adabest.costs.cost_file import Times
from adabest.costs.formula import Number
from adabest.costs.free_gradients import FreeGradients
from adabest.costs.section_timer import SectionTimer, Spent, read_clocks
from adabest.costs.storage import kept_bytes, metrics_bytes
from adabest.engine.evaluation import EvaluationRequest, EvaluationResult
from adabest.engine.interface import Answers, Engine, Request, stacked_states
from adabest.engine.lanes import advance
from adabest.engine.metrics import Metrics
from adabest.engine.reference import ReferenceEngine
from adabest.errors import Diverged, InputError
from adabest.runs.build import build_federation
from adabest.runs.settings.config import Config
from adabest.runs.settings.resolution import Components
from adabest.tasks.base import Heartbeat


class TimedFederation:
    """A federation whose rounds are timed.

    Attributes:
        label: The algorithm's.
        participants: How many clients take part in a round.
    """

    def __init__(
        self, label: str, config: Config, components: Components, engine: Engine, heartbeat: Heartbeat
    ) -> None:
        federation = build_federation(config, components, heartbeat)
        self.label = label
        self._engine, self._heartbeat = engine, heartbeat
        self._task, self._simulation = federation.task, federation.simulation
        self._clients = federation.partition.training.tolist()
        self._device = federation.task.initial_model().device
        self.participants = len(self._simulation.cohort(1))
        self._times: dict[str, list[Spent]] = {"clients": [], "arithmetic": [], "server": []}
        self._took_part = 0
        self._metrics: Metrics = {}

    def steps(self) -> set[int]:
        """The numbers of local steps that clients make in a round."""
        return {self._task.steps(client) for client in self._clients}

    def round(self, *, counts: bool, evaluate: bool) -> None:
        """Simulates a round.

        Args:
            counts: Whether its time is kept.
            evaluate: Whether it ends with metrics, which know what was sent since the first round.

        Raises:
            InputError: If the algorithm diverges.
        """
        try:
            times = self._timed_round(evaluate)
        except Diverged as error:
            raise InputError(
                f"{self.label} diverges in round {self._simulation.state.round + 1} ({error}), so its costs can't be "
                "measured; use a smaller learning_rate"
            ) from error
        if counts:
            for part, spent in times.items():
                self._times[part].append(spent)

    def _timed_round(self, evaluate: bool) -> dict[str, Spent]:
        """Simulates a round, in which the engine and the server are timed, and beside it the clients' arithmetic."""
        self._simulation.observer = timer = SectionTimer(self._device)
        timed = _TimedEngine(self._engine, self._heartbeat, timer)
        metrics = advance(self._simulation.round(evaluate=evaluate), timed)
        self._metrics = metrics or {}
        self._took_part += timed.took_part
        return {"clients": timed.spent, "arithmetic": timer.spent["client"], "server": timer.spent["server"]}

    def sent(self, way: str) -> Number:
        """Bytes that went ``down`` to or ``up`` from each client of a round, by the metrics of the last one."""
        return Fraction(int(self._metrics[f"bytes_{way}"] or 0), self._took_part)

    def kept(self) -> dict[str, Number]:
        """Bytes between rounds, of the algorithm and for the scored model."""
        return kept_bytes(self._simulation)

    def beside(self) -> int:
        """Bytes that the simulator keeps for metrics alone."""
        return metrics_bytes(self._simulation)

    def seconds(self) -> dict[str, Times]:
        """Times of the rounds: of the clients, of their arithmetic alone, and of the server."""
        on_cores = self._device.type == "cpu"
        return {
            part: Times([one.wall for one in spent], [one.cpu for one in spent] if on_cores else [])
            for part, spent in self._times.items()
        }


class _TimedEngine:
    """An engine around another one, which times it and repeats the clients' arithmetic without gradients.

    Attributes:
        spent: The time of the clients' work.
        took_part: The number of clients in the first phase of the round.
    """

    def __init__(self, engine: Engine, heartbeat: Heartbeat, timer: SectionTimer) -> None:
        self._engine, self._heartbeat, self._timer = engine, heartbeat, timer
        self.spent, self.took_part = Spent(), 0

    def exchange(self, requests: Sequence[Request]) -> list[Answers]:
        """Has the other engine do the work, and times it; clients make their own number of steps."""
        requests = [request._replace(common_steps=None) for request in requests]
        self.took_part = self.took_part or sum(len(request.clients) for request in requests)
        device = requests[0].message.cloud.device
        begin = read_clocks(device)
        answers: list[Answers] = list(self._engine.exchange(requests))
        self.spent = self.spent.plus(read_clocks(device).minus(begin))
        for request in requests:
            self._repeat_without_gradients(request)
        return answers

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[EvaluationResult]:
        """Has the other engine judge models, which isn't timed."""
        return self._engine.evaluate(requests)

    def _repeat_without_gradients(self, request: Request) -> None:
        """Has the clients' work done again in plain torch, with gradients that cost nothing, and timed.

        On a CPU clients come one after another; a GPU has all of them at once, as a single client whose vectors are
        stacked: one alone would leave it idle.
        """
        clients, like = dict(request.clients), request.message.cloud
        gradient = like.clone()  # its values don't matter
        if like.device.type != "cpu":
            gradient = like.repeat(len(clients), 1)
            clients = {next(iter(clients)): stacked_states(list(clients.values()))}
        anyone, task = next(iter(clients)), request.task
        free = FreeGradients(like, gradient, steps=task.steps(anyone), samples=task.samples(anyone))
        ReferenceEngine(self._heartbeat, self._timer).exchange([request._replace(task=free, clients=clients)])
