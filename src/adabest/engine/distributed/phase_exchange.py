"""The exchange of a phase of a round: how messages, states, replies and means travel between ranks.

A rank trains its own clients. It sends the vectors of their replies as slices, each to the rank that adds it up; this
adds up its slices of all clients in the order of the clients, and sends the means to rank 0. So every vector travels
once, and no bit of a sum depends on the number of ranks.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Work
from adabest.algorithms.forms import forms_of
from adabest.engine.algorithm_calls import client_models
from adabest.engine.distributed.parcels import packed, packed_length, unpacked
from adabest.engine.distributed.ranks import Ranks
from adabest.engine.distributed.run_share import RunShare
from adabest.engine.gate import Columns, inspect
from adabest.engine.gate_rules import NormLimit
from adabest.engine.interface import Answers, ClientScores, Engine, server_context
from adabest.engine.receipt import with_sound_states
from adabest.engine.reduction import ReducedReplies, reduce_replies

Order = dict[str, Any]
"""An order of rank 0, or the part of one about a single run, as JSON."""


class PhaseReport(NamedTuple):
    """What rank 0 is told of the clients of a phase, in the order of the request.

    Attributes:
        facts: The facts by which replies are judged, a row a client.
        numbers: The numbers in their replies, by name.
        steps: The number of local steps that each made.
        scores: How their training went; none in a phase without training.
        faults: What is wrong with the form of replies, by client.
    """

    facts: list[list[float]]
    numbers: dict[str, list[float]]
    steps: list[int]
    scores: list[ClientScores]
    faults: dict[int, str]


class RunPhase:
    """One rank's part of a phase of one run.

    Attributes:
        share: The rank's share of the run.
        clients: All clients of the phase.
        ranks: The rank at which each of them trains.
        request: The request to those that train here.
        answers: Their answers, once they are trained; None if none trains here.
        models: The models that they have trained, ``[own clients, P]``; None if the phase has none, or they can't be
            told.
    """

    def __init__(self, asked: Order, share: RunShare, message: Any, rank: int) -> None:
        """Sets up a phase before its training.

        Args:
            asked: The part of the order about the run.
            share: The rank's share of the run.
            message: The message to the clients.
            rank: This rank.
        """
        self.share, self._asked, self._rank = share, asked, rank
        self.clients: list[int] = asked["clients"]
        self.ranks: list[int] = asked["ranks"]
        self._own = [place for place, where in enumerate(self.ranks) if where == rank]
        context = server_context(share.parts.training, asked["round"], asked["phase"], seed=asked["seed"])
        self.request = share.request(
            Work[asked["work"]], [self.clients[place] for place in self._own], message, context
        )
        self._columns = Columns.of(share.parts.algorithm, asked["phase"], NormLimit(*asked["limit"]))
        self.answers: Answers | None = None
        self.models: Tensor | None = None

    def trained(self, answers: Answers) -> None:
        """Takes the answers of this rank's clients; their new states are prepared."""
        self.answers = answers = with_sound_states(self.request, answers)
        self.share.prepare_states(answers)
        if self.request.work is Work.TRAIN:
            request = self.request
            self.models = client_models(
                request.algorithm, request.message, answers.replies, request.context, answers.clients
            )

    def report(self) -> Any:
        """What rank 0 is told of the clients that have trained here."""
        if self.answers is None:
            return None
        answers = self.answers
        forms = forms_of(type(answers.replies))
        names = [name for name, form in forms.items() if form is not None and not form.is_vector]
        return {
            "facts": inspect(self._columns, self.request.message.cloud, answers.replies, len(answers.clients)).tolist(),
            "numbers": {name: getattr(answers.replies, name).flatten().tolist() for name in names},
            "steps": answers.steps,
            "scores": [list(own) for scores in answers.scores for own in scores.read()],
            "faults": [[client, fault] for client, fault in answers.faults.items()],
            "places": self._own,
        }

    def sent_vectors(self) -> list[str]:
        """The vectors of a reply that are sent: those that are averaged, and the one that is the model."""
        algorithm, phase = self.share.parts.algorithm, self._asked["phase"]
        needed = {*algorithm.means, *([self.share.model_field(phase)] if self._asked["models"] else [])}
        return [name for name in self.share.vectors(phase) if name in needed]

    def models_are_apart(self) -> bool:
        """Whether models are sent beside the replies, since they aren't a field of them."""
        return bool(self._asked["models"]) and self.share.model_field(self._asked["phase"]) is None

    def rows_sent(self) -> int:
        """How many vectors are sent of each client."""
        return len(self.sent_vectors()) + self.models_are_apart()

    def outgoing(self, rank: int) -> list[Tensor]:
        """What goes to a rank: its parts of the vectors of this rank's clients, one vector after the other."""
        if self.answers is None:
            return []
        vectors = [getattr(self.answers.replies, name) for name in self.sent_vectors()]
        if self.models_are_apart() and self.models is not None:
            vectors.append(self.models)
        return [vector[:, self.share.slices.part(rank)].reshape(-1) for vector in vectors]

    def sizes(self, ranks: int) -> list[int]:
        """How many numbers come from each rank."""
        width = self.share.slices.width(self._rank)
        return [self.ranks.count(rank) * width * self.rows_sent() for rank in range(ranks)]

    def arrived(self, blocks: "_Blocks") -> tuple[dict[str, Tensor], Tensor | None]:
        """This rank's parts of the vectors of all clients' replies by name, ``[clients, …]``, and of their models."""
        order, width = _arrival_order(self.ranks), self.share.slices.width(self._rank)
        columns = []
        counts = [self.ranks.count(rank) for rank in blocks.ranks]
        for _ in range(self.rows_sent()):
            parts = [blocks.take(rank, count * width).view(count, width) for rank, count in enumerate(counts)]
            columns.append(torch.cat(parts)[order])
        models = columns.pop() if self.models_are_apart() else None
        vectors = dict(zip(self.sent_vectors(), columns, strict=True))
        if self._asked["models"] and models is None:
            models = vectors[self.share.model_field(self._asked["phase"]) or ""]
        return vectors, models

    def reduce(
        self, vectors: Mapping[str, Tensor], numbers: Mapping[str, Sequence[float]], mask: Sequence[bool]
    ) -> ReducedReplies | None:
        """This rank's part of the means; None if no reply is accepted."""
        if not any(mask):
            return None
        algorithm, like = self.share.parts.algorithm, self.share.like
        kind = algorithm.reply_type(self._asked["phase"])
        fields = []
        for name, form in forms_of(kind).items():
            assert form is not None, "replies of unknown form are refused before the first round"
            if not form.is_vector:
                fields.append(torch.tensor(numbers[name], dtype=form.dtype(like), device=like.device)[:, None])
            elif name in vectors:
                fields.append(vectors[name])
            else:  # a vector that isn't averaged
                fields.append(like.new_zeros(len(mask), self.share.slices.width(self._rank)))
        accepted = None if all(mask) else mask
        return reduce_replies(algorithm.means, self.clients, kind(*fields), accepted)

    def vector_means(self) -> list[tuple[str, str]]:
        """The means of vectors, by field and weight."""
        algorithm, phase = self.share.parts.algorithm, self._asked["phase"]
        there = {"one", *forms_of(algorithm.reply_type(phase))}
        vectors = self.share.vectors(phase)
        return [
            (field, weight)
            for field, weights in algorithm.means.items()
            for weight in weights
            if field in vectors and weight in there
        ]

    def prepare(self, models: Tensor | None, mask: Sequence[bool]) -> None:
        """Prepares this rank's parts of the clients' latest models, and takes back states that don't count."""
        if self._asked["confirmed"]:
            accepted = dict(zip(self.clients, mask, strict=True))
            self.share.take_back(
                {client: state for client, state in self.request.clients.items() if not accepted[client]}
            )
        self.share.prepare_models(self._asked["cohort"], self.clients, models, self.request.message.cloud, mask)


