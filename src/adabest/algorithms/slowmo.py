"""SlowMo: slow momentum in units of gradients. Wang et al., *SlowMo: improving communication-efficient SGD*, 2020."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Replies, ServerContext, Update
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Vector
from adabest.algorithms.ranges import check_below_one, check_positive


@dataclass(frozen=True)
class SlowMo(FedAvg):
    """SlowMo, with SGD as its base optimiser.

    ::

        client:  as FedAvg
        server:  u ← β u + (θ − θ̄) / η_t
                 θ ← θ − α η_t u

    u is in units of gradients, and not of models as FedAvgM's v: where η falls, an old move counts less. With α = 1
    and a constant η both are the same.

    The formulas are those of the paper's authors' code as well. The paper has equal workers that are all asked; here
    θ̄ = Σ n_i θ_i / Σ n_i, as in FedAvg, of those that reply.

    Attributes:
        slow_rate: α > 0, the slow learning rate.
        beta: β in [0, 1), the slow momentum.
    """

    slow_rate: float = 1.0
    beta: float = 0.7

    def __post_init__(self) -> None:
        check_positive("slow_rate", self.slow_rate)
        check_below_one("beta", self.beta)

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
        return Update(self.Server(momentum), aggregate, cloud=cloud - self.slow_rate * context.eta * momentum)
