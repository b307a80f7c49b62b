"""Rows of metrics in the form that trackers take."""

from adabest.runs.callbacks.base import Row


def numbers(row: Row) -> dict[str, float]:
    """The metrics of a row that are numbers, without the round itself."""
    return {name: value for name, value in row.items() if isinstance(value, int | float) and name != "round"}
