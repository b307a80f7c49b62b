"""MIFA: absent clients count with their last update. Gu et al., *Arbitrary device unavailability*, 2021."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Correction, Replies, ServerContext, Update
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Vector


@dataclass(frozen=True)
class Mifa(Algorithm):
    """MIFA, with the table of updates on the clients. The formulas are those of public code and of memory.

    ::

        client:  as FedAvg
                 Δh_i = g_i / η − h_i,  h_i ← g_i / η
        server:  h ← h + (1 / |S|) Σ Δh_i
                 θ ← θ − η h

    h is the mean of h_i over all clients. Updates are kept in units of gradients, so that an old one is replayed at
    this round's η. The paper waits in its first round until all clients have replied; here one that has never replied
    counts as h_i = 0.

    A client sends the change Δh_i. No server can tell θ_i from it, so there is no scored model.
    """

    needs_population: ClassVar[bool] = True
    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"change": ("one",)}

    class Server(NamedTuple):
        """h."""

        h: Vector

    class Client(NamedTuple):
        """h_i."""

        h: Vector

    Message = FedAvg.Message

    class Reply(NamedTuple):
        """Δh_i."""

        change: Vector

    @property
    def stackable(self) -> bool:
        return True

    def server_init(self, cloud: Tensor) -> Server:
        return self.Server(h=torch.zeros_like(cloud))

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(h=torch.zeros_like(cloud))

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> FedAvg.Message:
        return FedAvg.Message(cloud)

    def client_start(self, client: Client, message: FedAvg.Message, context: ClientContext) -> Correction:
        return Correction(start=message.cloud)

    def client_finish(
        self, client: Client, message: FedAvg.Message, model: Tensor, context: ClientContext
    ) -> tuple[Client, Reply]:
        h = (message.cloud - model) / context.eta
        return self.Client(h), self.Reply(h - client.h)

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        h = server.h + (replies.count / context.population.size) * replies.mean("change")
        moved = cloud - context.eta * h
        return Update(self.Server(h), aggregate=moved, cloud=moved, h=h)
