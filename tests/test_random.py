"""Draws are a fixed function of their names, the same in NumPy and torch."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from adabest import random
from adabest.random import Purpose

WORDS = st.integers(-(2**63), 2**63 - 1)
SHAPES = npst.array_shapes(min_dims=1, max_dims=3, max_side=4)


def hash_by_hand(*words: int) -> int:
    """The definition again, in Python's unbounded integers."""
    mask = 2**64 - 1
    state = 0
    for word in words:
        state = ((state ^ (word & mask)) + 0x9E3779B97F4A7C15) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return state


def unsigned(bits: Any) -> int:
    assert bits.shape == (1,)
    return int(bits[0]) % 2**64


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())


@given(st.integers(-(2**100), 2**100), st.sampled_from(Purpose), st.lists(WORDS, max_size=5))
def test_the_hash_is_the_one_written_down(seed: int, purpose: Purpose, words: list[int]) -> None:
    assert unsigned(random.bits(seed, purpose, *words)) == hash_by_hand(seed, purpose, *words)


def test_the_hash_never_changes() -> None:
    # A change here changes every result that was ever published with this package.
    assert unsigned(random.bits(0, Purpose.COHORT)) == 0x08B4FDA8C892B50E
    assert unsigned(random.bits(0, Purpose.COHORT, 1, 2, 3)) == 0x3C795F6E51E6FE9B
    assert unsigned(random.bits(-1, Purpose.DROPOUT, 2**63 - 1, 12345)) == 0x5377682B617EFF85
    assert [p.value for p in Purpose] == [*range(1, 14), 16]


@given(st.data(), st.integers(-(2**70), 2**70))
def test_numpy_and_torch_agree_in_any_broadcast_shape(data: st.DataObject, seed: int) -> None:
    shapes = data.draw(npst.mutually_broadcastable_shapes(num_shapes=2, min_dims=1, max_dims=3, max_side=4))
    a, b = (data.draw(npst.arrays(np.int64, shape, elements=WORDS)) for shape in shapes.input_shapes)
    in_numpy = random.bits(seed, Purpose.BATCH_ORDER, a, 5, b)
    in_torch = random.bits(seed, Purpose.BATCH_ORDER, torch.from_numpy(a), 5, torch.from_numpy(b))
    assert in_numpy.shape == tuple(in_torch.shape) == shapes.result_shape
    assert in_numpy.dtype == np.int64
    assert in_torch.dtype == torch.int64
    np.testing.assert_array_equal(in_numpy, in_torch.numpy())
    wide_a, wide_b = np.broadcast_arrays(a, b)
    for place in np.ndindex(shapes.result_shape):
        word = hash_by_hand(seed, Purpose.BATCH_ORDER, int(wide_a[place]), 5, int(wide_b[place]))
        assert int(in_numpy[place]) % 2**64 == word


@given(npst.arrays(np.int64, SHAPES, elements=WORDS), st.integers(1, 2**31 - 1))
def test_derived_draws_agree_too(bits: np.ndarray, bound: int) -> None:
    tensor = torch.from_numpy(bits)
    np.testing.assert_array_equal(random.uniform(bits), random.uniform(tensor).numpy())
    np.testing.assert_array_equal(random.below(bits, bound), random.below(tensor, bound).numpy())
    np.testing.assert_array_equal(random.order(bits), random.order(tensor).numpy())


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: its bits can't be compared with the CPU's")
def test_cuda_gives_the_bits_of_the_cpu() -> None:
    words = torch.arange(-5000, 5000) * 0x1234567890ABCD
    on_cpu = random.bits(3, Purpose.DROPOUT, 1, words)
    on_cuda = random.bits(3, Purpose.DROPOUT, 1, words.cuda())
    assert torch.equal(on_cuda.cpu(), on_cpu)
    assert torch.equal(random.uniform(on_cuda).cpu(), random.uniform(on_cpu))
    assert torch.equal(random.below(on_cuda, 45).cpu(), random.below(on_cpu, 45))
    assert torch.equal(random.order(on_cuda % 100).cpu(), random.order(on_cpu % 100))


