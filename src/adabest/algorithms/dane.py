"""DANE: a Newton-type step from two exchanges. Shamir et al., *Communication-efficient optimization*, 2014."""

from dataclasses import dataclass
from typing import Any

from adabest.algorithms.base import ClientContext, Correction, check_range
from adabest.algorithms.feddane import FedDane


@dataclass(frozen=True)
class Dane(FedDane):
    """DANE, whose local problem is solved by local steps. The formulas are from memory of the paper.

    ::

        phase 0, client:  ∇L_i(θ), over all of its samples
                 server:  h ← mean of ∇L_i(θ)
        phase 1, client:  w ← w − η (∇L(w) − ∇L_i(θ) + share · h + μ (w − θ))
                 server:  θ ← θ̄

    The paper's clients are all asked in every round, and with ``share`` = 1 it is FedDANE then. An algorithm doesn't
    know who is asked: with a participation below 1, h is the mean over the cohort.

    Attributes:
        mu: μ ≥ 0, the strength of the proximal term. The paper takes 0, or a few times the strength of convexity.
        share: The share of h, at least 0; η in the paper, which takes 1.
    """

    mu: float = 0.0
    share: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("share", self.share)

    def client_start(self, client: FedDane.Client, message: Any, context: ClientContext) -> Correction:
        if context.phase == 0:
            return Correction(start=message.cloud)
        h = message.h if self.share == 1 else self.share * message.h
        offset = h - client.gradient - self.mu * message.cloud
        return Correction(start=message.cloud, offset=offset, rho=self.mu)
