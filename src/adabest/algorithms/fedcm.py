"""FedCM: the server's gradient in each local step. Xu et al., *Federated learning with client-level momentum*, 2021."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

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
    check_range,
)
from adabest.algorithms.forms import Model, Number, Vector


@dataclass(frozen=True)
class FedCM(Algorithm):
    """FedCM. The formulas are those of public code; the paper itself is in memory only.

    ::

        client:  w ← w − η (α ∇L(w) + (1 − α) h)
        server:  h ← mean of g_i / (K_i η)
                 θ ← θ̄

    h starts at 0, so steps of the first round are α of a step of SGD. Both means are plain ones over those that reply.
    The server works h out of the models, of which those with few steps weigh more: h = mean(1/K_i) (θ − θ̄') / η, where
    θ̄' weighs models by 1/K_i.

    Attributes:
        own_share: α in [0, 1], the share of a client's own gradient; 1 is FedAvg with plain means.
    """

    own_share: float = 0.1

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"model": ("one", "pace"), "pace": ("one",)}

    def __post_init__(self) -> None:
        check_range("own_share", self.own_share, 0.0, 1.0)

    class Server(NamedTuple):
        """h."""

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
        return self.Server(h=torch.zeros_like(cloud))

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> Message:
        return self.Message(cloud, server.h)

    def client_start(self, client: Nothing, message: Message, context: ClientContext) -> Correction:
        return Correction(start=message.cloud, scale=self.own_share, offset=(1 - self.own_share) * message.h)

    def client_finish(
        self, client: Nothing, message: Message, model: Tensor, context: ClientContext
    ) -> tuple[Nothing, Reply]:
        return client, self.Reply(model, 1 / context.steps)

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model")
        h = replies.mean("pace") / context.eta * (cloud - replies.mean("model", "pace"))
        return Update(self.Server(h), aggregate, cloud=aggregate, h=h)
