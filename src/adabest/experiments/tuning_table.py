"""The table of a tuning: points with their validation accuracies. The test set is never read here."""

from collections.abc import Mapping, Sequence
from typing import Any

from adabest.experiments.choice import Point
from adabest.report.numbers import mean_and_spread
from adabest.report.table import Table

_PLACES = 2  # decimal places: accuracies of neighbouring points lie close together


def tuning_table(points: Sequence[Point], chosen: Mapping[str, Any] | None) -> Table:
    """The points that were tried, each with its validation accuracy, over seeds if there are several.

    Args:
        points: The points; all have values of the same hyper-parameters.
        chosen: The chosen values, whose row is marked.
    """
    names = tuple(points[0].values)
    rows = []
    for point in points:
        values = (str(value) for value in point.values.values())
        rows.append((*values, _validation(point), "chosen" if point.values == chosen else ""))
    return Table((*names, "validation %", "choice"), tuple(rows))


def _validation(point: Point) -> str:
    """The accuracy over the runs that didn't diverge, in percent, and how many did."""
    together = list(zip(point.validation, point.status, strict=True))
    kept = [100 * value for value, status in together if status != "diverged" and value is not None]
    lost = point.status.count("diverged")
    if lost == len(point.status):
        return "diverged"
    return mean_and_spread(kept, _PLACES) + (f" ({lost} of {len(point.status)} diverged)" if lost else "")
