"""Mime: MimeLite with SVRG's correction. Karimireddy et al., *Mime: mimicking centralized algorithms*, 2021."""

from dataclasses import dataclass
from typing import Any

from adabest.algorithms.base import ClientContext, Correction, Nothing, ServerContext
from adabest.algorithms.mimelite import MimeLite


@dataclass(frozen=True)
class Mime(MimeLite):
    """Mime with SGDm as the algorithm that it mimics.

    ::

        phase 0, client:  ∇L_i(θ), over all of its samples
        phase 1, client:  w ← w − η ((1 − β) (∇L(w) − ∇L(θ) + c) + β h)    both gradients on the same batch
                 server:  h ← (1 − β) c + β h,  θ ← θ̄    with  c = mean of ∇L_i(θ)

    Local steps have the h of the round before and the c of this one, so the h that comes out of the round is all that
    clients need of both: the step is (1 − β) (∇L(w) − ∇L(θ)) plus that h, and one vector is sent in the place of two.

    Both means are plain ones over those that reply. ∇L_i(θ) has no augmentation, no weight decay and no clipping; what
    is clipped is the whole direction of a step. The formulas are those of public code, but for the factor 1 − β, which
    is from memory of the paper.

    Attributes:
        beta: β in [0, 1), the momentum. h starts at 0, so early steps are 1 − β of a step of SGD.
    """

    def downlink(self, server: MimeLite.Server, cloud: Any, context: ServerContext) -> Any:
        return self.Point(cloud) if context.phase == 0 else self.Message(cloud, server.following)

    def client_start(self, client: Nothing, message: Any, context: ClientContext) -> Correction:
        if context.phase == 0:
            return Correction(start=message.cloud)
        return Correction(start=message.cloud, scale=1 - self.beta, offset=message.h, anchor=message.cloud)
