"""FedSAM: steps that look for flat minima. Qu et al., *Generalized federated learning via SAM*, 2022."""

from dataclasses import dataclass

from adabest.algorithms.base import ClientContext, Correction, Nothing, check_range
from adabest.algorithms.fedavg import FedAvg


@dataclass(frozen=True)
class FedSAM(FedAvg):
    """FedAvg with sharpness-aware minimisation in place of SGD. The formulas are those of public code.

    ::

        client:  e = r ∇L(w) / ‖∇L(w)‖
                 w ← w − η ∇L(w + e)    both gradients on the same batch
        server:  θ ← θ̄ = Σ n_i θ_i / Σ n_i

    The gradient in e is neither clipped nor has it weight decay. The paper and public code weigh clients equally.

    Attributes:
        radius: r ≥ 0, how far uphill the gradient is taken; 0 is FedAvg.
    """

    radius: float = 0.1

    def __post_init__(self) -> None:
        check_range("radius", self.radius)

    def client_start(self, client: Nothing, message: FedAvg.Message, context: ClientContext) -> Correction:
        return Correction(start=message.cloud, radius=self.radius)
