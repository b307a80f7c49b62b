"""The leaderboard: all algorithms beside each other, each tuned alike, and what they send for what they reach."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from adabest.algorithms.records import RECORDS, Family
from adabest.paper.drawing import finish, panels
from adabest.paper.facts import DATASETS, entry_algorithm
from adabest.paper.result_tables import Runs
from adabest.paper.scores import ENOUGH_SEEDS, Score, score
from adabest.report.numbers import MISSING, three_digits
from adabest.report.palette import BLACK, BLUE, GREEN, INDIGO, ORANGE, PURPLE, RASPBERRY, VERMILION, YELLOW
from adabest.report.table import Table, rounds_to
from adabest.runs.results_file import Result

_BASELINE = "fedavg"
_CLOUD, _SCORED = "cloud_accuracy", "scored_accuracy"
_TARGETS = {"mnist": 0.95, "cifar10": 0.75}  # accuracies of the cloud model whose first round is looked for
FAMILY_COLOURS = (BLACK, BLUE, ORANGE, VERMILION, GREEN, INDIGO, PURPLE, RASPBERRY, YELLOW)


class Place(NamedTuple):
    """An algorithm on the leaderboard of a setting.

    Attributes:
        entry: The algorithm.
        runs: Its runs.
        cloud: The accuracy of the cloud model.
        scored: That of the scored one.
    """

    entry: str
    runs: Sequence[Result]
    cloud: Score
    scored: Score


def places(entries: Mapping[str, Sequence[Result]]) -> list[Place]:
    """The algorithms of a setting, by the accuracy of their cloud models; those without one come last."""
    found = [Place(entry, runs, score(runs, _CLOUD), score(runs, _SCORED)) for entry, runs in entries.items()]
    return sorted(found, key=lambda place: (place.cloud.mean is None, -(place.cloud.mean or 0.0)))


def leaderboard_table(cell: str, entries: Mapping[str, Sequence[Result]]) -> Table:
    """A row for each algorithm, the best first."""
    target = _TARGETS.get(cell)
    reached = "rounds" if target is None else f"rounds to {100 * target:g} %"
    head = ("algorithm", "family", "cloud %", "scored %", "n", reached, "sent", "largest fall", "chosen")
    baseline = _bytes_per_round(entries.get(_BASELINE, ()))
    rows = []
    for place in places(entries):
        sent = _bytes_per_round(place.runs)
        rows.append(
            (
                place.entry,
                _family(place.entry),
                place.cloud.text(),
                place.scored.text(),
                place.cloud.seeds,
                MISSING if target is None else _rounds(place.runs, target),
                MISSING if sent is None or baseline is None else f"{sent / baseline:.2f}",
                _largest_fall(place.runs),
                ", ".join(f"{name} = {value}" for name, value in place.runs[0].chosen.items()) or MISSING,
            )
        )
    return Table(head, tuple(rows), f"{DATASETS.get(cell, cell)}: by the accuracy of the cloud model")


def leaderboard_notes(runs: Runs) -> list[str]:
    """How to read the leaderboard."""
    said = [
        "Each algorithm had four trials of a quarter of the rounds, with seed 0, judged on validation clients by its "
        "cloud model; the grids are in the specification, and what was tried is below.",
        "The cloud model is what would be shipped. The scored one is the mean of clients' latest models, which doesn't "
        "see what a server does with their mean; it isn't there where replies don't tell the clients' models.",
        "Sent: bytes a round, both ways, as a multiple of FedAvg's. Largest fall: how far the cloud model's accuracy "
        "ever was below its best until then, in points, mean over seeds.",
        "Personalised algorithms (FedBN, FedPer, Ditto) aren't on it: they are for clients' own data, which this "
        "doesn't test.",
    ]
    few = [place for entries in runs.values() for place in places(entries) if len(place.cloud.values) < ENOUGH_SEEDS]
    if few:
        said.append(f"A standard deviation needs {ENOUGH_SEEDS} seeds to be worth its name; where n is less, it isn't.")
    return said


def leaderboard_figure(runs: Runs) -> Figure:
    """The accuracy of every cloud model (filled) and scored model (hollow), coloured by family."""
    most = max(len(entries) for entries in runs.values())
    figure, grid = panels(1, len(runs), (2.2 + 4.6 * len(runs), 1.4 + 0.24 * most))
    colours = dict(zip((family.words for family in Family), FAMILY_COLOURS, strict=True))
    for axes, (cell, entries) in zip(grid[0], runs.items(), strict=True):
        found = places(entries)
        for height, place in enumerate(found):
            colour = colours[_family(place.entry)].light if _family(place.entry) in colours else "0.5"
            if place.scored.mean is not None:
                axes.plot(place.scored.mean, height, "o", color=colour, markerfacecolor="white", markersize=6)
            if place.cloud.mean is not None:
                spread = place.cloud.std or None
                axes.errorbar(
                    place.cloud.mean, height, xerr=spread, fmt="o", color=colour, markersize=4, capsize=2.5, zorder=3
                )
        axes.set_yticks(range(len(found)), [place.entry for place in found])
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.set_title(DATASETS.get(cell, cell), fontsize=10)
        axes.set_xlabel("test accuracy (%)")
        means = [place.cloud.mean for place in found if place.cloud.mean is not None]
        if means:  # what is far behind is left of the axis: the table has it
            low = float(np.quantile(means, 0.15))
            axes.set_xlim(left=low - 0.4 * (max(means) - low) - 0.1)
    used = dict.fromkeys(_family(entry) for entries in runs.values() for entry in entries)
    for family in used:
        grid[0, -1].plot([], [], "o", color=colours[family].light if family in colours else "0.5", label=family)
    grid[0, -1].plot([], [], "o", color="0.3", markerfacecolor="white", markersize=6, label="scored model")
    finish(figure, columns=3)
    return figure


def _family(entry: str) -> str:
    record = RECORDS.get(entry_algorithm(entry))
    return MISSING if record is None else record.family.words


def _rounds(runs: Sequence[Result], target: float) -> str:
    reached = [rounds_to(run, target) for run in runs]
    there = [value for value in reached if value is not None]
    if not there:
        return "never"
    return f"{fmean(there):.0f}" + (f" ({len(there)} of {len(runs)})" if len(there) < len(runs) else "")


def _bytes_per_round(runs: Sequence[Result]) -> float | None:
    each = [
        (run.final["bytes_down"] + run.final["bytes_up"]) / run.final["round"]
        for run in runs
        if run.final.get("bytes_down") is not None and run.final.get("bytes_up") is not None
    ]
    return fmean(each) if each else None


def _largest_fall(runs: Sequence[Result]) -> str:
    falls = []
    for run in runs:
        _, values = run.points(_CLOUD)
        if len(values):
            falls.append(100 * float((np.maximum.accumulate(values) - values).max()))
    return three_digits(fmean(falls)) if falls else MISSING
