"""Models that are means: the scored model, over the clients' latest models, and the averaged model, over rounds."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from adabest.engine.reduction import add_stacked


@dataclass(frozen=True)
class ScoredModel:
    """A weighted sum of the clients' latest models, kept up incrementally in float64.

    Weights are n_i relative to the first client's, or one: equal counts weigh exactly one, so that on balanced data a
    sample-weighted mean is the plain one to the last bit.

    Attributes:
        total: Σ v_i θ_i over the clients that have taken part.
        weight: Σ v_i.
        unit: The number of samples that weighs one; 0 before anyone took part.
    """

    total: Tensor
    weight: float = 0.0
    unit: float = 0.0

    @classmethod
    def empty(cls, model: Tensor) -> "ScoredModel":
        """The sum before any client has taken part."""
        return cls(torch.zeros_like(model, dtype=torch.float64))

    def with_models(self, changes: Iterable[tuple[Tensor, Tensor | None, float]]) -> "ScoredModel":
        """Clients' latest models in place of their previous ones.

        Args:
            changes: For each client its model, the previous one if there was any, and n_i, or one.
        """
        total, weight, unit = self.total.clone(), self.weight, self.unit
        if total.is_cuda:
            return self._with_stacked(list(changes), total)
        change = torch.empty_like(total)
        for model, previous, samples in changes:
            unit = unit or samples
            change.copy_(model)
            if previous is None:
                weight += samples / unit
            else:
                change.sub_(previous)
            total.add_(change.mul_(samples / unit))
        return ScoredModel(total, weight, unit)

    def _with_stacked(self, changes: list[tuple[Tensor, Tensor | None, float]], total: Tensor) -> "ScoredModel":
        """``with_models`` in few operations, since a GPU has to launch each of them."""
        unit = self.unit or (changes[0][2] if changes else 0.0)
        weight = self.weight + sum(samples / unit for _, previous, samples in changes if previous is None)
        latest = [(model, samples / unit) for model, _, samples in changes]
        before = [(previous, -samples / unit) for _, previous, samples in changes if previous is not None]
        for pairs in (latest, before):
            add_stacked(total, [model for model, _ in pairs], [v for _, v in pairs])
        return ScoredModel(total, weight, unit)

    def value(self, initial: Tensor, all_samples: float | None = None) -> Tensor:
        """The scored model.

        Args:
            initial: θ_0, which is the scored model as long as no client has taken part.
            all_samples: If given, the number of samples (or of clients, where all weigh the same) of the whole
                population, and those that never took part count as holding θ_0.
        """
        if self.unit == 0:
            return initial
        if all_samples is None:
            return (self.total / self.weight).to(initial.dtype)
        everyone = all_samples / self.unit
        unseen = everyone - self.weight
        return ((self.total + unseen * initial.to(torch.float64)) / everyone).to(initial.dtype)


@dataclass(frozen=True)
class AveragedModel:
    """The mean of θ̄ over rounds, kept up as a sum in float64.

    Attributes:
        total: Σ θ̄ over the rounds that count.
        rounds: How many those are.
    """

    total: Tensor
    rounds: int = 0

    @classmethod
    def empty(cls, model: Tensor) -> "AveragedModel":
        """No round counts yet."""
        return cls(torch.zeros_like(model, dtype=torch.float64))

    def with_model(self, aggregate: Tensor) -> "AveragedModel":
        """One more round."""
        return AveragedModel(self.total + aggregate.to(torch.float64), self.rounds + 1)

    def value(self, like: Tensor) -> Tensor | None:
        """The averaged model in the type of another one; None as long as no round counts."""
        return (self.total / self.rounds).to(like.dtype) if self.rounds else None
