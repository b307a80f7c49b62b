"""AIDE: DANE accelerated. Reddi et al., *AIDE: fast and communication efficient distributed optimization*, 2016."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import ClientContext, Correction, Replies, ServerContext, Update, check_range
from adabest.algorithms.feddane import FedDane
from adabest.algorithms.forms import Model, Total, Vector


@dataclass(frozen=True)
class Aide(FedDane):
    """AIDE with one inexact step of DANE for each step of its outer loop.

    ::

        phase 0, client:  ∇L_i(θ), over all of its samples
                 server:  h ← mean of ∇L_i(θ)
        phase 1, client:  w ← w − η (∇L(w) − ∇L_i(θ) + h + μ (w − θ) + τ (w − y))
                 server:  ζ' from  ζ'² = (1 − ζ') ζ² + q ζ'
                          y ← θ̄ + (ζ (1 − ζ) / (ζ² + ζ')) (θ̄ − θ),  θ ← θ̄,  ζ ← ζ'

    y is at first θ, and ζ what follows from ζ = 1. The paper's clients are all asked in every round. With q = 1, y is
    θ, and it is DANE with μ + τ in the place of μ.

    The formulas are those of public code, one of it of the paper's authors; the paper itself is in memory only.

    Attributes:
        mu: μ ≥ 0, the strength of DANE's proximal term.
        tau: τ ≥ 0, the strength of the term that pulls to y. The default is ours.
        q: q in [0, 1], which is λ/(λ + τ) where losses are λ-strongly convex: 0 extrapolates most, 1 not at all.
    """

    mu: float = 0.0
    tau: float = 0.1
    q: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("tau", self.tau)
        check_range("q", self.q, 0.0, 1.0)

    class Server(NamedTuple):
        """h, y and ζ."""

        h: Vector
        y: Model
        zeta: Total

    class Message(NamedTuple):
        """θ, h and y."""

        cloud: Model
        h: Vector
        y: Model

    def server_init(self, cloud: Tensor) -> Server:  # type: ignore[override]
        one = torch.ones_like(cloud[..., :1], dtype=torch.float64)
        return self.Server(h=torch.zeros_like(cloud), y=cloud, zeta=self._next(one))

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> Any:  # type: ignore[override]
        return self.Point(cloud) if context.phase == 0 else self.Message(cloud, server.h, server.y)

    def client_start(self, client: FedDane.Client, message: Any, context: ClientContext) -> Correction:
        found = super().client_start(client, message, context)
        if context.phase == 0:
            return found
        return found._replace(offset=found.offset - self.tau * message.y, rho=self.mu + self.tau)

    def server_step(  # type: ignore[override]
        self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext
    ) -> Update:
        if context.phase == 0:
            h = replies.mean("gradient")
            return Update(server._replace(h=h), aggregate=cloud, cloud=cloud, h=h)
        aggregate = replies.mean("model")
        zeta, following = server.zeta, self._next(server.zeta)
        ahead = (zeta * (1 - zeta) / (zeta * zeta + following)).to(cloud.dtype)
        after = self.Server(server.h, y=aggregate + ahead * (aggregate - cloud), zeta=following)
        return Update(after, aggregate, cloud=aggregate, h=server.h)

    def _next(self, zeta: Tensor) -> Tensor:
        """ζ', the positive root."""
        square = zeta * zeta
        b = square - self.q
        return ((b * b + 4 * square).sqrt() - b) / 2
