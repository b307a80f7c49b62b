"""FedDANE: full gradients first, then training. Li et al., *FedDANE: a federated Newton-type method*, 2019."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import (
    Algorithm,
    ClientContext,
    Correction,
    Replies,
    ServerContext,
    Update,
    Work,
    check_range,
)
from adabest.algorithms.forms import Model, Vector


@dataclass(frozen=True)
class FedDane(Algorithm):
    """FedDANE.

    ::

        phase 0, client:  ∇L_i(θ), over all of its samples
                 server:  h ← mean of ∇L_i(θ)
        phase 1, client:  w ← w − η (∇L(w) − ∇L_i(θ) + h + μ (w − θ))
                 server:  θ ← θ̄

    The paper draws one cohort for the gradients and another one for training. Here both phases have the same. With all
    clients it is DANE. ∇L_i(θ) has no augmentation, no weight decay and no clipping.

    Attributes:
        mu: μ ≥ 0, the strength of the proximal term. The default is ours.
    """

    mu: float = 0.1

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"gradient": ("one",), "model": ("one",)}
    phases: ClassVar[tuple[Work, ...]] = (Work.GRADIENT, Work.TRAIN)

    def __post_init__(self) -> None:
        check_range("mu", self.mu)

    class Server(NamedTuple):
        """h."""

        h: Vector

    class Client(NamedTuple):
        """∇L_i(θ), between the phases."""

        gradient: Vector

    class Point(NamedTuple):
        """θ, where the gradient is taken."""

        cloud: Model

    class Message(NamedTuple):
        """θ and h."""

        cloud: Model
        h: Vector

    class Gradient(NamedTuple):
        """∇L_i(θ)."""

        gradient: Vector

    class Reply(NamedTuple):
        """θ_i."""

        model: Model

    @property
    def stackable(self) -> bool:
        return True

    def message_type(self, phase: int) -> type[Any]:
        return self.Point if phase == 0 else self.Message

    def reply_type(self, phase: int) -> type[Any]:
        return self.Gradient if phase == 0 else self.Reply

    def server_init(self, cloud: Tensor) -> Server:
        return self.Server(h=torch.zeros_like(cloud))

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(gradient=torch.zeros_like(cloud))

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> Any:
        return self.Point(cloud) if context.phase == 0 else self.Message(cloud, server.h)

    def client_start(self, client: Client, message: Any, context: ClientContext) -> Correction:
        if context.phase == 0:
            return Correction(start=message.cloud)
        offset = message.h - client.gradient - self.mu * message.cloud
        return Correction(start=message.cloud, offset=offset, rho=self.mu)

    def client_finish(self, client: Client, message: Any, model: Tensor, context: ClientContext) -> tuple[Client, Any]:
        if context.phase == 0:
            return self.Client(gradient=model), self.Gradient(model)
        return client, self.Reply(model)

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        if context.phase == 0:
            h = replies.mean("gradient")
            return Update(self.Server(h), aggregate=cloud, cloud=cloud, h=h)
        aggregate = replies.mean("model")
        return Update(server, aggregate, cloud=aggregate, h=server.h)

    def client_estimate(self, client: Client, message: Any, context: ClientContext) -> Tensor:
        return client.gradient
