"""FedSplit: Peaceman-Rachford splitting. Pathak and Wainwright, *FedSplit*, 2020."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Correction, Nothing, Replies, ServerContext, Update
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Number, Vector
from adabest.algorithms.ranges import check_positive


@dataclass(frozen=True)
class FedSplit(Algorithm):
    """FedSplit, whose proximal step is made by local steps of SGD from its centre.

    ::

        client:  c = 2θ − z_i
                 w ← w − η (∇L(w) + (w − c) / s)    from w = c
                 z_i ← z_i + 2 (θ_i − θ)
        server:  θ ← mean of z_i

    Each z_i is at first θ: for a new client that of the round in which it is first asked, about which the paper says
    nothing, since all clients are asked in every round. If only some are asked, θ is the mean over those that reply.
    z_i is sent, and no server can tell θ_i from it, so there is no scored model.

    Attributes:
        s: s > 0, the step of the proximal operator. η/s should be below 1.
    """

    s: float = 1.0

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"z": ("one",)}

    def __post_init__(self) -> None:
        check_positive("s", self.s)

    class Client(NamedTuple):
        """z_i, and 1 once it has been asked."""

        z: Vector
        asked: Number

    Message = FedAvg.Message

    class Reply(NamedTuple):
        """z_i."""

        z: Vector

    @property
    def stackable(self) -> bool:
        return True

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(torch.zeros_like(cloud), torch.zeros_like(cloud[..., :1]))

    def downlink(self, server: Nothing, cloud: Tensor, context: ServerContext) -> FedAvg.Message:
        return FedAvg.Message(cloud)

    def client_start(self, client: Client, message: FedAvg.Message, context: ClientContext) -> Correction:
        centre = 2 * message.cloud - self._z(client, message)
        return Correction(start=centre, offset=-centre / self.s, rho=1 / self.s)

    def client_finish(
        self, client: Client, message: FedAvg.Message, model: Tensor, context: ClientContext
    ) -> tuple[Client, Reply]:
        z = self._z(client, message) + 2 * (model - message.cloud)
        return self.Client(z, torch.ones_like(client.asked)), self.Reply(z)

    def server_step(self, server: Nothing, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        mean = replies.mean("z")
        return Update(server, aggregate=mean, cloud=mean)

    def _z(self, client: Client, message: FedAvg.Message) -> Tensor:
        return torch.where(client.asked > 0, client.z, message.cloud)
