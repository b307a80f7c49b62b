"""An algorithm whose cloud model lies halfway."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from adabest.algorithms.base import Replies, ServerContext, Update
from adabest.algorithms.fedavg import FedAvg


@dataclass(frozen=True)
class Halfway(FedAvg):
    """FedAvg that goes half of the way."""

    def server_step(self, server: Any, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        update = super().server_step(server, cloud, replies, context)
        return update._replace(cloud=(cloud + update.cloud) / 2)
