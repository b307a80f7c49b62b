"""Ditto: each client has a second model near the cloud model. Li et al., *Ditto: fair and robust FL*, 2021."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from adabest.algorithms.base import (
    Algorithm,
    ClientContext,
    Correction,
    Nothing,
    Replies,
    ServerContext,
    Update,
    Work,
    check_range,
)
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.forms import Model


@dataclass(frozen=True)
class Ditto(Algorithm):
    """Ditto, with FedAvg for the cloud model.

    ::

        phase 0, client:  v_i ← v_i − η (∇L(v_i) + λ (v_i − θ))    from its last v_i, at first θ_0
        phase 1, client:  w ← w − η ∇L(w)                          from θ
                 server:  θ ← mean of θ_i

    v_i is the personal model. It never leaves its client, and changes nothing that others get.

    Checked against the authors' code, ``litian96/ditto``: the spring pulls to the θ that was sent, the mean is a plain
    one, and v_i makes as many steps as w. There a step of either is made on the same batch; here each training has
    batches of its own, as in PFLlib's ``clientditto.py``, whose mean is weighted by samples.

    θ is sent in both phases, and counted in both. A client that keeps it in between receives half as much.

    Attributes:
        pull: λ ≥ 0, how strongly v_i is pulled to θ. With 0, clients learn alone. The authors' grid is .1, 1, 2.
    """

    pull: float = 1.0

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"model": ("one",)}
    phases: ClassVar[tuple[Work, ...]] = (Work.TRAIN, Work.TRAIN)

    def __post_init__(self) -> None:
        check_range("pull", self.pull)

    class Client(NamedTuple):
        """v_i."""

        own: Model

    Message = FedAvg.Message

    class Reply(NamedTuple):
        """θ_i."""

        model: Model

    @property
    def stackable(self) -> bool:
        return True

    def reply_type(self, phase: int) -> type[Any]:
        return Nothing if phase == 0 else self.Reply

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(cloud)

    def downlink(self, server: Nothing, cloud: Tensor, context: ServerContext) -> FedAvg.Message:
        return FedAvg.Message(cloud)

    def client_start(self, client: Client, message: FedAvg.Message, context: ClientContext) -> Correction:
        if context.phase == 0:
            return Correction(start=client.own, offset=-self.pull * message.cloud, rho=self.pull)
        return Correction(start=message.cloud)

    def client_finish(
        self, client: Client, message: FedAvg.Message, model: Tensor, context: ClientContext
    ) -> tuple[Client, Any]:
        return (self.Client(model), Nothing()) if context.phase == 0 else (client, self.Reply(model))

    def server_step(self, server: Nothing, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = cloud if context.phase == 0 else replies.mean("model")
        return Update(server, aggregate, cloud=aggregate)

    def personal_model(self, client: Client, message: FedAvg.Message, context: ClientContext) -> Tensor:
        return client.own
