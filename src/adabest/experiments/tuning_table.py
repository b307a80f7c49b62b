"""What was tried and chosen, in numbers of validation clients: nothing here has seen the test set."""

from collections.abc import Mapping, Sequence
from typing import Any

from adabest.experiments.choice import Point
from adabest.report.numbers import mean_and_spread
from adabest.report.table import Table

_PLACES = 2  # points of a grid may lie close together


def tuning_table(points: Sequence[Point], chosen: Mapping[str, Any] | None) -> Table:
    """The points that were tried, each with its validation accuracy, over seeds if there are several.

    Args:
        points: What came of each; all have values of the same hyper-parameters.
        chosen: The values that were chosen, which is marked.
    """
    names = tuple(points[0].values)
    rows = []
    for point in points:
        values = (str(value) for value in point.values.values())
        rows.append((*values, _validation(point), "chosen" if point.values == chosen else ""))
    return Table((*names, "validation %", "choice"), tuple(rows))


def _validation(point: Point) -> str:
    """The accuracy; what diverged has none, and is counted."""
    together = list(zip(point.validation, point.status, strict=True))
    kept = [100 * value for value, status in together if status != "diverged" and value is not None]
    lost = point.status.count("diverged")
    if lost == len(point.status):
        return "diverged"
    return mean_and_spread(kept, _PLACES) + (f" ({lost} of {len(point.status)} diverged)" if lost else "")
