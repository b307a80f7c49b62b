"""The facts in parcels: what a server orders, and what nodes answer, as JSON objects of declared types.

Whatever arrives is data. It is compared with these types before it is used, and nothing in it names code.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, TypeVar, cast

from adabest.errors import InputError
from adabest.runs.files.records import LARGEST, conform

ANNOUNCE, TRAIN, TEST = "query", "train", "evaluate"
"""The kinds of orders, by the names that Flower has for them."""

T = TypeVar("T")


class Tag(NamedTuple):
    """The phase of a round after which a client's state is as it is; round 0 before it has ever taken part."""

    round: int
    phase: int

    def words(self) -> str:
        """The tag in words."""
        if self.round == 0:
            return "before its first round"
        return f"of round {self.round}" + (f", exchange {self.phase + 1}" if self.phase else "")


NEVER = Tag(0, 0)


class AnnounceOrder(TypedDict):
    """Asks a node which clients it has.

    Attributes:
        plan: The digest of the settings that must be the same everywhere.
    """

    plan: str


class Announcement(TypedDict):
    """A node's answer.

    Attributes:
        node: Its name.
        model: The digest of the model's parameters by name and shape.
        clients: Its clients, ascending.
        samples: How many samples each trains on.
        held_out: How many samples each holds out.
    """

    node: str
    model: str
    clients: list[int]
    samples: list[int]
    held_out: list[int]


class TrainOrder(TypedDict):
    """Asks clients of a node to train, or for full gradients; the vectors and numbers are the algorithm's message.

    Attributes:
        plan: The digest of the settings that must be the same everywhere.
        run: The run's id.
        round: The round.
        phase: The exchange in it, from 0.
        clients: The clients.
        after: For each, the round and the phase that its state is expected to be of.
        common_steps: K, where all clients make the same number of local steps.
    """

    plan: str
    run: str
    round: int
    phase: int
    clients: list[int]
    after: list[list[int]]
    common_steps: int | None


class TrainAnswer(TypedDict):
    """A node's answer; its vectors and numbers are the replies of ``clients``.

    Attributes:
        clients: The clients that have replied.
        steps: The number of local steps of each.
        scores: How the training of each went: loss, first metric, first bad step and its loss; null where there is no
            number. Empty if there was no training.
        faults: Why others haven't, by client.
    """

    clients: list[int]
    steps: list[int]
    scores: list[list[float | None]]
    faults: dict[str, str]


class TestOrder(TypedDict):
    """Asks a node to judge models on what its clients hold out.

    Attributes:
        plan: The digest of the settings that must be the same everywhere.
        run: The run's id.
        round: The round after which they are judged.
        models: How many models there are among the vectors; after them comes the message of the next round, if any.
        own: Whether clients judge their own models, too.
        clients: The clients.
        after: For each, the round and the phase that its state is expected to be of.
    """

    plan: str
    run: str
    round: int
    models: int
    own: bool
    clients: list[int]
    after: list[list[int]]


class TestAnswer(TypedDict):
    """A node's answer.

    Attributes:
        weight: How much all that its clients hold out weighs in means of losses.
        losses: The mean loss of each model on it.
        sums: What it adds to the sums that metrics are made of, for each model.
        values: For each client the metrics of each model, and those of its own model last, if it was asked for.
        faults: Why own models couldn't be judged, by client.
    """

    weight: float
    losses: list[float | None]
    sums: list[list[float | None]]
    values: list[list[list[float | None]]]
    faults: dict[str, str]


class Refusal(TypedDict):
    """A node's answer to an order that it can't carry out.

    Attributes:
        refused: Why.
    """

    refused: str


def written(facts: Mapping[str, Any]) -> str:
    """Facts as JSON."""
    return json.dumps(facts, separators=(",", ":"), allow_nan=False)


def read(where: str, facts: Any, kind: type[T]) -> T:
    """Facts of a declared type.

    Args:
        where: Whose they are, for the message.
        facts: What came.
        kind: The type.

    Raises:
        InputError: If they are of another type.
    """
    return cast("T", conform(where, facts, kind))


def read_answer(where: str, facts: Any, kind: type[T]) -> T:
    """The facts of an answer of a declared type.

    Raises:
        InputError: If they are of another type, or the node has refused; the message has its reason.
    """
    if isinstance(facts, Mapping) and facts.keys() == {"refused"}:
        raise InputError(shortened(read(where, facts, Refusal)["refused"]))
    return read(where, facts, kind)


def parsed(where: str, text: Any) -> Mapping[str, Any]:
    """A JSON object.

    Raises:
        InputError: If the text isn't one.
    """
    try:
        facts = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{where} isn't JSON: {error}") from error
    if not isinstance(facts, dict):
        raise InputError(f"{where} should be a JSON object")
    return facts


def tags(where: str, after: Sequence[Sequence[int]], clients: Sequence[int]) -> dict[int, Tag]:
    """The tags of clients.

    Raises:
        InputError: If there isn't one for each, or a client stands there twice.
    """
    if len(after) != len(clients) or any(len(tag) != 2 or min(tag) < 0 for tag in after):
        raise InputError(f"{where}: after should hold a round and a phase for each client")
    if len(set(clients)) < len(clients):
        raise InputError(f"{where}: a client stands there twice")
    return {client: Tag(*tag) for client, tag in zip(clients, after, strict=True)}


def or_none(value: float) -> float | None:
    """A number, or null for one that isn't finite or too large to be told."""
    return value if abs(value) <= LARGEST else None


def or_nan(value: float | None) -> float:
    """A number, NaN where there is none."""
    return float("nan") if value is None else float(value)


def shortened(words: str, most: int = 500) -> str:
    """Words from elsewhere in one line, without what a terminal would act on."""
    plain = "".join(letter if letter.isprintable() else " " for letter in words[: most + 1])
    return f"{plain[:most]}…" if len(plain) > most else plain
