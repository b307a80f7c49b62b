"""The choice of hyper-parameters: on validation clients, never on the test set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from adabest.runs.results_file import PointRow
from adabest.runs.stored_run import Run


@dataclass(frozen=True)
class Point:
    """A point that was tried.

    Attributes:
        values: The value of each hyper-parameter, by name.
        validation: The validation accuracy of the scored model in the last round, by seed; None where there is none.
        status: The status of the runs, by seed.
    """

    values: dict[str, Any]
    validation: list[float | None]
    status: list[str]

    @classmethod
    def of(cls, values: Mapping[str, Any], runs: Sequence[Run]) -> "Point":
        """A point, from its runs."""
        return cls(dict(values), [run.final.get("validation_accuracy") for run in runs], [run.status for run in runs])

    @property
    def counts(self) -> bool:
        """Whether every run has finished with a validation accuracy."""
        return all(status == "finished" for status in self.status) and None not in self.validation

    @property
    def mean(self) -> float:
        """The mean validation accuracy over seeds; 0 for a point that doesn't count."""
        return fmean(value for value in self.validation if value is not None) if self.counts else 0.0

    def row(self) -> PointRow:
        """The point as a result file holds it."""
        return {"point": self.values, "validation_accuracy": self.validation, "status": self.status}


def choose(points: Sequence[Point]) -> dict[str, Any] | None:
    """The point with the highest mean validation accuracy; of several, the one with the smaller values.

    Points with a run that diverged are left out. None if no other is left.
    """
    eligible = [point for point in points if point.counts]
    if not eligible:
        return None
    best = max(point.mean for point in eligible)
    tied = [point for point in eligible if point.mean == best]
    return min(tied, key=lambda point: [(isinstance(v, str), v) for v in point.values.values()]).values
