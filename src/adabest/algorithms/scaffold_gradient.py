"""SCAFFOLD with full gradients: Karimireddy et al., *Stochastic controlled averaging*, 2020 (option I)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import (
    Algorithm,
    ClientContext,
    Correction,
    Replies,
    ServerContext,
    Update,
    Work,
    check_choice,
)
from adabest.algorithms.forms import Model, Number, Vector
from adabest.algorithms.progressive import count, mean_seen, nothing_seen, ratio
from adabest.algorithms.scaffold import Scaffold


@dataclass(frozen=True)
class ScaffoldGradient(Algorithm):
    """SCAFFOLD, option I: h_i is the full gradient at θ, with w_i = n_i / n̄ (all ones on balanced data).

    ::

        phase 0, client:  v_i ← ∇L_i(θ), over all of its samples
        phase 1, client:  w ← w − η (∇L(w) − h_i + h / w_i)
                          h_i ← h_i + Δh_i    with  Δh_i = v_i − h_i
                 server:  h ← h + (1 / |S|) Σ w_i Δh_i
                          θ ← θ̄

    ∇L_i(θ) has no augmentation, no weight decay and no clipping. A weight decay would add λθ to every h_i, and so to h:
    it cancels in h − h_i, but for clients whose h_i is of an earlier round.

    θ is sent in both phases, since every message of the engine has it, so a round costs 3n down where SCAFFOLD's costs
    2n. A client keeps v_i between the phases, so it keeps 2n.

    Attributes:
        sample_mean: The n̄ in w_i: over the clients present (``population``), or over the replies so far as in AdaBest
            (``progressive``). |S| is needed either way.
    """

    sample_mean: Literal["population", "progressive"] = "population"

    needs_population: ClassVar[bool] = True
    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"largest": ("one",), **Scaffold.means}
    phases: ClassVar[tuple[Work, ...]] = (Work.GRADIENT, Work.TRAIN)

    def __post_init__(self) -> None:
        check_choice("sample_mean", self.sample_mean, ("population", "progressive"))

    Server = Scaffold.Server
    Message = Scaffold.Message
    Reply = Scaffold.Reply
    CountedReply = Scaffold.CountedReply

    class Client(NamedTuple):
        """h_i, and v_i, which is the next h_i."""

        h: Vector
        gradient: Vector

    class Point(NamedTuple):
        """θ, where the gradient is taken."""

        cloud: Model

    class Size(NamedTuple):
        """The largest number of v_i without its sign.

        If v_i isn't finite, neither is this, and so the gate leaves the client out of the round.
        """

        largest: Number

    @property
    def stackable(self) -> bool:
        return True

    def message_type(self, phase: int) -> type[Any]:
        return self.Point if phase == 0 else self.Message

    def reply_type(self, phase: int) -> type[Any]:
        if phase == 0:
            return self.Size
        return self.CountedReply if self._progressive else self.Reply

    def server_init(self, cloud: Tensor) -> Scaffold.Server:
        nothing = nothing_seen(cloud)
        return self.Server(h=torch.zeros_like(cloud), samples_seen=nothing, replies_seen=nothing)

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(h=torch.zeros_like(cloud), gradient=torch.zeros_like(cloud))

    def downlink(self, server: Scaffold.Server, cloud: Tensor, context: ServerContext) -> Any:
        if context.phase == 0:
            return self.Point(cloud)
        if self._progressive:
            return self.Message(cloud, server.h, mean_seen(server, cloud))
        return self.Message(cloud, server.h, torch.zeros_like(cloud[..., :1]) + context.population.mean_samples)

    def client_start(self, client: Client, message: Any, context: ClientContext) -> Correction:
        if context.phase == 0:
            return Correction(start=message.cloud)
        w_i = ratio(context.samples, message.mean_samples)
        return Correction(start=message.cloud, offset=message.h / w_i - client.h)

    def client_finish(self, client: Client, message: Any, model: Tensor, context: ClientContext) -> tuple[Client, Any]:
        if context.phase == 0:
            return self.Client(client.h, gradient=model), self.Size(model.abs().amax(dim=-1, keepdim=True))
        w_i = ratio(context.samples, message.mean_samples)
        weighted_change = w_i * (client.gradient - client.h)
        after = self.Client(h=client.gradient, gradient=client.gradient)
        if self._progressive:
            return after, self.CountedReply(model, weighted_change, context.samples)
        return after, self.Reply(model, weighted_change)

    def server_step(self, server: Scaffold.Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        if context.phase == 0:
            return Update(server, aggregate=cloud, cloud=cloud, h=server.h)
        aggregate = replies.mean("model")
        h = server.h + (replies.count / context.population.size) * replies.mean("weighted_change")
        counts = count(server, replies) if self._progressive else server[1:]
        return Update(self.Server(h, *counts), aggregate, cloud=aggregate, h=h)

    def client_estimate(self, client: Client, message: Any, context: ClientContext) -> Tensor:
        return client.h

    @property
    def _progressive(self) -> bool:
        return self.sample_mean == "progressive"
