"""The paper's figures, made of results."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from adabest.paper.drawing import (
    LABELS,
    absent,
    draw_entries,
    finish,
    graded_looks,
    logarithmic,
    look_of,
    panels,
    with_marks,
    zoom,
)
from adabest.paper.facts import ALGORITHMS, entry_algorithm, entry_options, in_order, is_number
from adabest.paper.result_tables import Runs, entries_in_order
from adabest.paper.scores import score, smooth
from adabest.report.palette import DIVERGED_MARKER
from adabest.runs.results_file import Result

OVERFITTING = ("scaffold", "feddyn", "adabest")
_NORM = "cloud_norm"
_ACCURACY = "scored_accuracy"


def stacked_figure(runs: Runs, metrics: Sequence[str], titles: Mapping[str, str], *, zoomed: bool = False) -> Figure:
    """Metrics over rounds, one below the other, one column for each setting."""
    figure, grid = panels(len(metrics), len(runs), (1.2 + 5.4 * len(runs), 0.8 + 2.1 * len(metrics)), sharex="col")
    for column, (cell, entries) in enumerate(runs.items()):
        for axes, metric in zip(grid[:, column], metrics, strict=True):
            draw_entries(axes, entries, metric)
            if column == 0:
                axes.set_ylabel(LABELS[metric])
            if metric == "scored_loss":
                logarithmic(axes)
            if metric == _ACCURACY and zoomed:
                zoom(axes, all_runs(entries), metric)
        grid[0, column].set_title(titles[cell], fontsize=10)
        grid[-1, column].set_xlabel("round")
    finish(figure)
    return figure


def overfitting_figure(entries: Mapping[str, Sequence[Result]], title: str) -> Figure:
    """Training accuracy (solid) and test accuracy (dash-dotted) of one seed."""
    figure, grid = panels(1, 1, (6.6, 4.2))
    axes = grid[0, 0]
    for number, (entry, group) in enumerate(entries.items()):
        look = look_of(entry)
        rounds, values = group[0].curve("train_accuracy")
        trained = with_marks({**look, "linestyle": "-"}, len(rounds), number, len(entries))
        axes.plot(rounds, np.multiply(100, smooth(values)), **trained)
        rounds, values = group[0].curve(_ACCURACY)
        tested = with_marks({**look, "linestyle": "-.", "label": None}, len(rounds), number, len(entries))
        axes.plot(rounds, np.multiply(100, values), **tested)
    axes.add_line(Line2D([], [], color="0.3", linestyle="-", label="train"))
    axes.add_line(Line2D([], [], color="0.3", linestyle="-.", label="test"))
    axes.set(xlabel="round", ylabel="accuracy (%)")
    finish(figure, title, columns=5)
    return figure


def scale_figure(runs: Runs, title: str) -> Figure:
    """Test accuracy: balanced above unbalanced, 1000 clients left of 100."""
    figure, grid = panels(2, 2, (7.2, 5.4), sharex=True, sharey="col")
    for row, balance in enumerate(("balanced", "unbalanced")):
        for column, clients in enumerate(("1000", "100")):
            axes, entries = grid[row, column], runs.get(f"{balance}/{clients}")
            axes.set_title(f"{balance}, {clients} clients", fontsize=10)
            if entries:
                draw_entries(axes, entries, _ACCURACY)
            else:
                absent(axes)
    for axes in grid[:, 0]:
        axes.set_ylabel(LABELS[_ACCURACY])
    for axes in grid[-1]:
        axes.set_xlabel("round")
    finish(figure, title)
    return figure


def mu_figure(entries: Mapping[str, Sequence[Result]], title: str) -> Figure:
    """Accuracy above ‖θ‖, AdaBest left of FedDyn, a line for each μ; the scales are each panel's own."""
    values = sorted({entry_options(entry).get("mu", "") for entry in entries}, key=lambda value: float(value or 0))
    looks = dict(zip(values, graded_looks([f"μ = {value}" for value in values]), strict=True))
    figure, grid = panels(2, 2, (7.2, 5.4), sharex="col")
    for column, algorithm in enumerate(("adabest", "feddyn")):
        own = {entry: entries[entry] for entry in in_order(entries) if entry_algorithm(entry) == algorithm}
        grid[0, column].set_title(ALGORITHMS[algorithm], fontsize=10)
        grid[-1, column].set_xlabel("round")
        for axes, metric in zip(grid[:, column], (_ACCURACY, _NORM), strict=True):
            draw_entries(axes, own, metric, {entry: looks[entry_options(entry).get("mu", "")] for entry in own})
            if not own:
                absent(axes)
            if column == 0:
                axes.set_ylabel(LABELS[metric])
            zoom(axes, all_runs(own), metric)
    finish(figure, title)
    return figure


