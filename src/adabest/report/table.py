"""Tables: a comparison in numbers, a list of runs, a partition's statistics."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table as RichTable
from rich.text import Text

from adabest.data import Listing
from adabest.runs import Run

_FIGURE = re.compile(r"[\d.,]+")


@dataclass(frozen=True)
class Table:
    """Rows of text under a head, in whatever form is asked for."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""

    def rich(self) -> RichTable:
        """For a terminal."""
        table = RichTable(title=self.title or None, show_header=any(self.head))
        for number, name in enumerate(self.head):
            figures = [len(row[number]) for row in self.rows if _FIGURE.fullmatch(row[number])]
            table.add_column(
                name,
                justify="left" if number == 0 else "right",
                overflow="fold",
                min_width=max(figures, default=None),  # half a figure is another figure
            )
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table

    def markdown(self) -> str:
        """For a page."""
        lines = [self.head, tuple("---" if number == 0 else "---:" for number in range(len(self.head))), *self.rows]
        escaped = ([cell.replace("|", "\\|") for cell in row] for row in lines)
        return "\n".join("| " + " | ".join(row) + " |" for row in escaped) + "\n"

    def csv(self) -> str:
        """For a spreadsheet."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.head, *self.rows])
        return text.getvalue()


def comparison_table(runs: Mapping[str, Run], target: float | None = None) -> Table:
    """A comparison in numbers.

    Args:
        runs: The runs by label.
        target: The accuracy whose first round is looked for; by default one that all runs reach.
    """
    goal = common_target(list(runs.values())) if target is None else target
    averaged = any("averaged_accuracy" in run.final for run in runs.values())
    head = ("algorithm", "accuracy %", *(["averaged %"] if averaged else []))
    head += (f"rounds to {100 * goal:g} %", "sent MB", "‖θ‖", "‖h‖")
    return Table(head, tuple((label, *_cells(run, goal, averaged)) for label, run in runs.items()))


def common_target(runs: Sequence[Run]) -> float:
    """The highest whole percentage of accuracy that every run reaches."""
    best = [max(run.curve("scored_accuracy")[1], default=0.0) for run in runs]
    whole = 100 * min(best, default=0.0)
    return math.floor(whole + 1e-9) / 100  # 100 · 0.29 is 28.999999999999996


def rounds_to(run: Run, target: float) -> int | None:
    """The first evaluated round in which the scored model reaches an accuracy; None if it never does."""
    for round_number, accuracy in zip(*run.curve("scored_accuracy"), strict=True):
        if accuracy >= target:
            return round_number
    return None


def _cells(run: Run, target: float, averaged: bool) -> tuple[str, ...]:
    final = run.final
    accuracy = _percent(final.get("scored_accuracy"))
    if run.status == "diverged":
        accuracy = f"diverged in round {run.round}"
    elif run.status != "finished":
        accuracy += f" ({run.status}, round {run.round})"
    elif run.reason is not None:
        accuracy += f" (round {run.round})"
    reached = rounds_to(run, target)
    sent = f"{(final['bytes_down'] + final['bytes_up']) / 1e6:.1f}" if final else "–"
    return (
        accuracy,
        *([_percent(final.get("averaged_accuracy"))] if averaged else []),
        _reached(run, reached),
        sent,
        _number(final.get("cloud_norm")),
        _number(final.get("h_norm")),
    )


def _reached(run: Run, round_number: int | None) -> str:
    """When a target was reached; a run that was stopped before its last round might have reached it yet."""
    if round_number is not None:
        return str(round_number)
    return "never" if run.reason is None or run.status == "diverged" else f"> {run.round}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def runs_table(runs: Sequence[Run]) -> Table:
    """A list of runs."""
    head = ("run", "status", "round", "data set", "algorithm", "accuracy %")
    rows = []
    for run in runs:
        accuracy = _percent(run.final.get("scored_accuracy"))
        rounds = f"{run.final.get('round', run.round)}/{run.config.rounds}"
        rows.append((str(run.folder), run.status, rounds, run.config.dataset, run.config.algorithm, accuracy))
    return Table(head, tuple(rows))


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
        rows.append(tuple(cell or "–" for cell in (listing.name, there, size, shape, *counts)))
    return Table(head, tuple(rows))


def facts_table(facts: Mapping[str, object], title: str = "") -> Table:
    """Names and values."""
    return Table(("", ""), tuple((name.replace("_", " "), _text(value)) for name, value in facts.items()), title)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(_text, value)) if isinstance(value, list | tuple) else str(value)
