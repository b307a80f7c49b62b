"""The interface of engines: a run sends one request for each phase of a round, and gets the answers of its clients.

An engine does the clients' side of a phase. The server's side (``simulation``) is the same for all engines. Runs that
are advanced together, as lanes, send their requests at the same time, and an engine may train all their clients at
once.

A client's state lives where the client lives. Where that is this process, a request has the states, and the answers
have the new ones. Where clients live elsewhere (``engine.distributed``, a real federation), a request has None in the
places of states, and ``ClientSide`` knows how to reach them. Nothing else in a request or an answer belongs to one
client and lasts longer than a round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from adabest import random
from adabest.algorithms.base import Algorithm, ClientContext, Population, ServerContext, Work
from adabest.engine.arrival import Arrival
from adabest.engine.evaluation import EvaluationRequest, EvaluationResult
from adabest.engine.gate_rules import Gate
from adabest.engine.local_step import LocalTraining
from adabest.engine.private_part import PrivatePart
from adabest.noise import NoiseKey
from adabest.tasks.base import Task


class Request(NamedTuple):
    """One phase of a round of one run.

    Attributes:
        algorithm: The algorithm whose formulas apply.
        task: The objectives of the clients.
        training: The settings of local training.
        work: Whether clients train or compute full gradients.
        clients: The cohort, with each client's state; None for a client that lives elsewhere.
        message: What the server sent.
        context: The round, as the server sees it.
        gate: The rules by which replies will be judged.
        remembered: The norms of replies accepted before in this phase, if their median is a limit.
        common_steps: K, if the algorithm says how many local steps every client makes.
        private: The part of the model that stays with the clients, if there is one.
    """

    algorithm: Algorithm
    task: Task
    training: LocalTraining
    work: Work
    clients: Mapping[int, Any]
    message: Any
    context: ServerContext
    gate: Gate = Gate()
    remembered: Tensor | None = None
    common_steps: int | None = None
    private: PrivatePart | None = None

    def steps(self, clients: Sequence[int]) -> np.ndarray:
        """K_i of some clients in this phase, int64 ``[clients]``."""
        if self.common_steps is not None:
            return np.full(len(clients), self.common_steps, dtype=np.int64)
        if self.training.steps is not None:
            chosen = np.asarray(clients, dtype=np.int64)
            return self.training.steps.of(self._seed, self.context.round, chosen)
        return np.array([self.task.steps(client) for client in clients], dtype=np.int64)

    @property
    def private_mask(self) -> Tensor | None:
        """Which of a model's numbers are private; None without a private part."""
        return None if self.private is None else self.private.mask

    @property
    def _seed(self) -> int:
        seed = self.context.noise.seed
        assert isinstance(seed, int), "a request is one run's"
        return seed

    @property
    def round_word(self) -> int:
        """The word for the round in the draws of local training; see ``random.round_word``."""
        before = self.algorithm.phases[: self.context.phase]
        return random.round_word(self.context.round, before.count(Work.TRAIN))


class TrainingScores(NamedTuple):
    """The course of the local training of some clients. On a GPU the numbers may still be on their way.

    Attributes:
        clients: The clients.
        numbers: Float64 ``[4, at least as many]``: mean loss and mean of the first metric over a client's steps, as
            far as it is defined, its first step whose loss isn't finite, or −1, and the loss of that step.
        first: The column of the first client.
    """

    clients: Sequence[int]
    numbers: Arrival
    first: int = 0

    @classmethod
    def of_steps(cls, clients: Sequence[int], scores: Sequence[tuple[Tensor, Tensor]]) -> "TrainingScores":
        """The scores of clients of which all steps are known.

        Args:
            clients: The clients.
            scores: For each of them the loss and the first metric of its steps, float64 ``[K_i]``.
        """
        columns = torch.empty(4, len(clients), dtype=torch.float64)
        for place, (losses, values) in enumerate(scores):
            bad = torch.nonzero(~torch.isfinite(losses)).flatten().tolist()[:1]
            step, loss = (bad[0], float(losses[bad[0]])) if bad else (-1, 0.0)
            known = values[~values.isnan()]  # a batch may lack what its metric is about, such as labels or tokens
            numbers = [float(losses.mean()), float(known.mean()), step, loss]
            columns[:, place] = torch.tensor(numbers, dtype=torch.float64)
        return cls(clients, Arrival(columns))

    @classmethod
    def of_clients(cls, scores: Sequence["ClientScores"]) -> "TrainingScores":
        """Scores that are known, client by client."""
        columns = torch.tensor([own[1:] for own in scores], dtype=torch.float64).T
        return cls([own.client for own in scores], Arrival(columns))

    def read(self) -> list["ClientScores"]:
        """The scores, client by client."""
        own = self.numbers.read()[:, self.first : self.first + len(self.clients)]
        columns = zip(self.clients, *own.tolist(), strict=True)
        return [ClientScores(client, loss, value, int(step), bad) for client, loss, value, step, bad in columns]


