"""Who is ahead of whom in a setting of Table 1, ours and the paper's."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, groupby
from typing import NamedTuple

from adabest.paper.agreement import Line
from adabest.paper.facts import ALGORITHMS
from adabest.report.numbers import MISSING
from adabest.report.table import Table


class Order(NamedTuple):
    """The algorithms of a setting, the best first; those that are level (at two digits) share a place.

    Attributes:
        ours: By our runs; what diverged comes last.
        paper: By the paper, of those that we ran.
        length: How long our runs are, if not as long as the paper's.
    """

    ours: list[tuple[str, ...]]
    paper: list[tuple[str, ...]]
    length: str

    @property
    def alike(self) -> tuple[int, int]:
        """How many pairs aren't turned round, and of how many. Being level contradicts nothing."""
        ours, paper = _places(self.ours), _places(self.paper)
        pairs = list(combinations(ours, 2))
        return sum((ours[a] - ours[b]) * (paper[a] - paper[b]) >= 0 for a, b in pairs), len(pairs)

    @property
    def same(self) -> bool:
        """Whether no pair is turned round."""
        alike, pairs = self.alike
        return alike == pairs

    @property
    def same_winner(self) -> bool:
        """Whether one of those that are first is so in both."""
        return bool(set(self.ours[0]) & set(self.paper[0]))


def orders(compared: Iterable[Line]) -> dict[str, Order]:
    """The order of the algorithms in each setting in which we ran at least two."""
    found = {}
    for name, group in groupby(compared, key=lambda line: line.name):
        members = list(group)
        if len(members) > 1:
            ours = {line.algorithm: rounded(line.ours.mean) for line in members}
            paper = {line.algorithm: line.paper.mean for line in members}
            lengths = dict.fromkeys(line.length for line in members if line.length)
            found[name] = Order(_ranked(ours), _ranked(paper), ", ".join(lengths))
    return found


def ranking_table(found: Mapping[str, Order]) -> Table:
    """Who is ahead of whom, and who wins, ours beside the paper's."""
    head = ("cell", "ours", "paper", "pairs alike", "same order", "first: ours", "first: paper", "same first")
    rows = []
    for name, order in found.items():
        first = (" = ".join(order.ours[0]), " = ".join(order.paper[0]))
        shown, alike, same, same_first = f"{name} ({order.length})", MISSING, MISSING, MISSING
        if not order.length:
            shown, alike = name, "{} of {}".format(*order.alike)
            same, same_first = _yes(order.same), _yes(order.same_winner)
        rows.append((shown, _chain(order.ours), _chain(order.paper), alike, same, *first, same_first))
    return Table(head, tuple(rows), "Table 1: the order of the algorithms")


def rounded(mean: float | None) -> float:
    """A mean at the two digits that tables show; less than any other where there is none."""
    return float("-inf") if mean is None else round(mean, 2)


def _ranked(scores: Mapping[str, float]) -> list[tuple[str, ...]]:
    ordered = sorted(scores, key=lambda algorithm: -scores[algorithm])
    return [tuple(group) for _, group in groupby(ordered, key=lambda algorithm: scores[algorithm])]


def _places(ranked: Sequence[tuple[str, ...]]) -> dict[str, int]:
    places = {algorithm: place for place, level in enumerate(ranked) for algorithm in level}
    return {algorithm: places[algorithm] for algorithm in ALGORITHMS if algorithm in places}


def _chain(ranked: Iterable[tuple[str, ...]]) -> str:
    return " > ".join(" = ".join(level) for level in ranked)


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"
