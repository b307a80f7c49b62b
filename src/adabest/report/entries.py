"""Entries of a comparison: runs, or the runs of several seeds taken together."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from adabest.errors import InputError
from adabest.runs.files.metrics_file import Points
from adabest.tasks.objectives.metric import ACCURACY, Metric


class Measured(Protocol):
    """A run as tables and figures read it: a stored one, or a line of a results file."""

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
    def algorithm(self) -> str:
        """The name of its algorithm, without settings."""
        ...

    @property
    def score(self) -> str:
        """The model that is told of: ``scored``, ``aggregate``, ``cloud`` or ``averaged``."""
        ...

    @property
    def metric(self) -> Metric:
        """What is told of that model: accuracy, or the first metric of the task."""
        ...

    @property
    def judged_by(self) -> tuple[Metric, ...]:
        """All metrics of the task."""
        ...

    @property
    def final(self) -> dict[str, Any]:
        """The last evaluated round's metrics; empty if there is none."""
        ...

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """A metric over rounds, where it was measured: rounds and values."""
        ...

    def points(self, name: str) -> Points:
        """The same as arrays of numbers."""
        ...


Kind = TypeVar("Kind", bound=Measured)
Entries = Mapping[str, Measured | Sequence[Measured]]


class Curve(NamedTuple):
    """A metric over rounds, where at least one of several runs has it.

    Attributes:
        rounds: Those rounds, in ascending order.
        mean: The mean over the runs that have it.
        spread: Their standard deviation (n - 1); 0 where there is one.
    """

    rounds: NDArray[np.int64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]


def as_lists(entries: Mapping[str, Kind | Sequence[Kind]]) -> dict[str, list[Kind]]:
    """Entries as lists of runs, whether they came as runs or as lists."""
    return {label: [entry] if not isinstance(entry, Sequence) else list(entry) for label, entry in entries.items()}


def mean_curve(runs: Sequence[Measured], name: str) -> Curve:
    """A metric over rounds, taken over several runs."""
    found = [points for run in runs if len((points := run.points(name)).rounds)]
    if not found:
        return Curve(np.empty(0, np.int64), np.empty(0), np.empty(0))
    rounds, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(rounds, kind="stable")
    rounds, values = rounds[order], values[order]
    starts = np.flatnonzero(np.append(True, rounds[1:] != rounds[:-1]))
    counts = np.diff(starts, append=len(rounds))
    if len(starts) == len(rounds):  # a single run, in most cases
        return Curve(rounds, values, np.zeros(len(rounds)))
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large is no number, and drawn as such
        mean = _means(values, starts, counts)
        return Curve(rounds[starts], mean, _deviations(values, mean, starts, counts))


def _means(values: NDArray[np.float64], starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean of each group of neighbours by Neumaier's summation, for all groups at once.

    With u = 2⁻⁵³ and n values, the sum is off by at most u·|sum| + (n·u)²·Σ|value|. So a mean may differ from
    ``fmean``, whose sum is rounded once, in its last bits, and in more only where values cancel to almost nothing.
    """
    total, lost = np.zeros(len(starts)), np.zeros(len(starts))
    for place in range(counts.max()):
        there = counts > place
        value, before = values[starts[there] + place], total[there]
        after = before + value
        larger = np.abs(before) >= np.abs(value)
        lost[there] += np.where(larger, (before - after) + value, (value - after) + before)
        total[there] = after
    return (total + lost) / counts


def _deviations(
    values: NDArray[np.float64], mean: NDArray[np.float64], starts: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """What ``stdev`` gives of each group of neighbours, up to rounding."""
    deviations = values - np.repeat(mean, counts)
    largest = np.maximum.reduceat(np.abs(deviations), starts)
    scaled = deviations / np.repeat(np.where(largest > 0, largest, 1.0), counts)  # squares of 10²⁰⁰ are too large
    spread = largest * np.sqrt(np.add.reduceat(scaled**2, starts) / np.maximum(counts - 1, 1))
    same = np.maximum.reduceat(values, starts) == np.minimum.reduceat(values, starts)
    return np.where(same, 0.0, spread)


def finals(runs: Sequence[Measured], name: str) -> list[float]:
    """A metric of the last evaluated round of each run that has it."""
    return [run.final[name] for run in runs if run.final.get(name) is not None]


def told_metric(run: Measured) -> str:
    """The metric that is told of a run: the first of its task, of the model that its ``score`` names."""
    return f"{run.score}_{run.metric.name}"


def common_metric(runs: Iterable[Measured]) -> Metric:
    """What is told of all runs.

    Raises:
        InputError: If they are judged by different metrics, which can't be compared.
    """
    found = list(dict.fromkeys(run.metric for run in runs))
    if len(found) > 1:
        names = " and ".join(metric.words for metric in found)
        raise InputError(
            f"these runs are judged by {names}, and can't be compared; look at those of one task at a time"
        )
    return found[0] if found else ACCURACY


def scores_of(runs: Iterable[Measured]) -> list[str]:
    """The models that are told of, each once, in the order of their names."""
    return sorted({run.score for run in runs}) or ["scored"]


def lacks_its_model(run: Measured) -> bool:
    """Whether a run was evaluated, but not the model that is told of.

    Some clients' models can't be told from their replies, and a run may end before averages begin. A model with a loss
    was there, even if its metric isn't defined or too large for a number.
    """
    names = (told_metric(run), f"{run.score}_loss")
    return bool(run.final) and all(run.final.get(name) is None for name in names)


def by_validation(entries: Mapping[str, Kind | Sequence[Kind]]) -> dict[str, list[Kind]]:
    """Entries in the order of their score on validation clients, the best first; if a run diverged, they come last."""
    listed = as_lists(entries)
    metric = common_metric(run for runs in listed.values() for run in runs)

    def rank(runs: Sequence[Measured]) -> tuple[bool, float]:
        values = finals(runs, f"validation_{metric.name}")
        found = fmean(values) if values else metric.least
        return any(run.status == "diverged" for run in runs), -metric.goodness(found)

    return dict(sorted(listed.items(), key=lambda entry: rank(entry[1])))
