"""How the paper's figures are drawn: one look for each algorithm, panels, and one legend for all of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from adabest.paper.facts import ALGORITHMS, entry_algorithm, in_order, label
from adabest.report.entries import Measured
from adabest.report.lines import draw_runs, tidy
from adabest.report.palette import (
    BLACK,
    BLUE,
    DASH_DOT_DOTTED,
    DASH_DOTTED,
    DASHED,
    DOTTED,
    GREEN,
    HEAT_MAP,
    MARKERS,
    ORANGE,
    SOLID,
    VERMILION,
    Colour,
    Dashes,
)

# These colours differ in brightness, too, so that they can be told apart in black and white; styles and markers do the
# same where lines are close.
_LOOKS: dict[str, tuple[Colour, Dashes, str]] = {
    "fedavg": (BLACK, DOTTED, "s"),
    "feddyn": (ORANGE, DASHED, "^"),
    "scaffold": (BLUE, DASH_DOTTED, "D"),
    "adabest": (VERMILION, SOLID, "o"),
}
_OTHER = (GREEN, DASH_DOT_DOTTED, "v")
_GRADED = (SOLID, DASHED, DASH_DOTTED, DOTTED, DASH_DOT_DOTTED)
_MARKS = 7  # on a line
_CLIMB = 0.2  # part of the rounds in which everyone climbs

LABELS = {
    "scored_accuracy": "test accuracy (%)",
    "scored_loss": "test loss",
    "cloud_norm": "‖θ‖",
    "train_accuracy": "train accuracy (%)",
}


def look_of(entry: str) -> dict[str, Any]:
    """What an algorithm's line looks like in all figures."""
    colour, dashes, marker = _LOOKS.get(entry_algorithm(entry), _OTHER)
    return {**_line(colour.light, dashes, marker), "label": label(entry)}


def graded_looks(labels: Sequence[str]) -> list[dict[str, Any]]:
    """Looks for the values of a parameter: from dark to light, with styles and markers of their own."""
    shades = matplotlib.colormaps[HEAT_MAP](np.linspace(0.0, 0.85, len(labels)))
    return [
        {
            **_line(matplotlib.colors.to_hex(shade), _GRADED[number % len(_GRADED)], MARKERS[number % len(MARKERS)]),
            "label": text,
        }
        for number, (text, shade) in enumerate(zip(labels, shades, strict=True))
    ]


def _line(colour: str, dashes: Dashes, marker: str) -> dict[str, Any]:
    return {
        "color": colour,
        "linestyle": dashes.matplotlib,
        "linewidth": 1.5,
        "marker": marker,
        "markersize": 4.5,
        "markerfacecolor": "white",
        "markeredgewidth": 1.1,
    }


def with_marks(look: Mapping[str, Any], points: int, number: int, lines: int) -> dict[str, Any]:
    """A look with a few markers along the line, at other places than the markers of the other lines."""
    step = max(1, points // _MARKS)
    return {**look, "markevery": (number * step // max(1, lines), step)}


def panels(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Figure, np.ndarray]:
    """An empty figure."""
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    for axes in grid.flat:
        tidy(axes)
    return figure, grid


def draw_entries(
    axes: Axes,
    entries: Mapping[str, Sequence[Measured]],
    metric: str,
    looks: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """A line for each entry: the mean over seeds, in a band of a standard deviation to each side."""
    scale = _scale(metric)
    for number, entry in enumerate(in_order(entries)):
        look = look_of(entry) if looks is None else looks[entry]
        points = max((len(run.points(metric).rounds) for run in entries[entry]), default=0)
        draw_runs(axes, entries[entry], metric, with_marks(look, points, number, len(entries)), scale=scale)


def _scale(metric: str) -> float:
    """What a metric is multiplied with: accuracies are shown in per cent."""
    return 100.0 if metric.endswith("accuracy") else 1.0


def zoom(axes: Axes, runs: Iterable[Measured], metric: str) -> None:
    """Shows what comes after the first rounds, which would squeeze all differences that matter."""
    values: list[float] = []
    for run in runs:
        rounds, curve = run.curve(metric)
        values += [_scale(metric) * value for r, value in zip(rounds, curve, strict=True) if r >= _CLIMB * rounds[-1]]
    if values:
        margin = 0.06 * (max(values) - min(values)) + 0.1
        axes.set_ylim(min(values) - margin, max(values) + margin)


def logarithmic(axes: Axes) -> None:
    """A logarithmic axis with numbers that need no powers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def absent(axes: Axes) -> None:
    """A panel of which there are no runs."""
    axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center", color="0.5")


def finish(figure: Figure, title: str = "", *, columns: int = 4) -> None:
    """One legend for all panels, above them, under a title; and labels in line."""
    figure.align_ylabels()
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(text, handle)
    if handles:
        known = list(ALGORITHMS.values())
        handles = dict(sorted(handles.items(), key=lambda item: (*known, item[0]).index(item[0])))
        columns = min(columns, len(handles))
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside upper center",
            ncols=columns,
            frameon=False,
            handlelength=3.2,
            title=title or None,
            title_fontsize=10,
        )
