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
    check_range,
)


@dataclass(frozen=True)
class AdaBest(Algorithm):
    """AdaBest, in the form of the paper's Equation 3: h_i is stored unscaled, and scaled where it is used.

    ::

        client:  w ← w − η (∇L(w) − μ (n̄_t / n_i) h_i)
                 h_i ← h_i / (t − t'_i) + g_i
        server:  h ← β (θ̄_prev − θ̄)
                 θ ← θ̄ − h

    n̄_t is the mean of n_i over all replies so far, repeats counted: the server knows no other client. On balanced data
    n̄_t / n_i is one. The number of clients appears nowhere.

    Attributes:
        mu: μ ≥ 0, how strongly a client's own estimate corrects its gradient.
        beta: β in [0, 1], how much of the server's estimate lives on; smaller for harder tasks and fewer clients.
    """

    mu: float = 0.02
    beta: float = 0.96

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {"model": ("one",), "samples": ("one",)}

    def __post_init__(self) -> None:
        check_range("mu", self.mu)
        check_range("beta", self.beta, 0.0, 1.0)

    class Server(NamedTuple):
        """θ̄ of the last round, and what n̄_t is made of (in float64, where sums of counts are exact)."""

        aggregate: Tensor
        samples_seen: Tensor
        replies_seen: Tensor

    class Client(NamedTuple):
        """h_i, unscaled, and t'_i."""

        h: Tensor
        last_round: Tensor

    class Message(NamedTuple):
        """θ and n̄_t."""

        cloud: Tensor
        mean_samples: Tensor

    class Reply(NamedTuple):
        """θ_i and n_i."""

        model: Tensor
        samples: Tensor

    def server_init(self, cloud: Tensor) -> Server:
        nothing = torch.zeros_like(cloud[..., :1], dtype=torch.float64)
        return self.Server(aggregate=cloud, samples_seen=nothing, replies_seen=nothing)

    def client_init(self, cloud: Tensor) -> Client:
        return self.Client(h=torch.zeros_like(cloud), last_round=torch.zeros_like(cloud[..., :1], dtype=torch.int64))

    def downlink(self, server: Server, cloud: Tensor, context: ServerContext) -> Message:
        mean_samples = server.samples_seen / server.replies_seen.clamp(min=1)
        return self.Message(cloud, mean_samples.to(cloud.dtype))

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
        h = self.beta * (server.aggregate - aggregate)
        # Rounded, because the mean of counts is one of floats, and their sum is a count again.
        samples = (replies.count * replies.mean("samples").to(torch.float64)).round()
        samples_seen = server.samples_seen + samples
        replies_seen = server.replies_seen + replies.count
        return Update(self.Server(aggregate, samples_seen, replies_seen), aggregate, cloud=aggregate - h, h=h)

    def client_estimate(self, client: Client, message: Message, context: ClientContext) -> Tensor:
        return self.mu * (message.mean_samples / context.samples) * client.h
