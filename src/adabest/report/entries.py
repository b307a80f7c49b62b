"""What is compared: runs, or the runs of several seeds taken together."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from adabest.runs import Run

Entries = Mapping[str, Run | Sequence[Run]]


class Curve(NamedTuple):
    """A metric over rounds, where at least one of several runs has it.

    Attributes:
        rounds: Those rounds.
        mean: The mean over the runs that have it.
        spread: Their standard deviation (n - 1); 0 where there is one.
    """

    rounds: list[int]
    mean: list[float]
    spread: list[float]


def as_lists(entries: Entries) -> dict[str, list[Run]]:
    """Entries as lists of runs, whether they came as runs or as lists."""
    return {label: [entry] if isinstance(entry, Run) else list(entry) for label, entry in entries.items()}


def mean_curve(runs: Sequence[Run], name: str) -> Curve:
    """A metric over rounds, taken over several runs."""
    found: dict[int, list[float]] = {}
    for run in runs:
        for round_number, value in zip(*run.curve(name), strict=True):
            found.setdefault(round_number, []).append(value)
    rounds = sorted(found)
    mean = [fmean(found[r]) for r in rounds]
    return Curve(rounds, mean, [_deviation(found[r], m) for r, m in zip(rounds, mean, strict=True)])


def _deviation(values: Sequence[float], mean: float) -> float:
    """What ``stdev`` gives, up to rounding, in a hundredth of its time: curves have many points."""
    same = min(values) == max(values)
    return 0.0 if same else math.hypot(*(value - mean for value in values)) / math.sqrt(len(values) - 1)


def finals(runs: Sequence[Run], name: str) -> list[float]:
    """A metric of the last evaluated round of each run that has it."""
    return [run.final[name] for run in runs if run.final.get(name) is not None]


def by_validation(entries: Entries) -> dict[str, list[Run]]:
    """Entries in the order of their validation accuracy, the best first; those in which a run diverged come last."""

    def rank(runs: Sequence[Run]) -> tuple[bool, float]:
        return any(run.status == "diverged" for run in runs), -fmean(finals(runs, "validation_accuracy") or [0.0])

    return dict(sorted(as_lists(entries).items(), key=lambda entry: rank(entry[1])))


def mean_and_spread(values: Sequence[float]) -> str:
    """Numbers as ``mean ± standard deviation``, a single one as it is."""
    if not values:
        return "–"
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")
