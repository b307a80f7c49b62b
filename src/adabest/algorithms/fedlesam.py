"""FedLESAM: uphill is where θ came from. Fan et al., *Locally estimated global perturbations*, 2024."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import ClientContext, Correction, check_range
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Model, Number
from adabest.algorithms.sums import dot


@dataclass(frozen=True)
class FedLESAM(FedAvg):
    """FedSAM whose e is fixed in a round, so that a step needs one gradient.

    ::

        client:  e = r (θ' − θ) / ‖θ' − θ‖    with θ' the θ that it received last; 0 for a new client
                 w ← w − η ∇L(w + e)
        server:  θ ← θ̄ = Σ n_i θ_i / Σ n_i

    θ' is what the paper's abstract says in words. In the authors' code it is the θ of the round before, whoever took
    part, and e has one number for each layer, since a vector of the whole model is taken apart by the layer's number.
    Here e is the vector that is meant. Paper and code weigh clients equally.

    Attributes:
        radius: r ≥ 0, how far uphill the gradient is taken; 0 is FedAvg.
    """

    radius: float = 0.01

    def __post_init__(self) -> None:
        check_range("radius", self.radius)

    class Client(NamedTuple):
        """θ', and whether there is one."""

        received: Model
        asked: Number

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(torch.zeros_like(cloud), torch.zeros_like(cloud[..., :1]))

    def client_start(self, client: Any, message: FedAvg.Message, context: ClientContext) -> Correction:
        back = client.received - message.cloud
        length = dot(back, back).sqrt().to(back.dtype)
        known = (client.asked > 0) & (length > 0)
        factor = torch.where(known, self.radius / length, torch.zeros_like(length))
        return Correction(start=message.cloud, shift=factor * back)

    def client_finish(
        self, client: Any, message: FedAvg.Message, model: Tensor, context: ClientContext
    ) -> tuple[Any, FedAvg.Reply]:
        return self.Client(message.cloud, torch.ones_like(client.asked)), self.Reply(model, context.samples)
