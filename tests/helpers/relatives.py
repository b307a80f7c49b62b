"""Algorithms that the package doesn't have, in a few lines each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms import forms
from adabest.algorithms.base import Algorithm, ClientContext, Correction, Nothing, Replies, ServerContext, Update, Work
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Model, Number, Vector


@dataclass(frozen=True)
class FedAvgM(FedAvg):
    """FedAvg with momentum on the server. Hsu et al., *Measuring the effects of non-identical data distribution*, 2019.

    ::

        server:  v ← β v + (θ − θ̄)
                 θ ← θ − v
    """

    beta: float = 0.7

    class Server(NamedTuple):
        """v."""

        momentum: Vector

    def server_init(self, cloud: Tensor) -> Server:
        return self.Server(torch.zeros_like(cloud))

    def server_step(  # type: ignore[override]
        self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext
    ) -> Update:
        aggregate = replies.mean("model", "samples")
        momentum = self.beta * server.momentum + (cloud - aggregate)
        return Update(self.Server(momentum), aggregate, cloud=cloud - momentum)


@dataclass(frozen=True)
class FedAdam(FedAvg):
    """Adam on the server. Reddi et al., *Adaptive federated optimization*, 2021.

    ::

        server:  m ← β₁ m + (1 − β₁) (θ − θ̄)
                 v ← β₂ v + (1 − β₂) (θ − θ̄)²
                 θ ← θ − rate · m / (√v + τ)
    """

    rate: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 0.001

    class Server(NamedTuple):
        """m and v."""

        first: Vector
        second: Vector

    def server_init(self, cloud: Tensor) -> Server:
        return self.Server(torch.zeros_like(cloud), torch.full_like(cloud, self.tau**2))

    def server_step(  # type: ignore[override]
        self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext
    ) -> Update:
        aggregate = replies.mean("model", "samples")
        g = cloud - aggregate
        first = self.beta1 * server.first + (1 - self.beta1) * g
        second = self.beta2 * server.second + (1 - self.beta2) * g**2
        moved = cloud - self.rate * first / (second.sqrt() + self.tau)
        return Update(self.Server(first, second), aggregate, cloud=moved)


@dataclass(frozen=True)
class FedNova(Algorithm):
    """Normalised averaging. Wang et al., *Tackling the objective inconsistency problem*, 2020.

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
class SlowMo(FedAvg):
    """Slow momentum, in units of gradients. Wang et al., *SlowMo: improving communication-efficient SGD*, 2020.

    ::

        server:  u ← β u + (θ − θ̄) / η_t
                 θ ← θ − α η_t u
    """

    alpha: float = 0.9
    beta: float = 0.6

    class Server(NamedTuple):
        """u."""

        momentum: Vector

    def server_init(self, cloud: Tensor) -> Server:
        return self.Server(torch.zeros_like(cloud))

    def server_step(  # type: ignore[override]
        self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext
    ) -> Update:
        aggregate = replies.mean("model", "samples")
        momentum = self.beta * server.momentum + (cloud - aggregate) / context.eta
        return Update(self.Server(momentum), aggregate, cloud=cloud - self.alpha * context.eta * momentum)


@dataclass(frozen=True)
class VrlSgd(Algorithm):
    """Variance-reduced local SGD: h_i needs the *next* aggregate. Liang et al., *Variance reduced local SGD*, 2019.

    ::

        client:  on receipt   h_i ← h_i + (θ − θ_i) / (K_i η)    with θ_i, η of its last round
                 then         w ← w − η (∇L(w) − h_i)
        server:  θ ← θ̄
    """

    class Client(NamedTuple):
        """h_i as it was in the last round, what was sent then, and 1/(K_i η) of then: 0 before the first round."""

        h: Vector
        sent: Model
        pace: Number

    Message = FedAvg.Message

    class Reply(NamedTuple):
        """θ_i."""

        model: Model

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(torch.zeros_like(cloud), torch.zeros_like(cloud), torch.zeros_like(cloud[..., :1]))

    def downlink(self, server: Nothing, cloud: Tensor, context: ServerContext) -> FedAvg.Message:
        return FedAvg.Message(cloud)

    def client_start(self, client: Client, message: FedAvg.Message, context: ClientContext) -> Correction:
        return Correction(start=message.cloud, offset=-self._on_receipt(client, message))

    def client_finish(
        self, client: Client, message: FedAvg.Message, model: Tensor, context: ClientContext
    ) -> tuple[Client, Reply]:
        pace = 1 / (context.steps * context.eta)
        return self.Client(self._on_receipt(client, message), model, pace), self.Reply(model)

    def server_step(self, server: Nothing, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model")
        return Update(server, aggregate, cloud=aggregate)

    def _on_receipt(self, client: Client, message: FedAvg.Message) -> Tensor:
        return client.h + client.pace * (message.cloud - client.sent)


@dataclass(frozen=True)
class FedDane(Algorithm):
    """A round of two exchanges: gradients first. Li et al., *FedDANE: a federated Newton-type method*, 2019.

    ::

        phase 0:  g ← mean of ∇F_i(θ)
        phase 1:  w ← w − η (∇L(w) − ∇F_i(θ) + g + μ (w − θ)),   θ ← θ̄
    """

    mu: float = 0.3

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"vector": ("one",)}
    phases: ClassVar[tuple[Work, ...]] = (Work.GRADIENT, Work.TRAIN)

    class Vector(NamedTuple):
        """∇F_i(θ) on the client between the phases, g on the server; as a reply, the gradient and then the model."""

        vector: forms.Vector

    Server = Client = Reply = Vector

    class Message(NamedTuple):
        """θ and g."""

        cloud: Model
        gradient: forms.Vector

    def client_model(self, message: Message, reply: Vector, context: ServerContext) -> Tensor:
        return reply.vector

    def server_init(self, cloud: Tensor) -> Vector:
        return self.Vector(torch.zeros_like(cloud))

    def client_init(self, cloud: Tensor) -> Vector:
        return self.Vector(torch.zeros_like(cloud))

    def downlink(self, server: Vector, cloud: Tensor, context: ServerContext) -> Message:
        return self.Message(cloud, server.vector)

    def client_start(self, client: Vector, message: Message, context: ClientContext) -> Correction:
        offset = message.gradient - client.vector - self.mu * message.cloud
        return Correction(start=message.cloud, offset=offset, rho=self.mu)

    def client_finish(
        self, client: Vector, message: Message, model: Tensor, context: ClientContext
    ) -> tuple[Vector, Vector]:
        return (self.Vector(model) if context.phase == 0 else client), self.Vector(model)

    def server_step(self, server: Vector, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        mean = replies.mean("vector")
        if context.phase == 0:
            return Update(self.Vector(mean), aggregate=cloud, cloud=cloud)
        return Update(server, aggregate=mean, cloud=mean)


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
