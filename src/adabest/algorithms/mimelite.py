"""MimeLite: momentum that is fixed in a round. Karimireddy et al., *Mime: mimicking centralized algorithms*, 2021."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Correction, Nothing, Replies, ServerContext, Update, Work
from adabest.algorithms.feddane import FedDane
from adabest.algorithms.forms import Model, Vector
from adabest.algorithms.ranges import check_below_one


@dataclass(frozen=True)
class MimeLite(Algorithm):
    """MimeLite with SGDm as the algorithm that it mimics. The formulas are from memory of the paper.

    ::

        phase 0, client:  ∇L_i(θ), over all of its samples
        phase 1, client:  w ← w − η ((1 − β) ∇L(w) + β h)
                 server:  h ← (1 − β) (mean of ∇L_i(θ)) + β h,  θ ← θ̄

    Local steps have the h of the round before. Both means are plain ones over those that reply. ∇L_i(θ) has no
    augmentation, no weight decay and no clipping.

    Attributes:
        beta: β in [0, 1), the momentum. h starts at 0, so early steps are 1 − β of a step of SGD.
    """

    beta: float = 0.9

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"gradient": ("one",), "model": ("one",)}
    phases: ClassVar[tuple[Work, ...]] = (Work.GRADIENT, Work.TRAIN)

    def __post_init__(self) -> None:
        check_below_one("beta", self.beta)

    class Server(NamedTuple):
        """h, and the next h between the phases."""

        h: Vector
        following: Vector

    Point = FedDane.Point
    Gradient = FedDane.Gradient
    Reply = FedDane.Reply

    class Message(NamedTuple):
        """θ and h."""

        cloud: Model
        h: Vector

    @property
    def stackable(self) -> bool:
        return True

    def message_type(self, phase: int) -> type[Any]:
        return self.Point if phase == 0 else self.Message

    def reply_type(self, phase: int) -> type[Any]:
        return self.Gradient if phase == 0 else self.Reply

    def server_init(self, cloud: Tensor) -> Server:
        return self.Server(h=torch.zeros_like(cloud), following=torch.zeros_like(cloud))

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> Any:
        return self.Point(cloud) if context.phase == 0 else self.Message(cloud, server.h)

    def client_start(self, client: Nothing, message: Any, context: ClientContext) -> Correction:
        if context.phase == 0:
            return Correction(start=message.cloud)
        return Correction(start=message.cloud, scale=1 - self.beta, offset=self.beta * message.h)

    def client_finish(
        self, client: Nothing, message: Any, model: Tensor, context: ClientContext
    ) -> tuple[Nothing, Any]:
        return client, self.Gradient(model) if context.phase == 0 else self.Reply(model)

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        if context.phase == 0:
            following = (1 - self.beta) * replies.mean("gradient") + self.beta * server.h
            return Update(server._replace(following=following), aggregate=cloud, cloud=cloud, h=server.h)
        aggregate, h = replies.mean("model"), server.following
        return Update(server._replace(h=h), aggregate, cloud=aggregate, h=h)
