"""Local momentum: clients' models and momenta are averaged. Yu et al., *Communication efficient momentum SGD*, 2019."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Correction, Nothing, Replies, ServerContext, Update
from adabest.algorithms.forms import Model, Number, Vector
from adabest.algorithms.ranges import check_below_one


@dataclass(frozen=True)
class LocalMomentum(Algorithm):
    """SGD with momentum on clients, whose momenta are averaged as their models are.

    ::

        client:  m ← β m + ∇L(w),  w ← w − η m    from the server's m and θ
        server:  m ← Σ n_i m_i / Σ n_i,  θ ← θ̄ = Σ n_i θ_i / Σ n_i

    m is at first 0. The paper asks all clients in every round and weighs them equally; here they weigh n_i, as in
    FedAvg. What is clipped is ∇L(w); m isn't.

    The formulas are those of public code; the paper itself is in memory only.

    Attributes:
        beta: β in [0, 1), the momentum; 0 is FedAvg.
    """

    beta: float = 0.9

    scored_weight: ClassVar[str] = "samples"
    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"model": ("samples",), "velocity": ("samples",)}

    def __post_init__(self) -> None:
        check_below_one("beta", self.beta)

    class Server(NamedTuple):
        """m."""

        velocity: Vector

    class Message(NamedTuple):
        """θ and m."""

        cloud: Model
        velocity: Vector

    class Reply(NamedTuple):
        """θ_i, m_i and n_i."""

        model: Model
        velocity: Vector
        samples: Number

    @property
    def stackable(self) -> bool:
        return True

    def server_init(self, cloud: Tensor) -> Server:
        return self.Server(velocity=torch.zeros_like(cloud))

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> Message:
        return self.Message(cloud, server.velocity)

    def client_start(self, client: Nothing, message: Message, context: ClientContext) -> Correction:
        if self.beta == 0:  # a velocity without a momentum is refused
            return Correction(start=message.cloud)
        return Correction(start=message.cloud, momentum=self.beta, velocity=message.velocity)

    def client_finish(
        self, client: Nothing, message: Message, model: Tensor, context: ClientContext
    ) -> tuple[Nothing, Reply]:
        velocity = torch.zeros_like(model) if context.velocity is None else context.velocity
        return client, self.Reply(model, velocity, context.samples)

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model", "samples")
        return Update(self.Server(replies.mean("velocity", "samples")), aggregate, cloud=aggregate)
