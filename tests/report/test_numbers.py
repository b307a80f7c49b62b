"""Numbers as tables write them: by hand, and written in one place alone."""

import re
from fractions import Fraction
from pathlib import Path

import pytest

import adabest
from adabest.report.numbers import as_text, mean_and_spread, with_commas, with_interval, with_sign, with_spread


@pytest.mark.parametrize(
    ("values", "places", "text"),
    [
        ([], 1, "–"),
        ([81.25], 2, "81.25"),
        ([80.0, 82.0], 1, "81.0 ± 1.4"),
        ([12.5, 12.5], None, "12.50 ± 0.00"),
        ([1234.5, 1235.5], None, "1,235 ± 1"),
        ([3e7, 4e7], None, "3.5e+07"),
        ([0.0], None, "0"),
    ],
)
def test_a_mean_and_its_spread(values: list[float], places: int | None, text: str) -> None:
    assert mean_and_spread(values, places) == text


def test_signs_commas_and_intervals() -> None:
    assert [with_sign(value) for value in (1.234, -1.234, 0.001, -0.001)] == ["+1.23", "−1.23", "0.00", "0.00"]
    assert [with_commas(value) for value in (None, 1234, 1234.0, Fraction(49, 2))] == ["–", "1,234", "1,234", "24.5"]
    assert [with_interval(1.15, *ends) for ends in ((1.1, 1.2), (1.15, 1.15))] == ["1.150 (1.100–1.200)", "1.150"]
    assert with_spread(81.26, 0.4) == "81.26 ± 0.40"


def test_settings_as_people_read_them() -> None:
    values = [True, 0.123456789, [1, 2.5], (), None, "iid"]
    assert [as_text(value) for value in values] == ["yes", "0.12346", "1, 2.5", "none", "None", "iid"]
    assert as_text([0.123456789], digits=2) == "0.12"


def test_a_spread_is_written_in_one_place() -> None:
    source = Path(adabest.__file__).parent
    writing = {path.name for path in source.rglob("*.py") if re.search(r"± \{", path.read_text("utf-8"))}
    assert writing == {"numbers.py"}
