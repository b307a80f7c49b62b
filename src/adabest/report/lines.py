"""Lines of figures: their looks, and one line for the runs of several seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from adabest.report.entries import Measured, mean_curve
from adabest.report.line_looks import looks_by_algorithm
from adabest.report.palette import DIVERGED_MARKER, LINE_COLOURS, LINE_DASHES, STOPPED_MARKER


def looks(entries: Mapping[str, Sequence[Measured]]) -> list[tuple[str, Any]]:
    """A colour and a style for the line of each entry: an algorithm's colour is the same in every figure."""
    numbers = looks_by_algorithm([runs[0].algorithm if runs else label for label, runs in entries.items()])
    return [
        (LINE_COLOURS[look % len(LINE_COLOURS)].light, LINE_DASHES[look % len(LINE_DASHES)].matplotlib)
        for look in numbers
    ]


def draw_runs(
    axes: Axes, runs: Sequence[Measured], metric: str, look: Mapping[str, Any], *, band: bool = True, scale: float = 1.0
) -> None:
    """A metric over rounds: the mean of runs that differ in their seed; × marks divergence, ● an early end.

    Args:
        axes: Where to draw.
        runs: The runs of one line.
        metric: What to draw.
        look: What the line looks like, in matplotlib's words; its colour among them.
        band: Whether to shade a standard deviation to each side.
        scale: What the metric is multiplied with: 100 makes percentages.
    """
    curve = mean_curve(runs, metric)
    axes.plot(curve.rounds, scale * curve.mean, **look)
    if band and curve.spread.any():
        low, high = (scale * (curve.mean + sign * curve.spread) for sign in (-1, 1))
        axes.fill_between(curve.rounds, low, high, color=look["color"], alpha=0.15, linewidth=0)
    for run in runs:
        rounds, values = run.points(metric)
        if run.reason is not None and len(rounds):
            marker = DIVERGED_MARKER if run.status == "diverged" else STOPPED_MARKER
            axes.plot(rounds[-1:], scale * values[-1:], color=look["color"], marker=marker, markersize=9)


def tidy(axes: Axes) -> None:
    """A faint grid, and no frame where there is no axis."""
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
