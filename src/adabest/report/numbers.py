"""Numbers as tables and pages write them: with their spread or sign, and with as many digits as mean something."""

import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import fmean, stdev
from typing import Any

MISSING = "–"
_HUGE = 1e6  # nobody reads the digits of a larger mean
_UNITS_OF_TIME = {
    "years": 365.25 * 86400.0,
    "days": 86400.0,
    "h": 3600.0,
    "min": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "µs": 1e-6,
}


def mean_and_spread(values: Sequence[float], places: int | None = 1) -> str:
    """``mean ± standard deviation`` (n - 1); a single number as it is.

    Args:
        values: The numbers; a dash stands for none at all.
        places: Decimal places of both. None for numbers of any size: four digits of the mean, as many places of the
            other, and of a mean above a million three digits alone.
    """
    if not values:
        return MISSING
    mean = fmean(values)
    if places is None:
        if abs(mean) >= _HUGE:
            return three_digits(mean)
        places = max(0, 3 - math.floor(math.log10(abs(mean)))) if mean else 0
    return with_spread(mean, stdev(values) if len(values) > 1 else None, places)


def with_spread(mean: float, spread: float | None, places: int = 2) -> str:
    """A mean and its standard deviation, if there is one, both with ``places`` decimal places."""
    return f"{mean:,.{places}f}" + ("" if spread is None else f" ± {spread:,.{places}f}")


def with_interval(value: float, low: float, high: float) -> str:
    """A number to three decimal places and, in brackets, the interval that it lies in, unless that is a point."""
    return f"{value:.3f}" + (f" ({low:.3f}–{high:.3f})" if low != high else "")


def with_sign(difference: float) -> str:
    """A difference to two decimal places with its sign, and no sign where it is zero."""
    text = f"{difference:+.2f}".replace("-", "−")
    return "0.00" if text in {"+0.00", "−0.00"} else text


def with_commas(value: float | Fraction | None) -> str:
    """A number with commas between its thousands: a whole one in full, any other to one decimal place."""
    if value is None:
        return MISSING
    return f"{int(value):,}" if value == int(value) else f"{float(value):,.1f}"


def three_digits(value: float | None) -> str:
    """A number to three significant digits."""
    return MISSING if value is None else f"{value:.3g}"


def two_places(value: float | None) -> str:
    """A number to two decimal places."""
    return MISSING if value is None else f"{value:.2f}"


def percentage(share: float | None) -> str:
    """A share in per cent, to one decimal place."""
    return MISSING if share is None else f"{100 * share:.1f}"


def as_text(value: Any, digits: int = 5) -> str:
    """A setting or a statistic as people read it: yes or no, ``digits`` significant digits, lists with commas."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, list | tuple):
        return ", ".join(as_text(one, digits) for one in value) or "none"
    return str(value)


def as_duration(seconds: float) -> str:
    """A time in the unit that people would use, to three digits."""
    for unit, size in _UNITS_OF_TIME.items():
        if seconds >= (2 * size if unit in ("years", "days") else size):
            return f"{_three_digits_in_full(seconds / size)} {unit}"
    return "0 s"


def as_count(count: int) -> str:
    """A count: below a million in full, above to three digits, in millions or billions."""
    for unit, size in (("billion", 10**9), ("million", 10**6)):
        if count >= size:
            return f"{_three_digits_in_full(count / size)} {unit}"
    return with_commas(count)


def _three_digits_in_full(value: float) -> str:
    """A number to three significant digits with commas between its thousands, and never with an exponent of ten."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:.3g}"
