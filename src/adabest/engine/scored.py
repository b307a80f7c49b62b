"""Models that are means: the scored one, over the clients' latest models, and the averaged one, over rounds."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


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
        """Nobody has taken part yet."""
        return cls(torch.zeros_like(model, dtype=torch.float64))

    def with_model(self, model: Tensor, previous: Tensor | None, samples: float) -> "ScoredModel":
        """One client's latest model in place of its previous one, if there was any."""
        unit = self.unit or samples
        v = samples / unit
        change = model.to(torch.float64)
        if previous is not None:
            change = change - previous.to(torch.float64)
            return replace(self, total=self.total + v * change)
        return ScoredModel(self.total + v * change, self.weight + v, unit)

    def value(self, initial: Tensor, all_samples: float | None = None) -> Tensor:
        """The scored model.

        Args:
            initial: θ_0, which is the answer as long as nobody has taken part.
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
