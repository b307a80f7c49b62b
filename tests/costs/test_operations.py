"""The counter of operations, and the formulas that are made of counts."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from adabest.costs.formula import Formula, bilinear, symbol
from adabest.costs.operations import OperationCounter

N = 6
K, P, n, g, s, m = map(symbol, ("K", "|P|", "n", "g", "s", "m"))


def counted(function: Callable[[Tensor, Tensor], Any], dtype: torch.dtype = torch.float32) -> dict[str, int]:
    """What a function of two vectors of six numbers does, zeros left out."""
    a, b = torch.arange(1, N + 1).to(dtype), torch.full((N,), 3).to(dtype)
    counter = OperationCounter()
    with counter:
        function(a, b)
    return {kind: number for kind, number in counter.counts.items() if number}


class TestCounter:
    @pytest.mark.parametrize(
        "function",
        [
            lambda a, b: a - b,
            torch.sub,
            lambda a, b: a.sub_(b),
            lambda a, b: a.__isub__(b),
            lambda a, b: torch.sub(a, b, out=b),
            lambda a, b: 1 - a,
            lambda a, b: a + 1,
            lambda a, b: a + b[:1],
            lambda a, b: a.sum(),
        ],
    )
    def test_an_addition_is_one_however_it_is_spelt(self, function: Callable[[Tensor, Tensor], Any]) -> None:
        assert counted(function) == {"s": N}

    @pytest.mark.parametrize(
        "function",
        [
            lambda a, b: a * b,
            lambda a, b: a / b,
            lambda a, b: 2 * a,
            lambda a, b: a[:1] * b,
            lambda a, b: a.mul_(b),
        ],
    )
    def test_a_multiplication(self, function: Callable[[Tensor, Tensor], Any]) -> None:
        assert counted(function) == {"m": N}

    @pytest.mark.parametrize(
        ("function", "additions", "multiplications"),
        [
            (lambda a, b: a + 2 * b, N, N),
            (lambda a, b: torch.add(a, b, alpha=2), N, N),
            (lambda a, b: torch.add(a, b, alpha=1), N, 0),
            (lambda a, b: a.sub_(b, alpha=0.5), N, N),
            (lambda a, b: torch.rsub(a, b, alpha=3), N, N),
            (lambda a, b: torch.rsub(a, 2.0, 3), N, N),
            (lambda a, b: torch.addcmul(a, a, b), N, N),
            (lambda a, b: torch.addcmul(a, a, b, value=2), N, 2 * N),
            (lambda a, b: torch.addcdiv(a, a, b, value=2), N, 2 * N),
            (lambda a, b: torch.lerp(a, b, 0.5), 2 * N, N),
            (lambda a, b: 2 / a, 0, 2 * N),  # torch divides, then multiplies
            (lambda a, b: a.mean(), N, 1),
            (lambda a, b: a @ b, N, N),
            (lambda a, b: torch.stack([a, b]).sum(0), 2 * N, 0),
        ],
    )
    def test_several_in_one(
        self, function: Callable[[Tensor, Tensor], Any], additions: int, multiplications: int
    ) -> None:
        found = counted(function)
        assert (found.get("s", 0), found.get("m", 0)) == (additions, multiplications)
        assert found.keys() <= {"s", "m", "copy"}

    @pytest.mark.parametrize(
        ("function", "expected"),
        [
            (lambda a, b: -a, {"neg": N}),
            (lambda a, b: a.sqrt(), {"sqrt": N}),
            (lambda a, b: a**2, {"pow": N}),
            (lambda a, b: torch.linalg.vector_norm(a), {"linalg_vector_norm": N}),
            (lambda a, b: torch.topk(a, 4), {"topk": 2 * 4}),  # values and places
            (lambda a, b: a > b, {"gt": N}),
            (lambda a, b: a.clamp_(max=1.0), {"clamp": N}),
            (lambda a, b: torch.outer(a, b).exp(), {"m": N * N, "exp": N * N}),
            (lambda a, b: torch._foreach_add([a, b], [b, b]), {"_foreach_add": 2 * N}),
            (lambda a, b: float(a[0]), {"_local_scalar_dense": 1}),
            (lambda a, b: torch.randperm(50), {"randperm": 50}),
        ],
    )
    def test_what_it_can_not_class_is_named(
        self, function: Callable[[Tensor, Tensor], Any], expected: dict[str, int]
    ) -> None:
        assert counted(function) == expected

    def test_whole_numbers_are_no_arithmetic(self) -> None:
        assert counted(lambda a, b: a * b + b, torch.int64) == {"mul": N, "add": N}
        assert counted(lambda a, b: (a > 1) * (b > 1)) == {"gt": 2 * N, "mul": N}
        assert "m" not in counted(lambda a, b: torch.isfinite(a))

    @pytest.mark.parametrize(
        ("function", "copied"),
        [
            (lambda a, b: a[1:].view(-1, 1).T.expand(2, -1).detach(), 0),
            (lambda a, b: torch.zeros_like(a), N),
            (lambda a, b: a.clone(), N),
            (lambda a, b: a.to(torch.float64), N),
            (lambda a, b: a.copy_(b), N),
            (lambda a, b: torch.cat([a, b]), 2 * N),
            (lambda a, b: torch.full_like(a, 2.0).zero_(), 2 * N),
        ],
    )
    def test_moving_numbers_is_no_arithmetic(self, function: Callable[[Tensor, Tensor], Any], copied: int) -> None:
        assert counted(function) == ({"copy": copied} if copied else {})

    def test_it_goes_on_when_it_is_entered_again(self) -> None:
        counter, a = OperationCounter(), torch.ones(N)
        for _ in range(3):
            a = a * 2
            with counter:
                a = a + a
        assert dict(counter.counts) == {"s": 3 * N, "m": 0}
        assert a.tolist() == [64.0] * N  # and it changes nothing

    def test_in_double_precision(self) -> None:
        assert counted(lambda a, b: a * b, torch.float64) == {"m": N}


class TestFormula:
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
    def test_it_reads_like_the_papers(self, formula: Formula, text: str) -> None:
        assert str(formula) == text

    def test_algebra(self) -> None:
        assert (n + 1) * (n + 1) == n * n + 2 * n + 1
        assert n * s * K == K * s * n
        assert not n * s - s * n
        assert (K * (n + 2)).symbols() == {"K", "n"}
        assert (K * n + n + 3).with_symbol("n") == K * n + n

    def test_value(self) -> None:
        formula = K * (g + 3 * n * s) + 2 * n * m
        assert formula.value({"K": 5, "g": 100, "n": 7}) == 5 * (100 + 21) + 14
        assert (n * Fraction(1, 2)).value({"n": 6}) == 3
        assert isinstance((n * Fraction(1, 2)).value({"n": 6}), int)
        assert (n * Fraction(1, 2)).value({"n": 7}) == Fraction(7, 2)

    @given(st.tuples(*[st.integers(-9, 9)] * 4), st.integers(1, 50), st.integers(1, 9))
    def test_it_is_found_from_four_counts(self, factors: tuple[int, int, int, int], width: int, height: int) -> None:
        rest, along, across, both = factors
        formula = both * n * K + along * n + across * K + rest
        points = {(x, y): int(formula.value({"n": x, "K": y})) for x in (3, 3 + width) for y in (2, 2 + height)}
        assert bilinear(points, n, K) == formula
