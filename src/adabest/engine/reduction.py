"""The reduction of replies: weighted means, always in the order of the clients.

The order is that of the clients' numbers, not that of arrival, so no bit of a mean depends on who was faster.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from adabest.algorithms.base import Replies
from adabest.errors import Diverged

_STACKED_VECTORS = 32


class ReducedReplies(Replies):
    """Means of reply fields under the weights that an algorithm declares."""

    def __init__(self, means: Mapping[tuple[str, str], Tensor], replies: Sequence[Any]) -> None:
        self._means = means
        self._replies = replies
        self.count = len(replies)

    def mean(self, field: str, weight: str = "one") -> Tensor:
        """The mean of a field under a weight."""
        try:
            return self._means[field, weight]
        except KeyError:
            there = ", ".join(f"{f} under {w}" for f, w in self._means)
            raise KeyError(
                f"there is no mean of {field!r} under {weight!r}: it isn't declared in the algorithm's `means`, or the "
                f"replies lack the field or the weight (there is: {there})"
            ) from None

    def total(self, field: str) -> Tensor:
        """The sum of a field of counts: exact up to 2⁵³."""
        return torch.stack([getattr(reply, field) for reply in self._replies]).sum(dim=0, dtype=torch.float64)


def reduce_replies(means: Mapping[str, tuple[str, ...]], replies: Sequence[tuple[int, Any]]) -> ReducedReplies:
    """Averages the replies of a round.

    Args:
        means: For each field, the weights it is averaged under: ``one``, or a scalar field of the reply. What these
            replies lack belongs to another phase of the round.
        replies: Pairs of a client and its reply, a NamedTuple of tensors, in any order; at least one.
    """
    in_order = [reply for _, reply in sorted(replies, key=lambda pair: pair[0])]
    there = {"one", *in_order[0]._fields}
    reduced = {
        (field, weight): _mean([getattr(reply, field) for reply in in_order], _weights(in_order, weight))
        for field, weights in means.items()
        for weight in weights
        if field in there and weight in there
    }
    return ReducedReplies(reduced, in_order)


def _weights(replies: Sequence[Any], weight: str) -> list[float]:
    """v_i divided by their mean, in float64: equal weights are exactly one, and add no rounding."""
    if weight == "one":
        return [1.0] * len(replies)
    values = torch.stack([getattr(reply, weight) for reply in replies]).flatten().tolist()
    mean = math.fsum(values) / len(values)
    if mean == 0:
        raise Diverged(f"the weights {weight!r} of the replies sum to zero")
    return [value / mean for value in values]


def _mean(values: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    return weighted_sum(values, weights, values[0].dtype) / len(values)


def weighted_sum(values: Sequence[Tensor], weights: Sequence[float], dtype: torch.dtype) -> Tensor:
    """Σ v_i x_i in a given type, always in the same order.

    On a CPU one after another. On a GPU a few dozen are stacked and summed at once, since each operation has to be
    launched.
    """
    total = torch.zeros_like(values[0], dtype=dtype)
    if values[0].is_cuda:
        return add_stacked(total, values, weights)
    for value, weight in zip(values, weights, strict=True):
        total += weight * value
    return total


def add_stacked(total: Tensor, values: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Adds Σ v_i x_i to a total, a few dozen at a time."""
    for begin in range(0, len(values), _STACKED_VECTORS):
        stacked = torch.stack(list(values[begin : begin + _STACKED_VECTORS]))
        own = weights[begin : begin + _STACKED_VECTORS]
        if any(weight != 1 for weight in own):
            stacked = stacked.to(total.dtype) * torch.tensor(own, dtype=total.dtype, device=total.device)[:, None]
        total += stacked.sum(dim=0, dtype=total.dtype)
    return total
