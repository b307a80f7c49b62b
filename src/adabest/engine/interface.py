"""The interface of engines: a run sends one request for each phase of a round, and gets one answer per client.

An engine does the clients' side of a phase. The server's side (``simulation``) is the same for all engines. Runs that
are advanced together, as lanes, send their requests at the same time, and an engine may train all their clients at
once.

The envelopes leave room for a client whose state isn't in this process: then a request has None in its place, and the
answer has None for the state, and for the model if that stays there as well. The engines here and the simulation always
have both. Nothing else in a request or an answer belongs to one client and lasts longer than a round.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, ServerContext, Work
from adabest.engine.local_step import LocalTraining
from adabest.errors import Diverged
from adabest.tasks.base import Task


class Request(NamedTuple):
    """One phase of a round of one run.

    Attributes:
        algorithm: The algorithm whose formulas apply.
        task: The objectives of the clients.
        training: The settings of local training.
        work: Whether clients train or compute full gradients.
        clients: The cohort, with each client's state; None where the engine keeps the state itself. The engines of this
            package keep none.
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


class Answer(NamedTuple):
    """The result of one client's work in one phase of a round.

    Attributes:
        client: The client's number.
        state: What the client keeps until its next round; None where the engine keeps it.
        reply: What the client sends to the server.
        model: Its trained model; None if the phase had no training, or where the engine keeps the model.
        steps: The number of local steps that it made.
        loss: Mean training loss over its steps; None if there were none.
        accuracy: Mean training accuracy over its steps; None if there were none.
    """

    client: int
    state: Any
    reply: Any
    model: Tensor | None
    steps: int
    loss: float | None
    accuracy: float | None


Answers = list[Answer] | Diverged
"""The answers to one request, or the divergence that ends its run."""


class Engine(Protocol):
    """Executes the clients' side of rounds.

    Engines call a heartbeat between local steps. What it raises leaves ``exchange``.
    """

    def exchange(self, requests: Sequence[Request]) -> list[Answers]:
        """Executes the requests of several runs.

        Returns:
            For each request its answers in the order of its clients, or ``Diverged`` if a training loss isn't finite.
            The divergence of one run doesn't affect the others.
        """


def client_context(task: Task, client: int, message: Any, server: ServerContext) -> ClientContext:
    """The context of one client in a phase."""
    return ClientContext(
        round=server.round,
        phase=server.phase,
        eta=server.eta,
        base_eta=server.base_eta,
        steps=message.cloud.new_tensor([task.steps(client)]),
        samples=message.cloud.new_tensor([task.samples(client)]),
    )


def stacked_context(request: Request, clients: Sequence[int]) -> ClientContext:
    """The context of several clients in a phase, as one; counts are ``[clients, 1]``."""
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
    """The states of several clients as one, with a first dimension for the clients."""
    return type(states[0])(*map(torch.stack, zip(*states, strict=True)))
