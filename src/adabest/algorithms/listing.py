"""The list of built-in algorithms: what each adds to a local step, what it sends and keeps, and what it needs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from adabest.algorithms.base import Work
from adabest.algorithms.catalog import ALGORITHMS
from adabest.algorithms.forms import forms_of
from adabest.algorithms.records import RECORDS

EVERYONE = "all clients"


@dataclass(frozen=True)
class AlgorithmListing:
    """A built-in algorithm with its default hyper-parameters.

    What is sent and kept is counted in numbers, where n is the number of a model's parameters, as in 2n + 1, and q that
    of its private ones, as in n − q.

    Attributes:
        name: Its name.
        family: Its family.
        term: The term that is added to ∇L(w) in a local step; empty if there is none.
        down: What each client of a round receives.
        up: What each of them sends.
        client: What a client keeps between rounds.
        server: What the server keeps, the cloud model not counted.
        needs: What it needs that FedAvg doesn't: ``all clients`` in every round, as its paper has it; ``|S|``, the
            number of clients that there are; ``full gradients`` in an exchange of their own; ``two gradients`` in each
            local step; or ``two trainings`` in a round.
        paper: Authors and year.
    """

    name: str
    family: str
    term: str
    down: str
    up: str
    client: str
    server: str
    needs: tuple[str, ...]
    paper: str


def list_algorithms() -> list[AlgorithmListing]:
    """All built-in algorithms, in the order of the catalog."""
    return [_listing(name) for name in ALGORITHMS.builtin]


def _listing(name: str) -> AlgorithmListing:
    algorithm, record = ALGORITHMS.builtin[name](), RECORDS[name]
    phases = range(len(algorithm.phases))
    needs = {
        EVERYONE: record.all_clients,
        "|S|": algorithm.needs_population,
        "full gradients": Work.GRADIENT in algorithm.phases,
        "two gradients": record.two_gradients,
        "two trainings": algorithm.phases.count(Work.TRAIN) == 2,
    }
    is_partly_private = algorithm.private_part() is not None
    return AlgorithmListing(
        name=name,
        family=record.family.words,
        term=record.term,
        down=_numbers((algorithm.message_type(phase) for phase in phases), without_private=is_partly_private),
        up=_numbers((algorithm.reply_type(phase) for phase in phases), without_private=is_partly_private),
        client=_numbers([algorithm.client_type()]),
        server=_numbers([algorithm.server_type()]),
        needs=tuple(words for words, needed in needs.items() if needed),
        paper=record.paper,
    )


def _numbers(kinds: Iterable[type[Any]], *, without_private: bool = False) -> str:
    """How many numbers NamedTuples hold, as 2n + 1 or n − q, without lists whose length is up to a hyper-parameter."""
    forms = [form for kind in kinds for form in forms_of(kind).values() if form is not None]
    vectors = sum(form.is_vector for form in forms)
    single = len(forms) - vectors
    times = str(vectors) if vectors > 1 else ""
    of_vectors = f"{times}n − {times}q" if without_private else f"{times}n"
    parts = [of_vectors] * bool(vectors) + [str(single)] * bool(single)
    return " + ".join(parts) or "0"
