"""FedBN: normalisation layers are each client's own. Li et al., *FedBN: FL on non-IID features*, 2021."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from adabest.algorithms.base import ClientContext, Nothing, Replies, ServerContext, Update
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Model
from adabest.algorithms.partly_private import PartlyPrivate
from adabest.model_part import Part


@dataclass(frozen=True)
class FedBN(PartlyPrivate):
    """FedBN: the weights and biases of normalisation layers are private.

    ::

        client:  w ← w − η ∇L(w)            in all layers
        server:  θ ← mean of θ_i            in all layers but those that normalise

    Checked against the authors' code, ``med-air/FedBN``, where clients weigh the same, too. Two things differ. A layer
    is told by its type, not by "bn" in its name, and any that normalises is meant: GroupNorm, LayerNorm, InstanceNorm.
    And models here have no running statistics that a client could keep: ``--batch-norm group`` puts GroupNorm in the
    place of BatchNorm.

    The server's models have the initial numbers in those layers. Clients' own models are judged with ``--local-test``.
    """

    scored_weight: ClassVar[str] = "one"
    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"model": ("one",)}

    class Reply(NamedTuple):
        """θ_i."""

        model: Model

    @property
    def stackable(self) -> bool:
        return True

    def private_part(self) -> Part:
        return Part(normalisation=True)

    def client_finish(
        self, client: PartlyPrivate.Client, message: FedAvg.Message, model: Tensor, context: ClientContext
    ) -> tuple[PartlyPrivate.Client, Reply]:
        return self.Client(own=model), self.Reply(model)

    def server_step(self, server: Nothing, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model")
        return Update(server, aggregate, cloud=aggregate)
