"""Averages of a part of the model, while the rest stays with its clients: what FedPer and FedBN have in common."""

from typing import NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Correction, Nothing, ServerContext
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Model


class PartlyPrivate(Algorithm):
    """Local training of a model of which one part is shared, and the other one is the client's own.

    ::

        client:  w = θ where shared, its own last w where private
                 w ← w − η ∇L(w)

    A client's personal model has the newest shared part, and its own private one. Simulated clients keep their whole
    model, of which they need the private part alone.
    """

    class Client(NamedTuple):
        """Its last model; θ_0 before it has taken part."""

        own: Model

    Message = FedAvg.Message

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(cloud)

    def downlink(self, server: Nothing, cloud: Tensor, context: ServerContext) -> FedAvg.Message:
        return FedAvg.Message(cloud)

    def client_start(self, client: Client, message: FedAvg.Message, context: ClientContext) -> Correction:
        return Correction(start=self.personal_model(client, message, context))

    def personal_model(self, client: Client, message: FedAvg.Message, context: ClientContext) -> Tensor:
        assert context.private is not None, "the engine tells it to algorithms with a private part"
        return torch.where(context.private, client.own, message.cloud)
