"""The reduction of replies: weighted means, always in the order of the clients.

The order is that of the clients' numbers, not that of arrival, so no bit of a mean depends on who was faster.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from adabest.algorithms.base import Replies, UndeclaredMeanError
from adabest.engine.arrival import send
from adabest.errors import Diverged

_STACKED_VECTORS = 32

Weights = Sequence[float] | Tensor
"""Weights of clients: numbers on the host, or float64 on a GPU, where reading them would wait for it."""


class ReducedReplies(Replies):
    """Means of reply fields under the weights that an algorithm declares."""

    def __init__(self, means: Mapping[tuple[str, str], Tensor], replies: Any, count: int) -> None:
        self._means = means
        self._replies = replies
        self.count = count

    def with_means(self, means: Mapping[tuple[str, str], Tensor]) -> "ReducedReplies":
        """The same replies with some other means."""
        return ReducedReplies({**self._means, **means}, self._replies, self.count)

    def mean(self, field: str, weight: str = "one") -> Tensor:
        """The mean of a field under a weight."""
        self._refuse_undeclared(field, weight)
        return self._means[field, weight]

    def all_means(self) -> list[Tensor]:
        """All means that there are."""
        return list(self._means.values())

    def total(self, field: str) -> Tensor:
        """The sum of a field of counts: exact up to 2⁵³."""
        self._refuse_undeclared(field, "one")
        values: Tensor = getattr(self._replies, field)
        return values.sum(dim=0, dtype=torch.float64)

    def _refuse_undeclared(self, field: str, weight: str) -> None:
        if (field, weight) in self._means:
            return
        declared = [w for f, w in self._means if f == field]
        weights = "".join(f'"{w}", ' for w in [*declared, weight])
        there = ", ".join(f"{f} under {w}" for f, w in self._means) or "none"
        raise UndeclaredMeanError(
            f"there is no mean of {field!r} under {weight!r}: it isn't declared in the algorithm's `means`, or the "
            f"replies of this phase lack the field or the weight. There is: {there}. For fields of the Reply, the "
            f'class should say `means = {{"{field}": ({weights.strip()}), ...}}`'
        )


def reduce_replies(
    means: Mapping[str, tuple[str, ...]], clients: Sequence[int], replies: Any, accepted: Sequence[bool] | None = None
) -> ReducedReplies:
    """Averages the replies of a round.

    Args:
        means: For each field, the weights it is averaged under: ``one``, or a scalar field of the reply. What these
            replies lack belongs to another phase of the round.
        clients: The clients that replied, in any order; at least one.
        replies: Their replies as one NamedTuple of tensors, with a first dimension for the clients.
        accepted: Which of them count, at least one; by default all.
    """
    chosen = [place for place in range(len(clients)) if accepted is None or accepted[place]]
    order = sorted(chosen, key=lambda place: clients[place])
    if order != list(range(len(clients))):
        replies = type(replies)(*(field[order] for field in replies))
    there = {"one", *replies._fields}
    reduced = {
        (field, weight): weighted_sum(getattr(replies, field), _weights(replies, weight)) / len(order)
        for field, weights in means.items()
        for weight in weights
        if field in there and weight in there
    }
    return ReducedReplies(reduced, replies, len(order))


def _weights(replies: Any, weight: str) -> Weights | None:
    """v_i divided by their mean, in float64: equal weights are exactly one, and add no rounding; None for ``one``."""
    if weight == "one":
        return None
    values: Tensor = getattr(replies, weight).flatten()
    if values.is_cuda:
        # Weights that sum to zero become NaN here, so the model isn't finite, which ends the run as well.
        on_device = values.to(torch.float64)
        return on_device / on_device.mean()
    numbers = values.tolist()
    mean = math.fsum(numbers) / len(numbers)
    if mean == 0:
        raise Diverged(f"the weights {weight!r} of the replies sum to zero")
    return [value / mean for value in numbers]


def weighted_sum(values: Tensor, weights: Weights | None) -> Tensor:
    """Σ v_i x_i over the first dimension, always in the same order; all weights are one if there are none.

    On a CPU one after another. On a GPU a few dozen are summed at once, since each operation has to be launched.
    """
    if values.is_cuda:
        return sum_of_dozens(values, weights, values.dtype)
    total = torch.zeros_like(values[0])
    for value, weight in zip(values, [1.0] * len(values) if weights is None else weights, strict=True):
        total += weight * value
    return total


def sum_of_dozens(values: Tensor | Sequence[Tensor], weights: Weights | None, dtype: torch.dtype) -> Tensor:
    """Σ v_i x_i, a few dozen at a time, in a type; all weights are one if there are none."""
    device, total = values[0].device, None
    if weights is not None and not isinstance(weights, Tensor):
        weights = send(weights, torch.float64, device)
    for begin in range(0, len(values), _STACKED_VECTORS):
        own = values[begin : begin + _STACKED_VECTORS]
        stacked = own if isinstance(own, Tensor) else torch.stack(list(own))
        if weights is not None:
            stacked = stacked.to(dtype) * weights[begin : begin + _STACKED_VECTORS].to(dtype)[:, None]
        part = stacked.sum(dim=0, dtype=dtype)
        total = part if total is None else total.add_(part)
    assert total is not None
    return total
