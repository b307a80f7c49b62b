"""FSVRG: SVRG in each client. Konečný et al., *Federated optimization: distributed machine learning*, 2016."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import (
    Algorithm,
    ClientContext,
    Correction,
    Nothing,
    Replies,
    ServerContext,
    Update,
    Work,
    check_choice,
)
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddane import FedDane
from adabest.algorithms.forms import Number, Vector


@dataclass(frozen=True)
class Fsvrg(Algorithm):
    """FSVRG for dense models. The formulas are from memory of the paper.

    ::

        phase 0, client:  ∇L_i(θ), over all of its samples
                 server:  h ← Σ n_i ∇L_i(θ) / Σ n_i
        phase 1, client:  w ← w − η_i (∇L(w) − ∇L(θ) + h)    both gradients on the same batch
                 server:  θ ← θ̄ = Σ n_i θ_i / Σ n_i

    The paper multiplies ∇L(w) − ∇L(θ) by a diagonal S_i, a feature's share of all samples over its share of the
    client's, and θ̄ − θ by a diagonal A, the number of clients over that of those who have the feature. Both are made
    for sparse data. Where every feature is in every sample they are the identity, and so they are here: a model of
    several layers has no feature for each of its numbers.

    ∇L_i(θ) has no augmentation, no weight decay and no clipping; what is clipped is the sum of all three terms, with
    ``by_steps`` a K_i-th of it. Weight decay has the rate η in both cases.

    Attributes:
        own_rate: η_i: η for everyone (``equal``), or η/K_i (``by_steps``), so that clients with many steps go as far
            as others. The paper's is the latter, with a step for each sample; η is then the rate of a whole round.
    """

    own_rate: Literal["equal", "by_steps"] = "equal"

    scored_weight: ClassVar[str] = "samples"
    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"gradient": ("samples",), "model": ("samples",)}
    phases: ClassVar[tuple[Work, ...]] = (Work.GRADIENT, Work.TRAIN)

    def __post_init__(self) -> None:
        check_choice("own_rate", self.own_rate, ("equal", "by_steps"))

    class Server(NamedTuple):
        """h."""

        h: Vector

    Point = FedDane.Point
    Message = FedDane.Message
    Reply = FedAvg.Reply

    class Gradient(NamedTuple):
        """∇L_i(θ) and n_i."""

        gradient: Vector
        samples: Number

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
        if self.own_rate == "equal":
            return Correction(start=message.cloud, offset=message.h, anchor=message.cloud)
        share = 1 / context.steps
        return Correction(start=message.cloud, scale=share, offset=share * message.h, anchor=message.cloud)

    def client_finish(
        self, client: Nothing, message: Any, model: Tensor, context: ClientContext
    ) -> tuple[Nothing, Any]:
        return client, (self.Gradient if context.phase == 0 else self.Reply)(model, context.samples)

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        if context.phase == 0:
            h = replies.mean("gradient", "samples")
            return Update(self.Server(h), aggregate=cloud, cloud=cloud, h=h)
        aggregate = replies.mean("model", "samples")
        return Update(server, aggregate, cloud=aggregate, h=server.h)