class ClientScores(NamedTuple):
    """The course of one client's local training.

    Attributes:
        client: The client.
        loss: The mean loss over its steps.
        value: The mean of the first metric over its steps; NaN if it is defined in none.
        bad_step: The first step whose loss isn't finite, from 0; −1 if there is none.
        bad_loss: The loss of that step.
    """

    client: int
    loss: float
    value: float
    bad_step: int
    bad_loss: float


class Answers(NamedTuple):
    """The results of the clients' work in one phase of a round; tensors have a first dimension for the clients.

    Attributes:
        clients: The clients, in the order of the request.
        states: What each keeps until its next round, as one state; None where clients keep it elsewhere.
        replies: What each sends to the server, as one reply.
        steps: The number of local steps that each made.
        scores: How their training went, some clients after others; empty if there was none.
        faults: What is wrong with the names, shapes or types of replies, by client. Their rows in ``replies`` are
            blank.
    """

    clients: list[int]
    states: Any
    replies: Any
    steps: list[int]
    scores: tuple[TrainingScores, ...]
    faults: Mapping[int, str] = MappingProxyType({})

    @classmethod
    def joined(cls, parts: Sequence["Answers"]) -> "Answers":
        """The answers of some clients and of others as one."""
        if len(parts) == 1:
            return parts[0]

        def of_each(stacked: Sequence[Any]) -> Any:
            return type(stacked[0])(*map(torch.cat, zip(*stacked, strict=True)))

        return cls(
            clients=[client for part in parts for client in part.clients],
            states=of_each([part.states for part in parts]),
            replies=of_each([part.replies for part in parts]),
            steps=[steps for part in parts for steps in part.steps],
            scores=tuple(scores for part in parts for scores in part.scores),
            faults={client: fault for part in parts for client, fault in part.faults.items()},
        )


class Engine(Protocol):
    """Executes the clients' side of rounds, and judges models.

    Engines call a heartbeat between local steps. What it raises leaves ``exchange``.
    """

    def exchange(self, requests: Sequence[Request]) -> Sequence[Any]:
        """Executes the requests of several runs.

        Returns:
            For each request its ``Answers``, or what is received where clients live elsewhere (``receipt.Received``).
        """

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[EvaluationResult]:
        """Judges the models of several runs; one result per request."""


def server_context(
    training: LocalTraining, round_number: int, phase: int = 0, population: Population | None = None, *, seed: int = 0
) -> ServerContext:
    """The context of a phase of a round.

    Args:
        training: The settings of local training, which have the learning rate.
        round_number: t, from 1.
        phase: Which exchange of the round this is, from 0.
        population: |S^t| and n̄, for an algorithm that declares that it needs them.
        seed: The run's, for noise.
    """
    return ServerContext(
        round=round_number,
        phase=phase,
        eta=training.eta(round_number),
        base_eta=training.learning_rate,
        known_population=population,
        noise=NoiseKey(seed),
    )


def client_context(request: Request, client: int) -> ClientContext:
    """The context of one client in a phase."""
    like = request.message.cloud
    steps, samples = (like.new_tensor([count]) for count in (request.steps([client])[0], request.task.samples(client)))
    return context_of(request, client, steps, samples)


def stacked_context(request: Request, clients: Sequence[int]) -> ClientContext:
    """The context of several clients in a phase, as one; counts are ``[clients, 1]``."""
    like = request.message.cloud
    steps = like.new_tensor(request.steps(clients)[:, None])
    samples = like.new_tensor([[request.task.samples(client)] for client in clients])
    return context_of(request, tuple(clients), steps, samples)


def context_of(request: Request, client: int | tuple[int, ...], steps: Tensor, samples: Tensor) -> ClientContext:
    """The context of a client, or of several, with numbers of steps and samples."""
    server = request.context
    return ClientContext(
        round=server.round,
        phase=server.phase,
        eta=server.eta,
        base_eta=server.base_eta,
        steps=steps,
        samples=samples,
        noise=replace(server.noise, client=client),
        private=request.private_mask,
    )


def stacked_states(parts: Sequence[Any]) -> Any:
    """The states or replies of several clients as one, with a first dimension for the clients."""
    return type(parts[0])(*map(torch.stack, zip(*parts, strict=True)))
