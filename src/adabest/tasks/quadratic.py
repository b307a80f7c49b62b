"""The quadratic task, on which everything can be worked out exactly and, in two dimensions, drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from adabest.model_part import Parameter, Part
from adabest.tasks.base import Heartbeat, LocalPass, Scores, ValidationScores, no_heartbeat
from adabest.tasks.objectives.metric import ACCURACY, Metric


@dataclass(frozen=True)
class QuadraticTask:
    """Client i has the objective f_i(w) = ½ (w − c_i)ᵀ A_i (w − c_i), and its gradient is always the full one.

    Attributes:
        curvatures: A_i, symmetric and positive definite, ``[clients, P, P]``.
        centres: c_i, ``[clients, P]``.
        counts: n_i.
        paces: K_i.
        origin: θ_0.
    """

    curvatures: Tensor
    centres: Tensor
    counts: Sequence[int]
    paces: Sequence[int]
    origin: Tensor
    metrics: ClassVar[tuple[Metric, ...]] = (ACCURACY,)

    def initial_model(self) -> Tensor:
        """θ_0."""
        return self.origin.clone()

    def mask_of(self, part: Part) -> Tensor:
        """Which coordinates belong to a part: each counts as a layer, the last one as one that normalises."""
        last = len(self.origin) - 1
        return part.mask([Parameter(f"{place}.w", 1, normalises=place == last) for place in range(last + 1)])

    def samples(self, client: int) -> int:
        """n_i."""
        return self.counts[client]

    def steps(self, client: int) -> int:
        """K_i."""
        return self.paces[client]

    def local_pass(self, w: Tensor, client: int, round_number: int, step: int) -> LocalPass:
        """The full gradient; there is nothing to be classified, so the accuracy is 0."""
        gradient = self.full_gradient(w, client)
        return LocalPass(gradient, 0.5 * torch.dot(w - self.centres[client], gradient), torch.zeros((), dtype=w.dtype))

    def full_gradient(self, w: Tensor, client: int) -> Tensor:
        """A_i (w − c_i)."""
        return self.curvatures[client] @ (w - self.centres[client])

    def objective(self, points: Tensor) -> Tensor:
        """The common one, f = Σ n_i f_i / Σ n_i, at any number of points, ``[..., P]``."""
        away = points[..., None, :] - self.centres
        losses = 0.5 * torch.einsum("...cp,cpq,...cq->...c", away, self.curvatures, away)
        return losses @ self._shares()

    def optimum(self) -> Tensor:
        """The minimiser of f, at which Σ n_i A_i (w − c_i) = 0."""
        weighted = self._shares()[:, None, None] * self.curvatures
        minimiser: Tensor = torch.linalg.solve(weighted.sum(dim=0), (weighted @ self.centres[..., None]).sum(dim=0))
        return minimiser.squeeze(-1)

    def test(self, w: Tensor, heartbeat: Heartbeat = no_heartbeat) -> Scores:
        """The common objective, and no accuracy."""
        return Scores(loss=float(self.objective(w)), values={"accuracy": 0.0})

    def validate(self, w: Tensor, heartbeat: Heartbeat = no_heartbeat) -> ValidationScores | None:
        """None: there are no validation clients."""
        return None

    def _shares(self) -> Tensor:
        return torch.tensor(self.counts, dtype=self.centres.dtype) / sum(self.counts)