class PhaseExchange:
    """A phase of a round of several runs on one rank. All ranks call the methods in their order here."""

    def __init__(self, ranks: Ranks, asked: Sequence[Order], shares: Sequence[RunShare]) -> None:
        self._ranks, self._asked, self._shares = ranks, asked, shares
        self._phases: list[RunPhase] = []

    def begin(self, messages: Sequence[Any]) -> None:
        """Spreads the messages, and moves the states of clients that train elsewhere than they live.

        Args:
            messages: The messages to the clients of each run, at rank 0.
        """
        pairs = list(zip(self._asked, self._shares, strict=True))
        for asked, share in pairs:
            if asked["phase"] == 0:
                share.begin_round()
        spread_messages = spread(self._ranks, self._asked, self._shares, messages)
        self._move_states()
        self._phases = [
            RunPhase(asked, share, message, self._ranks.rank)
            for (asked, share), message in zip(pairs, spread_messages, strict=True)
        ]

    def train(self, engine: Engine) -> list[Any]:
        """Trains this rank's clients of all runs at once.

        Returns:
            The report to rank 0 on each run.

        Raises:
            InputError: If this rank has no memory left for what the clients keep.
        """
        for asked, phase in zip(self._asked, self._phases, strict=True):
            phase.share.reserve(asked["cohort"], phase.request.clients)
        busy = [phase for phase in self._phases if phase.request.clients]
        answers = engine.exchange([phase.request for phase in busy]) if busy else []
        for phase, own in zip(busy, answers, strict=True):
            phase.trained(own)
        return [phase.report() for phase in self._phases]

    def end(
        self, numbers: Sequence[Mapping[str, Sequence[float]]], verdicts: Sequence[Sequence[bool]]
    ) -> list[ReducedReplies | None] | None:
        """Averages the accepted replies, and prepares the clients' latest models.

        Args:
            numbers: The numbers in the replies of all clients of each run, by name.
            verdicts: Whether the reply of each is accepted.

        Returns:
            The means of each run at rank 0, with None where no reply is accepted; None elsewhere.
        """
        reduced = []
        for phase, own, mask, (vectors, models) in zip(
            self._phases, numbers, verdicts, self._swap_slices(), strict=True
        ):
            reduced.append(phase.reduce(vectors, own, mask))
            phase.prepare(models, mask)
        return self._gather_means(reduced)

    def _move_states(self) -> None:
        rank = self._ranks.rank
        sends, receives, arriving = list[Any](), list[Any](), list[Any]()
        for asked, share in zip(self._asked, self._shares, strict=True):
            for client, source, target in asked["moves"]:
                if source == rank:
                    sends.append((packed(share.state(client), share.like.device), target))
                if target == rank:
                    length = packed_length(share.state_specs)
                    parcel = torch.empty(length, dtype=torch.uint8, device=share.like.device)
                    receives.append((parcel, source))
                    arriving.append((share, client, parcel))
        self._ranks.transfer(sends, receives)
        for share, client, parcel in arriving:
            share.take_over(client, unpacked(parcel, share.state_specs))

    def _swap_slices(self) -> Iterator[tuple[dict[str, Tensor], Tensor | None]]:
        """Sends the vectors of replies as slices; gives this rank's slices of each run, as ``RunPhase.arrived``."""
        ranks, like = self._ranks, self._shares[0].like
        outgoing = []
        for rank in range(ranks.size):
            parts = [part for phase in self._phases for part in phase.outgoing(rank)]
            outgoing.append(torch.cat(parts) if parts else like.new_empty(0))
        sizes = [phase.sizes(ranks.size) for phase in self._phases]
        blocks = _Blocks(ranks.swap(outgoing, [sum(own) for own in zip(*sizes, strict=True)], like))
        return (phase.arrived(blocks) for phase in self._phases)

    def _gather_means(self, reduced: Sequence[ReducedReplies | None]) -> list[ReducedReplies | None] | None:
        """The whole means, at rank 0."""
        averaged = [(phase, means) for phase, means in zip(self._phases, reduced, strict=True) if means is not None]
        own = [means.mean(*pair) for phase, means in averaged for pair in phase.vector_means()]
        sizes = [
            sum(len(phase.vector_means()) * phase.share.slices.width(rank) for phase, _ in averaged)
            for rank in range(self._ranks.size)
        ]
        parts = self._ranks.gather(torch.cat(own) if own else self._shares[0].like.new_empty(0), sizes)
        if parts is None:
            return None
        blocks = _Blocks(parts)
        whole: list[ReducedReplies | None] = []
        for phase, means in zip(self._phases, reduced, strict=True):
            if means is None:
                whole.append(None)
                continue
            slices = phase.share.slices
            joined = {
                pair: torch.cat([blocks.take(rank, slices.width(rank)) for rank in blocks.ranks])
                for pair in phase.vector_means()
            }
            whole.append(means.with_means(joined))
        return whole


