"""FedSpeed: FedDyn's dual variables and SAM's steps. Sun et al., *FedSpeed: larger local interval*, 2023."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import (
    Algorithm,
    ClientContext,
    Correction,
    Replies,
    ServerContext,
    Update,
    check_range,
)
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Model, Vector


@dataclass(frozen=True)
class FedSpeed(Algorithm):
    """FedSpeed. The formulas are those of the authors' code.

    ::

        client:  e = r ∇L(w) / ‖∇L(w)‖
                 w ← w − η (∇L(w + e) − μ h_i + μ (w − θ))    both gradients on the same batch
                 h_i ← h_i + g_i
        server:  h ← h + (|P| / |S|) (θ − θ̄)
                 θ ← θ̄ − h

    h is the mean of h_i over all clients. With r = 0 and equal clients it is FedDyn. The gradient in e is neither
    corrected nor clipped. In the authors' code μw belongs to the weight decay, which isn't clipped; here it is, as in
    FedDyn.

    The paper, which is in memory only, mixes ∇L(w + e) with ∇L(w), where e is r ∇L(w) of any length; the authors' code
    takes the former alone, and divides by the norm, as here. And the paper's server averages θ_i − h_i over those that
    reply, which is the same if all do.

    Attributes:
        mu: μ ≥ 0, the strength of the regulariser: 1/λ in the paper.
        radius: r ≥ 0, how far uphill the gradient is taken.
    """

    mu: float = 0.1
    radius: float = 0.1

    needs_population: ClassVar[bool] = True
    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"model": ("one",)}

    def __post_init__(self) -> None:
        check_range("mu", self.mu)
        check_range("radius", self.radius)

    class Server(NamedTuple):
        """h."""

        h: Vector

    class Client(NamedTuple):
        """h_i."""

        h: Vector

    Message = FedAvg.Message

    class Reply(NamedTuple):
        """θ_i."""

        model: Model

    @property
    def stackable(self) -> bool:
        return True

    def server_init(self, cloud: Tensor) -> Server:
        return self.Server(h=torch.zeros_like(cloud))

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(h=torch.zeros_like(cloud))

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> FedAvg.Message:
        return FedAvg.Message(cloud)

    def client_start(self, client: Client, message: FedAvg.Message, context: ClientContext) -> Correction:
        offset = -self.mu * (client.h + message.cloud)
        return Correction(start=message.cloud, offset=offset, rho=self.mu, radius=self.radius)

    def client_finish(
        self, client: Client, message: FedAvg.Message, model: Tensor, context: ClientContext
    ) -> tuple[Client, Reply]:
        return self.Client(h=client.h + (message.cloud - model)), self.Reply(model)

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model")
        h = server.h + (replies.count / context.population.size) * (cloud - aggregate)
        return Update(self.Server(h), aggregate, cloud=aggregate - h, h=h)

    def client_estimate(self, client: Client, message: FedAvg.Message, context: ClientContext) -> Tensor:
        return self.mu * client.h
