"""The table of a tuning: points with their scores on validation clients. The test set is never read here."""

from collections.abc import Mapping, Sequence
from typing import Any

from adabest.experiments.choice import Point
from adabest.report.numbers import mean_and_spread
from adabest.report.table import Table

_PLACES = 2  # decimal places: accuracies of neighbouring points lie close together


def tuning_table(points: Sequence[Point], chosen: Mapping[str, Any] | None) -> Table:
    """The points that were tried, each with its score on validation clients, over seeds if there are several.

    Args:
        points: The points; all have values of the same hyper-parameters.
        chosen: The chosen values, whose row is marked.
    """
    names = tuple(points[0].values)
    rows = []
    for point in points:
        values = (str(value) for value in point.values.values())
        rows.append((*values, _validation(point), "chosen" if point.values == chosen else ""))
    head = "validation %" if points[0].metric.is_share else f"validation {points[0].metric.words}"
    return Table((*names, head, "choice"), tuple(rows))


def _validation(point: Point) -> str:
    """The mean over the runs that didn't diverge, a share in per cent, and how many did."""
    together = list(zip(point.validation, point.status, strict=True))
    kept = [point.metric.scale * value for value, status in together if status != "diverged" and value is not None]
    lost = point.status.count("diverged")
    if lost == len(point.status):
        return "diverged"
    return mean_and_spread(kept, _PLACES if point.metric.is_share else None) + (
        f" ({lost} of {len(point.status)} diverged)" if lost else ""
    )
