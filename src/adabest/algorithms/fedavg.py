"""FedAvg: train locally, average. McMahan et al., *Communication-efficient learning of deep networks*, 2017."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Correction, Nothing, Replies, ServerContext, Update
from adabest.algorithms.forms import Model, Number


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """FedAvg.

    ::

        client:  w ← w − η ∇L(w)
        server:  θ ← θ̄ = Σ n_i θ_i / Σ n_i
    """

    scored_weight: ClassVar[str] = "samples"
    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"model": ("samples",)}

    class Message(NamedTuple):
        """θ."""

        cloud: Model

    class Reply(NamedTuple):
        """θ_i and n_i."""

        model: Model
        samples: Number

    @property
    def stackable(self) -> bool:
        return True

    def downlink(self, server: Nothing, cloud: Tensor, context: ServerContext) -> Message:
        return self.Message(cloud)

    def client_start(self, client: Nothing, message: Message, context: ClientContext) -> Correction:
        return Correction(start=message.cloud)

    def client_finish(
        self, client: Nothing, message: Message, model: Tensor, context: ClientContext
    ) -> tuple[Nothing, Reply]:
        return client, self.Reply(model, context.samples)

    def server_step(self, server: Nothing, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model", "samples")
        return Update(server, aggregate, cloud=aggregate)
