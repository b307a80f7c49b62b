"""FedACG: clients start ahead. Kim et al., *Federated learning with accelerated client gradient*, 2024."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from adabest.algorithms.base import (
    Algorithm,
    ClientContext,
    Correction,
    Nothing,
    Replies,
    ServerContext,
    Update,
    check_range,
)
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Model
from adabest.algorithms.ranges import check_below_one


@dataclass(frozen=True)
class FedACG(Algorithm):
    """FedACG.

    ::

        client:  w ← w − η (∇L(w) + β (w − θ))
        server:  h ← λ (θ̄_prev − θ̄)
                 θ ← θ̄ − h

    The paper has m ← λm + (mean of θ_i) − θ, the aggregate moved by m, and λm added to what is sent. That is the same:
    m is θ̄ − θ̄_prev. **The server is AdaBest's** with λ in the place of β, and with β = 0 FedACG is AdaBest with μ = 0.

    The authors' code has no ½ in its proximal term, so its β is half of this one. Means are plain ones.

    Attributes:
        momentum: λ in [0, 1), how far θ runs ahead.
        beta: β ≥ 0, the strength of the proximal term.
    """

    momentum: float = 0.85
    beta: float = 0.01

    def __post_init__(self) -> None:
        check_below_one("momentum", self.momentum)
        check_range("beta", self.beta)

    class Server(NamedTuple):
        """θ̄ of the last round."""

        aggregate: Model

    Message = FedAvg.Message

    class Reply(NamedTuple):
        """θ_i."""

        model: Model

    @property
    def stackable(self) -> bool:
        return True

    def server_init(self, cloud: Tensor) -> Server:
        return self.Server(cloud)

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> FedAvg.Message:
        return FedAvg.Message(cloud)

    def client_start(self, client: Nothing, message: FedAvg.Message, context: ClientContext) -> Correction:
        return Correction(start=message.cloud, offset=-self.beta * message.cloud, rho=self.beta)

    def client_finish(
        self, client: Nothing, message: FedAvg.Message, model: Tensor, context: ClientContext
    ) -> tuple[Nothing, Reply]:
        return client, self.Reply(model)

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model")
        h = self.momentum * (server.aggregate - aggregate)
        return Update(self.Server(aggregate), aggregate, cloud=aggregate - h, h=h)
