"""FedProx: a proximal term to the cloud model. Li et al., *Federated optimization in heterogeneous networks*, 2020."""

from dataclasses import dataclass

from adabest.algorithms.base import ClientContext, Correction, Nothing, check_range
from adabest.algorithms.fedavg import FedAvg


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedProx.

    ::

        client:  w ← w − η (∇L(w) + μ (w − θ))
        server:  θ ← θ̄ = Σ n_i θ_i / Σ n_i

    Attributes:
        mu: μ ≥ 0, the strength of the proximal term; the usual grid is .001, .01, .1, 1.
    """

    mu: float = 0.01

    def __post_init__(self) -> None:
        check_range("mu", self.mu)

    def client_start(self, client: Nothing, message: FedAvg.Message, context: ClientContext) -> Correction:
        return Correction(start=message.cloud, offset=-self.mu * message.cloud, rho=self.mu)