def beta_figure(runs: Runs, title: str) -> Figure:
    """Final test accuracy against participation, a line for each β; × below stands for what diverged."""
    entries = entries_in_order(runs)
    words = {entry: f"β = {entry_options(entry).get('beta', entry)}" for entry in entries}
    graded = [entry for entry in entries if is_number(entry_options(entry).get("beta", ""))]
    looks = {entry: {**look_of(entry), "label": words[entry]} for entry in entries}
    looks |= dict(zip(graded, graded_looks([words[entry] for entry in graded]), strict=True))
    figure, grid = panels(1, 1, (6.6, 4.4))
    axes = grid[0, 0]
    lost: list[tuple[float, Any]] = []
    for entry, look in looks.items():
        scores = {float(cell): score(of[entry]) for cell, of in runs.items() if entry in of}
        kept = {rate: (of.mean, of.std) for rate, of in scores.items() if of.mean is not None}
        axes.plot(list(kept), [mean for mean, _ in kept.values()], **look)
        if any(std for _, std in kept.values()):
            low, high = ([mean + sign * std for mean, std in kept.values()] for sign in (-1, 1))
            axes.fill_between(list(kept), low, high, color=look["color"], alpha=0.15, linewidth=0)
        lost += [(rate, look["color"]) for rate, of in scores.items() if of.lost]
    for rate, colour in lost:
        axes.plot(rate, 0.02, color=colour, marker=DIVERGED_MARKER, markersize=7, transform=axes.get_xaxis_transform())
    rates = [float(cell) for cell in runs]
    axes.set(xscale="log", xlabel="share of clients in a round", ylabel=LABELS[_ACCURACY], xticks=rates)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, handlelength=3.2)
    axes.set_title(title, fontsize=10)
    return figure


def population_figure(runs: Runs, title: str) -> Figure:
    """For each population: who is present, test accuracy, and ‖θ‖."""
    size = (1.2 + 2.6 * len(runs), 6.4)
    figure, grid = panels(3, len(runs), size, sharex="col", sharey="row", height_ratios=(1, 2.2, 2))
    for column, (cell, entries) in enumerate(runs.items()):
        grid[0, column].fill_between(*next(iter(entries.values()))[0].curve("present"), color="0.75", step="mid")
        grid[0, column].set(title=cell, ylim=(0, None))
        for axes, metric in zip(grid[1:, column], (_ACCURACY, _NORM), strict=True):
            draw_entries(axes, entries, metric)
        grid[-1, column].set_xlabel("round")
    for axes, words in zip(grid[:, 0], ("present", LABELS[_ACCURACY], LABELS[_NORM]), strict=True):
        axes.set_ylabel(words)
    zoom(grid[1, 0], [run for entries in runs.values() for run in all_runs(entries)], _ACCURACY)
    finish(figure, title)
    return figure


def all_runs(entries: Mapping[str, Sequence[Result]]) -> list[Result]:
    """The runs of a setting."""
    return [run for group in entries.values() for run in group]


def only(entries: Mapping[str, Sequence[Result]], algorithms: Iterable[str]) -> dict[str, list[Result]]:
    """The entries of some algorithms, in that order, of the first seed that all of them have."""
    found = {
        entry: entries[entry] for name in algorithms for entry in in_order(entries) if entry_algorithm(entry) == name
    }
    seeds = [{run.seed for run in group} for group in found.values()]
    shared = set.intersection(*seeds) if seeds else set()
    if not shared:
        return {entry: list(group) for entry, group in found.items()}
    return {entry: [run for run in group if run.seed == min(shared)] for entry, group in found.items()}
