"""Timed rounds of one algorithm: a real simulation, observed from outside."""

from fractions import Fraction

from adabest.costs.cost_file import Times
from adabest.costs.formula import Number
from adabest.costs.free_gradients import FreeGradients
from adabest.costs.section_timer import SectionTimer, Spent, read_clocks
from adabest.costs.storage import kept_bytes, metrics_bytes
from adabest.engine.interface import Engine, Request, stacked_states
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
        at_clients = Spent()
        lane = self._simulation.round(evaluate=evaluate)
        try:
            request = next(lane)
            self._took_part += len(request.clients)
            while True:
                begin = read_clocks(self._device)
                (answer,) = self._engine.exchange([request])
                at_clients = at_clients.plus(read_clocks(self._device).minus(begin))
                if isinstance(answer, Diverged):
                    raise answer
                self._repeat_without_gradients(request, timer)
                request = lane.send(answer)
        except StopIteration as end:
            self._metrics = end.value or {}
        return {"clients": at_clients, "arithmetic": timer.spent["client"], "server": timer.spent["server"]}

    def _repeat_without_gradients(self, request: Request, timer: SectionTimer) -> None:
        """Has the clients' work done again in plain torch, with gradients that cost nothing, and timed.

        On a CPU clients come one after another; a GPU has all of them at once, as a single client whose vectors are
        stacked: one alone would leave it idle.
        """
        clients, like = dict(request.clients), request.message.cloud
        gradient = like.clone()  # its values don't matter
        if self._device.type != "cpu":
            gradient = like.repeat(len(clients), 1)
            clients = {next(iter(clients)): stacked_states(list(clients.values()))}
        anyone = next(iter(clients))
        free = FreeGradients(like, gradient, steps=self._task.steps(anyone), samples=self._task.samples(anyone))
        ReferenceEngine(self._heartbeat, timer).exchange([request._replace(task=free, clients=clients)])

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
