"""A bench on which rounds of one algorithm are played and timed: a real simulation, looked at from outside."""

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from torch import Tensor

from adabest.algorithms.base import ClientContext, Update, Work
from adabest.costs.cost_file import Times
from adabest.costs.formula import Number
from adabest.costs.stopwatch import Spent, alone, timed
from adabest.engine.interface import Engine, Exchange, Outcome, stacked_context, stacked_states
from adabest.engine.local_step import local_step
from adabest.engine.metrics import Metrics
from adabest.engine.reduction import reduce_replies
from adabest.engine.simulation import message_bytes
from adabest.errors import Diverged, InputError
from adabest.runs.build import build_federation
from adabest.runs.settings.config import Config
from adabest.runs.settings.resolution import Components
from adabest.tasks.base import Heartbeat

_AGAIN = 5  # times that the server's short work is done in a row


class Bench:
    """A federation whose rounds are measured.

    Attributes:
        label: The algorithm's.
        participants: How many clients take part in a round.
    """

    def __init__(
        self, label: str, config: Config, components: Components, engine: Engine, heartbeat: Heartbeat
    ) -> None:
        federation = build_federation(config, components, heartbeat)
        self.label = label
        self._algorithm, self._engine = components.algorithm, engine
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
        """Plays a round.

        Args:
            counts: Whether its time is kept.
            evaluate: Whether it ends with metrics, which know what was sent since the first round.

        Raises:
            InputError: If the algorithm diverges.
        """
        try:
            times = self._play(evaluate)
        except Diverged as error:
            raise InputError(
                f"{self.label} diverges in round {self._simulation.state.round + 1} ({error}), so its costs can't be "
                "measured; use a smaller learning_rate"
            ) from error
        if counts:
            for part, spent in times.items():
                self._times[part].append(spent)

    def _play(self, evaluate: bool) -> dict[str, Spent]:
        """A round of the simulation; beside it, what it has its algorithm do is done again, alone."""
        server, cloud = self._simulation.state.server, self._simulation.state.cloud
        times = dict.fromkeys(self._times, Spent())
        lane = self._simulation.round(evaluate=evaluate)
        try:
            request = next(lane)
            self._took_part += len(request.clients)
            while True:
                (answer,), at_clients = timed(functools.partial(self._engine.exchange, [request]), self._device)
                if isinstance(answer, Diverged):
                    raise answer
                with alone():
                    update, at_server = timed(
                        functools.partial(self._serve, request, answer, server, cloud), self._device
                    )
                server, cloud = update.server, update.cloud
                times["clients"] = times["clients"].plus(at_clients)
                times["server"] = times["server"].plus(at_server, 1 / _AGAIN)
                times["arithmetic"] = times["arithmetic"].plus(self._arithmetic(request))
                request = lane.send(answer)
        except StopIteration as end:
            self._metrics = end.value or {}
        return times

    def _serve(self, request: Exchange, outcomes: Sequence[Outcome], server: Any, cloud: Tensor) -> Update:
        """All that a server computes, several times."""
        algorithm, context = self._algorithm, request.context
        for _ in range(_AGAIN):
            algorithm.downlink(server, cloud, context)
            replies = reduce_replies(algorithm.means, [(outcome.client, outcome.reply) for outcome in outcomes])
            update = algorithm.server_step(server, cloud, replies, context)
        return update

    def _arithmetic(self, request: Exchange) -> Spent:
        """What the clients compute beside gradients, in plain torch: on a CPU one by one, on a GPU all at once."""
        clients, spent = list(request.clients), Spent()
        for group in [[client] for client in clients] if self._device.type == "cpu" else [clients]:
            states = stacked_states([request.clients[client] for client in group])
            context = stacked_context(request, group)
            gradient = request.message.cloud.repeat(len(group), 1)  # what it is doesn't matter
            with alone():
                work = functools.partial(self._compute, request, states, context, gradient)
                spent = spent.plus(timed(work, self._device)[1])
        return spent

    def _compute(self, request: Exchange, states: Any, context: ClientContext, gradient: Tensor) -> None:
        correction = self._algorithm.client_start(states, request.message, context)
        w = gradient
        if request.work is Work.TRAIN:
            w = correction.start
            for _ in range(self._task.steps(next(iter(request.clients)))):
                w = local_step(w, gradient, correction, context.eta, request.training)
        self._algorithm.client_finish(states, request.message, w, context)

    def sent(self, way: str) -> Number:
        """Bytes that went ``down`` to or ``up`` from each client of a round, by the metrics of the last one."""
        return Fraction(int(self._metrics[f"bytes_{way}"] or 0), self._took_part)

    def kept(self) -> dict[str, Number]:
        """Bytes between rounds, of the algorithm and for the scored model, of each client seen and of the server."""
        simulation, state = self._simulation, self._simulation.state
        seen = list(state.clients)
        return {
            "client": Fraction(sum(message_bytes(simulation.client_state(client)) for client in seen), len(seen)),
            "server": message_bytes(state.server),
            "scored_client": Fraction(message_bytes(map(simulation.client_model, seen)), len(seen)),
            "scored_server": state.scored.total.nbytes,
        }

    def beside(self) -> int:
        """Bytes of θ̄ and h that the simulator holds and the server, by its algorithm, wouldn't."""
        state = self._simulation.state
        own = set(map(_place, [state.cloud, *state.server]))
        held = {_place(tensor): tensor for tensor in (state.aggregate, state.h) if tensor is not None}
        return message_bytes(tensor for place, tensor in held.items() if place not in own)

    def seconds(self) -> dict[str, Times]:
        """What the rounds took: the clients, their arithmetic alone, and the server."""
        on_cores = self._device.type == "cpu"
        return {
            part: Times([one.wall for one in spent], [one.cpu for one in spent] if on_cores else [])
            for part, spent in self._times.items()
        }


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
