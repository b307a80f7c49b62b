"""Sums over a vector: exact to rounding, with bits that depend on nothing but the numbers."""

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from adabest.algorithms.sums import dot

LENGTHS = [1, 2, 3, 5, 8, 9, 1000]

numbers = st.floats(min_value=-1e3, max_value=1e3)
pairs = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=40)


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[-1]), dtype=dtype)


def exact(one: Tensor, other: Tensor) -> float:
    return math.fsum(x * y for x, y in zip(one.tolist(), other.tolist(), strict=True))


@pytest.fixture
def threads() -> Iterator[None]:
    """Gives the number of threads back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_product_is_the_exact_sum_to_rounding(length: int, dtype: torch.dtype) -> None:
    one, other = normal(2, length, dtype=dtype)
    found = dot(one, other)
    assert (found.dtype, found.shape) == (torch.float64, (1,))
    size = math.fsum(abs(x * y) for x, y in zip(one.tolist(), other.tolist(), strict=True))
    assert float(found) == pytest.approx(exact(one, other), abs=1e-15 * size)


def test_products_of_small_whole_numbers_are_exact() -> None:
    # 1·4 + 2·5 + 3·6
    assert float(dot(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 5.0, 6.0]))) == 32.0
    assert float(dot(torch.tensor([-3.0]), torch.tensor([0.5]))) == -1.5


@given(pairs)
def test_factors_may_change_places(values: list[tuple[float, float]]) -> None:
    one, other = torch.tensor(values, dtype=torch.float64).T
    assert torch.equal(dot(one, other), dot(other, one))
    assert float(dot(one, one)) >= 0.0


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_rows_have_the_bits_that_they_have_alone(length: int, dtype: torch.dtype) -> None:
    one, other = normal(3, 7, length, dtype=dtype), normal(7, length, dtype=dtype)
    found = dot(one, other)
    assert found.shape == (3, 7, 1)
    for lane in range(3):
        for row in range(7):
            assert torch.equal(found[lane, row], dot(one[lane, row].clone(), other[row].clone()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("start", [1, 3, 7])
def test_bits_dont_depend_on_where_a_vector_begins(start: int, dtype: torch.dtype) -> None:
    """Vector instructions begin at aligned addresses, and sums that use them have another order elsewhere."""
    one, other = normal(2, 1000, dtype=dtype)
    buffer = torch.zeros(2, 1000 + start, dtype=dtype)
    buffer[0, start:], buffer[1, start:] = one, other
    assert torch.equal(dot(buffer[0, start:], buffer[1, start:]), dot(one, other))
    assert torch.equal(dot(buffer[0, start:], other), dot(one, other))


def test_bits_dont_depend_on_the_stride() -> None:
    one, other = normal(2, 1000)
    columns = torch.stack([one, other], dim=-1)
    assert torch.equal(dot(columns[:, 0], columns[:, 1]), dot(one, other))


@pytest.mark.usefixtures("threads")
def test_bits_dont_depend_on_the_number_of_threads() -> None:
    one, other = normal(2, 200_003, dtype=torch.float32)  # above the size from which torch uses several threads
    found = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found.append(float(dot(one, other)))
    assert len(set(found)) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("length", [1, 2, 1000])
def test_vectors_stay_as_they_are(length: int, dtype: torch.dtype) -> None:
    one, other = normal(2, length, dtype=dtype)
    before = one.clone(), other.clone()
    found = dot(one, other)
    found += 1
    dot(one, one)
    assert torch.equal(one, before[0])
    assert torch.equal(other, before[1])


def test_a_product_keeps_no_memory_but_its_own() -> None:
    assert dot(*normal(2, 1000)).untyped_storage().nbytes() == 8


def test_products_of_float32_neither_overflow_nor_round() -> None:
    large = torch.tensor([1e30, 1.0], dtype=torch.float32)
    assert float(dot(large, large)) == float(large[0]) ** 2 + 1.0
    small = torch.tensor([1.0 + 2.0**-20], dtype=torch.float32)
    assert float(dot(small, small)) == (1.0 + 2.0**-20) ** 2