def test_every_bit_of_every_word_matters() -> None:
    # Each single-bit change of a name should flip about half of the 64 bits.
    name = [3, 11, 5, 8]
    base = hash_by_hand(0, Purpose.BATCH_ORDER, *name)
    flips = []
    for position in range(len(name)):
        for bit in range(64):
            changed = list(name)
            changed[position] ^= 1 << bit
            bits = unsigned(random.bits(0, Purpose.BATCH_ORDER, *changed))
            flips.append((bits ^ base).bit_count())
    assert min(flips) > 10
    assert max(flips) < 54
    assert 31 < np.mean(flips) < 33


@given(st.lists(WORDS, min_size=2, max_size=4, unique=True))
def test_names_are_ordered_and_have_a_length(words: list[int]) -> None:
    names = [words, words[::-1], [*words, 0], words[:-1]]
    drawn = {unsigned(random.bits(0, Purpose.COHORT, *name)) for name in names}
    assert len(drawn) == len(names)


def test_seed_and_purpose_are_part_of_the_name() -> None:
    drawn = {unsigned(random.bits(seed, purpose, 4)) for seed in range(-20, 20) for purpose in Purpose}
    assert len(drawn) == 40 * len(Purpose)


def test_only_the_lower_64_bits_of_a_seed_count() -> None:
    assert unsigned(random.bits(-1, Purpose.COHORT, 1)) == unsigned(random.bits(2**64 - 1, Purpose.COHORT, 1))
    assert unsigned(random.bits(2**64 + 5, Purpose.COHORT, 1)) == unsigned(random.bits(5, Purpose.COHORT, 1))
    assert unsigned(random.bits(2**63, Purpose.COHORT)) != unsigned(random.bits(0, Purpose.COHORT))


def test_uniform_is_uniform_and_its_neighbours_are_independent() -> None:
    count = 100_000
    draws = random.uniform(random.bits(0, Purpose.BATCH_ORDER, np.arange(count)))
    assert draws.dtype == np.float64
    assert 0 <= draws.min() < 1e-4
    assert 1 - 1e-4 < draws.max() < 1
    assert abs(draws.mean() - 0.5) < 5 / np.sqrt(12 * count)
    assert abs(draws.var() - 1 / 12) < 5 / np.sqrt(180 * count)
    neighbours = {
        "next key": random.uniform(random.bits(0, Purpose.BATCH_ORDER, np.arange(count) + 1)),
        "next seed": random.uniform(random.bits(1, Purpose.BATCH_ORDER, np.arange(count))),
        "next purpose": random.uniform(random.bits(0, Purpose.BATCH_TOP_UP, np.arange(count))),
        "one more word": random.uniform(random.bits(0, Purpose.BATCH_ORDER, np.arange(count), 0)),
    }
    for name, other in neighbours.items():
        assert abs(np.corrcoef(draws, other)[0, 1]) < 5 / np.sqrt(count), name


def test_uniform_at_its_ends() -> None:
    ends = np.array([0, -1, 2**63 - 1, -(2**63)])
    assert random.uniform(ends).tolist() == [0.0, 1 - 2.0**-53, 0.5 - 2.0**-53, 0.5]


@pytest.mark.parametrize("bound", [2, 7, 45])
def test_below_is_uniform_under_its_bound(bound: int) -> None:
    draws = random.below(random.bits(1, Purpose.BATCH_TOP_UP, np.arange(1000 * bound)), bound)
    counts = np.bincount(draws)
    assert len(counts) == bound
    assert chi_square(counts) < bound + 5 * np.sqrt(2 * bound)


def test_below_takes_a_bound_for_each_draw_up_to_its_limit() -> None:
    bits = np.array([[-1], [0]])
    bounds = np.array([1, 2, 3, 2**31 - 1])
    assert random.below(bits, bounds).tolist() == [[0, 1, 2, 2**31 - 2], [0, 0, 0, 0]]


