"""What is compared: runs, or the runs of several seeds taken together."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple, Protocol, TypeVar


class Measured(Protocol):
    """What tables and figures look at of a run, or of what is kept of one."""

    @property
    def status(self) -> str:
        """``finished``, ``diverged``, or what else has become of it."""
        ...

    @property
    def round(self) -> int:
        """The last round that counts, or the one it diverged in."""
        ...

    @property
    def reason(self) -> str | None:
        """Why it diverged or ended early, if it did."""
        ...

    @property
    def final(self) -> dict[str, Any]:
        """The last evaluated round's metrics; empty if there is none."""
        ...

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """A metric over rounds, where it was measured: rounds and values."""
        ...


Kind = TypeVar("Kind", bound=Measured)
Entries = Mapping[str, Measured | Sequence[Measured]]


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


def as_lists(entries: Mapping[str, Kind | Sequence[Kind]]) -> dict[str, list[Kind]]:
    """Entries as lists of runs, whether they came as runs or as lists."""
    return {label: [entry] if not isinstance(entry, Sequence) else list(entry) for label, entry in entries.items()}


def mean_curve(runs: Sequence[Measured], name: str) -> Curve:
    """A metric over rounds, taken over several runs."""
    found: dict[int, list[float]] = {}
    for run in runs:
        for round_number, value in zip(*run.curve(name), strict=True):
            found.setdefault(round_number, []).append(value)
    rounds = sorted(found)
    mean = [fmean(found[r]) for r in rounds]
    return Curve(rounds, mean, [_deviation(found[r], m) for r, m in zip(rounds, mean, strict=True)])


def _deviation(values: Sequence[float], mean: float) -> float:
    """What ``stdev`` gives, up to rounding, in a fraction of its time: curves have many points."""
    same = min(values) == max(values)
    return 0.0 if same else math.hypot(*(value - mean for value in values)) / math.sqrt(len(values) - 1)


def finals(runs: Sequence[Measured], name: str) -> list[float]:
    """A metric of the last evaluated round of each run that has it."""
    return [run.final[name] for run in runs if run.final.get(name) is not None]


def by_validation(entries: Mapping[str, Kind | Sequence[Kind]]) -> dict[str, list[Kind]]:
    """Entries in the order of their validation accuracy, the best first; those in which a run diverged come last."""

    def rank(runs: Sequence[Measured]) -> tuple[bool, float]:
        return any(run.status == "diverged" for run in runs), -fmean(finals(runs, "validation_accuracy") or [0.0])

    return dict(sorted(as_lists(entries).items(), key=lambda entry: rank(entry[1])))


def mean_and_spread(values: Sequence[float], digits: int = 1) -> str:
    """Numbers as ``mean ± standard deviation``, a single one as it is."""
    if not values:
        return "–"
    return f"{fmean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")
