"""The reduction of replies: weighted means, always in the order of the clients.

The order is that of the clients' numbers, not that of arrival, so no bit of a mean depends on who was faster.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from adabest.algorithms.base import Population, Replies, Scalar
from adabest.engine.arrival import send
from adabest.errors import Diverged

_STACKED_VECTORS = 32

Weights = Sequence[float] | Tensor
"""Weights of clients: numbers on the host, or float64 on a GPU, where reading them would wait for it."""


class ReducedReplies(Replies):
    """Means of reply fields under the weights that an algorithm declares."""

    def __init__(self, means: Mapping[tuple[str, str], Tensor], total: Callable[[str], Tensor], count: Scalar) -> None:
        """Takes what was reduced.

        Args:
            means: The means, by field and weight.
            total: Gives the sum of a field of numbers, in float64.
            count: |P|.
        """
        self._means = means
        self._total = total
        self.count = count

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

    def with_means(self, means: Mapping[tuple[str, str], Tensor]) -> "ReducedReplies":
        """The same replies with some other means."""
        return ReducedReplies({**self._means, **means}, self._total, self.count)

    def share_of(self, population: Population) -> Scalar:
        """|P| / |S|, with the same bits on a GPU, which divides by a number of the host less exactly."""
        if not isinstance(self.count, Tensor):
            return super().share_of(population)
        share = self.count.to(torch.float64) / torch.full_like(self.count, float(population.size), dtype=torch.float64)
        return share.to(self.count.dtype)

    def total(self, field: str) -> Tensor:
        """The sum of a field of counts: exact up to 2⁵³."""
        return self._total(field)


def reduce_replies(
    means: Mapping[str, tuple[str, ...]], clients: Sequence[int], replies: Any, accepted: Tensor | None = None
) -> ReducedReplies:
    """Averages the replies of a round.

    Args:
        means: For each field, the weights it is averaged under: ``one``, or a scalar field of the reply. What these
            replies lack belongs to another phase of the round.
        clients: The clients that replied, in any order; at least one.
        replies: Their replies as one NamedTuple of tensors, with a first dimension for the clients.
        accepted: Which of them count, bool ``[clients]`` where the replies are; by default all. The means of none are
            NaN.
    """
    order = sorted(range(len(clients)), key=lambda place: clients[place])
    if order != list(range(len(clients))):
        replies = type(replies)(*(field[order] for field in replies))
        accepted = None if accepted is None else accepted[order]
    if accepted is not None and not accepted.is_cuda and bool(accepted.any()):
        if not bool(accepted.all()):
            replies = type(replies)(*(field[accepted] for field in replies))
        accepted = None
    there = {"one", *replies._fields}
    mean = _Mean(replies, accepted)
    reduced = {
        (field, weight): mean(getattr(replies, field), weight)
        for field, weights in means.items()
        for weight in weights
        if field in there and weight in there
    }
    return ReducedReplies(reduced, mean.total, mean.count)


class _Mean:
    """Means over the replies that count.

    Attributes:
        count: How many they are.
    """

    def __init__(self, replies: Any, accepted: Tensor | None) -> None:
        """Counts the replies.

        Args:
            replies: The replies.
            accepted: Which of them count, where the host needn't know it; None for all.
        """
        self._replies, self._accepted = replies, accepted
        self._weights: dict[str, Weights | None] = {"one": None}
        self.count: Scalar = len(replies[0])
        if accepted is not None:
            self.count = accepted.sum(dim=0, keepdim=True).to(_float_type(replies))

    def __call__(self, values: Tensor, weight: str) -> Tensor:
        if weight not in self._weights:
            self._weights[weight] = self._relative_weights(weight)
        total = weighted_sum(values, self._weights[weight], self._accepted)
        if not isinstance(self.count, Tensor):
            return total / self.count
        # A GPU divides by a number of the host like this; so the bits don't depend on where |P| is.
        return total * self.count.to(total.dtype).reciprocal()

    def total(self, field: str) -> Tensor:
        """The sum of a field of numbers, in float64."""
        values: Tensor = getattr(self._replies, field)
        kept = values if self._accepted is None else torch.where(self._accepted[:, None], values, 0)
        return kept.sum(dim=0, dtype=torch.float64)

    def _relative_weights(self, weight: str) -> Weights:
        """v_i divided by their mean, in float64: equal weights are exactly one, and add no rounding."""
        values: Tensor = getattr(self._replies, weight).flatten()
        if self._accepted is not None:
            # Weights that sum to zero become NaN here, so the model isn't finite, which ends the run as well.
            on_device = torch.where(self._accepted, values.to(torch.float64), 0)
            return on_device / (on_device.sum() * self._accepted.sum().to(torch.float64).reciprocal())
        numbers = values.tolist()
        mean = math.fsum(numbers) / len(numbers)
        if mean == 0:
            raise Diverged(f"the weights {weight!r} of the replies sum to zero")
        return [value / mean for value in numbers]


def _float_type(replies: Any) -> torch.dtype:
    return next((field.dtype for field in replies if field.is_floating_point()), torch.float32)


def weighted_sum(values: Tensor, weights: Weights | None, accepted: Tensor | None = None) -> Tensor:
    """Σ v_i x_i over the first dimension, always in the same order; all weights are one if there are none.

    On a CPU one after another. On a GPU a few dozen are summed at once, since each operation has to be launched.

    Args:
        values: x_i.
        weights: v_i.
        accepted: Which of them count, where the host needn't know it; None for all.
    """
    if values.is_cuda or accepted is not None:
        return sum_of_dozens(values, weights, values.dtype, accepted)
    total = torch.zeros_like(values[0])
    for value, weight in zip(values, [1.0] * len(values) if weights is None else weights, strict=True):
        total += weight * value
    return total


def sum_of_dozens(
    values: Tensor | Sequence[Tensor], weights: Weights | None, dtype: torch.dtype, accepted: Tensor | None = None
) -> Tensor:
    """Σ v_i x_i, a few dozen at a time, in a type; all weights are one if there are none.

    Args:
        values: x_i.
        weights: v_i.
        dtype: The type.
        accepted: Which of them count; None for all.
    """
    device, total = values[0].device, None
    if weights is not None and not isinstance(weights, Tensor):
        weights = send(weights, torch.float64, device)
    for begin in range(0, len(values), _STACKED_VECTORS):
        some = slice(begin, begin + _STACKED_VECTORS)
        own = values[some]
        stacked = own if isinstance(own, Tensor) else torch.stack(list(own))
        if accepted is not None:
            stacked = torch.where(accepted[some, None], stacked, 0)  # zero times what isn't a number isn't zero
        if weights is not None:
            stacked = stacked.to(dtype) * weights[some].to(dtype)[:, None]
        part = stacked.sum(dim=0, dtype=dtype)
        total = part if total is None else total.add_(part)
    assert total is not None
    return total
