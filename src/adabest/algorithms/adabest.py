"""AdaBest. Varno et al., *Minimizing client drift in federated learning via adaptive bias estimation*, ECCV 2022."""

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
    check_count,
    check_range,
)
from adabest.algorithms.extrapolation import extrapolated_share, next_means, no_means
from adabest.algorithms.forms import Count, Model, Number, Total, Vector
from adabest.algorithms.plateau import decay_on_plateau, no_norms
from adabest.algorithms.progressive import count, mean_seen, nothing_seen
from adabest.algorithms.sums import dot
from adabest.errors import InputError


@dataclass(frozen=True)
class AdaBest(Algorithm):
    """AdaBest, in the form of the paper's Equation 3: h_i is stored unscaled, and scaled where it is used.

    ::

        client:  w ← w − η (∇L(w) − μ (n̄_t / n_i) h_i)
                 h_i ← h_i / (t − t'_i) + g_i
        server:  h ← β (θ̄_prev − θ̄)
                 θ ← θ̄ − h

    n̄_t is the mean of n_i over all replies so far, repeats counted, since the server knows of no other clients. On
    balanced data n̄_t / n_i is one. No formula has the number of clients.

    Attributes:
        mu: μ ≥ 0, how strongly a client's own estimate corrects its gradient.
        beta: β in [0, 1], the share of the server's estimate that is kept; smaller for harder tasks and fewer clients.
            With auto it sets itself in every round, from what the server sees; clients then send one number more,
            ‖g_i‖².
        beta_decay: The factor of β, in [0, 1], when ‖h‖ has reached a plateau: its mean over the last ``patience``
            rounds is within 1 % of its mean over as many rounds before. 1 leaves β as it is; a β that sets itself
            needs 1.
        patience: The rounds over which each of these means is taken.
    """

    mu: float = 0.02
    beta: float | Literal["auto"] = 0.96
    beta_decay: float = 1.0
    patience: int = 50

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"model": ("one",), "samples": ("one",), "square": ("one",)}

    def __post_init__(self) -> None:
        check_range("mu", self.mu)
        if not isinstance(self.beta, str):
            check_range("beta", self.beta, 0.0, 1.0)
        elif not self._automatic:
            raise InputError(f"beta = {self.beta!r} should be a number in [0, 1], or 'auto'")
        check_range("beta_decay", self.beta_decay, 0.0, 1.0)
        if self._automatic and self.beta_decay != 1:
            raise InputError(
                f"beta_decay = {self.beta_decay:g} shrinks a β that is given, and beta = 'auto' gives none: leave out "
                "one of them"
            )
        check_count("patience", self.patience)

    class Server(NamedTuple):
        """θ̄ of the last round, what n̄_t is made of, β, and the last ‖h‖ if β may decay."""

        aggregate: Model
        samples_seen: Total
        replies_seen: Total
        beta: Total
        h_norms: Tensor

    class AutomaticServer(NamedTuple):
        """θ̄ of the last round, what n̄_t is made of, β, and what β is made of: Δ and means over rounds."""

        aggregate: Model
        samples_seen: Total
        replies_seen: Total
        beta: Total
        change: Vector
        means: Tensor

    class Client(NamedTuple):
        """h_i, unscaled, and t'_i."""

        h: Vector
        last_round: Count

    class Message(NamedTuple):
        """θ and n̄_t."""

        cloud: Model
        mean_samples: Number

    class Reply(NamedTuple):
        """θ_i and n_i."""

        model: Model
        samples: Number

    class MeasuredReply(NamedTuple):
        """θ_i, n_i and ‖g_i‖², for a β that sets itself."""

        model: Model
        samples: Number
        square: Number

    def idle(self) -> Mapping[str, str]:
        return {"patience": "beta_decay = 1 leaves β as it is"} if self.beta_decay == 1 else {}

    @property
    def stackable(self) -> bool:
        return self.beta_decay == 1  # else it takes a norm

    def server_type(self) -> type[Any]:
        return self.AutomaticServer if self._automatic else super().server_type()

    def reply_type(self, phase: int) -> type[Any]:
        return self.MeasuredReply if self._automatic else super().reply_type(phase)

    def server_init(self, cloud: Tensor) -> Server | AutomaticServer:
        nothing = nothing_seen(cloud)
        if isinstance(self.beta, str):
            return self.AutomaticServer(cloud, nothing, nothing, nothing, torch.zeros_like(cloud), no_means(cloud))
        norms = no_norms(cloud, self.patience if self.beta_decay != 1 else 0)
        return self.Server(cloud, samples_seen=nothing, replies_seen=nothing, beta=nothing + self.beta, h_norms=norms)

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(h=torch.zeros_like(cloud), last_round=torch.zeros_like(cloud[..., :1], dtype=torch.int64))

    def downlink(self, server: Server | AutomaticServer, cloud: Tensor, context: ServerContext) -> Message:
        return self.Message(cloud, mean_seen(server, cloud))

    def client_start(self, client: Client, message: Message, context: ClientContext) -> Correction:
        return Correction(start=message.cloud, offset=-self.client_estimate(client, message, context))

    def client_finish(
        self, client: Client, message: Message, model: Tensor, context: ClientContext
    ) -> tuple[Client, Reply | MeasuredReply]:
        g_i = message.cloud - model
        after = self.Client(
            h=client.h / (context.round - client.last_round) + g_i,
            last_round=torch.full_like(client.last_round, context.round),
        )
        if self._automatic:
            return after, self.MeasuredReply(model, context.samples, square=dot(g_i, g_i).to(model.dtype))
        return after, self.Reply(model, context.samples)

    def server_step(
        self, server: Server | AutomaticServer, cloud: Tensor, replies: Replies, context: ServerContext
    ) -> Update:
        aggregate = replies.mean("model")
        if isinstance(server, self.AutomaticServer):
            change = server.aggregate - aggregate
            means = next_means(server.means, replies.mean("square"), cloud - aggregate, server.change, change)
            beta = extrapolated_share(means, replies.count)
            h = beta.to(cloud.dtype) * change
            after = self.AutomaticServer(aggregate, *count(server, replies), beta, change, means)
            return Update(after, aggregate, cloud=aggregate - h, h=h)
        h = server.beta.to(cloud.dtype) * (server.aggregate - aggregate)
        beta, norms = decay_on_plateau(server.beta, server.h_norms, h, self.beta_decay)
        return Update(self.Server(aggregate, *count(server, replies), beta, norms), aggregate, cloud=aggregate - h, h=h)

    def server_numbers(self, server: Server | AutomaticServer) -> Mapping[str, Tensor]:
        return {"beta": server.beta} if self._automatic or self.beta_decay != 1 else {}

    def client_estimate(self, client: Client, message: Message, context: ClientContext) -> Tensor:
        return self.mu * (message.mean_samples / context.samples) * client.h

    @property
    def _automatic(self) -> bool:
        return self.beta == "auto"
