"""Who takes part in a round, and which samples each of them uses when."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adabest.federation import cohort_size, draw_cohort
from adabest.federation.batches import batch_table, batches_per_epoch


class TestCohorts:
    @pytest.mark.parametrize(
        ("participation", "present", "expected"),
        [
            (0.1, 100, 10),
            (0.01, 100, 1),
            (1.0, 100, 100),
            (0.001, 100, 1),
            (0.016, 100, 2),
            (0.3, 1, 1),
            (0.07, 100, 7),
        ],
    )
    def test_size(self, participation: float, present: int, expected: int) -> None:
        assert cohort_size(participation, present) == expected

    @given(st.sets(st.integers(0, 10_000), min_size=1, max_size=50), st.integers(), st.integers(1, 5000), st.data())
    def test_exactly_k_of_those_present(
        self, present: set[int], seed: int, round_number: int, data: st.DataObject
    ) -> None:
        size = data.draw(st.integers(1, len(present)))
        clients = np.array(sorted(present))
        cohort = draw_cohort(seed, round_number, clients, size)
        assert len(cohort) == size
        assert set(cohort.tolist()) <= present
        assert cohort.tolist() == sorted(set(cohort.tolist()))
        np.testing.assert_array_equal(draw_cohort(seed, round_number, clients, size), cohort)

    def test_everyone(self) -> None:
        clients = np.array([2, 3, 5, 8])
        assert draw_cohort(0, 1, clients, 4).tolist() == [2, 3, 5, 8]

    def test_seed_and_round_matter(self) -> None:
        cohorts = {tuple(draw_cohort(seed, t, np.arange(1000), 10)) for seed in range(10) for t in range(1, 11)}
        assert len(cohorts) == 100

    def test_every_client_and_every_pair_equally_often(self) -> None:
        # 3 of 12: a client comes with probability 1/4, a pair with 1/22.
        rounds = 12_000
        cohorts = [draw_cohort(0, t, np.arange(12), 3).tolist() for t in range(rounds)]
        singles = Counter(itertools.chain.from_iterable(cohorts))
        pairs = Counter(itertools.chain.from_iterable(itertools.combinations(cohort, 2) for cohort in cohorts))
        assert (len(singles), len(pairs)) == (12, 66)
        for counts, share in ((singles, 1 / 4), (pairs, 1 / 22)):
            spread = np.sqrt(rounds * share * (1 - share))
            assert max(abs(count - rounds * share) for count in counts.values()) < 4.5 * spread


class TestBatches:
    @given(
        st.lists(
            st.tuples(st.integers(0, 10**6), st.integers(1, 40)), min_size=1, max_size=5, unique_by=lambda c: c[0]
        ),
        st.integers(1, 3),
        st.integers(1, 50),
        st.integers(),
    )
    def test_every_epoch_uses_every_sample_once_and_then_tops_up(
        self, clients: list[tuple[int, int]], epochs: int, batch_size: int, seed: int
    ) -> None:
        ids, samples = (np.array(column) for column in zip(*clients, strict=True))
        table = batch_table(seed, 3, ids, samples, epochs=epochs, batch_size=batch_size)
        assert table.shape == (len(clients), epochs, -(-max(samples) // batch_size), batch_size)
        for (_, own), rows in zip(clients, table, strict=True):
            for epoch in rows[:, : batches_per_epoch(own, batch_size)]:
                places = epoch.reshape(-1)
                assert sorted(places[:own]) == list(range(own))
                assert all(0 <= place < own for place in places[own:])

    @given(st.lists(st.integers(1, 40), min_size=2, max_size=5), st.integers(1, 50))
    def test_the_same_in_numpy_and_torch_together_and_alone(self, samples: list[int], batch_size: int) -> None:
        ids, own = np.arange(len(samples)) * 7, np.array(samples)
        table = batch_table(1, 2, ids, own, epochs=2, batch_size=batch_size)
        in_torch = batch_table(1, 2, torch.from_numpy(ids), torch.from_numpy(own), epochs=2, batch_size=batch_size)
        assert in_torch.dtype == torch.int64
        np.testing.assert_array_equal(table, in_torch.numpy())
        for place in range(len(samples)):
            alone = batch_table(1, 2, ids[place : place + 1], own[place : place + 1], epochs=2, batch_size=batch_size)
            np.testing.assert_array_equal(alone[0], table[place, :, : alone.shape[2]])

    def test_a_batch_larger_than_the_client_is_filled_from_it(self) -> None:
        table = batch_table(0, 1, np.array([4]), np.array([3]), epochs=1, batch_size=200)[0, 0]
        assert table.shape == (1, 200)
        assert sorted(table[0, :3]) == [0, 1, 2]
        # Uniform draws with replacement: 197 of 3, each about 66 times.
        assert min(np.bincount(table[0, 3:])) > 35

    def test_top_ups_are_uniform_over_all_own_samples(self) -> None:
        ids = np.arange(400)
        table = batch_table(0, 1, ids, np.full(400, 11), epochs=5, batch_size=10)
        counts = np.bincount(table[:, :, 1, 1:].reshape(-1), minlength=11)
        expected = 400 * 5 * 9 / 11
        assert float(((counts - expected) ** 2 / expected).sum()) < 10 + 5 * np.sqrt(20)

    def test_seed_round_client_and_epoch_matter(self) -> None:
        def batches(seed: int, round_number: int, client: int) -> list[tuple[int, ...]]:
            table = batch_table(seed, round_number, np.array([client]), np.array([30]), epochs=2, batch_size=10)
            return [tuple(epoch.reshape(-1).tolist()) for epoch in table[0]]

        drawn = [e for key in itertools.product((0, 1), (1, 2), (0, 1)) for e in batches(*key)]
        assert len(set(drawn)) == 16