@given(npst.arrays(np.int64, SHAPES, elements=st.integers(-3, 3)))
def test_order_is_a_stable_permutation_of_each_row(keys: np.ndarray) -> None:
    # Few different keys, so that most rows have equal ones.
    permutation = random.order(keys)
    for row, found in zip(keys.reshape(-1, keys.shape[-1]), permutation.reshape(-1, keys.shape[-1]), strict=True):
        assert found.tolist() == sorted(range(len(row)), key=lambda place: (row[place], place))


def test_order_is_stable_in_long_rows_too() -> None:
    # Short rows are sorted by insertion, which is stable by itself.
    keys = random.below(random.bits(0, Purpose.BATCH_ORDER, np.arange(20_000)), 3)
    expected = sorted(range(len(keys)), key=keys.tolist().__getitem__)
    assert random.order(keys).tolist() == expected
    assert random.order(torch.from_numpy(keys)).tolist() == expected


def test_order_gives_every_permutation_equally_often() -> None:
    rows = random.order(random.bits(0, Purpose.BATCH_ORDER, np.arange(12_000)[:, None], np.arange(4)))
    _, counts = np.unique(rows, axis=0, return_counts=True)
    assert len(counts) == 24
    assert chi_square(counts) < 23 + 5 * np.sqrt(46)


def test_library_generators_are_keyed() -> None:
    def draws(*key: Any) -> tuple[float, ...]:
        return tuple(random.numpy_generator(*key).random(3).tolist())

    assert draws(0, Purpose.PARTITION, 3) == draws(0, Purpose.PARTITION, 3)
    keys = [(0, Purpose.PARTITION, 3), (0, Purpose.PARTITION, 4), (1, Purpose.PARTITION, 3), (0, Purpose.ROLES, 3)]
    keys += [(-1, Purpose.PARTITION, 3), (2**63, Purpose.PARTITION, 3)]
    assert len({draws(*key) for key in keys}) == len(keys)


def test_a_library_generator_has_both_halves_of_its_key_from_the_hash() -> None:
    state: Any = random.numpy_generator(5, Purpose.PARTITION, 3).bit_generator.state
    assert state["bit_generator"] == "Philox"
    assert state["state"]["key"].tolist() == [hash_by_hand(5, Purpose.PARTITION, 3, half) for half in (0, 1)]


def test_torch_seeds_are_keyed_and_accepted_by_torch() -> None:
    keys = [(0, Purpose.INITIAL_MODEL), (1, Purpose.INITIAL_MODEL), (0, Purpose.ROLES), (3 - 2**90, Purpose.ROLES)]
    seeds = [random.torch_seed(*key) for key in keys]
    assert len(set(seeds)) == len(keys)
    assert seeds == [random.torch_seed(*key) for key in keys]
    for seed in seeds:
        torch.Generator().manual_seed(seed)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 2**80))
def test_below_any_is_below_any_bound(word: int, bound: int) -> None:
    drawn = random.below_any(word, bound)
    assert 0 <= drawn < bound
    assert drawn == (word % 2**64) * bound // 2**64
    if bound < 2**31:
        # The upper half of the bits alone decides there, up to the last place.
        assert abs(drawn - int(random.below(np.array([word]), bound)[0])) <= 1


def test_below_refuses_bounds_that_its_bits_can_not_reach() -> None:
    with pytest.raises(ValueError, match="too large for 32 random bits"):
        random.below(np.array([1]), 2**31)


@pytest.mark.parametrize("bound", [0.0, 2.0**-53, 0.1, 0.25, 0.5 - 2.0**-53, 0.5, 0.75, 1 - 2.0**-53])
def test_at_least_is_the_comparison_of_uniforms(bound: float) -> None:
    edge = math.ceil(bound * 2.0**53) << 11
    near = np.array([random.signed(edge + step) for step in (-2048, -1, 0, 1, 2047)])
    draws = np.concatenate([near, random.bits(1, Purpose.DROPOUT, np.arange(1000))])
    expected = random.uniform(draws) >= bound
    np.testing.assert_array_equal(random.at_least(draws, bound), expected)
    np.testing.assert_array_equal(random.at_least(torch.from_numpy(draws), bound).numpy(), expected)
