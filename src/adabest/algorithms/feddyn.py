"""FedDyn: a dynamic regulariser per client. Acar et al., *Federated learning based on dynamic regularization*, 2021."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

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
from adabest.algorithms.forms import Model, Number, Total, Vector
from adabest.algorithms.progressive import count, mean_seen, nothing_seen, ratio


@dataclass(frozen=True)
class FedDyn(Algorithm):
    """FedDyn, with μ_i = μ n̄ / n_i, and h_i stored unscaled so that it holds pseudo-gradients only.

    ::

        client:  w ← w − η (∇L(w) − μ_i h_i + σ μ_i (w − θ))
                 h_i ← h_i + g_i
        server:  h ← h + (|P| / |S|) (θ − θ̄)
                 θ ← θ̄ − h

    Attributes:
        mu: μ ≥ 0, the strength of the regulariser.
        clip_proximal: Whether gradient clipping covers the term σ μ_i w. If not, it joins the weight decay and escapes
            the clipping, as in the reference code.
        sample_mean: The n̄ in μ_i: over the clients present (``population``), or over the replies so far as in AdaBest
            (``progressive``). |S| is needed either way.
        spring: σ ≥ 0, the factor of the spring μ_i (w − θ): 1 in the paper and the reference code, 0.5 in the authors'
            simulator.
    """

    mu: float = 0.02
    clip_proximal: bool = True
    sample_mean: Literal["population", "progressive"] = "population"
    spring: float = 1.0

    needs_population: ClassVar[bool] = True
    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"model": ("one",), "samples": ("one",)}

    def __post_init__(self) -> None:
        check_range("mu", self.mu)
        check_choice("clip_proximal", self.clip_proximal, (True, False))
        check_choice("sample_mean", self.sample_mean, ("population", "progressive"))
        check_range("spring", self.spring)

    class Server(NamedTuple):
        """h, and what a progressive n̄ is made of."""

        h: Vector
        samples_seen: Total
        replies_seen: Total

    class Client(NamedTuple):
        """h_i, unscaled."""

        h: Vector

    class Message(NamedTuple):
        """θ and n̄."""

        cloud: Model
        mean_samples: Number

    class Reply(NamedTuple):
        """θ_i."""

        model: Model

    class CountedReply(NamedTuple):
        """θ_i and n_i, for a progressive n̄."""

        model: Model
        samples: Number

    @property
    def stackable(self) -> bool:
        return True

    def reply_type(self, phase: int) -> type[Any]:
        return self.CountedReply if self.sample_mean == "progressive" else self.Reply

    def server_init(self, cloud: Tensor) -> Server:
        nothing = nothing_seen(cloud)
        return self.Server(h=torch.zeros_like(cloud), samples_seen=nothing, replies_seen=nothing)

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(h=torch.zeros_like(cloud))

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> Message:
        if self.sample_mean == "progressive":
            return self.Message(cloud, mean_seen(server, cloud))
        return self.Message(cloud, torch.zeros_like(cloud[..., :1]) + context.population.mean_samples)

    def client_start(self, client: Client, message: Message, context: ClientContext) -> Correction:
        mu_i = self._mu_i(message, context)
        offset, rho = -mu_i * (client.h + self._sprung(message.cloud)), self._sprung(mu_i)
        if self.clip_proximal:
            return Correction(start=message.cloud, offset=offset, rho=rho)
        return Correction(start=message.cloud, offset=offset, rho_prime=rho)

    def client_finish(
        self, client: Client, message: Message, model: Tensor, context: ClientContext
    ) -> tuple[Client, Any]:
        g_i = message.cloud - model
        progressive = self.sample_mean == "progressive"
        reply = self.CountedReply(model, context.samples) if progressive else self.Reply(model)
        return self.Client(h=client.h + g_i), reply

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model")
        h = server.h + (replies.count / context.population.size) * (cloud - aggregate)
        counts = count(server, replies) if self.sample_mean == "progressive" else server[1:]
        return Update(self.Server(h, *counts), aggregate, cloud=aggregate - h, h=h)

    def client_estimate(self, client: Client, message: Message, context: ClientContext) -> Tensor:
        return self._mu_i(message, context) * client.h

    def _mu_i(self, message: Message, context: ClientContext) -> Tensor:
        return self.mu * ratio(message.mean_samples, context.samples)

    def _sprung(self, value: Tensor) -> Tensor:
        """σ times a value. At σ = 1 the value itself: the product would change no bit, but count as a cost."""
        return value if self.spring == 1 else self.spring * value
