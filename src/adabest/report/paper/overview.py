"""Table 1 as pictures: each accuracy beside the paper's, and the curves that lead there."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from adabest.report.paper.comparison import Line
from adabest.report.paper.drawing import LABELS, absent, draw_entries, legend, look_of, panels
from adabest.report.paper.facts import ALGORITHMS, DATASETS, HETEROGENEITIES, label
from adabest.report.paper.tables import Runs

_ACCURACY = "scored_accuracy"


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
        for axes, kind in zip(grid[row], kinds, strict=True):
            entries = runs.get(f"{name}/{kind}")
            if entries:
                draw_entries(axes, entries, _ACCURACY)
            else:
                absent(axes)
    for axes, kind in zip(grid[0], kinds, strict=True):
        axes.set_title(HETEROGENEITIES[kind], fontsize=10)
    for axes in grid[-1]:
        axes.set_xlabel("round")
    legend(figure)
    return figure


def agreement_figure(compared: Sequence[Line]) -> Figure:
    """Each accuracy of Table 1, ours (filled, with a standard deviation to each side) and the paper's (hollow)."""
    shown = [name for name in DATASETS if any(line.cell.dataset == name for line in compared)]
    settings = list(dict.fromkeys((line.cell.participation, line.cell.heterogeneity) for line in compared))
    figure, grid = panels(1, len(shown), (1.4 + 3.4 * len(shown), 1.2 + 0.62 * len(settings)), sharey=True)
    for axes, dataset in zip(grid[0], shown, strict=True):
        for line in (line for line in compared if line.cell.dataset == dataset and line.ours.mean is not None):
            look = look_of(line.algorithm)
            place = settings.index((line.cell.participation, line.cell.heterogeneity))
            height = place + 0.17 * (list(ALGORITHMS).index(line.algorithm) - 1.5)
            own: dict[str, Any] = {
                "color": look["color"],
                "marker": look["marker"],
                "linestyle": "none",
                "markersize": 5.5,
            }
            theirs = {**own, "markerfacecolor": "white"}
            axes.plot([line.ours.mean, line.paper.mean], [height] * 2, color=look["color"], linewidth=0.8, zorder=1)
            axes.errorbar(line.paper.mean, height, xerr=line.paper.std, elinewidth=0.8, capsize=2, **theirs)
            axes.errorbar(
                line.ours.mean,
                height,
                xerr=line.ours.std or None,
                elinewidth=0.8,
                capsize=2,
                label=label(line.algorithm),
                **own,
            )
        axes.set(title=DATASETS[dataset], xlabel=LABELS[_ACCURACY])
        axes.grid(axis="y", visible=False)
    grid[0, 0].set_yticks(range(len(settings)), [f"{rate} %, {HETEROGENEITIES[kind]}" for rate, kind in settings])
    grid[0, 0].invert_yaxis()
    legend(figure)
    return figure
