"""Figures: curves of a comparison, and the heat map of a partition."""

import functools
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from adabest.errors import InputError
from adabest.federation.partition import Partition
from adabest.report.entries import (
    Entries,
    Measured,
    as_lists,
    common_metric,
    finals,
    lacks_its_model,
    scores_of,
    told_metric,
)
from adabest.report.lines import draw_runs, looks, tidy
from adabest.report.palette import HEAT_MAP
from adabest.runs.files.atomic_files import write_atomically

_TOLD = ""  # the metric that each run is told by
_BEST = 5  # of a sweep's entries have a line of their own
_MOST_INSIDE = 6  # names that a legend beside the lines can have without hiding them


class NotebookFigure(Figure):
    """A figure that notebooks show as a picture, even where pyplot was never imported."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=100)
        return picture.getvalue()


def comparison_figure(entries: Entries, title: str = "") -> Figure:
    """What is told of models, and ‖θ‖, over rounds, one line per run; × marks divergence, ● an early end.

    Where there is no such model, the line is that of the aggregate, and its name says so.
    Runs that differ in their seed, given as a list, are one line, their mean, in a band of a standard deviation to each
    side.
    """
    listed = as_lists(entries)
    everyone = [run for runs in listed.values() for run in runs]
    which = " or ".join(scores_of(everyone))
    return _curves(listed, title, _TOLD, f"Test {common_metric(everyone).words} of the {which} model")


def sweep_figure(entries: Entries, title: str = "") -> Figure:
    """The first metric on validation clients, and ‖θ‖, over rounds. Only the first few entries have colours."""
    listed = as_lists(entries)
    everyone = [run for runs in listed.values() for run in runs]
    which = "validated" if any(map(lacks_its_model, everyone)) else " or ".join(scores_of(everyone))
    metric = common_metric(everyone)
    words = f"Validation {metric.words} of the {which} model"
    return _curves(listed, title, f"validation_{metric.name}", words, _BEST)


def _curves(
    entries: Mapping[str, Sequence[Measured]], title: str, metric: str, words: str, named: int | None = None
) -> Figure:
    """A metric and ‖θ‖ over rounds; only the first ``named`` entries have a colour and a name, if that is given."""
    figure = NotebookFigure(figsize=(11, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    score, norm = figure.subplots(1, 2)
    everyone = [run for runs in entries.values() for run in runs]
    told = common_metric(everyone)
    for (number, (label, runs)), (colour, style) in zip(enumerate(entries.items()), looks(entries), strict=True):
        look: dict[str, Any] = {"color": colour, "linestyle": style, "linewidth": 1.6, "label": label}
        if named is not None and number >= named:
            look = {"color": "0.85", "linewidth": 0.8, "zorder": 1}
        draw_runs(norm, runs, "cloud_norm", look, band=named is None)
        _draw_score(score, runs, metric, look, band=named is None)
    score.set(title=words, xlabel="round")
    if told.is_share:
        score.yaxis.set_major_formatter(PercentFormatter(xmax=1))
        score.set_ylim(bottom=_lower_limit(everyone, metric))
    norm.set(title="Norm of the cloud model, ‖θ‖", xlabel="round")
    for axes in (score, norm):
        tidy(axes)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # there is no round 2.5
    _add_legend(figure, score, "lower right" if told.higher_is_better else "upper right")
    if title:
        figure.suptitle(title, fontsize=10)
    _say_what_marks_mean(figure, [score, norm], entries.values())
    return figure


def _add_legend(figure: Figure, axes: Axes, place: Literal["lower right", "upper right"]) -> None:
    """A legend among the lines, or beside the panels if it would hide them."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) <= _MOST_INSIDE:
        axes.legend(frameon=False, loc=place)
    else:
        figure.set_size_inches(13.5, max(4.2, 0.24 * len(labels) + 1.0))
        figure.legend(handles, labels, frameon=False, loc="outside right upper", fontsize="small")


def _say_what_marks_mean(figure: Figure, panels: Iterable[Axes], groups: Collection[Sequence[Measured]]) -> None:
    """A line below the panels: what bands, × and ● stand for, as far as there are any."""
    words = []
    if any(axes.collections for axes in panels):
        counts = sorted({len(runs) for runs in groups if len(runs) > 1})
        seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        words.append(f"lines: mean over {seeds} seeds; bands: ± one standard deviation (n − 1)")
    ended = [run for runs in groups for run in runs if run.reason is not None]
    if any(run.status == "diverged" for run in ended):
        words.append("×: diverged")
    if any(run.status != "diverged" for run in ended):
        words.append("●: ended early")
    if words:
        figure.supxlabel("; ".join(words), fontsize=8, color="0.35")


