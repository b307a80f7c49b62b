"""Algorithms that the package doesn't have, in a few lines each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Correction, Nothing, Replies, ServerContext, Update
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Number, Vector


@dataclass(frozen=True)
class Differences(Algorithm):
    """FedNova whose clients send differences, as its paper has it.

    ::

        client:  d_i = (θ − θ_i) / K_i
        server:  θ ← θ − (Σ p_i K_i) Σ p_i d_i    with  p_i = n_i / Σ n_j
    """

    scored_weight: ClassVar[str] = "samples"
    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"direction": ("samples",), "steps": ("samples",)}

    Message = FedAvg.Message

    class Reply(NamedTuple):
        """d_i, K_i and n_i; a difference, which θ_i follows from to rounding only, so there is no scored model."""

        direction: Vector
        steps: Number
        samples: Number

    def downlink(self, server: Nothing, cloud: Tensor, context: ServerContext) -> FedAvg.Message:
        return FedAvg.Message(cloud)

    def client_start(self, client: Nothing, message: FedAvg.Message, context: ClientContext) -> Correction:
        return Correction(start=message.cloud)

    def client_finish(
        self, client: Nothing, message: FedAvg.Message, model: Tensor, context: ClientContext
    ) -> tuple[Nothing, Reply]:
        return client, self.Reply((message.cloud - model) / context.steps, context.steps, context.samples)

    def server_step(self, server: Nothing, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        moved = cloud - replies.mean("steps", "samples") * replies.mean("direction", "samples")
        return Update(server, aggregate=moved, cloud=moved)


@dataclass(frozen=True)
class NoisyFedAvg(FedAvg):
    """FedAvg with keyed noise in all its functions."""

    sigma: float = 0.1

    def downlink(self, server: Nothing, cloud: Tensor, context: ServerContext) -> FedAvg.Message:
        return self.Message(cloud + self.sigma * context.normal_like(cloud))

    def client_start(self, client: Nothing, message: FedAvg.Message, context: ClientContext) -> Correction:
        # The message has no dimension for the clients; the noise must be each client's own nevertheless.
        noise = context.uniform_like(message.cloud) - context.uniform_like(message.cloud)
        return Correction(start=message.cloud, offset=self.sigma * noise)

    def client_finish(
        self, client: Nothing, message: FedAvg.Message, model: Tensor, context: ClientContext
    ) -> tuple[Nothing, FedAvg.Reply]:
        return client, self.Reply(model + self.sigma * context.normal_like(model), context.samples)

    def client_model(self, message: FedAvg.Message, reply: FedAvg.Reply, context: ServerContext) -> Tensor:
        return reply.model + self.sigma * context.uniform_like(reply.model)

    def server_step(self, server: Nothing, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model", "samples")
        return Update(server, aggregate, cloud=aggregate + self.sigma * context.uniform_like(cloud))

    @property
    def stackable(self) -> bool:
        return True
