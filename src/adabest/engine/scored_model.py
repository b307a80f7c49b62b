"""Models that are means: the scored model, over the clients' latest models, and the averaged model, over rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from adabest.engine.client_store import Pieces
from adabest.engine.reduction import sum_of_dozens


class ScoredSum(Protocol):
    """What the scored model is made of: a weighted sum of the clients' latest models, wherever it lies."""

    @property
    def weight(self) -> float:
        """Σ v_i."""

    @property
    def unit(self) -> float:
        """The number of samples that weighs one; 0 before anyone took part."""

    def value(self, initial: Tensor, all_samples: float | None = None) -> Tensor:
        """The scored model; see ``ScoredModel.value``."""

    def pieces(self) -> Pieces:
        """Σ v_i θ_i, float64."""


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

    def with_models(self, models: Tensor, previous: Sequence[Tensor | None], samples: Sequence[float]) -> "ScoredModel":
        """Clients' latest models in place of their previous ones.

        Args:
            models: The models of some clients, ``[clients, P]``.
            previous: The previous model of each, if there was any.
            samples: n_i of each, or ones.
        """
        unit = self.unit or samples[0]
        weight = self.weight
        for before, own in zip(previous, samples, strict=True):
            weight += own / unit if before is None else 0.0
        if self.total.is_cuda:
            total = self.total + sum_of_dozens(models, _weights(samples, unit), torch.float64)
            there = [(before, own) for before, own in zip(previous, samples, strict=True) if before is not None]
            if there:
                weights = _weights([own for _, own in there], unit)
                total -= sum_of_dozens([before for before, _ in there], weights, torch.float64)
        else:
            total = self.total.clone()
            change = torch.empty_like(total)
            for model, before, own in zip(models, previous, samples, strict=True):
                change.copy_(model)
                if before is not None:
                    change.sub_(before)
                total.add_(change.mul_(own / unit))
        return ScoredModel(total, weight, unit)

    def pieces(self) -> Pieces:
        """Σ v_i θ_i."""
        return Pieces.of(self.total)

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


def _weights(samples: Sequence[float], unit: float) -> list[float] | None:
    """The weights of models by their numbers of samples; None if all are one."""
    weights = [own / unit for own in samples]
    return None if all(weight == 1 for weight in weights) else weights


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
