"""The progressive n̄: the mean of n_i over all replies so far, repeats counted (the paper's appendix B).

A server that keeps it needs no other information about its clients. Before the first reply it is zero, which means
"not known yet": until then every client counts as one of mean size.
"""

from typing import Protocol

import torch
from torch import Tensor

from adabest.algorithms.base import Replies


class Counting(Protocol):
    """A server's state with the two counts that make n̄, in float64, where sums of counts are exact."""

    @property
    def samples_seen(self) -> Tensor:
        """Σ n_i over the replies so far."""

    @property
    def replies_seen(self) -> Tensor:
        """The number of replies so far."""


def nothing_seen(cloud: Tensor) -> Tensor:
    """The initial value of both counts."""
    return torch.zeros_like(cloud[..., :1], dtype=torch.float64)


def mean_seen(server: Counting, cloud: Tensor) -> Tensor:
    """n̄_t, in the type of the model."""
    return (server.samples_seen / server.replies_seen.clamp(min=1)).to(cloud.dtype)


def count(server: Counting, replies: Replies) -> tuple[Tensor, Tensor]:
    """Both counts after a round. Its replies must have a field ``samples``."""
    return server.samples_seen + replies.total("samples"), server.replies_seen + replies.count


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """n_i / n̄ or n̄ / n_i; one until n̄ is known."""
    known = (numerator > 0) & (denominator > 0)
    return torch.where(known, numerator / denominator, 1.0)
