"""Ranges of hyper-parameters that end just before a number."""

import math
from typing import Any

from adabest.algorithms.base import check_range
from adabest.errors import InputError


def check_positive(name: str, value: float) -> None:
    """Refuses a hyper-parameter that isn't a finite number above 0.

    Raises:
        InputError: With the range that would be right.
    """
    check_range(name, value, -math.inf)  # whether it is a finite number
    if value <= 0:
        raise _out_of_range(name, value, "above 0")


def check_below_one(name: str, value: float) -> None:
    """Refuses a hyper-parameter that isn't a finite number in [0, 1).

    Raises:
        InputError: With the range that would be right.
    """
    check_range(name, value, -math.inf)
    if not 0 <= value < 1:
        raise _out_of_range(name, value, "in [0, 1)")


def _out_of_range(name: str, value: Any, right: str) -> InputError:
    return InputError(f"{name} = {value!r} is out of range: it must be a finite number {right}")
