"""Parts of runs that hear nothing for a minute, each in a single call."""

import hashlib
from dataclasses import dataclass
from typing import Any

from tiny_runs import stripes
from torch import Tensor

from adabest.algorithms.base import Replies, ServerContext, Update
from adabest.algorithms.fedavg import FedAvg
from adabest.data.dataset import Dataset


def be_deaf() -> None:
    """A call that runs no Python for a minute and more; unlike a sleep, it isn't interrupted by signals."""
    hashlib.pbkdf2_hmac("sha256", b"deaf", b"", 10**9)


def slow_stripes() -> Dataset:
    """A data set that takes long to be read."""
    be_deaf()
    return stripes()


@dataclass(frozen=True)
class Deaf(FedAvg):
    """FedAvg until a round that takes long.

    Attributes:
        after: The round before it.
    """

    after: int = 2

    def server_step(self, server: Any, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        if context.round > self.after:
            be_deaf()
        return super().server_step(server, cloud, replies, context)
