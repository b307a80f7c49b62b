"""Tables: a comparison in numbers, a list of runs, a partition's statistics."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import PurePath
from statistics import fmean
from typing import Any

from rich.table import Table as RichTable
from rich.text import Text

from adabest.algorithms.listing import AlgorithmListing
from adabest.data.listing import Listing
from adabest.report.entries import (
    Entries,
    Measured,
    as_lists,
    by_validation,
    common_metric,
    finals,
    lacks_its_model,
    scores_of,
    told_metric,
)
from adabest.report.frame import as_frame
from adabest.report.numbers import MISSING, as_text, mean_and_spread, three_digits
from adabest.runs.files.metrics_file import ReplyNotes
from adabest.runs.settings.placeholders import OBJECT
from adabest.runs.stored_run import Run
from adabest.tasks.objectives.metric import Metric

_BOLD = "**"
_SIGNS = re.compile(r"\||(?<!\*)\*(?!\*)")  # what begins a cell, and what begins emphasis, as in `*/1/*`
_MOST_REJECTIONS = 20  # rows of the table of replies left out
_FIGURE = re.compile(r"[\d.,]+( ± [\d.,]+)?")


@dataclass(frozen=True, repr=False)
class Table:
    """Rows of text under a head, in whatever form is asked for. What stands between two pairs of stars is bold."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""

    def __repr__(self) -> str:
        columns = ", ".join(filter(None, self.head)) or self.title
        return f"Table({len(self.rows)} rows: {columns})"

    def __str__(self) -> str:
        return self.markdown()

    def rich(self) -> RichTable:
        """For a terminal."""
        table = RichTable(title=self.title or None, show_header=any(self.head))
        for number, name in enumerate(self.head):
            figures = [len(row[number]) for row in self.rows if _FIGURE.fullmatch(row[number])]
            words = [len(word) for word in name.split()]
            table.add_column(
                name,
                justify="left" if number == 0 else "right",
                overflow="fold",
                min_width=max([*figures, *words], default=None),  # half a figure is another figure
            )
        for row in self.rows:
            table.add_row(*map(_styled, row))
        return table

    def markdown(self) -> str:
        """For a page."""
        lines = [self.head, tuple("---" if number == 0 else "---:" for number in range(len(self.head))), *self.rows]
        escaped = ([_SIGNS.sub(r"\\\g<0>", cell) for cell in row] for row in lines)
        return "\n".join("| " + " | ".join(row) + " |" for row in escaped) + "\n"

    def csv(self) -> str:
        """For a spreadsheet."""
        text = io.StringIO()
        plain = ([cell.replace(_BOLD, "") for cell in row] for row in self.rows)
        csv.writer(text, lineterminator="\n").writerows([self.head, *plain])
        return text.getvalue()

    def html(self) -> str:
        """For a notebook. Names of runs and entries are anyone's: all text is escaped."""
        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        heads = "".join(f"<th>{escape(name)}</th>" for name in self.head)
        head = f"<thead><tr>{heads}</tr></thead>" if any(self.head) else ""
        rows = "".join(f"<tr>{''.join(f'<td>{_bold_html(cell)}</td>' for cell in row)}</tr>" for row in self.rows)
        return f"<table>{caption}{head}<tbody>{rows}</tbody></table>"

    def _repr_html_(self) -> str:
        return self.html()

    def to_pandas(self) -> Any:
        """The cells, as texts, in a ``pandas.DataFrame``. The metrics as numbers: ``to_pandas`` of a comparison.

        Raises:
            InputError: If pandas isn't installed.
        """
        columns = zip(*self.rows, strict=True) if self.rows else ([] for _ in self.head)
        return as_frame(
            {
                name or str(number): [cell.replace(_BOLD, "") for cell in cells]
                for number, (name, cells) in enumerate(zip(self.head, columns, strict=True))
            }
        )


def _bold_html(cell: str) -> str:
    """A cell's text, escaped; what stands between two pairs of stars is bold."""
    parts = map(escape, cell.split(_BOLD))
    return "".join(f"<strong>{part}</strong>" if place % 2 else part for place, part in enumerate(parts))


def _styled(cell: str) -> Text:
    parts = cell.split(_BOLD)
    return Text.assemble(*((part, "bold" if place % 2 else "") for place, part in enumerate(parts)))


