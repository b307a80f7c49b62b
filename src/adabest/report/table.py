"""Tables: a comparison in numbers, a list of runs, a partition's statistics."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean
from typing import Any

from rich.table import Table as RichTable
from rich.text import Text

from adabest.data.listing import Listing
from adabest.report.entries import (
    Entries,
    Measured,
    as_lists,
    by_validation,
    finals,
    lacks_its_model,
    scores_of,
    told_accuracy,
)
from adabest.report.frame import as_frame
from adabest.report.numbers import MISSING, as_text, mean_and_spread, percentage, three_digits
from adabest.runs.files.metrics_file import ReplyNotes
from adabest.runs.stored_run import Run

_BOLD = "**"
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
        escaped = ([cell.replace("|", "\\|") for cell in row] for row in lines)
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
    """A comparison in numbers; means over several seeds, and the standard deviation (n - 1) of accuracies.

    Args:
        entries: The runs by label, or lists of runs that differ in their seed.
        target: The accuracy whose first round is looked for; by default one that all runs reach.
    """
    listed = as_lists(entries)
    everyone = [run for runs in listed.values() for run in runs]
    goal = common_target(everyone) if target is None else target
    scores = scores_of(everyone)
    beside = [
        model
        for model in ("averaged", "cloud")
        if scores != [model] and any(f"{model}_accuracy" in run.final for run in everyone)
    ]
    told = "accuracy %" if scores == ["scored"] else f"accuracy % ({', '.join(scores)})"
    head = ("algorithm", told, *(f"{model} %" for model in beside))
    head += (f"rounds to {100 * goal:g} %", "sent MB", "‖θ‖", "‖h‖")
    return Table(head, tuple((label, *_comparison_cells(runs, goal, beside)) for label, runs in listed.items()))


def sweep_table(entries: Entries, target: float | None = None) -> Table:
    """A comparison in numbers, in the order of validation accuracy, which comes first."""
    ordered = by_validation(entries)
    table = comparison_table(ordered, target)
    validation = [mean_and_spread(_percentages(runs, "validation_accuracy")) for runs in ordered.values()]
    rows = ((row[0], cell, *row[1:]) for row, cell in zip(table.rows, validation, strict=True))
    return Table((table.head[0], "validation %", *table.head[1:]), tuple(rows))


def common_target(runs: Sequence[Measured]) -> float:
    """The highest whole percentage of accuracy that every run reaches whose model was evaluated."""
    scored = [run for run in runs if not lacks_its_model(run)]
    best = [float(run.points(told_accuracy(run)).values.max(initial=0.0)) for run in scored]
    whole = 100 * min(best, default=0.0)
    return math.floor(whole + 1e-9) / 100  # 100 · 0.29 is 28.999999999999996


def rounds_to(run: Measured, target: float) -> int | None:
    """The first evaluated round in which the model that is told of reaches an accuracy; None if it never does."""
    rounds, accuracies = run.points(told_accuracy(run))
    reached = accuracies >= target
    return int(rounds[reached.argmax()]) if reached.any() else None


def _comparison_cells(runs: Sequence[Measured], target: float, beside: Sequence[str]) -> tuple[str, ...]:
    # One seed that is lost would spoil the means of all.
    counted = [run for run in runs if run.status != "diverged"] or runs
    ways = [[run.final.get(way) for way in ("bytes_down", "bytes_up")] for run in counted]
    sent = [(down + up) / 1e6 for down, up in ways if down is not None and up is not None]
    return (
        _accuracy(runs[0]) if len(runs) == 1 else _accuracies(runs),
        *(mean_and_spread(_percentages(counted, f"{model}_accuracy")) for model in beside),
        _reached(runs, target),
        f"{fmean(sent):.1f}" if sent else MISSING,
        *(three_digits(_mean(finals(counted, name))) for name in ("cloud_norm", "h_norm")),
    )


def _accuracy(run: Measured) -> str:
    """A run's accuracy, and what else must be known of its end."""
    accuracy = percentage(run.final.get(told_accuracy(run)))
    if lacks_its_model(run):
        accuracy = f"{MISSING} ({_without_model(run.score, percentage(run.final.get('aggregate_accuracy')))})"
    if run.status == "diverged":
        return f"diverged in round {run.round}"
    if run.status != "finished":
        return f"{accuracy} ({run.status}, round {run.round})"
    return accuracy if run.reason is None else f"{accuracy} (round {run.round})"


def _accuracies(runs: Sequence[Measured]) -> str:
    """The accuracy of runs that differ in their seed; what diverged has none, and is counted."""
    kept = [run for run in runs if run.status != "diverged"]
    early = [run for run in kept if run.status == "finished" and run.reason is not None]
    counts = {
        "diverged": len(runs) - len(kept),
        "unfinished": sum(run.status != "finished" for run in kept),
        "ended early": len(early),
    }
    notes = ", ".join(f"{count} of {len(runs)} {words}" for words, count in counts.items() if count)
    accuracy = mean_and_spread([100 * value for run in kept for value in finals([run], told_accuracy(run))])
    if kept and all(map(lacks_its_model, kept)):
        told = mean_and_spread(_percentages(kept, "aggregate_accuracy"))
        aggregate = _without_model(", ".join(scores_of(kept)), told)
        notes = f"{notes}, {aggregate}" if notes else aggregate
    return f"{accuracy} ({notes})" if notes else accuracy


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


def _percentages(runs: Sequence[Measured], name: str) -> list[float]:
    return [100 * value for value in finals(runs, name)]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def runs_table(runs: Sequence[Run]) -> Table:
    """A list of runs."""
    head = ("run", "status", "round", "data set", "algorithm", "accuracy %")
    rows = []
    for run in runs:
        accuracy = percentage(run.final.get(told_accuracy(run)))
        if lacks_its_model(run):
            accuracy += f" (no {run.score} model)"
        elif run.score != "scored":
            accuracy += f" ({run.score})"
        rounds = f"{run.final.get('round', run.round)}/{run.config.rounds}"
        rows.append((str(run.folder), run.status, rounds, run.config.dataset, run.config.algorithm, accuracy))
    return Table(head, tuple(rows))


def rejections_table(notes: ReplyNotes) -> Table:
    """The replies that were left out: the first ones, and how many more there are."""
    told = notes.rejections[:_MOST_REJECTIONS]
    rows = [(str(number), str(client), reason) for number, client, reason in told]
    if notes.rejected > len(told):
        rows.append(("…", "…", f"and {notes.rejected - len(told)} more"))
    return Table(("round", "client", "reason"), tuple(rows), "replies left out")


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
