"""What the server knows of clients that live at nodes: their latest models, and of which phase their states are."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm
from adabest.engine.client_side import KeptRows, LocalClients, Rows
from adabest.engine.gate import Verdict
from adabest.engine.interface import ClientScores, Request
from adabest.engine.memory_tiers import Memory
from adabest.engine.receipt import Received
from adabest.errors import InputError
from adabest.flower.orders import NEVER, Tag
from adabest.tasks.base import Task

_TAG = "tag"


class NodeClients(LocalClients):
    """What the server knows of clients that live at nodes: their latest models, and of which phase their states are."""

    def __init__(self, algorithm: Algorithm, task: Task, initial: Tensor, memory: Memory, *, confirmed: bool) -> None:
        """Sets up the client side.

        Args:
            algorithm: The algorithm.
            task: The objectives of the clients.
            initial: θ_0.
            memory: How much of memory and disk their models may take.
            confirmed: Whether a state counts only once its reply is accepted.
        """
        super().__init__(algorithm, task, initial, memory)
        self._confirmed = confirmed

    def state(self, kept: KeptRows, client: int) -> Any:
        """Refuses: states never leave their nodes.

        Raises:
            InputError: Always.
        """
        raise InputError(f"the state of client {client} is on its node, which doesn't send it")

    def states(self, kept: KeptRows, cohort: Collection[int]) -> dict[int, Any]:
        """A cohort, each client with the phase that its state is of."""
        return {client: self._tag(kept, client) for client in cohort}

    def states_after(self, received: Received, clients: Collection[int]) -> dict[int, Any]:
        """The clients of the next phase, whose states are of this one."""
        return dict.fromkeys(clients, _tag_of(received))

    def rows_after(self, received: Sequence[Received]) -> Rows:
        """For each client of a round the phase that its state is of."""
        found = dict[int, Tag]()
        for one in received:
            verdict = one.verdict
            assert isinstance(verdict, NodesVerdict), "clients at nodes are judged by their engine"
            found |= {client: one.request.clients[client] for client in one.clients}
            counting = verdict.accepted_clients() if self._confirmed else verdict.answered()
            found |= dict.fromkeys(counting, _tag_of(one))
        return {client: {_TAG: torch.tensor(tag, dtype=torch.int64)} for client, tag in found.items()}

    def estimate_norms(self, kept: KeptRows, request: Request) -> Tensor:
        """None: h_i stays on its node."""
        return torch.zeros(0, dtype=torch.float64)

    def tags(self, kept: KeptRows) -> dict[int, Tag]:
        """The phases that the states of clients are of, that of the round which was prepared included."""
        return {client: self._tag(kept, client) for client in dict.fromkeys([*kept, *self._prepared])}

    def _tag(self, kept: KeptRows, client: int) -> Tag:
        row = self._prepared.get(client) or self.row(kept, client)
        return NEVER if row is None else Tag(*row[_TAG].tolist())


def _tag_of(received: Received) -> Tag:
    context = received.request.context
    return Tag(context.round, context.phase)


class NodesVerdict(Verdict):
    """A verdict on replies of nodes, which tells whose clients were left out."""

    def __init__(self, verdict: Verdict, absent: Mapping[int, str], nodes: Mapping[int, str]) -> None:
        """Adds to a verdict what is known of the nodes.

        Args:
            verdict: The verdict, in which those who haven't replied aren't accepted.
            absent: Why clients haven't replied.
            nodes: The names of the clients' nodes.
        """
        super().__init__(verdict.clients, verdict.accepted, verdict.facts, verdict.columns)
        self._absent, self._nodes = absent, nodes

    def answered(self) -> list[int]:
        """The clients that have replied, be it accepted or not."""
        return [client for client in self.clients if client not in self._absent]

    def reason(self, place: int, scores: ClientScores | None) -> str:
        """Why a reply is left out, with the name of the node."""
        client = self.clients[place]
        return f"{self._nodes[client]}: {self._absent.get(client) or super().reason(place, scores)}"