def comparison_table(entries: Entries, target: float | None = None) -> Table:
    """A comparison in numbers; means over several seeds, and the standard deviation (n - 1) of what is told of models.

    Args:
        entries: The runs by label, or lists of runs that differ in their seed.
        target: The accuracy, or value of the task's first metric, whose first round is looked for; by default one that
            all runs reach.

    Raises:
        InputError: If the runs are judged by different metrics.
    """
    listed = as_lists(entries)
    everyone = [run for runs in listed.values() for run in runs]
    metric = common_metric(everyone)
    goal = common_target(everyone) if target is None else target
    scores = scores_of(everyone)
    beside = [
        model
        for model in ("averaged", "cloud")
        if scores != [model] and any(f"{model}_{metric.name}" in run.final for run in everyone)
    ]
    told = metric.head if scores == ["scored"] else f"{metric.head} ({', '.join(scores)})"
    unit = " %" if metric.is_share else ""
    head = ("algorithm", told, *(f"{model}{unit}" for model in beside))
    head += (f"rounds to {metric.scale * goal:g}{unit}", "sent MB", "‖θ‖", "‖h‖")
    return Table(head, tuple((label, *_comparison_cells(runs, goal, beside)) for label, runs in listed.items()))


def sweep_table(entries: Entries, target: float | None = None) -> Table:
    """A comparison in numbers, in the order of what validation clients say, which comes first."""
    ordered = by_validation(entries)
    table = comparison_table(ordered, target)
    metric = common_metric(run for runs in ordered.values() for run in runs)
    validation = [_mean_and_spread(metric, finals(runs, f"validation_{metric.name}")) for runs in ordered.values()]
    rows = ((row[0], cell, *row[1:]) for row, cell in zip(table.rows, validation, strict=True))
    return Table((table.head[0], "validation %" if metric.is_share else "validation", *table.head[1:]), tuple(rows))


def common_target(runs: Sequence[Measured]) -> float:
    """What every run reaches whose model was evaluated: a whole percentage of a share, else a value of two digits."""
    metric = common_metric(runs)
    scored = [run for run in runs if not lacks_its_model(run)]
    if metric.is_share and metric.higher_is_better:
        best = [float(run.points(told_metric(run)).values.max(initial=0.0)) for run in scored]
        whole = 100 * min(best, default=0.0)
        return math.floor(whole + 1e-9) / 100  # 100 · 0.29 is 28.999999999999996
    found = [values for run in scored if len(values := run.points(told_metric(run)).values)]
    best = [float(values.max() if metric.higher_is_better else values.min()) for values in found]
    worst = min(best, key=metric.goodness, default=0.0)
    if worst == 0 or not math.isfinite(worst):
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(worst))) - 1)
    places = (math.floor if metric.higher_is_better else math.ceil)(round(worst / step, 9))
    return float(f"{places * step:.2g}")


def rounds_to(run: Measured, target: float) -> int | None:
    """The first evaluated round in which the model that is told of reaches a value; None if it never does."""
    rounds, values = run.points(told_metric(run))
    reached = values >= target if run.metric.higher_is_better else values <= target
    return int(rounds[reached.argmax()]) if reached.any() else None


def _comparison_cells(runs: Sequence[Measured], target: float, beside: Sequence[str]) -> tuple[str, ...]:
    # One seed that is lost would spoil the means of all.
    counted = [run for run in runs if run.status != "diverged"] or runs
    ways = [[run.final.get(way) for way in ("bytes_down", "bytes_up")] for run in counted]
    sent = [(down + up) / 1e6 for down, up in ways if down is not None and up is not None]
    return (
        _told(runs[0]) if len(runs) == 1 else _told_of_seeds(runs),
        *(_mean_and_spread(runs[0].metric, finals(counted, f"{model}_{runs[0].metric.name}")) for model in beside),
        _reached(runs, target),
        f"{fmean(sent):.1f}" if sent else MISSING,
        *(three_digits(_mean(finals(counted, name))) for name in ("cloud_norm", "h_norm")),
    )


def _told(run: Measured) -> str:
    """What is told of a run, and what else must be known of its end."""
    told = _mean_and_spread(run.metric, finals([run], told_metric(run)))
    if lacks_its_model(run):
        aggregate = _mean_and_spread(run.metric, finals([run], f"aggregate_{run.metric.name}"))
        told = f"{MISSING} ({_without_model(run.score, aggregate)})"
    if run.status == "diverged":
        return f"diverged in round {run.round}"
    if run.status != "finished":
        return f"{told} ({run.status}, round {run.round})"
    return told if run.reason is None else f"{told} (round {run.round})"


def _told_of_seeds(runs: Sequence[Measured]) -> str:
    """What is told of runs that differ in their seed; what diverged isn't told of, and is counted."""
    metric = runs[0].metric
    kept = [run for run in runs if run.status != "diverged"]
    early = [run for run in kept if run.status == "finished" and run.reason is not None]
    counts = {
        "diverged": len(runs) - len(kept),
        "unfinished": sum(run.status != "finished" for run in kept),
        "ended early": len(early),
    }
    notes = ", ".join(f"{count} of {len(runs)} {words}" for words, count in counts.items() if count)
    mean = _mean_and_spread(metric, [value for run in kept for value in finals([run], told_metric(run))])
    if kept and all(map(lacks_its_model, kept)):
        told = _mean_and_spread(metric, finals(kept, f"aggregate_{metric.name}"))
        aggregate = _without_model(", ".join(scores_of(kept)), told)
        notes = f"{notes}, {aggregate}" if notes else aggregate
    return f"{mean} ({notes})" if notes else mean


