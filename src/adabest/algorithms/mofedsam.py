"""MoFedSAM: FedSAM with everyone's momentum. Qu et al., *Generalized federated learning via SAM*, 2022."""

from dataclasses import dataclass

from adabest.algorithms.base import ClientContext, Correction, Nothing, check_range
from adabest.algorithms.fedcm import FedCM


@dataclass(frozen=True)
class MoFedSAM(FedCM):
    """FedCM with sharpness-aware minimisation in place of SGD. The formulas are those of public code.

    ::

        client:  e = r ∇L(w) / ‖∇L(w)‖
                 w ← w − η (α ∇L(w + e) + (1 − α) h)    both gradients on the same batch
        server:  h ← mean of g_i / (K_i η)
                 θ ← θ̄

    h starts at 0. Both means are plain ones over those that reply. The gradient in e is neither clipped nor has it
    weight decay.

    Attributes:
        own_share: α in [0, 1], the share of a client's own gradient; 1 is FedSAM with plain means.
        radius: r ≥ 0, how far uphill the gradient is taken; 0 is FedCM.
    """

    radius: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("radius", self.radius)

    def client_start(self, client: Nothing, message: FedCM.Message, context: ClientContext) -> Correction:
        return super().client_start(client, message, context)._replace(radius=self.radius)
