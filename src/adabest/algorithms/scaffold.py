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
    """

    control_rate: Literal["decayed", "undecayed"] = "decayed"

    needs_population: ClassVar[bool] = True
    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"model": ("one",), "weighted_change": ("one",)}

    def __post_init__(self) -> None:
        check_choice("control_rate", self.control_rate, ("decayed", "undecayed"))

    class Server(NamedTuple):
        """h."""

        h: Tensor

    class Client(NamedTuple):
        """h_i."""

        h: Tensor

    class Message(NamedTuple):
        """θ, h and n̄."""

        cloud: Tensor
        h: Tensor
        mean_samples: Tensor

    class Reply(NamedTuple):
        """θ_i and w_i Δh_i."""

        model: Tensor
        weighted_change: Tensor

    def server_init(self, cloud: Tensor) -> Server:
        return self.Server(h=torch.zeros_like(cloud))

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(h=torch.zeros_like(cloud))

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> Message:
        return self.Message(cloud, server.h, torch.zeros_like(cloud[..., :1]) + context.population.mean_samples)

    def client_start(self, client: Client, message: Message, context: ClientContext) -> Correction:
        w_i = context.samples / message.mean_samples
        return Correction(start=message.cloud, offset=message.h / w_i - client.h)

    def client_finish(
        self, client: Client, message: Message, model: Tensor, context: ClientContext
    ) -> tuple[Client, Any]:
        w_i = context.samples / message.mean_samples
        change = self._change(message, model, context)
        return self.Client(h=client.h + change), self.Reply(model, w_i * change)

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model")
        h = server.h + (replies.count / context.population.size) * replies.mean("weighted_change")
        return Update(self.Server(h), aggregate, cloud=aggregate, h=h)

    def client_estimate(self, client: Client, message: Message, context: ClientContext) -> Tensor:
        return client.h

    def _change(self, message: Message, model: Tensor, context: ClientContext) -> Tensor:
        g_i = message.cloud - model
        return g_i / (context.steps * self._eta(context)) - message.h

    def _eta(self, context: ClientContext | ServerContext) -> Scalar:
        return context.eta if self.control_rate == "decayed" else context.base_eta
