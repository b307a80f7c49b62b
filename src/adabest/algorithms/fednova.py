"""FedNova: normalised averaging. Wang et al., *Tackling the objective inconsistency problem*, 2020."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Correction, Nothing, Replies, ServerContext, Update
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Model, Number


@dataclass(frozen=True)
class FedNova(Algorithm):
    """FedNova, for plain SGD on the clients.

    ::

        client:  as FedAvg;  d_i = g_i / K_i
        server:  θ ← θ − (Σ p_i K_i) Σ p_i d_i    with  p_i = n_i / Σ n_j

    The sums are over those that reply. A client sends θ_i and not d_i, from which the server could tell θ_i to rounding
    only: Σ p_i d_i = (Σ n_i/K_i / Σ n_j) (θ − θ̄'), where θ̄' weighs models by n_i/K_i.
    """

    scored_weight: ClassVar[str] = "samples"
    means: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "model": ("pace",),
        "pace": ("one",),
        "steps": ("samples",),
        "samples": ("one",),
    }

    Message = FedAvg.Message

    class Reply(NamedTuple):
        """θ_i, n_i / K_i, K_i and n_i."""

        model: Model
        pace: Number
        steps: Number
        samples: Number

    @property
    def stackable(self) -> bool:
        return True

    def downlink(self, server: Nothing, cloud: Tensor, context: ServerContext) -> FedAvg.Message:
        return FedAvg.Message(cloud)

    def client_start(self, client: Nothing, message: FedAvg.Message, context: ClientContext) -> Correction:
        return Correction(start=message.cloud)

    def client_finish(
        self, client: Nothing, message: FedAvg.Message, model: Tensor, context: ClientContext
    ) -> tuple[Nothing, Reply]:
        return client, self.Reply(model, context.samples / context.steps, context.steps, context.samples)

    def server_step(self, server: Nothing, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        steps = replies.mean("steps", "samples") * replies.mean("pace") / replies.mean("samples")
        moved = cloud - steps * (cloud - replies.mean("model", "pace"))
        return Update(server, aggregate=moved, cloud=moved)
