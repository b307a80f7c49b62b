"""FedDyn: a dynamic regulariser per client. Acar et al., *Federated learning based on dynamic regularization*, 2021."""

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
    check_choice,
    check_range,
)


@dataclass(frozen=True)
class FedDyn(Algorithm):
    """FedDyn, with μ_i = μ n̄ / n_i, and h_i stored unscaled so that it holds pseudo-gradients only.

    ::

        client:  w ← w − η (∇L(w) − μ_i h_i + μ_i (w − θ))
                 h_i ← h_i + g_i
        server:  h ← h + (|P| / |S|) (θ − θ̄)
                 θ ← θ̄ − h

    Attributes:
        mu: μ ≥ 0, the strength of the regulariser.
        clip_proximal: Whether gradient clipping covers the term μ_i w. If not, it joins the weight decay and escapes
            the clipping, as in the reference code.
    """

    mu: float = 0.02
    clip_proximal: bool = True

    needs_population: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_range("mu", self.mu)
        check_choice("clip_proximal", self.clip_proximal, (True, False))

    class Server(NamedTuple):
        """h."""

        h: Tensor

    class Client(NamedTuple):
        """h_i, unscaled."""

        h: Tensor

    class Message(NamedTuple):
        """θ and n̄."""

        cloud: Tensor
        mean_samples: Tensor

    class Reply(NamedTuple):
        """θ_i."""

        model: Tensor

    def server_init(self, cloud: Tensor) -> Server:
        return self.Server(h=torch.zeros_like(cloud))

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(h=torch.zeros_like(cloud))

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> Message:
        return self.Message(cloud, torch.zeros_like(cloud[..., :1]) + context.population.mean_samples)

    def client_start(self, client: Client, message: Message, context: ClientContext) -> Correction:
        mu_i = self._mu_i(message, context)
        offset = -mu_i * (client.h + message.cloud)
        if self.clip_proximal:
            return Correction(start=message.cloud, offset=offset, rho=mu_i)
        return Correction(start=message.cloud, offset=offset, rho_prime=mu_i)

    def client_finish(
        self, client: Client, message: Message, model: Tensor, context: ClientContext
    ) -> tuple[Client, Reply]:
        g_i = message.cloud - model
        return self.Client(h=client.h + g_i), self.Reply(model)

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model")
        h = server.h + (replies.count / context.population.size) * (cloud - aggregate)
        return Update(self.Server(h), aggregate, cloud=aggregate - h, h=h)

    def client_estimate(self, client: Client, message: Message, context: ClientContext) -> Tensor:
        return self._mu_i(message, context) * client.h

    def _mu_i(self, message: Message, context: ClientContext) -> Tensor:
        return self.mu * (message.mean_samples / context.samples)
