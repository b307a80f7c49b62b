"""The choice of hyper-parameters: on validation clients, and never on the test set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from adabest.runs.results_file import PointRow
from adabest.runs.stored_run import Run


@dataclass(frozen=True)
class Point:
    """Values that were tried.

    Attributes:
        values: By hyper-parameter.
        validation: The validation accuracy of the scored model in the last round, by seed; None where there is none.
        status: What became of the runs, by seed.
    """

    values: dict[str, Any]
    validation: list[float | None]
    status: list[str]

    @classmethod
    def of(cls, values: Mapping[str, Any], runs: Sequence[Run]) -> "Point":
        """What came of the runs of a point."""
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
        """As it is kept in a file."""
        return {"point": self.values, "validation_accuracy": self.validation, "status": self.status}


def choose(points: Sequence[Point]) -> dict[str, Any] | None:
    """The point with the highest mean validation accuracy; of several, the one with the smaller values.

    A point of which a run diverged loses against all others. None if there is no other.
    """
    able = [point for point in points if point.counts]
    if not able:
        return None
    best = max(point.mean for point in able)
    tied = [point for point in able if point.mean == best]
    return min(tied, key=lambda point: [(isinstance(v, str), v) for v in point.values.values()]).values
