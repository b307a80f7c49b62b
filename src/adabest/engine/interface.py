"""What an engine is: the clients' side of an exchange. The server's side is the same for all engines.

A run asks for its clients' work with an ``Exchange`` and gets their ``Outcome``s. Runs that are advanced together, as
lanes, ask at the same time, and an engine may do the work of all of them at once.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, ServerContext, Work
from adabest.engine.local_step import LocalTraining
from adabest.errors import Diverged
from adabest.tasks.base import Heartbeat, Task


class Exchange(NamedTuple):
    """One phase of a round, as a run asks for it.

    Attributes:
        algorithm: Whose formulas apply.
        task: What the clients learn.
        training: How they train.
        work: What they do.
        clients: The cohort, and each client's state.
        message: What the server sent.
        context: The round, as the server sees it.
    """

    algorithm: Algorithm
    task: Task
    training: LocalTraining
    work: Work
    clients: Mapping[int, Any]
    message: Any
    context: ServerContext


class Outcome(NamedTuple):
    """What one client's work in one phase of a round came to.

    Attributes:
        client: Who.
        state: What the client keeps.
        reply: What it sends.
        model: Its trained model; None if the phase had no training.
        steps: How many local steps it made.
        loss: Mean training loss over its steps; None if there were none.
        accuracy: Mean training accuracy over its steps; likewise.
    """

    client: int
    state: Any
    reply: Any
    model: Tensor | None
    steps: int
    loss: float | None
    accuracy: float | None


_AT_A_TIME = 32  # clients

Answer = list[Outcome] | Diverged


class Engine(Protocol):
    """Executes the work of cohorts."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        """``heartbeat`` is to be called between local steps and may raise."""

    def exchange(self, requests: Sequence[Exchange]) -> list[Answer]:
        """Does what several runs ask for.

        Returns:
            For each request the outcomes in the order of its clients, or ``Diverged`` if a training loss isn't finite:
            one run's divergence is no matter of the others.
        """


def client_context(task: Task, client: int, message: Any, server: ServerContext) -> ClientContext:
    """What a client knows in a round."""
    return ClientContext(
        round=server.round,
        phase=server.phase,
        eta=server.eta,
        base_eta=server.base_eta,
        steps=message.cloud.new_tensor([task.steps(client)]),
        samples=message.cloud.new_tensor([task.samples(client)]),
    )


def stacked_context(request: Exchange, clients: Sequence[int]) -> ClientContext:
    """What clients know in a round, all at once: counts are ``[clients, 1]``."""
    server, like = request.context, request.message.cloud
    return ClientContext(
        round=server.round,
        phase=server.phase,
        eta=server.eta,
        base_eta=server.base_eta,
        steps=like.new_tensor([[request.task.steps(client)] for client in clients]),
        samples=like.new_tensor([[request.task.samples(client)] for client in clients]),
    )


def stacked_states(states: Sequence[Any]) -> Any:
    """Clients' states as one, with a first dimension for the clients."""
    return type(states[0])(*map(torch.stack, zip(*states, strict=True)))


def estimate_norms(request: Exchange) -> list[float]:
    """‖h_i‖ of clients at the scale in which it would act under a message; empty if the algorithm has no h_i."""
    if request.message.cloud.is_cuda:
        return norms_side_by_side(request)
    norms = []
    for client, state in request.clients.items():
        context = client_context(request.task, client, request.message, request.context)
        estimate = request.algorithm.client_estimate(state, request.message, context)
        if estimate is not None:
            norms.append(float(torch.linalg.vector_norm(estimate, dtype=torch.float64)))
    return norms


def norms_side_by_side(request: Exchange) -> list[float]:
    """The same for many clients at a time, since on a GPU each operation has its price."""
    everyone, norms = list(request.clients), list[Tensor]()
    for first in range(0, len(everyone), _AT_A_TIME):
        clients = everyone[first : first + _AT_A_TIME]
        states = stacked_states([request.clients[client] for client in clients])
        estimate = request.algorithm.client_estimate(states, request.message, stacked_context(request, clients))
        if estimate is None:
            return []
        norms.append(torch.linalg.vector_norm(estimate, dim=1, dtype=torch.float64))
    return torch.cat(norms).tolist() if norms else []
