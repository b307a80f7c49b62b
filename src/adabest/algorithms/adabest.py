"""AdaBest. Varno et al., *Minimizing client drift in federated learning via adaptive bias estimation*, ECCV 2022."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

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
from adabest.algorithms.forms import Count, Model, Number, Total, Vector
from adabest.algorithms.plateau import decay_on_plateau, no_norms
from adabest.algorithms.progressive import count, mean_seen, nothing_seen


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
        beta_decay: The factor of β, in [0, 1], when ‖h‖ has reached a plateau: its mean over the last ``patience``
            rounds is within 1 % of its mean over as many rounds before. 1 leaves β as it is.
        patience: The rounds over which each of these means is taken.
    """

    mu: float = 0.02
    beta: float = 0.96
    beta_decay: float = 1.0
    patience: int = 50

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"model": ("one",), "samples": ("one",)}

    def __post_init__(self) -> None:
        check_range("mu", self.mu)
        check_range("beta", self.beta, 0.0, 1.0)
        check_range("beta_decay", self.beta_decay, 0.0, 1.0)
        check_count("patience", self.patience)

    class Server(NamedTuple):
        """θ̄ of the last round, what n̄_t is made of, β, and the last ‖h‖ if β may decay."""

        aggregate: Model
        samples_seen: Total
        replies_seen: Total
        beta: Total
        h_norms: Tensor

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

    @property
    def stackable(self) -> bool:
        return self.beta_decay == 1  # else it takes a norm

    def server_init(self, cloud: Tensor) -> Server:
        nothing = nothing_seen(cloud)
        norms = no_norms(cloud, self.patience if self.beta_decay != 1 else 0)
        return self.Server(cloud, samples_seen=nothing, replies_seen=nothing, beta=nothing + self.beta, h_norms=norms)

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(h=torch.zeros_like(cloud), last_round=torch.zeros_like(cloud[..., :1], dtype=torch.int64))

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> Message:
        return self.Message(cloud, mean_seen(server, cloud))

    def client_start(self, client: Client, message: Message, context: ClientContext) -> Correction:
        return Correction(start=message.cloud, offset=-self.client_estimate(client, message, context))

    def client_finish(
        self, client: Client, message: Message, model: Tensor, context: ClientContext
    ) -> tuple[Client, Reply]:
        g_i = message.cloud - model
        h_i = client.h / (context.round - client.last_round) + g_i
        last_round = torch.full_like(client.last_round, context.round)
        return self.Client(h_i, last_round), self.Reply(model, context.samples)

    def server_step(self, server: Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model")
        h = server.beta.to(cloud.dtype) * (server.aggregate - aggregate)
        beta, norms = decay_on_plateau(server.beta, server.h_norms, h, self.beta_decay)
        return Update(self.Server(aggregate, *count(server, replies), beta, norms), aggregate, cloud=aggregate - h, h=h)

    def server_numbers(self, server: Server) -> Mapping[str, Tensor]:
        return {"beta": server.beta} if self.beta_decay != 1 else {}

    def client_estimate(self, client: Client, message: Message, context: ClientContext) -> Tensor:
        return self.mu * (message.mean_samples / context.samples) * client.h
