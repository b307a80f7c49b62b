"""MimeLite with Adam in place of SGDm. Karimireddy et al., *Mime: mimicking centralized algorithms*, 2021."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Correction, Nothing, Replies, ServerContext, Update, Work
from adabest.algorithms.feddane import FedDane
from adabest.algorithms.forms import Model, Vector
from adabest.algorithms.ranges import check_below_one, check_positive


@dataclass(frozen=True)
class MimeLiteAdam(Algorithm):
    """MimeLite with Adam as the algorithm that it mimics. The formulas are from memory of the paper.

    ::

        phase 0, client:  ∇L_i(θ), over all of its samples
        phase 1, client:  w ← w − η ((1 − β₁) ∇L(w) + β₁ h) / (√v + τ)
                 server:  h ← (1 − β₁) c + β₁ h,  v ← (1 − β₂) c² + β₂ v,  θ ← θ̄    with  c = mean of ∇L_i(θ)

    Local steps have the h and v of the round before, which stay as they are in a round. h starts at 0 and v at τ², and
    no bias is corrected. Both means are plain ones over those that reply. ∇L_i(θ) has no augmentation, no weight decay
    and no clipping; what is clipped in a step is the whole direction.

    Attributes:
        beta1: β₁ in [0, 1), the momentum.
        beta2: β₂ in [0, 1), the part of v that stays.
        tau: τ > 0: the smaller, the more steps are of one length in all directions. The default is ours.
    """

    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 0.1

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"gradient": ("one",), "model": ("one",)}
    phases: ClassVar[tuple[Work, ...]] = (Work.GRADIENT, Work.TRAIN)

    def __post_init__(self) -> None:
        check_below_one("beta1", self.beta1)
        check_below_one("beta2", self.beta2)
        check_positive("tau", self.tau)

    class Server(NamedTuple):
        """h and v, and c between the phases."""

        h: Vector
        second: Vector
        gradient: Vector

    Point = FedDane.Point
    Gradient = FedDane.Gradient
    Reply = FedDane.Reply

    class Message(NamedTuple):
        """θ, h and v."""

        cloud: Model
        h: Vector
        second: Vector

    @property
    def stackable(self) -> bool:
        return True

    def message_type(self, phase: int) -> type[Any]:
        return self.Point if phase == 0 else self.Message

    def reply_type(self, phase: int) -> type[Any]:
        return self.Gradient if phase == 0 else self.Reply

    def server_init(self, cloud: Tensor) -> Server:
        nothing = torch.zeros_like(cloud)
        return self.Server(h=nothing, second=torch.full_like(cloud, self.tau**2), gradient=nothing)

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> Any:
        return self.Point(cloud) if context.phase == 0 else self.Message(cloud, server.h, server.second)

    def client_start(self, client: Nothing, message: Any, context: ClientContext) -> Correction:
        if context.phase == 0:
            return Correction(start=message.cloud)
        length = message.second.sqrt() + self.tau
        return Correction(start=message.cloud, scale=(1 - self.beta1) / length, offset=self.beta1 * message.h / length)

    def client_finish(
        self, client: Nothing, message: Any, model: Tensor, context: ClientContext
    ) -> tuple[Nothing, Any]:
        return client, self.Gradient(model) if context.phase == 0 else self.Reply(model)

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        if context.phase == 0:
            kept = server._replace(gradient=replies.mean("gradient"))
            return Update(kept, aggregate=cloud, cloud=cloud, h=server.h)
        aggregate, gradient = replies.mean("model"), server.gradient
        h = (1 - self.beta1) * gradient + self.beta1 * server.h
        second = (1 - self.beta2) * gradient * gradient + self.beta2 * server.second
        return Update(self.Server(h, second, gradient), aggregate, cloud=aggregate, h=h)
