"""Formulas: their algebra, their text, and how they are made of counts."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adabest.costs.formula import Formula, bilinear, symbol

K, P, n, g, s, m = map(symbol, ("K", "|P|", "n", "g", "s", "m"))


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (K * (g + n * s + n * m), "K(g + ns + nm)"),
        (n * m + K * n * s + K * g + n * s, "K(g + ns) + ns + nm"),
        (P * n * s + 2 * n * s, "|P|ns + 2ns"),
        (2 * P * n * (s + m), "|P|(2ns + 2nm)"),
        (3 * K * n * m, "3Knm"),
        (4 * n + 16, "4n + 16"),
        (16 + 4 * n, "4n + 16"),
        (K * n * symbol("sqrt") + 2 * n * symbol("neg"), "Kn sqrt + 2n neg"),
        (n * Fraction(1, 2) + 1, "0.5n + 1"),
        (n - n, "0"),
        (symbol("G") + K * g + n * s, "Kg + G + ns"),
    ],
)
def test_a_formula_reads_like_the_papers(formula: Formula, text: str) -> None:
    assert str(formula) == text


def test_algebra() -> None:
    assert (n + 1) * (n + 1) == n * n + 2 * n + 1
    assert n * s * K == K * s * n
    assert not n * s - s * n
    assert (K * (n + 2)).symbols() == {"K", "n"}
    assert (K * n + n + 3).with_symbol("n") == K * n + n


def test_value() -> None:
    formula = K * (g + 3 * n * s) + 2 * n * m
    assert formula.value({"K": 5, "g": 100, "n": 7}) == 5 * (100 + 21) + 14
    assert (n * Fraction(1, 2)).value({"n": 6}) == 3
    assert isinstance((n * Fraction(1, 2)).value({"n": 6}), int)
    assert (n * Fraction(1, 2)).value({"n": 7}) == Fraction(7, 2)


@given(st.tuples(*[st.integers(-9, 9)] * 4), st.integers(1, 50), st.integers(1, 9))
def test_a_formula_is_found_from_four_counts(factors: tuple[int, int, int, int], width: int, height: int) -> None:
    rest, along, across, both = factors
    formula = both * n * K + along * n + across * K + rest
    points = {(x, y): int(formula.value({"n": x, "K": y})) for x in (3, 3 + width) for y in (2, 2 + height)}
    assert bilinear(points, n, K) == formula