class _Blocks:
    """Vectors that came from all ranks, of which parts are taken from the front."""

    def __init__(self, vectors: Sequence[Tensor]) -> None:
        self.ranks = range(len(vectors))
        self._vectors, self._taken = vectors, [0] * len(vectors)

    def take(self, rank: int, length: int) -> Tensor:
        """The next part of what came from a rank."""
        begin = self._taken[rank]
        self._taken[rank] += length
        return self._vectors[rank][begin : begin + length]


def spread(ranks: Ranks, asked: Sequence[Order], shares: Sequence[RunShare], messages: Sequence[Any]) -> list[Any]:
    """The messages of rank 0, on every rank.

    Args:
        ranks: The ranks.
        asked: The shapes and types of the messages' fields, among others.
        shares: The shares of their runs.
        messages: The messages, at rank 0.
    """
    device = shares[0].like.device
    if ranks.rank == 0:
        if ranks.size > 1:
            ranks.broadcast(packed([field for message in messages for field in message], device))
        return list(messages)
    specs = [spec for one in asked for spec in one["message"]]
    parcel = torch.empty(packed_length(specs), dtype=torch.uint8, device=device)
    ranks.broadcast(parcel)
    fields, found = iter(unpacked(parcel, specs)), []
    for one, share in zip(asked, shares, strict=True):
        kind = share.parts.algorithm.message_type(one.get("phase", 0))
        found.append(kind(*(next(fields) for _ in one["message"])))
    return found


