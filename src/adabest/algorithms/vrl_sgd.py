"""VRL-SGD: h_i from the next aggregate. Liang et al., *Variance reduced local SGD*, 2019."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Correction, Nothing, Replies, ServerContext, Update
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Model, Number, Vector


@dataclass(frozen=True)
class VrlSgd(Algorithm):
    """VRL-SGD.

    ::

        client:  on receipt   h_i ← h_i + (θ − θ_i) / (K_i η)    with θ_i, K_i and η of its last round
                 then         w ← w − η (∇L(w) − h_i)
        server:  θ ← θ̄

    The paper asks all clients in every round, and then the h_i sum to zero. If only some are asked, θ is the model that
    a client receives next, whenever that is, and the sum drifts. A new client has h_i = 0.

    η is the one of the round in which θ_i was trained. The paper's is constant.
    """

    class Client(NamedTuple):
        """h_i as it was in the last round, θ_i of then, and 1 / (K_i η) of then: 0 before the first round."""

        h: Vector
        sent: Model
        pace: Number

    Message = FedAvg.Message

    class Reply(NamedTuple):
        """θ_i."""

        model: Model

    @property
    def stackable(self) -> bool:
        return True

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(torch.zeros_like(cloud), torch.zeros_like(cloud), torch.zeros_like(cloud[..., :1]))

    def downlink(self, server: Nothing, cloud: Tensor, context: ServerContext) -> FedAvg.Message:
        return FedAvg.Message(cloud)

    def client_start(self, client: Client, message: FedAvg.Message, context: ClientContext) -> Correction:
        return Correction(start=message.cloud, offset=-self._on_receipt(client, message))

    def client_finish(
        self, client: Client, message: FedAvg.Message, model: Tensor, context: ClientContext
    ) -> tuple[Client, Reply]:
        return self.Client(self._on_receipt(client, message), model, self._pace(context)), self.Reply(model)

    def server_step(self, server: Nothing, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model")
        return Update(server, aggregate, cloud=aggregate)

    def client_estimate(self, client: Client, message: FedAvg.Message, context: ClientContext) -> Tensor:
        return self._on_receipt(client, message)

    def _pace(self, context: ClientContext) -> Tensor:
        return 1 / (context.steps * context.eta)

    def _on_receipt(self, client: Client, message: FedAvg.Message) -> Tensor:
        return client.h + client.pace * (message.cloud - client.sent)
