"""Scaffnew: local training until a coin says so. Mishchenko et al., *ProxSkip: local gradient steps*, 2022."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from adabest.algorithms.base import ClientContext, ServerContext, check_range
from adabest.algorithms.ranges import check_positive
from adabest.algorithms.vrl_sgd import VrlSgd


@dataclass(frozen=True)
class Scaffnew(VrlSgd):
    """Scaffnew, which is ProxSkip for averages.

    ::

        round:   K, how often a coin is tossed until it shows its side of probability p: the same for all clients
        client:  on receipt   h_i ← h_i + (p / η) (θ − θ_i)    with θ_i and η of its last round
                 then         w ← w − η (∇L(w) − h_i)          K times
        server:  θ ← θ̄

    A round of ours is what lies between two averages. Settings of the number of local steps aren't heeded. On average
    K is 1/p; where it always is, this is VRL-SGD.

    The paper asks all clients in every round, and then the h_i sum to zero. If only some are asked, θ is the model that
    a client receives next, whenever that is, and the sum drifts. A new client has h_i = 0. The paper's η is constant.

    The formulas are those of public pseudo-code; the paper itself is in memory only.

    Attributes:
        probability: p in (0, 1], that a step is the last one of its round.
    """

    probability: float = 0.1

    def __post_init__(self) -> None:
        check_range("probability", self.probability, 0.0, 1.0)
        check_positive("probability", self.probability)

    def common_steps(self, context: ServerContext) -> int:
        if self.probability == 1:
            return 1
        drawn = float(context.uniform_like(torch.zeros(1, dtype=torch.float64)))  # below 1
        return 1 + math.floor(math.log1p(-drawn) / math.log1p(-self.probability))

    def _pace(self, context: ClientContext) -> Tensor:
        return torch.ones_like(context.steps) * (self.probability / context.eta)
