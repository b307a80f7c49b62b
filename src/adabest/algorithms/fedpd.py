"""FedPD: an augmented Lagrangian per client. Zhang et al., *FedPD: a federated learning framework*, 2020."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import (
    Algorithm,
    ClientContext,
    Correction,
    Nothing,
    Replies,
    ServerContext,
    Update,
    check_choice,
)
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Model, Number, Vector
from adabest.algorithms.ranges import check_positive


@dataclass(frozen=True)
class FedPD(Algorithm):
    """FedPD that talks in every round.

    ::

        client:  w ← w − η (∇L(w) + λ_i + ρ (w − θ))    from w = θ, or from its last θ_i
                 λ_i ← λ_i + ρ (θ_i − θ)
        server:  θ ← mean of θ_i + λ_i / ρ

    ρ is 1/η of the paper, which may skip talking in a round, and asks all clients otherwise. Clients of the paper, and
    of the authors' code, solve their local problem from where their last training ended (``own``). From θ (``cloud``),
    and on balanced data, each λ_i is −ρ times FedDyn's h_i, and both are the same algorithm with ρ = μ. Where local
    problems are solved exactly, it doesn't matter where that begins.

    If only some are asked, θ is the mean over those that reply, and the others' λ_i don't count: FedDyn differs there.
    A new client has λ_i = 0, and begins at θ. ``own`` is for all clients in every round: where few are asked, they
    begin at models that are old.

    A client sends the sum θ_i + λ_i / ρ. No server can tell θ_i from it, so there is no scored model.

    Attributes:
        rho: ρ > 0, the penalty. The default is ours.
        begin: Where local training begins: at θ (``cloud``), or where the client's last one ended (``own``).
    """

    rho: float = 0.1
    begin: Literal["cloud", "own"] = "cloud"

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"consensus": ("one",)}

    def __post_init__(self) -> None:
        check_positive("rho", self.rho)
        check_choice("begin", self.begin, ("cloud", "own"))

    class Client(NamedTuple):
        """λ_i."""

        dual: Vector

    class KeepingClient(NamedTuple):
        """λ_i and θ_i, and 1 once it has been asked."""

        dual: Vector
        model: Model
        asked: Number

    Message = FedAvg.Message

    class Reply(NamedTuple):
        """θ_i + λ_i / ρ."""

        consensus: Vector

    @property
    def stackable(self) -> bool:
        return True

    def client_type(self) -> type[Any]:
        return self.KeepingClient if self.begin == "own" else self.Client

    def client_init(self, cloud: Tensor) -> Client | KeepingClient:
        return self._kept(torch.zeros_like(cloud), cloud, asked=0.0)

    def downlink(self, server: Nothing, cloud: Tensor, context: ServerContext) -> FedAvg.Message:
        return FedAvg.Message(cloud)

    def client_start(
        self, client: Client | KeepingClient, message: FedAvg.Message, context: ClientContext
    ) -> Correction:
        start = message.cloud
        if isinstance(client, self.KeepingClient):
            start = torch.where(client.asked > 0, client.model, start)
        return Correction(start, offset=client.dual - self.rho * message.cloud, rho=self.rho)

    def client_finish(
        self, client: Client | KeepingClient, message: FedAvg.Message, model: Tensor, context: ClientContext
    ) -> tuple[Client | KeepingClient, Reply]:
        dual = client.dual + self.rho * (model - message.cloud)
        return self._kept(dual, model, asked=1.0), self.Reply(model + dual / self.rho)

    def server_step(self, server: Nothing, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        mean = replies.mean("consensus")
        return Update(server, aggregate=mean, cloud=mean)

    def client_estimate(
        self, client: Client | KeepingClient, message: FedAvg.Message, context: ClientContext
    ) -> Tensor:
        return -client.dual

    def _kept(self, dual: Tensor, model: Tensor, asked: float) -> Client | KeepingClient:
        if self.begin == "cloud":
            return self.Client(dual)
        return self.KeepingClient(dual, model, asked=torch.full_like(model[..., :1], asked))