def joined_report(reports: Sequence[Any], clients: Sequence[int]) -> PhaseReport:
    """The reports of all ranks on a phase as one.

    Args:
        reports: What each rank has told; None for one at which no client trained.
        clients: All clients of the phase.
    """
    there = [report for report in reports if report is not None]
    places = [place for report in there for place in report["places"]]
    order = sorted(range(len(places)), key=lambda position: places[position])

    def column(name: str) -> list[Any]:
        rows = [row for report in there for row in report[name]]
        return [rows[position] for position in order]

    def numbers(name: str) -> list[float]:
        values = [value for report in there for value in report["numbers"][name]]
        return [values[position] for position in order]

    scores = {own[0]: ClientScores(*own) for report in there for own in report["scores"]}
    return PhaseReport(
        facts=column("facts"),
        numbers={name: numbers(name) for name in there[0]["numbers"]},
        steps=column("steps"),
        scores=[scores[client] for client in clients if client in scores],
        faults={client: fault for report in there for client, fault in report["faults"]},
    )


def _arrival_order(ranks: Sequence[int]) -> list[int]:
    """Where each client of a request stands among those that arrive rank by rank."""
    arrived = sorted(range(len(ranks)), key=lambda place: (ranks[place], place))
    order = [0] * len(ranks)
    for position, place in enumerate(arrived):
        order[place] = position
    return order
