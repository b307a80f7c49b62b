"""Accuracy over the skew of each seed's partition, at 1 % with α = 0.03: points, lines, and what the paper's need.

The skew is the mean entropy of the clients' labels, in nats: 0 where each client has one class. Partitions of one α
differ in it from seed to seed.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adabest.data.catalog import OFFICIAL
from adabest.paper.drawing import LABELS, finish, look_of, panels
from adabest.paper.facts import ALGORITHMS, DATASETS, Reported, label, reported
from adabest.report.numbers import MISSING, with_spread
from adabest.report.table import Table
from adabest.runs.results_file import Result, Results

_CELL = "1/0.03"
_EXTRA = "float32"  # precision of runs that were made beside those of the table, on a CPU
_PAPERS_SEEDS = 5
# Student's t for intervals of 95 %, by degrees of freedom from 1.
_STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


class Point(NamedTuple):
    """A run: its data set, algorithm and seed, the entropy of its partition, and its accuracy in per cent."""

    dataset: str
    algorithm: str
    seed: int
    entropy: float
    accuracy: float
    is_extra: bool


class FittedLine(NamedTuple):
    """A line through points, by least squares.

    Attributes:
        size: How many points it goes through.
        centre: Their mean entropy and mean accuracy.
        spread: The sum of squares of their entropies around the mean.
        slope: Points of accuracy for one nat.
        residual: The standard deviation of accuracies around the line (n − 2); None of two points.
    """

    size: int
    centre: tuple[float, float]
    spread: float
    slope: float
    residual: float | None

    @property
    def slope_error(self) -> float | None:
        """The standard error of the slope; None of two points."""
        return None if self.residual is None else self.residual / math.sqrt(self.spread)

    def at(self, entropy: float) -> float:
        """The accuracy on the line."""
        return self.centre[1] + self.slope * (entropy - self.centre[0])

    def needed(self, accuracy: float) -> float | None:
        """The entropy at which the line has an accuracy; None if more entropy doesn't raise it."""
        return self.centre[0] + (accuracy - self.centre[1]) / self.slope if self.slope > 0 else None

    def interval(self, paper: Reported) -> tuple[float, float] | None:
        """The entropies that the paper's accuracy is compatible with, at 95 % (Fieller's); None if they have no end."""
        if self.residual is None or self.size - 2 > len(_STUDENT):
            return None
        t = _STUDENT[self.size - 3]
        distance = paper.mean - self.centre[1]
        square = self.slope**2 - (t * self.residual) ** 2 / self.spread
        if square <= 0 or self.slope <= 0:
            return None
        rest = distance**2 - t**2 * (self.residual**2 / self.size + paper.std**2 / _PAPERS_SEEDS)
        under = (self.slope * distance) ** 2 - square * rest
        root = math.sqrt(max(0.0, under))
        low, high = ((self.slope * distance + sign * root) / square for sign in (-1, 1))
        return self.centre[0] + low, self.centre[0] + high


def entropy_points(results: Sequence[Results]) -> list[Point]:
    """The finished runs at 1 % with α = 0.03 whose partition's entropy is known."""
    return [
        Point(
            run.cell.split("/")[0],
            run.entry,
            run.seed,
            float(run.partition["mean_label_entropy"]),
            100 * run.final["scored_accuracy"],
            run.settings.get("precision") == _EXTRA,
        )
        for of in results
        for run in of.runs
        if _counts(run)
    ]


def _counts(run: Result) -> bool:
    known = "mean_label_entropy" in run.partition and run.final.get("scored_accuracy") is not None
    return run.cell.endswith(f"/{_CELL}") and run.entry in ALGORITHMS and run.status == "finished" and known


