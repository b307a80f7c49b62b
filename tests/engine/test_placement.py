"""Placement: who trains where, and which part of a vector is whose."""

import math
from itertools import product

import torch
from hypothesis import given
from hypothesis import strategies as st

from adabest.engine.distributed.placement import Slices, share_out

RANKS = st.integers(1, 6)
STEPS = st.lists(st.integers(1, 40), max_size=12)


def loads(steps: list[int], chosen: list[int], ranks: int) -> list[int]:
    return [sum(own for own, rank in zip(steps, chosen, strict=True) if rank == place) for place in range(ranks)]


@given(STEPS, RANKS, st.data())
def test_every_client_gets_a_rank_and_none_is_overloaded(steps: list[int], ranks: int, data: st.DataObject) -> None:
    homes = [data.draw(st.none() | st.integers(0, ranks - 1)) for _ in steps]
    chosen = share_out(steps, homes, ranks)
    assert len(chosen) == len(steps)
    assert all(0 <= rank < ranks for rank in chosen)
    assert chosen == share_out(steps, homes, ranks)
    # A rank that others would have to wait for has at most one client more than its share.
    if steps:
        assert max(loads(steps, chosen, ranks)) <= math.ceil(sum(steps) / ranks) + max(steps)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 3))
def test_without_homes_the_longest_rank_is_within_a_third_of_the_best(steps: list[int], ranks: int) -> None:
    """The bound of placing the longest first: 4/3 − 1/(3 ranks) of the best placement."""
    best = min(max(loads(steps, list(one), ranks)) for one in product(range(ranks), repeat=len(steps)))
    found = max(loads(steps, share_out(steps, [None] * len(steps), ranks), ranks))
    assert found <= (4 / 3 - 1 / (3 * ranks)) * best + 1e-9


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), RANKS)
def test_clients_stay_at_home_as_long_as_no_rank_has_more_than_its_share(steps: list[int], ranks: int) -> None:
    balanced = [own for own in steps for _ in range(ranks)]
    homes = [rank for _ in steps for rank in range(ranks)]
    assert share_out(balanced, list(homes), ranks) == homes


def test_clients_leave_a_home_where_too_many_live() -> None:
    assert sorted(share_out([4, 4, 4, 4], [0, 0, 0, 0], 2)) == [0, 0, 1, 1]
    assert share_out([9, 1, 1], [0, 0, 0], 2)[0] == 0
    assert share_out([], [], 3) == []


@given(st.integers(0, 2000), RANKS)
def test_slices_cover_a_vector_exactly_once(length: int, ranks: int) -> None:
    slices = Slices(length, ranks)
    vector = torch.arange(length)
    parts = [vector[slices.part(rank)] for rank in range(ranks)]
    assert torch.equal(torch.cat(parts), vector)
    assert [len(part) for part in parts] == slices.widths()
    assert all(slices.part(rank).start % 64 == 0 for rank in range(ranks) if slices.width(rank))
    assert max(slices.widths()) <= math.ceil(length / ranks) + 63
