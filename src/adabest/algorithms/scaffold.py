"""SCAFFOLD: control variates on both sides. Karimireddy et al., *Stochastic controlled averaging*, 2020 (option II)."""

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
    Scalar,
    ServerContext,
    Update,
    check_choice,
)
from adabest.algorithms.forms import Model, Number, Total, Vector
from adabest.algorithms.progressive import count, mean_seen, nothing_seen, ratio


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """SCAFFOLD, with w_i = n_i / n̄ (all ones on balanced data).

    ::

        client:  w ← w − η (∇L(w) − h_i + h / w_i)
                 h_i ← h_i + Δh_i    with  Δh_i = g_i / (K_i η) − h
        server:  h ← h + (1 / |S|) Σ w_i Δh_i
                 θ ← θ̄

    Attributes:
        control_rate: The η in Δh_i: this round's (``decayed``), or the first round's as in the reference code
            (``undecayed``).
        sample_mean: The n̄ in w_i: over the clients present (``population``), or over the replies so far as in AdaBest
            (``progressive``). |S| is needed either way.
    """

    control_rate: Literal["decayed", "undecayed"] = "decayed"
    sample_mean: Literal["population", "progressive"] = "population"

    needs_population: ClassVar[bool] = True
    means: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "model": ("one",),
        "weighted_change": ("one",),
        "samples": ("one",),
    }

    def __post_init__(self) -> None:
        check_choice("control_rate", self.control_rate, ("decayed", "undecayed"))
        check_choice("sample_mean", self.sample_mean, ("population", "progressive"))

    class Server(NamedTuple):
        """h, and what a progressive n̄ is made of."""

        h: Vector
        samples_seen: Total
        replies_seen: Total

    class Client(NamedTuple):
        """h_i."""

        h: Vector

    class Message(NamedTuple):
        """θ, h and n̄."""

        cloud: Model
        h: Vector
        mean_samples: Number

    class Reply(NamedTuple):
        """θ_i and w_i Δh_i."""

        model: Model
        weighted_change: Vector

    class CountedReply(NamedTuple):
        """θ_i, w_i Δh_i and n_i, for a progressive n̄."""

        model: Model
        weighted_change: Vector
        samples: Number

    @property
    def stackable(self) -> bool:
        return True

    def reply_type(self, phase: int) -> type[Any]:
        return self.CountedReply if self._progressive else self.Reply

    def server_init(self, cloud: Tensor) -> Server:
        nothing = nothing_seen(cloud)
        return self.Server(h=torch.zeros_like(cloud), samples_seen=nothing, replies_seen=nothing)

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(h=torch.zeros_like(cloud))

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> Message:
        if self._progressive:
            return self.Message(cloud, server.h, mean_seen(server, cloud))
        return self.Message(cloud, server.h, torch.zeros_like(cloud[..., :1]) + context.population.mean_samples)

    def client_start(self, client: Client, message: Message, context: ClientContext) -> Correction:
        w_i = ratio(context.samples, message.mean_samples)
        return Correction(start=message.cloud, offset=message.h / w_i - client.h)

    def client_finish(
        self, client: Client, message: Message, model: Tensor, context: ClientContext
    ) -> tuple[Client, Any]:
        w_i = ratio(context.samples, message.mean_samples)
        change = self._change(message, model, context)
        if self._progressive:
            return self.Client(h=client.h + change), self.CountedReply(model, w_i * change, context.samples)
        return self.Client(h=client.h + change), self.Reply(model, w_i * change)

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model")
        h = server.h + (replies.count / context.population.size) * replies.mean("weighted_change")
        return Update(self._server(h, server, replies), aggregate, cloud=aggregate, h=h)

    def client_estimate(self, client: Client, message: Message, context: ClientContext) -> Tensor:
        return client.h

    @property
    def _progressive(self) -> bool:
        return self.sample_mean == "progressive"

    def _server(self, h: Tensor, server: Server, replies: Replies) -> Server:
        return self.Server(h, *(count(server, replies) if self._progressive else server[1:]))

    def _change(self, message: Message, model: Tensor, context: ClientContext) -> Tensor:
        g_i = message.cloud - model
        return g_i / (context.steps * self._eta(context)) - message.h

    def _eta(self, context: ClientContext | ServerContext) -> Scalar:
        return context.eta if self.control_rate == "decayed" else context.base_eta
