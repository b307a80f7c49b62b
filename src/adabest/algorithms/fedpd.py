"""FedPD: an augmented Lagrangian per client. Zhang et al., *FedPD: a federated learning framework*, 2020."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Correction, Nothing, Replies, ServerContext, Update
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Vector
from adabest.algorithms.ranges import check_positive


@dataclass(frozen=True)
class FedPD(Algorithm):
    """FedPD that talks in every round.

    ::

        client:  w ← w − η (∇L(w) + λ_i + ρ (w − θ))
                 λ_i ← λ_i + ρ (θ_i − θ)
        server:  θ ← mean of θ_i + λ_i / ρ

    ρ is 1/η of the paper. The paper may skip talking in a round, and asks all clients otherwise; then each λ_i is −ρ
    times FedDyn's h_i on balanced data, and both are the same algorithm with ρ = μ. If only some are asked, θ is the
    mean over those that reply, and the others' λ_i don't count: FedDyn differs there. A new client has λ_i = 0.

    A client sends the sum θ_i + λ_i / ρ. No server can tell θ_i from it, so there is no scored model.

    Attributes:
        rho: ρ > 0, the penalty. The default is ours.
    """

    rho: float = 0.1

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"consensus": ("one",)}

    def __post_init__(self) -> None:
        check_positive("rho", self.rho)

    class Client(NamedTuple):
        """λ_i."""

        dual: Vector

    Message = FedAvg.Message

    class Reply(NamedTuple):
        """θ_i + λ_i / ρ."""

        consensus: Vector

    @property
    def stackable(self) -> bool:
        return True

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(torch.zeros_like(cloud))

    def downlink(self, server: Nothing, cloud: Tensor, context: ServerContext) -> FedAvg.Message:
        return FedAvg.Message(cloud)

    def client_start(self, client: Client, message: FedAvg.Message, context: ClientContext) -> Correction:
        return Correction(start=message.cloud, offset=client.dual - self.rho * message.cloud, rho=self.rho)

    def client_finish(
        self, client: Client, message: FedAvg.Message, model: Tensor, context: ClientContext
    ) -> tuple[Client, Reply]:
        dual = client.dual + self.rho * (model - message.cloud)
        return self.Client(dual), self.Reply(model + dual / self.rho)

    def server_step(self, server: Nothing, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        mean = replies.mean("consensus")
        return Update(server, aggregate=mean, cloud=mean)

    def client_estimate(self, client: Client, message: FedAvg.Message, context: ClientContext) -> Tensor:
        return -client.dual
