"""FedAvgM: momentum on the server. Hsu et al., *Measuring the effects of non-identical data distribution*, 2019."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Replies, ServerContext, Update
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Vector
from adabest.algorithms.ranges import check_below_one


@dataclass(frozen=True)
class FedAvgM(FedAvg):
    """FedAvgM.

    ::

        client:  as FedAvg
        server:  v ← β v + (θ − θ̄)    with  θ̄ = Σ n_i θ_i / Σ n_i
                 θ ← θ − v

    Attributes:
        beta: β in [0, 1), the share of the last move that is made again; 0 is FedAvg.
    """

    beta: float = 0.9

    def __post_init__(self) -> None:
        check_below_one("beta", self.beta)

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
