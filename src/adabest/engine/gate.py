"""The gate that replies pass before anything is averaged.

A reply must have the declared names, shapes and types, be finite, have no weight below zero and, if there is a limit,
no vector whose norm is beyond it: for a model the norm of its difference from the cloud model that was sent, for any
other vector its own. A reply that doesn't is left out.

The facts about a reply are found where the client is (``inspect``), and judged by the server (``judge``). On a GPU that
would hold up every round, so there all replies are assumed to be good at first (``suspicions``): what tells that one
isn't arrives later, and then the round is made again, with a judgement.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm
from adabest.algorithms.forms import Form, forms_of
from adabest.engine.gate_rules import NormLimit
from adabest.engine.interface import ClientScores

REMEMBERED_NORMS = 512  # of accepted replies, which the running median is taken over
MOST_SKIPPED = 10  # rounds in a row without any accepted reply, after which a run has diverged


class Rejection(NamedTuple):
    """A reply that was left out."""

    round: int
    client: int
    reason: str

    def words(self) -> str:
        """The rejection as a sentence."""
        return f"the reply of client {self.client} in round {self.round} is left out: {self.reason}"


@dataclass(frozen=True)
class GateNotes:
    """What the gate has noted in the rounds so far.

    Attributes:
        rejected: How many replies were left out.
        unanswered: How many rounds were skipped since no reply was accepted.
        unanswered_in_a_row: How many of them since the last round that wasn't.
        rejections: The replies left out that no row of metrics has yet.
        skips: The rounds skipped that no row of metrics has yet.
    """

    rejected: int = 0
    unanswered: int = 0
    unanswered_in_a_row: int = 0
    rejections: tuple[Rejection, ...] = ()
    skips: tuple[int, ...] = ()

    def with_round(self, round_number: int, rejections: Sequence[Rejection], *, answered: bool) -> "GateNotes":
        """The notes after one more round.

        Args:
            round_number: The round.
            rejections: The replies that were left out.
            answered: Whether one was accepted.
        """
        noted = replace(self, rejected=self.rejected + len(rejections), rejections=(*self.rejections, *rejections))
        if answered:
            return replace(noted, unanswered_in_a_row=0)
        return replace(
            noted,
            unanswered=self.unanswered + 1,
            unanswered_in_a_row=self.unanswered_in_a_row + 1,
            skips=(*self.skips, round_number),
        )

    def told(self) -> "GateNotes":
        """The notes after a row of metrics has told them."""
        return replace(self, rejections=(), skips=())


class Columns(NamedTuple):
    """The columns of a table of facts about replies: the names of the fields that each is about.

    Attributes:
        sizes: Every field, for a number that is finite if all of its own are.
        weights: The fields that weigh others in means, for their values.
        norms: The vectors, for their norms; none if there is no limit.
    """

    sizes: list[str]
    weights: list[str]
    norms: list[str]

    @classmethod
    def of(cls, algorithm: Algorithm, phase: int, limit: NormLimit) -> "Columns":
        """The columns for the replies of a phase."""
        forms = forms_of(algorithm.reply_type(phase))
        weights = dict.fromkeys(weight for weights in algorithm.means.values() for weight in weights)
        vectors = [name for name, form in forms.items() if form is not None and form.is_vector]
        return cls(list(forms), [name for name in weights if name in forms], vectors if limit.is_set else [])

    def parts(self, facts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A table of facts in its three parts."""
        sizes, weights, norms = torch.split(facts, [len(self.sizes), len(self.weights), len(self.norms)], dim=1)
        return sizes, weights, norms


def inspect(columns: Columns, cloud: Tensor, replies: Any, clients: int) -> Tensor:
    """The facts about replies by which they are judged, float64 ``[clients, columns]``.

    Args:
        columns: What to look at.
        cloud: The cloud model that was sent.
        replies: The replies as one NamedTuple of tensors, with a first dimension for the clients.
        clients: How many there are; a reply may have no field at all.
    """
    forms = forms_of(type(replies))
    sizes = [finite_if_all_are(getattr(replies, name).reshape(clients, -1)) for name in columns.sizes]
    weights = [getattr(replies, name).reshape(clients) for name in columns.weights]
    norms = [_norms(getattr(replies, name), cloud if forms[name] is Form.MODEL else None) for name in columns.norms]
    facts = [fact.to(torch.float64) for fact in (*sizes, *weights, *norms)]
    return torch.stack(facts, dim=1) if facts else cloud.new_empty(clients, 0, dtype=torch.float64)