def scenario_figure(scenarios: Mapping[str, Entries]) -> Figure:
    """The same algorithms in several settings: for each, who is present, the accuracy of the model told of, and ‖θ‖."""
    listed = {name: as_lists(entries) for name, entries in scenarios.items()}
    figure = NotebookFigure(figsize=(3.2 * len(listed), 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(3, len(listed), sharex="col", sharey="row", height_ratios=(1, 2.2, 2), squeeze=False)
    for column, (name, entries) in enumerate(listed.items()):
        present, accuracy, norm = panels[:, column]
        present.fill_between(*next(iter(entries.values()))[0].curve("present"), color="0.75", step="mid")
        present.set(title=name, ylim=(0, None))
        for (label, runs), (colour, style) in zip(entries.items(), looks(entries), strict=True):
            look = {"color": colour, "linestyle": style, "linewidth": 1.4, "label": label}
            _draw_score(accuracy, runs, _TOLD, look)
            draw_runs(norm, runs, "cloud_norm", look)
        norm.set(xlabel="round")
        for axes in panels[:, column]:
            tidy(axes)
    limits = [_lower_limit([run for runs in entries.values() for run in runs], _TOLD) for entries in listed.values()]
    panels[1, 0].set_ylim(bottom=min(limits, default=0.0))
    panels[1, 0].yaxis.set_major_formatter(PercentFormatter(xmax=1))
    for axes, words in zip(panels[:, 0], ("present", "test accuracy", "‖θ‖"), strict=True):
        axes.set_ylabel(words)
    panels[1, -1].legend(frameon=False, loc="lower right", fontsize="small")
    _say_what_marks_mean(figure, panels[1:].flat, [runs for entries in listed.values() for runs in entries.values()])
    return figure


def _draw_score(
    axes: Axes, runs: Sequence[Measured], metric: str, look: Mapping[str, Any], *, band: bool = True
) -> None:
    """A metric over rounds: the aggregate's in place of that of a model that isn't there."""
    if metric == _TOLD and all(map(lacks_its_model, runs)):
        metric = f"aggregate_{runs[0].metric.name}"
        look = {**look, "label": f"{look['label']} (aggregate: no {' or '.join(scores_of(runs))} model)"}
    elif metric == _TOLD:
        metric = told_metric(runs[0])  # runs that differ in their seed alone
    draw_runs(axes, runs, metric, look, band=band)


def _lower_limit(runs: Sequence[Measured], metric: str) -> float:
    """Where the accuracy axis starts: the climb of the first rounds would squeeze all differences that matter."""
    drawn = finals(runs, metric)
    if metric == _TOLD:
        drawn = [
            value
            for run in runs
            for value in finals([run], f"aggregate_{run.metric.name}" if lacks_its_model(run) else told_metric(run))
        ]
    return max(0.0, min(drawn, default=0.0) - 0.12)


_MOST_NAMES = 30  # names of classes that are legible beside a heat map
_LETTERS = 24  # of such a name


def _shortened(name: str) -> str:
    """A name from somebody's data as a figure shows it: not too long, and without formulas."""
    return (name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…").replace("$", r"\$")


def partition_figure(partition: Partition, title: str = "", names: Sequence[str] = ()) -> Figure:
    """How many samples of each class each client has, clients sorted by their largest class.

    Args:
        partition: The partition.
        title: What stands above.
        names: The names of the classes, which are shown while there is room for them.
    """
    figure = NotebookFigure(figsize=(9, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    largest_class = np.argsort(partition.label_counts.argmax(axis=1), kind="stable")
    image = axes.imshow(
        partition.label_counts[largest_class].T, aspect="auto", interpolation="nearest", origin="lower", cmap=HEAT_MAP
    )
    axes.set(xlabel="clients, sorted by their largest class", ylabel="class", title=title)
    if not partition.knows_labels:
        axes.set(xlabel="clients", ylabel="", yticks=[])
    elif 0 < len(names) <= _MOST_NAMES:
        axes.set_yticks(range(len(names)), [_shortened(name) for name in names])
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
