"""Figures: curves of a comparison, and the heat map of a partition."""

import functools
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from adabest.errors import InputError
from adabest.federation import Partition
from adabest.runs import Run
from adabest.runs.folder import write_atomically

# Colours that colour-blind readers can tell apart (Okabe and Ito), and line styles that survive black-and-white print.
_COLOURS = ("#000000", "#999999", "#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7")
_STYLES = ("--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), "-")


def comparison_figure(runs: Mapping[str, Run], title: str = "") -> Figure:
    """Accuracy of the scored model and ‖θ‖ over rounds, one line per run; × marks divergence, ● an early end."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    accuracy, norm = figure.subplots(1, 2)
    for (label, run), (colour, style) in zip(runs.items(), _lines(), strict=False):
        for axes, name in ((accuracy, "scored_accuracy"), (norm, "cloud_norm")):
            rounds, values = run.curve(name)
            axes.plot(rounds, values, color=colour, linestyle=style, linewidth=1.6, label=label)
            if run.reason is not None and rounds:
                marker = "x" if run.status == "diverged" else "o"
                axes.plot(rounds[-1:], values[-1:], color=colour, marker=marker, markersize=9)
    accuracy.set(title="Test accuracy of the scored model", xlabel="round")
    accuracy.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    accuracy.set_ylim(bottom=_lower_limit(runs))
    norm.set(title="Norm of the cloud model, ‖θ‖", xlabel="round")
    for axes in (accuracy, norm):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    accuracy.legend(frameon=False, loc="lower right")
    if title:
        figure.suptitle(title, fontsize=10)
    return figure


def scenario_figure(scenarios: Mapping[str, Mapping[str, Run]]) -> Figure:
    """The same algorithms in several settings: for each, who is present, the scored model's accuracy, and ‖θ‖."""
    figure = Figure(figsize=(3.2 * len(scenarios), 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(3, len(scenarios), sharex="col", sharey="row", height_ratios=(1, 2.2, 2), squeeze=False)
    for column, (name, runs) in enumerate(scenarios.items()):
        present, accuracy, norm = panels[:, column]
        present.fill_between(*next(iter(runs.values())).curve("present"), color="0.75", step="mid")
        present.set(title=name, ylim=(0, None))
        for (label, run), (colour, style) in zip(runs.items(), _lines(), strict=False):
            for axes, metric in ((accuracy, "scored_accuracy"), (norm, "cloud_norm")):
                axes.plot(*run.curve(metric), color=colour, linestyle=style, linewidth=1.4, label=label)
        norm.set(xlabel="round")
        for axes in panels[:, column]:
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
    limits = [_lower_limit(runs) for runs in scenarios.values()]
    panels[1, 0].set_ylim(bottom=min(limits, default=0.0))
    panels[1, 0].yaxis.set_major_formatter(PercentFormatter(xmax=1))
    for axes, words in zip(panels[:, 0], ("present", "test accuracy", "‖θ‖"), strict=True):
        axes.set_ylabel(words)
    panels[1, -1].legend(frameon=False, loc="lower right", fontsize="small")
    return figure


def _lines() -> Iterator[tuple[str, Any]]:
    """A colour and a style for each line, for ever."""
    return zip(itertools.cycle(_COLOURS), itertools.cycle(_STYLES), strict=False)


def _lower_limit(runs: Mapping[str, Run]) -> float:
    """Where the accuracy axis starts: the climb of the first rounds would squeeze all differences that matter."""
    finals = [run.final["scored_accuracy"] for run in runs.values() if run.final]
    return max(0.0, min(finals, default=0.0) - 0.12)


def partition_figure(partition: Partition, title: str = "") -> Figure:
    """How many samples of each class each client has, clients sorted by their largest class."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    largest_class = np.argsort(partition.label_counts.argmax(axis=1), kind="stable")
    image = axes.imshow(
        partition.label_counts[largest_class].T, aspect="auto", interpolation="nearest", origin="lower", cmap="viridis"
    )
    axes.set(xlabel="clients, sorted by their largest class", ylabel="class", title=title)
    figure.colorbar(image, label="samples")
    return figure


def save_figure(figure: Figure, stem: str | Path) -> list[Path]:
    """Writes a figure as PNG and SVG beside each other, and says where.

    Raises:
        InputError: If it can't be written there.
    """
    place = Path(stem)
    if not place.name:
        raise InputError(f"a figure needs a name, not {str(stem)!r}; its endings, .png and .svg, come by themselves")
    paths = [place.with_name(place.name + ending) for ending in (".png", ".svg")]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        for path in paths:
            write_atomically(path, functools.partial(figure.savefig, format=path.suffix[1:], dpi=150))
    except OSError as error:
        raise InputError(f"can't write the figure {place}: {error.strerror or error}") from error
    return paths
