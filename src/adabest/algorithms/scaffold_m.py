"""SCAFFOLD/m: SCAFFOLD without sending control variates up, as in the AdaBest paper's Algorithm 1."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from adabest.algorithms.base import ClientContext, Replies, ServerContext, Update
from adabest.algorithms.forms import Model, Number
from adabest.algorithms.progressive import ratio
from adabest.algorithms.scaffold import Scaffold


@dataclass(frozen=True)
class ScaffoldM(Scaffold):
    """SCAFFOLD/m: the server works Σ w_i Δh_i out of the models, since Δh_i holds no h_i.

    ::

        client:  as SCAFFOLD
        server:  h ← h + (1 / |S|) Σ w_i (g_i / (K_i η) − h)
                 θ ← θ̄

    On balanced data the server's line is ((|S|−|P|)/|S|) h + (|P| / (K η |S|)) (θ − θ̄).

    Attributes:
        control_rate: The η in Δh_i: this round's (``decayed``), or the first round's as in the reference code
            (``undecayed``).
        sample_mean: The n̄ in w_i: over the clients present (``population``), or over the replies so far as in AdaBest
            (``progressive``). |S| is needed either way.
    """

    means: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "model": ("one", "pace"),
        "pace": ("one",),
        "weight": ("one",),
        "samples": ("one",),
    }

    class Reply(NamedTuple):
        """θ_i, w_i / K_i and w_i."""

        model: Model
        pace: Number
        weight: Number

    class CountedReply(NamedTuple):
        """θ_i, w_i / K_i, w_i and n_i, for a progressive n̄."""

        model: Model
        pace: Number
        weight: Number
        samples: Number

    @property
    def stackable(self) -> bool:
        return True

    def client_finish(
        self, client: Scaffold.Client, message: Scaffold.Message, model: Tensor, context: ClientContext
    ) -> tuple[Scaffold.Client, Any]:
        w_i = ratio(context.samples, message.mean_samples)
        change = self._change(message, model, context)
        pace = w_i / context.steps
        if self._progressive:
            return self.Client(h=client.h + change), self.CountedReply(model, pace, w_i, context.samples)
        return self.Client(h=client.h + change), self.Reply(model, pace, w_i)

    def server_step(self, server: Scaffold.Server, cloud: Tensor, replies: Replies, context: ServerContext) -> Update:
        aggregate = replies.mean("model")
        pull = replies.mean("pace") / self._eta(context) * (cloud - replies.mean("model", "pace"))
        change = pull - replies.mean("weight") * server.h
        h = server.h + (replies.count / context.population.size) * change
        return Update(self._server(h, server, replies), aggregate, cloud=aggregate, h=h)
