"""Algorithms that use the parts of the local step that the package's own do without."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import ClientContext, Correction, Replies, ServerContext, Update, Work
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Model, Number, Vector

# What a correction may have beside the affine part, and combinations of it.
PARTS: dict[str, tuple[str, ...]] = {
    "diagonal": ("diagonal",),
    "shift": ("shift",),
    "radius": ("radius",),
    "anchor": ("anchor",),
    "momentum": ("momentum",),
    "sarah": ("previous", "sum"),
    "previous from an anchor": ("anchor", "previous"),
    "shift and radius": ("shift", "radius"),
    "all": ("diagonal", "offset", "shift", "radius", "anchor", "previous", "momentum"),
}


@dataclass(frozen=True)
class Extended(FedAvg):
    """FedAvg with parts of the local step, all different for each client; m goes from round to round.

    Attributes:
        parts: Which.
    """

    parts: tuple[str, ...] = ()

    means: ClassVar[Any] = {"model": ("samples",), "velocity": ("one",)}

    class Server(NamedTuple):
        """m, the mean of the clients' last."""

        velocity: Vector

    class Message(NamedTuple):
        """θ and m."""

        cloud: Model
        velocity: Vector

    class Reply(NamedTuple):
        """θ_i, m_i and n_i."""

        model: Model
        velocity: Vector
        samples: Number

    def server_init(self, cloud: Tensor) -> Server:
        return self.Server(0.1 * cloud)

    def downlink(self, server: Any, cloud: Tensor, context: ServerContext) -> Any:
        return self.Message(cloud, server.velocity)

    def client_start(self, client: Any, message: Any, context: ClientContext) -> Correction:
        cloud, own = message.cloud, 1 / context.samples
        has = {part: part in self.parts for part in ("diagonal", "offset", "shift", "radius", "anchor", "previous")}
        momentum: Any = 0.0
        if "momentum" in self.parts:
            momentum = 0.4 + own / 2
        if "sum" in self.parts:
            momentum = 1.0
        moving = "momentum" in self.parts or "sum" in self.parts
        return Correction(
            start=cloud,
            scale=1 + 0.5 * torch.sin(100 * cloud) if has["diagonal"] else 1.0,
            offset=0.01 * own * cloud if has["offset"] else None,
            shift=0.3 * (own + 0.1) * torch.cos(50 * cloud) if has["shift"] else None,
            radius=0.1 + own if has["radius"] else 0.0,
            anchor=(0.9 - own / 2) * cloud if has["anchor"] else None,
            previous=has["previous"],
            momentum=momentum,
            velocity=message.velocity if moving else None,
        )

    def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> Any:
        velocity = message.velocity if context.velocity is None else context.velocity
        return client, self.Reply(model, velocity + torch.zeros_like(model), context.samples)

    def server_step(self, server: Any, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model", "samples")
        return Update(self.Server(replies.mean("velocity")), aggregate, cloud=aggregate)


@dataclass(frozen=True)
class Ditto(FedAvg):
    """A model for all and one of each client's own, near it. Li et al., *Ditto*, 2021.

    ::

        phase 0:  FedAvg
        phase 1:  v_i ← v_i − η (∇L(v_i) + λ (v_i − θ))    from the last v_i; θ stays

    Attributes:
        pull: λ.
    """

    pull: float = 0.1

    phases: ClassVar[tuple[Work, ...]] = (Work.TRAIN, Work.TRAIN)
    means: ClassVar[Any] = {"model": ("samples",), "length": ("one",)}

    class Client(NamedTuple):
        """v_i, and whether there is one."""

        own: Vector
        begun: Number

    class Length(NamedTuple):
        """The largest number of v_i without its sign."""

        length: Number

    def reply_type(self, phase: int) -> type[Any]:
        return self.Reply if phase == 0 else self.Length

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(torch.zeros_like(cloud), torch.zeros_like(cloud[..., :1]))

    def client_start(self, client: Any, message: Any, context: ClientContext) -> Correction:
        if context.phase == 0:
            return Correction(start=message.cloud)
        start = torch.where(client.begun > 0, client.own, message.cloud)
        return Correction(start=start, offset=-self.pull * message.cloud, rho=self.pull)

    def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> Any:
        if context.phase == 0:
            return client, self.Reply(model, context.samples)
        return self.Client(model, torch.ones_like(client.begun)), self.Length(model.abs().amax(dim=-1, keepdim=True))

    def server_step(self, server: Any, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        if context.phase == 0:
            return super().server_step(server, cloud, replies, context)
        return Update(server, aggregate=cloud, cloud=cloud)


@dataclass(frozen=True)
class CoinTosses(FedAvg):
    """FedAvg whose clients make as many steps as coins are tossed until the first success, the same for all.

    Attributes:
        probability: Of a success.
    """

    probability: float = 0.3

    def common_steps(self, context: ServerContext) -> int:
        steps = 1
        while float(context.uniform_like(torch.zeros(1, dtype=torch.float64))) >= self.probability:
            steps += 1
        return steps

    def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> Any:
        return client, self.Reply(model + 0.01 * context.steps, context.samples)