class Verdict:
    """Which replies are accepted.

    Attributes:
        clients: The clients.
        accepted: Whether each reply is.
        facts: The facts by which they were judged, and the limits of norms; None if all are accepted.
        columns: What the facts are about.
        faults: What is wrong with the names, shapes or types of replies, by client.
    """

    def __init__(
        self,
        clients: Sequence[int],
        accepted: Sequence[bool],
        facts: Tensor | None = None,
        columns: Columns | None = None,
        faults: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        """Makes a verdict.

        Args:
            clients: The clients.
            accepted: Whether each reply is accepted.
            facts: The facts, and after them the limits of the norms, the same for all clients; None if all replies are
                accepted.
            columns: What the facts are about.
            faults: What is wrong with the names, shapes or types of replies, by client.
        """
        self.clients, self.accepted = clients, accepted
        self.faults = faults
        self.facts, self.columns = facts, columns

    def accepted_clients(self) -> list[int]:
        """The clients whose replies are accepted."""
        return [client for client, accepted in zip(self.clients, self.accepted, strict=True) if accepted]

    def rejections(self, round_number: int, scores: Mapping[int, ClientScores]) -> list[Rejection]:
        """The replies that are left out, with the reasons.

        Args:
            round_number: The round.
            scores: How the training of the clients went.
        """
        return [
            Rejection(round_number, client, self.reason(place, scores.get(client)))
            for place, client in enumerate(self.clients)
            if not self.accepted[place]
        ]

    def reason(self, place: int, scores: ClientScores | None) -> str:
        """Why a reply is left out.

        Args:
            place: The client's place among the clients.
            scores: How its training went, if that is known.
        """
        client, columns = self.clients[place], self.columns
        if client in self.faults:
            return self.faults[client]
        assert columns is not None
        assert self.facts is not None
        split = [len(columns.sizes), len(columns.weights), len(columns.norms), len(columns.norms)]
        sizes, weights, norms, limits = (part.tolist() for part in torch.split(self.facts[place], split))
        for name, size in zip(columns.sizes, sizes, strict=True):
            if not math.isfinite(size):
                return f"its field {name} isn't finite{_of_training(scores)}"
        for name, weight in zip(columns.weights, weights, strict=True):
            if weight < 0:
                return f"its weight {name} is {weight:g}; it should be at least 0"
        name, norm, limit = next(
            (name, norm, limit) for name, norm, limit in zip(columns.norms, norms, limits, strict=True) if norm > limit
        )
        return f"its field {name} has the norm {norm:.6g}; the limit is {limit:.6g}"


def judge(
    clients: Sequence[int],
    facts: Tensor,
    columns: Columns,
    limit: NormLimit,
    remembered: Tensor | None = None,
    *,
    faults: Mapping[int, str] = MappingProxyType({}),
) -> Verdict:
    """Judges replies by the facts about them.

    Args:
        clients: The clients.
        facts: The facts, as ``inspect`` finds them.
        columns: What they are about.
        limit: The limit of norms.
        remembered: The norms of replies accepted before, ``[vectors, …]``.
        faults: What is wrong with the names, shapes or types of replies, by client.
    """
    facts = facts.cpu()
    sizes, weights, norms = columns.parts(facts)
    mask = torch.isfinite(sizes).all(dim=1) & (weights >= 0).all(dim=1)
    mask &= torch.tensor([client not in faults for client in clients])
    limits = facts.new_empty(0)
    if columns.norms:
        limits = _limits(limit, norms, remembered, mask)
        mask &= (norms <= limits).all(dim=1)
    return Verdict(clients, mask.tolist(), torch.cat([facts, limits.expand(len(facts), -1)], dim=1), columns, faults)


def are_good(columns: Columns, replies: Any) -> bool:
    """Whether all replies are finite, and no weight is below zero; False also where it takes a closer look to tell."""
    fields = [field for field in replies if field.is_floating_point()]
    weights = [getattr(replies, name) for name in columns.weights]
    return all(math.isfinite(float(field.sum())) for field in fields) and all(float(w.min()) >= 0 for w in weights)


class Suspicions(NamedTuple):
    """What tells, once it is known, that one of the replies that were assumed to be good isn't.

    Attributes:
        sizes: Numbers that aren't finite if something is wrong, each a tensor without dimensions.
        weights: Numbers that are below zero if something is wrong.
    """

    sizes: list[Tensor]
    weights: list[Tensor]


def suspicions(
    columns: Columns, replies: Any, means: Sequence[Tensor], averaged: Collection[str], states: Any
) -> Suspicions:
    """What to look at later, in as few operations as possible: a mean isn't finite if one of its terms isn't.

    Args:
        columns: What a judgement would look at.
        replies: The replies as one NamedTuple of tensors, with a first dimension for the clients.
        means: Their means.
        averaged: The names of the fields that are in means.
        states: What the clients keep.
    """
    vectors = [mean for mean in means if mean.numel() > 1]
    vectors += [v for name, v in replies._asdict().items() if name not in averaged and v[0].numel() > 1]
    kept = [field for field in states if field.is_floating_point() and field.numel() > 0]
    sizes = [finite_if_all_are(vector.flatten()) for vector in (*vectors, *kept)]
    weights = list[Tensor]()
    for name, field in replies._asdict().items():
        if field[0].numel() == 1 and field.is_floating_point():
            least, most = torch.aminmax(field)
            sizes.append(most)
            (weights if name in columns.weights else sizes).append(least)
    return Suspicions(sizes, weights)


def remember(remembered: Tensor | None, facts: Tensor, columns: Columns, accepted: Sequence[bool]) -> Tensor:
    """The norms of the last accepted replies, ``[vectors, at most REMEMBERED_NORMS]``."""
    _, _, norms = columns.parts(facts.cpu())
    latest = norms[torch.tensor(accepted)].T
    return (latest if remembered is None else torch.cat([remembered, latest], dim=1))[:, -REMEMBERED_NORMS:]


def sound_states(new: Any, old: Any) -> Any:
    """New states of clients, but for those that aren't finite: such a client keeps its old one.

    Args:
        new: The states as one NamedTuple of tensors, of one client or with a first dimension for the clients.
        old: The states before.
    """
    floats = [field for field in new if field.is_floating_point() and field.ndim > 0]
    if not floats:
        return new
    sound = torch.stack([torch.isfinite(finite_if_all_are(field)) for field in floats]).all(dim=0)
    if bool(sound.all()):
        return new
    return type(new)(*(torch.where(sound[..., None], own, before) for own, before in zip(new, old, strict=True)))


def _limits(limit: NormLimit, norms: Tensor, remembered: Tensor | None, mask: Tensor) -> Tensor:
    """The limit of the norm of each vector.

    As long as no reply was accepted before, the median is that of the round's own sound replies.
    """
    if not limit.of_median:
        return norms.new_full((norms.shape[1],), limit.value)
    median = torch.where(mask[:, None], norms, torch.nan).nanmedian(dim=0).values
    if remembered is not None and remembered.shape[1] > 0:
        median = remembered.median(dim=1).values
    return torch.where(median.isnan(), torch.inf, limit.value * median)


def finite_if_all_are(rows: Tensor) -> Tensor:
    """A number for each row, which is finite if and only if all numbers of the row are.

    On a GPU it is the largest without its sign, by one operation. On a CPU that would take twenty times as long as a
    sum. A sum with a number that isn't finite isn't, either; but it may also overflow, so then the largest is found.
    """
    if not rows.is_floating_point():
        return rows.new_zeros(rows.shape[:-1], dtype=torch.float64)
    if not rows.is_cuda:
        sums = rows.sum(dim=-1)
        if math.isfinite(sums.sum().item()):
            return sums
    largest: Tensor = torch.linalg.vector_norm(rows, ord=torch.inf, dim=-1)
    return largest


def _norms(rows: Tensor, origin: Tensor | None) -> Tensor:
    """The norm of each row, or of its difference from an origin, in float64.

    Row by row: the last bits of norms that are taken together may depend on how many there are.
    """
    away = (row if origin is None else row - origin for row in rows)
    return torch.stack([torch.linalg.vector_norm(row.to(torch.float64)) for row in away])


def _of_training(scores: ClientScores | None) -> str:
    if scores is None or scores.bad_step < 0:
        return ""
    return f" (its training loss at local step {scores.bad_step} was {scores.bad_loss})"
