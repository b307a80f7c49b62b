"""Table 1 as pictures: each accuracy beside the paper's, and the curves that lead there."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from adabest.paper.agreement import Line
from adabest.paper.drawing import LABELS, absent, draw_entries, finish, look_of, panels, zoom
from adabest.paper.facts import ALGORITHMS, DATASETS, HETEROGENEITIES, label
from adabest.paper.result_tables import Runs
from adabest.runs.results_file import Result

_ACCURACY = "scored_accuracy"
_OURS, _PAPERS = 3.8, 7.6  # sizes of markers: one fits into the other


def curves_figure(runs: Runs) -> Figure:
    """Test accuracy over rounds in every setting of Table 1 that was run."""
    kinds = [kind for kind in HETEROGENEITIES if any(cell.endswith(f"/{kind}") for cell in runs)]
    rows = list(dict.fromkeys(cell.rsplit("/", 1)[0] for cell in runs))
    figure, grid = panels(
        len(rows), len(kinds), (0.8 + 2.7 * len(kinds), 0.8 + 1.9 * len(rows)), sharey="row", sharex="row"
    )
    for row, name in enumerate(rows):
        dataset, participation = name.split("/")
        grid[row, 0].set_ylabel(f"{DATASETS.get(dataset, dataset)}, {participation} %")
        shown: list[Result] = []
        for axes, kind in zip(grid[row], kinds, strict=True):
            entries = runs.get(f"{name}/{kind}")
            if entries:
                draw_entries(axes, entries, _ACCURACY)
                shown += [run for group in entries.values() for run in group]
            else:
                absent(axes)
        zoom(grid[row, 0], shown, _ACCURACY)
    for axes, kind in zip(grid[0], kinds, strict=True):
        axes.set_title(HETEROGENEITIES[kind], fontsize=10)
    for axes in grid[-1]:
        axes.set_xlabel("round")
    finish(figure, "Test accuracy (%)")
    return figure


def agreement_figure(compared: Sequence[Line]) -> Figure:
    """Each accuracy of Table 1, ours (filled) inside the paper's (hollow), with a standard deviation to each side."""
    shown = [name for name in DATASETS if any(line.cell.dataset == name for line in compared)]
    settings = list(dict.fromkeys((line.cell.participation, line.cell.heterogeneity) for line in compared))
    figure, grid = panels(1, len(shown), (1.4 + 3.4 * len(shown), 1.4 + 0.62 * len(settings)), sharey=True)
    for axes, dataset in zip(grid[0], shown, strict=True):
        for line in (line for line in compared if line.cell.dataset == dataset and line.ours.values):
            place = settings.index((line.cell.participation, line.cell.heterogeneity))
            height = place + 0.18 * (list(ALGORITHMS).index(line.algorithm) - 1.5)
            _draw_pair(axes, line, height)
        axes.set_title(DATASETS[dataset], fontsize=10)
        axes.set_xlabel(LABELS[_ACCURACY])
        axes.grid(axis="y", visible=False)
    grid[0, 0].set_yticks(range(len(settings)), [f"{rate} %, {HETEROGENEITIES[kind]}" for rate, kind in settings])
    grid[0, 0].set_ylim(len(settings) - 0.5, -0.5)
    grid[0, -1].plot([], [], color="0.3", marker="o", markersize=_OURS, linestyle="none", label="ours")
    hollow: dict[str, Any] = {"marker": "o", "markersize": _PAPERS, "markerfacecolor": "white", "linestyle": "none"}
    grid[0, -1].plot([], [], color="0.3", label="paper", **hollow)
    finish(figure, columns=6)
    return figure


def _draw_pair(axes: Axes, line: Line, height: float) -> None:
    look = look_of(line.algorithm)
    shared: dict[str, Any] = {"color": look["color"], "marker": look["marker"], "elinewidth": 0.9, "capsize": 2.5}
    theirs = {**shared, "markersize": _PAPERS, "markerfacecolor": "white", "zorder": 2}
    axes.errorbar(line.paper.mean, height, xerr=line.paper.std, **theirs)
    ours = {**shared, "markersize": _OURS, "linestyle": "none", "zorder": 3, "label": label(line.algorithm)}
    axes.errorbar(fmean(line.ours.values), height, xerr=line.ours.std or None, **ours)
