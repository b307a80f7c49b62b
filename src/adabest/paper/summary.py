"""Table 1 in short: the paper's layout, and how often ours is the paper's."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from adabest.paper.agreement import Line
from adabest.paper.facts import ALGORITHMS, DATASETS, HETEROGENEITIES, PARTICIPATIONS, as_table_cell, reported
from adabest.paper.ranking import Order, rounded
from adabest.paper.result_tables import Runs
from adabest.paper.scores import ENOUGH_SEEDS, Score, score
from adabest.report.numbers import MISSING, with_spread
from adabest.report.table import Table


def headline_table(compared: Sequence[Line]) -> Table:
    """The paper's layout: a row for a setting, a column for an algorithm, ours / the paper's, the best of each bold.

    Ours is a mean with its standard deviation; n stands beside it where fewer than three seeds were run.
    """
    shown = [algorithm for algorithm in ALGORITHMS if any(line.algorithm == algorithm for line in compared)]
    rows = []
    for cell_name, group in groupby(compared, key=lambda line: line.name):
        members = {line.algorithm: line for line in group}
        cell = next(iter(members.values())).cell
        setting = (f"{cell.participation} %", DATASETS[cell.dataset], HETEROGENEITIES[cell.heterogeneity])
        best = max(rounded(line.ours.mean) for line in members.values()) if len(members) > 1 else math.inf
        best_of_paper = max(paper.mean for name in ALGORITHMS if (paper := reported(cell_name, name)))
        rows.append(
            (*setting, *(_pair(members[name], best, best_of_paper) if name in members else MISSING for name in shown))
        )
    head = ("participation", "data set", "labels", *(f"{ALGORITHMS[algorithm]} %" for algorithm in shown))
    return Table(head, tuple(rows), "Test accuracy, ours / the paper's")


def stand_in_table(runs: Runs, instead_of: str) -> Table:
    """Accuracies on a data set, and below each the paper's on the one it stands in for; the best of each row bold."""
    rows = []
    for name, entries in runs.items():
        cell = as_table_cell(name)
        if cell is None:
            continue
        place = (f"{cell.participation} %", HETEROGENEITIES[cell.heterogeneity])
        scores = {algorithm: score(entries.get(algorithm, [])) for algorithm in ALGORITHMS}
        best = max(rounded(of.mean) for of in scores.values())
        ours = (_bold(_with_n(of), rounded(of.mean) == best) for of in scores.values())
        rows.append((*place, f"{DATASETS[cell.dataset]}, ours", *ours))
        of_paper = [reported(f"{instead_of}/{cell.participation}/{cell.heterogeneity}", name) for name in ALGORITHMS]
        theirs = [of for of in of_paper if of is not None]
        if len(theirs) == len(ALGORITHMS):
            first = max(of.mean for of in theirs)
            cells = (_bold(with_spread(of.mean, of.std), of.mean == first) for of in theirs)
            rows.append((*place, f"{DATASETS[instead_of]}, the paper's", *cells))
    head = ("participation", "labels", "data set", *(f"{words} %" for words in ALGORITHMS.values()))
    return Table(
        head, tuple(rows), f"Test accuracy; {DATASETS[instead_of]} is another data set, so there is no verdict"
    )


def _with_n(of: Score) -> str:
    """A score with its number of seeds where that is small."""
    return f"{of.text()} (n = {len(of.values)})" if 0 < len(of.values) < ENOUGH_SEEDS else of.text()


def _pair(line: Line, best: float, best_of_paper: float) -> str:
    """Ours / the paper's, and what else must be known of ours."""
    ours = line.ours.text()
    if line.ours.mean is not None:
        spread = line.ours.std if len(line.ours.values) > 1 else None
        ours = _bold(with_spread(line.ours.mean, spread), rounded(line.ours.mean) == best)
    marks = [line.length] if line.length else []
    if line.ours.values and len(line.ours.values) < ENOUGH_SEEDS:
        marks.append(f"n = {len(line.ours.values)}")
    if line.ours.values and line.ours.lost:
        marks.append(f"{len(line.ours.lost)} diverged")
    noted = f" ({', '.join(marks)})" if marks else ""
    return f"{ours}{noted} / {_bold(f'{line.paper.mean:.2f}', line.paper.mean == best_of_paper)}"


def _bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def summary_table(compared: Sequence[Line], found: Mapping[str, Order]) -> Table:
    """How many accuracies are within what is allowed, and how many orders agree: by participation, and so on."""
    head = ("of", "compared", "within", "outside", "diverged", "same order", "same first")
    groups: list[tuple[str, Callable[[Line], bool], bool]] = [
        *((f"{rate} %", lambda line, rate=rate: line.cell.participation == rate, True) for rate in PARTICIPATIONS),
        *((words, lambda line, key=key: line.cell.dataset == key, True) for key, words in DATASETS.items()),
        *(
            (words, lambda line, key=key: line.cell.heterogeneity == key, True)
            for key, words in HETEROGENEITIES.items()
        ),
        *((words, lambda line, key=key: line.algorithm == key, False) for key, words in ALGORITHMS.items()),
        ("all", lambda _: True, True),
    ]
    rows = []
    for words, belongs, of_cells in groups:
        members = [line for line in compared if belongs(line) and line.verdict is not None]
        if members:
            names = {line.name for line in members}
            ordered = [order for name, order in found.items() if name in names and not order.length]
            rows.append((words, *_counts(members), *(_agreements(ordered) if of_cells else (MISSING, MISSING))))
    return Table(head, tuple(rows), "Table 1: how often ours is the paper's")


def cells_table(compared: Sequence[Line], found: Mapping[str, Order]) -> Table:
    """How many accuracies of each setting are within what is allowed, whose aren't, and whether the order agrees."""
    rows = []
    for name, group in groupby(compared, key=lambda line: line.name):
        members = [line for line in group if line.verdict is not None]
        if not members:
            continue
        cell, order = members[0].cell, found.get(name)
        within = [line for line in members if line.verdict is not None and line.verdict.within]
        outside = [ALGORITHMS[line.algorithm] for line in members if line not in within]
        counts = sorted({len(line.ours.values) for line in members})
        agreements = (MISSING, MISSING)
        if order is not None and not order.length:
            agreements = ("yes" if order.same else "no", "yes" if order.same_winner else "no")
        rows.append(
            (
                f"{cell.participation} %",
                DATASETS[cell.dataset],
                HETEROGENEITIES[cell.heterogeneity],
                f"{len(within)} of {len(members)}",
                ", ".join(outside) or MISSING,
                ", ".join(map(str, counts)),
                *agreements,
            )
        )
    head = ("participation", "data set", "labels", "within", "not within", "n", "same order", "same first")
    return Table(head, tuple(rows), "Table 1: what is within, by setting")


def _counts(members: Sequence[Line]) -> tuple[str, ...]:
    within = sum(line.verdict is not None and line.verdict.within for line in members)
    diverged = sum(bool(line.ours.lost) for line in members)
    return str(len(members)), str(within), str(len(members) - within - diverged), str(diverged)


def _agreements(ordered: Sequence[Order]) -> tuple[str, str]:
    if not ordered:
        return MISSING, MISSING
    same, first = (sum(agree) for agree in zip(*((order.same, order.same_winner) for order in ordered), strict=True))
    return f"{same} of {len(ordered)}", f"{first} of {len(ordered)}"
