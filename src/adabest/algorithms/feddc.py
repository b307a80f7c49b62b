"""FedDC: drifts kept and undone. Gao et al., *FedDC: federated learning with local drift decoupling*, 2022."""

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
from adabest.algorithms.forms import Model, Number, Vector


@dataclass(frozen=True)
class FedDC(Algorithm):
    """FedDC. The formulas are those of the authors' code on balanced data, but for η, which is this round's.

    ::

        client:  w ← w − η (∇L(w) + α (w + d_i − θ) + h − h_i)
                 d_i ← d_i + θ_i − θ
                 h_i ← h_i + Δh_i    with  Δh_i = g_i / (K_i η) − h
        server:  h ← h + (1 / |S|) Σ Δh_i
                 d ← d + (1 / |S|) Σ (θ_i − θ)
                 θ ← θ̄ + d

    d_i is the client's drift, h and h_i are SCAFFOLD's; d is the mean of d_i over all clients, whoever is asked. All
    of a new client's are 0. The server works both sums out of the models, since Δh_i holds no h_i.

    The authors' code divides α and h by n_i/n̄ and weighs Δh_i by it. Here clients count equally, as they do in its mean
    of models.

    Attributes:
        strength: α ≥ 0, the strength of the term that holds w + d_i near θ.
    """

    strength: float = 0.1

    needs_population: ClassVar[bool] = True
    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"model": ("one", "pace"), "pace": ("one",)}

    def __post_init__(self) -> None:
        check_range("strength", self.strength)

    class Server(NamedTuple):
        """d and h."""

        drift: Vector
        h: Vector

    class Client(NamedTuple):
        """d_i and h_i."""

        drift: Vector
        h: Vector

    class Message(NamedTuple):
        """θ and h."""

        cloud: Model
        h: Vector

    class Reply(NamedTuple):
        """θ_i and 1 / K_i."""

        model: Model
        pace: Number

    @property
    def stackable(self) -> bool:
        return True

    def server_init(self, cloud: Tensor) -> Server:
        return self.Server(drift=torch.zeros_like(cloud), h=torch.zeros_like(cloud))

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(drift=torch.zeros_like(cloud), h=torch.zeros_like(cloud))

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> Message:
        return self.Message(cloud, server.h)

    def client_start(self, client: Client, message: Message, context: ClientContext) -> Correction:
        offset = self.strength * (client.drift - message.cloud) + message.h - client.h
        return Correction(start=message.cloud, offset=offset, rho=self.strength)

    def client_finish(
        self, client: Client, message: Message, model: Tensor, context: ClientContext
    ) -> tuple[Client, Reply]:
        g_i = message.cloud - model
        h = client.h + (g_i / (context.steps * context.eta) - message.h)
        return self.Client(client.drift - g_i, h), self.Reply(model, 1 / context.steps)

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model")
        share = replies.count / context.population.size
        pull = replies.mean("pace") / context.eta * (cloud - replies.mean("model", "pace"))
        h = server.h + share * (pull - server.h)
        drift = server.drift + share * (aggregate - cloud)
        return Update(self.Server(drift, h), aggregate, cloud=aggregate + drift, h=h)

    def client_estimate(self, client: Client, message: Message, context: ClientContext) -> Tensor:
        return client.h
