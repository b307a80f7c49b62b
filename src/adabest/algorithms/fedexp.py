"""FedExP: a rate from the spread of clients. Jhunjhunwala et al., *Speeding up federated averaging*, 2023."""

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
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Model, Number, Total
from adabest.algorithms.sums import dot


@dataclass(frozen=True)
class FedExP(Algorithm):
    """FedExP.

    ::

        client:  as FedAvg
        server:  rate = max(1, (mean of ‖g_i‖²) / (2 (‖ḡ‖² + ε)))    with  ḡ = θ − θ̄
                 θ ← θ − rate · ḡ

    Means are plain ones over those that reply, as in the paper, from memory. The authors' code weighs by samples,
    multiplies ε by |P| and by the square of η's decay, and scores the mean of the last two cloud models, which is none
    of the models that are scored here.

    Attributes:
        epsilon: ε ≥ 0, which keeps the rate small where ḡ is small.
    """

    epsilon: float = 0.001

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"model": ("one",), "square": ("one",)}

    def __post_init__(self) -> None:
        check_range("epsilon", self.epsilon)

    class Server(NamedTuple):
        """The last rate, for the metrics."""

        rate: Total

    Message = FedAvg.Message

    class Reply(NamedTuple):
        """θ_i and ‖g_i‖²."""

        model: Model
        square: Number

    @property
    def stackable(self) -> bool:
        return True

    def server_init(self, cloud: Tensor) -> Server:
        return self.Server(torch.ones_like(cloud[..., :1], dtype=torch.float64))

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> FedAvg.Message:
        return FedAvg.Message(cloud)

    def client_start(self, client: Nothing, message: FedAvg.Message, context: ClientContext) -> Correction:
        return Correction(start=message.cloud)

    def client_finish(
        self, client: Nothing, message: FedAvg.Message, model: Tensor, context: ClientContext
    ) -> tuple[Nothing, Reply]:
        g_i = message.cloud - model
        return client, self.Reply(model, dot(g_i, g_i).to(model.dtype))

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model")
        g = cloud - aggregate
        below = 2 * (dot(g, g) + self.epsilon)
        rate = (replies.mean("square").to(torch.float64) / torch.where(below > 0, below, 1.0)).clamp(min=1.0)
        return Update(self.Server(rate), aggregate, cloud=cloud - rate.to(cloud.dtype) * g)

    def server_numbers(self, server: Server) -> Mapping[str, Tensor]:
        return {"rate": server.rate}
