"""BVR-L-SGD: SARAH in each client. Murata & Suzuki, *Bias-variance reduced local SGD*, 2021."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Correction, Nothing, Replies, ServerContext, Update, Work
from adabest.algorithms.feddane import FedDane
from adabest.algorithms.forms import Vector


@dataclass(frozen=True)
class BvrLSgd(Algorithm):
    """BVR-L-SGD that begins every round with full gradients.

    ::

        phase 0, client:  ∇L_i(θ), over all of its samples
                 server:  h ← mean of ∇L_i(θ)
        phase 1, client:  m ← m + ∇L(w) − ∇L(w')    both gradients on the same batch; w' is w before the last step
                          w ← w − η m               from m = h and w' = w = θ, so the first step goes along h
                 server:  θ ← θ̄

    The paper's h is full in the first round of a stage only; in the others, large batches at θ and at the θ before
    change it. The paper goes on with the model of one client that is drawn; here it is the mean of all, since a server
    gets nothing but means. All clients are asked in every round of the paper. ∇L_i(θ) has no augmentation, no weight
    decay and no clipping. A step is clipped, m isn't.

    The formulas of a round are those of a public summary; the paper itself is in memory only.
    """

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"gradient": ("one",), "model": ("one",)}
    phases: ClassVar[tuple[Work, ...]] = (Work.GRADIENT, Work.TRAIN)

    class Server(NamedTuple):
        """h."""

        h: Vector

    Point = FedDane.Point
    Message = FedDane.Message
    Gradient = FedDane.Gradient
    Reply = FedDane.Reply

    @property
    def stackable(self) -> bool:
        return True

    def message_type(self, phase: int) -> type[Any]:
        return self.Point if phase == 0 else self.Message

    def reply_type(self, phase: int) -> type[Any]:
        return self.Gradient if phase == 0 else self.Reply

    def server_init(self, cloud: Tensor) -> Server:
        return self.Server(h=torch.zeros_like(cloud))

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> Any:
        return self.Point(cloud) if context.phase == 0 else self.Message(cloud, server.h)

    def client_start(self, client: Nothing, message: Any, context: ClientContext) -> Correction:
        if context.phase == 0:
            return Correction(start=message.cloud)
        return Correction(start=message.cloud, previous=True, momentum=1.0, velocity=message.h)

    def client_finish(
        self, client: Nothing, message: Any, model: Tensor, context: ClientContext
    ) -> tuple[Nothing, Any]:
        return client, self.Gradient(model) if context.phase == 0 else self.Reply(model)

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        if context.phase == 0:
            h = replies.mean("gradient")
            return Update(self.Server(h), aggregate=cloud, cloud=cloud, h=h)
        aggregate = replies.mean("model")
        return Update(server, aggregate, cloud=aggregate, h=server.h)
