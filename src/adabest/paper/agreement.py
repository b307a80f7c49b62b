"""Table 1, ours beside the paper's: each accuracy, and whether it is within what chance allows."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from adabest.paper.facts import ALGORITHMS, ROUNDS, Reported, TableCell, as_table_cell, cells_in_order, reported
from adabest.paper.scores import Score, Verdict, judge, score
from adabest.report.entries import Measured
from adabest.report.numbers import MISSING, with_sign, with_spread
from adabest.report.table import Table

_LARGEST = 5  # differences that are named


class Line(NamedTuple):
    """An algorithm in a setting of Table 1, ours and the paper's.

    Attributes:
        name: The setting's name.
        cell: The setting.
        algorithm: The algorithm.
        ours: What our runs amount to.
        paper: What the paper reports.
        verdict: Whether they agree; None where our runs aren't as long as the paper's.
    """

    name: str
    cell: TableCell
    algorithm: str
    ours: Score
    paper: Reported
    verdict: Verdict | None

    @property
    def length(self) -> str:
        """How long our runs are, if not as long as the paper's."""
        return f"round {self.ours.round}" if self.verdict is None else ""


def lines(runs: Mapping[str, Mapping[str, Sequence[Measured]]]) -> list[Line]:
    """All that can be compared with Table 1, in its order.

    Args:
        runs: The runs of several seeds, by setting and algorithm.
    """
    found = []
    for name in cells_in_order(runs):
        cell = as_table_cell(name)
        for algorithm in ALGORITHMS:
            paper = reported(name, algorithm)
            if cell is None or paper is None or algorithm not in runs[name]:
                continue
            ours = score(runs[name][algorithm])
            whole = not ours.values or ours.round == ROUNDS[cell.participation]
            known = ours.values or ours.lost
            found.append(Line(name, cell, algorithm, ours, paper, judge(ours, paper) if whole and known else None))
    return found


def agreement_table(compared: Iterable[Line], title: str = "Table 1: ours beside the paper's") -> Table:
    """Each accuracy beside the paper's."""
    head = ("cell", "algorithm", "ours %", "n", "paper %", "difference", "allowed", "within")
    return Table(head, tuple(_row(line) for line in compared), title)


def outside_table(compared: Iterable[Line]) -> Table:
    """Those that aren't within what is allowed: what diverged, then the largest difference first."""
    outside = [(line, line.verdict) for line in compared if line.verdict is not None and not line.verdict.within]
    outside.sort(key=lambda miss: -math.inf if miss[1].difference is None else -abs(miss[1].difference))
    return agreement_table([line for line, _ in outside], "Table 1: where ours isn't the paper's")


def _row(line: Line) -> tuple[str, ...]:
    ours, paper, verdict = line.ours, line.paper, line.verdict
    shown = f"{ours.text()} ({line.length})" if line.length else ours.text()
    judged = (MISSING,) * 3
    if verdict is not None:
        difference = MISSING if verdict.difference is None else with_sign(verdict.difference)
        judged = (difference, f"{verdict.allowed:.2f}{'†' * verdict.borrowed}", "yes" if verdict.within else "no")
    return (line.name, line.algorithm, shown, ours.seeds, with_spread(paper.mean, paper.std), *judged)


def agreement_notes(compared: Sequence[Line], wanted: Sequence[str]) -> list[str]:
    """What must be known to read the tables, in sentences.

    Args:
        compared: What is compared.
        wanted: The settings that the paper has.
    """
    ran = {(line.name, line.algorithm) for line in compared}
    return [
        "Within: the difference is at most 2·√(σ_ours² + σ_paper²), or half a point; σ_ours with n − 1. The paper's "
        "figures are means of five seeds.",
        *_borrowed(compared),
        *_short(compared),
        *_behind(compared),
        *_diverged(compared),
        *_largest(compared),
        *_missing(ran, wanted),
    ]


def _borrowed(compared: Iterable[Line]) -> list[str]:
    if not any(line.verdict and line.verdict.borrowed for line in compared):
        return []
    return ["† With fewer than three seeds the paper's σ stands for ours."]


def _short(compared: Iterable[Line]) -> list[str]:
    if not any(line.length for line in compared):
        return []
    rounds = " / ".join(f"{count:,}" for count in ROUNDS.values())
    return [
        f"Where a round is named, runs don't have the paper's number of rounds ({rounds}), and there is no verdict."
    ]


def _behind(compared: Iterable[Line]) -> list[str]:
    named = [f"{line.name} {line.algorithm} ({line.ours.behind})" for line in compared if line.ours.behind]
    return [f"Left out, because other seeds got further: {', '.join(named)}."] if named else []


def _diverged(compared: Iterable[Line]) -> list[str]:
    if not any(line.ours.lost for line in compared):
        return []
    return ["What diverged has no accuracy and is not in the mean; where a run did, ours isn't the paper's."]


def _largest(compared: Iterable[Line]) -> list[str]:
    outside = [
        (line.verdict.difference, f"{line.name} {line.algorithm}")
        for line in compared
        if line.verdict and line.verdict.difference is not None and not line.verdict.within
    ]
    if not outside:
        return []
    largest = sorted(outside, key=lambda miss: -abs(miss[0]))[:_LARGEST]
    named = ", ".join(f"{name} {with_sign(difference)}" for difference, name in largest)
    return [f"Largest differences that are not within: {named}."]


def _missing(ran: set[tuple[str, str]], wanted: Sequence[str]) -> list[str]:
    gaps = {cell: [algorithm for algorithm in ALGORITHMS if (cell, algorithm) not in ran] for cell in wanted}
    empty = {cell for cell, missing in gaps.items() if len(missing) == len(ALGORITHMS)}
    partly = [f"`{cell}` ({', '.join(missing)})" for cell, missing in gaps.items() if missing and cell not in empty]
    named = [*dict.fromkeys(f"`{_pattern(cell, empty, wanted)}`" for cell in wanted if cell in empty), *partly]
    return [f"Not run: {', '.join(named)}."] if named else []


def _pattern(cell: str, empty: set[str], wanted: Sequence[str]) -> str:
    """The widest pattern that takes in a cell and only such that are as empty."""
    dataset, participation, _ = cell.split("/")
    for start in (f"{dataset}/", f"{dataset}/{participation}/"):
        if all(other in empty for other in wanted if other.startswith(start)):
            return f"{start}*"
    return cell
