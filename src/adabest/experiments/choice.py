"""The choice of hyper-parameters: on validation clients, never on the test set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from adabest.report.entries import common_metric
from adabest.runs.results_file import PointRow
from adabest.runs.stored_run import Run
from adabest.tasks.objectives.metric import ACCURACY, Metric


@dataclass(frozen=True)
class Point:
    """A point that was tried.

    Attributes:
        values: The value of each hyper-parameter, by name.
        validation: The task's first metric on validation clients in the last round, by seed; None where there is none.
        status: The status of the runs, by seed.
        metric: What it is.
    """

    values: dict[str, Any]
    validation: list[float | None]
    status: list[str]
    metric: Metric = ACCURACY

    @classmethod
    def of(cls, values: Mapping[str, Any], runs: Sequence[Run]) -> "Point":
        """A point, from its runs."""
        metric = common_metric(runs)
        validation = [run.final.get(f"validation_{metric.name}") for run in runs]
        return cls(dict(values), validation, [run.status for run in runs], metric)

    @property
    def counts(self) -> bool:
        """Whether every run has finished with a score on validation clients."""
        return all(status == "finished" for status in self.status) and None not in self.validation

    @property
    def mean(self) -> float:
        """The mean over seeds; what is worst for a point that doesn't count."""
        if not self.counts:
            return self.metric.least
        return fmean(value for value in self.validation if value is not None)

    @property
    def goodness(self) -> float:
        """A number that grows as points get better."""
        return self.metric.goodness(self.mean)

    def row(self) -> PointRow:
        """The point as a result file holds it."""
        return {"point": self.values, "validation_accuracy": self.validation, "status": self.status}


def choose(points: Sequence[Point]) -> dict[str, Any] | None:
    """The point with the best mean on validation clients; of several, the one with the smaller values.

    Points with a run that diverged are left out. None if no other is left.
    """
    eligible = [point for point in points if point.counts]
    if not eligible:
        return None
    best = max(point.goodness for point in eligible)
    tied = [point for point in eligible if point.goodness == best]
    return min(tied, key=lambda point: [(isinstance(v, str), v) for v in point.values.values()]).values
