"""FedPer: the last layers are each client's own. Arivazhagan et al., *FL with personalization layers*, 2019."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from adabest.algorithms.base import ClientContext, Nothing, Replies, ServerContext, Update, check_count
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.partly_private import PartlyPrivate
from adabest.errors import InputError
from adabest.model_part import Part


@dataclass(frozen=True)
class FedPer(PartlyPrivate):
    """FedPer, with W_B the base layers, which are shared, and W_P,i the personalisation layers of client i.

    ::

        client:  (W_B, W_P,i) ← (W_B, W_P,i) − η ∇L(W_B, W_P,i)
        server:  W_B ← Σ n_i W_B,i / Σ n_i

    Written from memory of the paper. All W_P,i are at first those of θ_0. In public code, PFLlib's ``clientper.py``,
    the same layers are kept, and both parts are trained together, as here. Any layers may be named in ``private``: with
    the first ones private and the others shared, it is LG-FedAvg (Liang et al., 2020).

    The server's models have the initial numbers in private layers, so what they are judged by says little. Clients'
    own models are judged with ``--local-test``.

    Attributes:
        layers: K_P ≥ 1, how many of the last layers that have parameters are private.
        private: Names of private parameters or layers in place of those, patterns such as 3.* that are joined by +.
    """

    layers: int = 1
    private: str = ""

    scored_weight: ClassVar[str] = "samples"
    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"model": ("samples",)}

    Reply = FedAvg.Reply

    def __post_init__(self) -> None:
        check_count("layers", self.layers)
        if self.private and not all(self.private.split("+")):
            raise InputError(f"private = {self.private!r}: it should be names that are joined by +, as in 3.*+5.bias")

    @property
    def stackable(self) -> bool:
        return True

    def idle(self) -> Mapping[str, str]:
        return {"layers": "private says what is private"} if self.private else {}

    def private_part(self) -> Part:
        return Part(patterns=tuple(self.private.split("+"))) if self.private else Part(last_layers=self.layers)

    def client_finish(
        self, client: PartlyPrivate.Client, message: FedAvg.Message, model: Tensor, context: ClientContext
    ) -> tuple[PartlyPrivate.Client, FedAvg.Reply]:
        return self.Client(own=model), self.Reply(model, context.samples)

    def server_step(self, server: Nothing, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model", "samples")
        return Update(server, aggregate, cloud=aggregate)