def _without_model(score: str, aggregate: str) -> str:
    return f"no {score} model: the aggregate has {aggregate}"


def _reached(runs: Sequence[Measured], target: float) -> str:
    """When a target was reached, on average over seeds, with a count if some never did."""
    if all(map(lacks_its_model, runs)):
        return MISSING
    reached = [round_number for run in runs if (round_number := rounds_to(run, target)) is not None]
    if not reached:
        # A run that was stopped before its last round might have reached it yet.
        stopped = [run.round for run in runs if run.reason is not None and run.status != "diverged"]
        return f"> {min(stopped)}" if stopped else "never"
    if len(runs) == 1:
        return str(reached[0])
    return f"{fmean(reached):.1f}" + ("" if len(reached) == len(runs) else f" ({len(reached)} of {len(runs)})")


def _mean_and_spread(metric: Metric, values: Sequence[float]) -> str:
    """Values of a metric as tables have them: shares in per cent to one place, others to four digits."""
    return mean_and_spread([metric.scale * value for value in values], 1 if metric.is_share else None)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def runs_table(runs: Sequence[Run]) -> Table:
    """A list of runs."""
    metrics = {run.metric for run in runs}
    score = common_metric(runs).head if len(metrics) < 2 else "score"
    head = ("run", "status", "round", "data set", "algorithm", score)
    rows = []
    for run in runs:
        told = _mean_and_spread(run.metric, finals([run], told_metric(run)))
        told = told if len(metrics) < 2 else f"{run.metric.head} {told}"
        if lacks_its_model(run):
            told += f" (no {run.score} model)"
        elif run.score != "scored":
            told += f" ({run.score})"
        rounds = f"{run.final.get('round', run.round)}/{run.config.rounds}"
        rows.append((str(run.folder), run.status, rounds, data_words(run.config.dataset), run.config.algorithm, told))
    return Table(head, tuple(rows))


def data_words(specification: str) -> str:
    """A data set as lists and titles name it: its name and that of its file. Paths and options would fill ten lines."""
    name, *options = specification.removeprefix(OBJECT).split(",")
    places = [value for key, _, value in (option.partition("=") for option in options) if key in {"path", "name"}]
    return " ".join([PurePath(name).name or name, *(PurePath(place).name for place in places)])


def rejections_table(notes: ReplyNotes) -> Table:
    """The replies that were left out: the first ones, and how many more there are."""
    told = notes.rejections[:_MOST_REJECTIONS]
    rows = [(str(number), str(client), reason) for number, client, reason in told]
    if notes.rejected > len(told):
        rows.append(("…", "…", f"and {notes.rejected - len(told)} more"))
    return Table(("round", "client", "reason"), tuple(rows), "replies left out")


def algorithms_tables(listings: Sequence[AlgorithmListing]) -> tuple[Table, Table]:
    """Two lists of algorithms, which fit a terminal: what each adds to a local step; what it sends, keeps and needs."""
    steps = tuple((of.name, of.family, of.term or MISSING, of.paper) for of in listings)
    sizes = tuple((of.name, of.down, of.up, of.client, of.server, ", ".join(of.needs) or MISSING) for of in listings)
    return (
        Table(("algorithm", "family", "added to ∇L(w)", "paper"), steps, "What each adds to a local step"),
        Table(("algorithm", "down", "up", "client", "server", "needs"), sizes, "What each sends, keeps and needs"),
    )


def datasets_table(listings: Sequence[Listing]) -> Table:
    """A list of data sets: what they are, and what of them is on this disk."""
    head = ("data set", "there", "MB", "input", "classes", "train", "test")
    rows = []
    for listing in listings:
        there = {True: "yes", False: "incomplete" if listing.lacks else "no", None: "by path"}[listing.here]
        there += f": {listing.layout}" if listing.layout else ""
        size = None if listing.bytes_on_disk is None else f"{listing.bytes_on_disk / 1e6:.1f}"
        shape = None if listing.shape is None else "×".join(map(str, listing.shape))
        counts = [None if count is None else f"{count:,}" for count in (listing.classes, listing.train, listing.test)]
        rows.append(tuple(cell or MISSING for cell in (listing.name, there, size, shape, *counts)))
    return Table(head, tuple(rows))


def facts_table(facts: Mapping[str, object], title: str = "") -> Table:
    """Names and values."""
    return Table(
        ("", ""), tuple((name.replace("_", " "), as_text(value, digits=4)) for name, value in facts.items()), title
    )