def fit(points: Sequence[Point]) -> FittedLine | None:
    """A line through points; None if all have the same entropy, or there is only one."""
    x, y = (np.array([getattr(point, name) for point in points]) for name in ("entropy", "accuracy"))
    if len(set(x.tolist())) < 2:
        return None
    spread = float(((x - x.mean()) ** 2).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread
    around = y - y.mean() - slope * (x - x.mean())
    residual = math.sqrt(float((around**2).sum()) / (len(x) - 2)) if len(x) > 2 else None
    return FittedLine(len(x), (float(x.mean()), float(y.mean())), spread, slope, residual)


def one_a_seed(points: Sequence[Point]) -> list[Point]:
    """The points of one algorithm on one data set, with the mean accuracy of each seed: its runs share a partition."""
    by_seed: dict[int, list[Point]] = {}
    for point in points:
        by_seed.setdefault(point.seed, []).append(point)
    return [own[0]._replace(accuracy=fmean(point.accuracy for point in own)) for own in by_seed.values()]


def seeds_table(points: Sequence[Point]) -> Table:
    """The entropy of each seed's partition, and the accuracies there."""
    rows = []
    for dataset, seed, entropy in sorted({(p.dataset, p.seed, p.entropy) for p in points}):
        here = {(p.algorithm, p.is_extra): p.accuracy for p in points if (p.dataset, p.seed) == (dataset, seed)}
        cells = []
        for algorithm in ALGORITHMS:
            found = {extra: here[algorithm, extra] for extra in (False, True) if (algorithm, extra) in here}
            cells.append(", ".join(f"{value:.2f}{'*' * extra}" for extra, value in found.items()) or MISSING)
        rows.append((DATASETS[dataset], str(seed), f"{entropy:.2f}", *cells))
    head = ("data set", "seed", "entropy, nats", *(f"{words} %" for words in ALGORITHMS.values()))
    return Table(head, tuple(rows), "Accuracy at 1 % with α = 0.03, by the entropy of clients' labels")


def lines_table(points: Sequence[Point]) -> Table:
    """A line for each algorithm, and the entropy that the paper's accuracy would need by it."""
    rows = []
    for dataset in (name for name in DATASETS if any(point.dataset == name for point in points)):
        for algorithm, words in ALGORITHMS.items():
            own = [point for point in points if (point.dataset, point.algorithm) == (dataset, algorithm)]
            plain = [point for point in own if not point.is_extra]
            rows += _line_rows(dataset, algorithm, words, plain)
            if len(own) > len(plain):
                rows += _line_rows(dataset, algorithm, f"{words}, * included", one_a_seed(own))
    head = ("data set", "algorithm", "n", "points a nat", "paper %", "entropy needed", "95 % interval", "seen")
    return Table(head, tuple(rows), "What entropy the paper's accuracy would need")


def _line_rows(dataset: str, algorithm: str, words: str, points: Sequence[Point]) -> list[tuple[str, ...]]:
    line, paper = fit(points) if points else None, reported(f"{dataset}/{_CELL}", algorithm)
    if line is None or paper is None:
        return []
    needed, interval = line.needed(paper.mean), line.interval(paper)
    entropies, largest = [point.entropy for point in points], math.log(OFFICIAL[dataset].classes)
    return [
        (
            DATASETS[dataset],
            words,
            str(line.size),
            with_spread(line.slope, line.slope_error, 1).replace("-", "−"),
            with_spread(paper.mean, paper.std),
            MISSING if needed is None or needed > largest else f"{needed:.2f}",
            "open" if interval is None else _as_words(interval, largest),
            f"{min(entropies):.2f} to {max(entropies):.2f}",
        )
    ]


def _as_words(interval: tuple[float, float], largest: float) -> str:
    """An interval of entropies; without an end where that is more than is possible."""
    low, high = interval
    return f"{low:.2f} or more" if high > largest else f"{low:.2f} to {high:.2f}"


def entropy_notes() -> list[str]:
    """How to read the tables and the figure."""
    return [
        "Entropy: the mean over clients of the entropy of their labels, in nats, of the seed's partition. * is a run "
        "in float32 on a CPU; all others are in bfloat16 on a GPU.",
        "Lines are by least squares, ± the standard error of the slope. n counts seeds: of one that was run on both "
        "machines, the mean is a point.",
        "The interval is Fieller's, with Student's t of n − 2 degrees of freedom and the paper's σ of a mean of five. "
        "It is open where the slope may be zero, and has no upper end (or more) where that is above the largest "
        "entropy that is possible, the logarithm of the number of classes.",
        "Few seeds make a weak line: with three, t is 12.7. An entropy beyond those seen is an extrapolation; a dash "
        "stands where none that is possible would do.",
    ]


def entropy_figure(points: Sequence[Point]) -> Figure:
    """Accuracy over entropy, a panel for each data set, with lines and the paper's figures as ticks on the right."""
    shown = [name for name in DATASETS if any(point.dataset == name for point in points)]
    figure, grid = panels(1, max(1, len(shown)), (1.2 + 3.6 * max(1, len(shown)), 4.0))
    for axes, dataset in zip(grid[0], shown, strict=True):
        for algorithm in ALGORITHMS:
            _draw(axes, [point for point in points if (point.dataset, point.algorithm) == (dataset, algorithm)])
        axes.set_title(f"{DATASETS[dataset]}, 1 %, α = 0.03", fontsize=10)
        axes.set_xlabel("mean entropy of clients' labels (nats)")
    grid[0, 0].set_ylabel(LABELS["scored_accuracy"])
    hollow: dict[str, Any] = {"marker": "o", "markersize": 7, "markerfacecolor": "white", "linestyle": "none"}
    grid[0, -1].plot([], [], color="0.3", label="float32, CPU", **hollow)
    grid[0, -1].plot([], [], color="0.3", marker="<", linestyle="none", label="paper")
    finish(figure, columns=3)
    return figure


def _draw(axes: Axes, points: Sequence[Point]) -> None:
    """The points of an algorithm, its line, and the paper's figure at the right edge."""
    if not points:
        return
    look, plain = look_of(points[0].algorithm), [point for point in points if not point.is_extra]
    extra = [point for point in points if point.is_extra]
    shared: dict[str, Any] = {"color": look["color"], "marker": look["marker"], "linestyle": "none"}
    axes.plot([p.entropy for p in plain], [p.accuracy for p in plain], **shared, label=label(points[0].algorithm))
    axes.plot([p.entropy for p in extra], [p.accuracy for p in extra], **shared, markersize=8, markerfacecolor="white")
    line = fit(plain) if plain else None
    if line is not None:
        ends = [min(p.entropy for p in plain), max(p.entropy for p in plain)]
        axes.plot(ends, [line.at(x) for x in ends], color=look["color"], linestyle=look["linestyle"], linewidth=1.0)
    paper = reported(f"{points[0].dataset}/{_CELL}", points[0].algorithm)
    if paper is not None:
        axes.plot(1.0, paper.mean, color=look["color"], marker="<", transform=axes.get_yaxis_transform(), clip_on=False)
