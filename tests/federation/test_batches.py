"""Which samples a client uses when."""

import itertools

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from adabest.federation.batches import batch_table, batches_per_epoch


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
