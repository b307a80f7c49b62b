"""Which samples a client uses when."""

import itertools
from typing import Any, get_args

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from adabest import random
from adabest.federation.batches import MISSING, Batching, batch_table, batches_per_epoch
from adabest.random import Purpose


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

    @given(
        st.lists(st.integers(1, 40), min_size=2, max_size=5), st.integers(1, 50), st.sampled_from(get_args(Batching))
    )
    def test_the_same_in_numpy_and_torch_together_and_alone(
        self, samples: list[int], batch_size: int, batching: Batching
    ) -> None:
        ids, own = np.arange(len(samples)) * 7, np.array(samples)
        settings: Any = {"epochs": 2, "batch_size": batch_size, "batching": batching}
        table = batch_table(1, 2, ids, own, **settings)
        in_torch = batch_table(1, 2, torch.from_numpy(ids), torch.from_numpy(own), **settings)
        assert in_torch.dtype == torch.int64
        np.testing.assert_array_equal(table, in_torch.numpy())
        for place in range(len(samples)):
            alone = batch_table(1, 2, ids[place : place + 1], own[place : place + 1], **settings)
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

    def test_top_up_is_the_default(self) -> None:
        table = batch_table(3, 1, np.array([4]), np.array([7]), epochs=2, batch_size=3)
        assert table.reshape(2, -1).tolist() == [[6, 3, 1, 5, 2, 0, 4, 6, 4], [6, 5, 1, 4, 3, 0, 2, 0, 2]]

    @given(st.integers(1, 40), st.integers(1, 50), st.integers())
    def test_a_short_batch_has_what_top_up_has_before_its_top_ups(self, own: int, batch_size: int, seed: int) -> None:
        client, samples = np.array([3]), np.array([own])
        full, short = (
            batch_table(seed, 2, client, samples, epochs=2, batch_size=batch_size, batching=batching)[0].reshape(2, -1)
            for batching in ("top-up", "short")
        )
        np.testing.assert_array_equal(short[:, :own], full[:, :own])
        assert (short[:, own:] == MISSING).all()

    def test_replacement_draws_each_sample_by_its_own_name(self) -> None:
        """Seven samples in batches of three: nine draws an epoch."""
        table = batch_table(3, 1, np.array([4]), np.array([7]), epochs=2, batch_size=3, batching="replacement")
        assert table.shape == (1, 2, 3, 3)
        names = [(epoch, place) for epoch in range(2) for place in range(9)]
        words = [int(random.bits(3, Purpose.BATCH_TOP_UP, 1, 4, *name)[0]) & (2**64 - 1) for name in names]
        assert table.reshape(-1).tolist() == [(word >> 32) * 7 >> 32 for word in words]

    def test_replacement_is_uniform_over_all_own_samples(self) -> None:
        table = batch_table(
            0, 1, np.arange(400), np.full(400, 11), epochs=5, batch_size=10, batching="replacement"
        ).reshape(-1, 20)
        counts = np.bincount(table.reshape(-1), minlength=11)
        expected = table.size / 11
        assert float(((counts - expected) ** 2 / expected).sum()) < 10 + 5 * np.sqrt(20)
        distinct = np.mean([len(set(epoch)) for epoch in table.tolist()])
        assert abs(distinct - 11 * (1 - (10 / 11) ** 20)) < 0.1, "draws of an epoch don't know each other"
