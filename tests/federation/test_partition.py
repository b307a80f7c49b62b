"""Partitions honour what they promise, and are as skewed as they should be."""

import dataclasses
import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adabest import random
from adabest.errors import InputError
from adabest.federation import partitioners as rooms
from adabest.federation.partition import Partition, Scheme, check_scheme, cut, default_validation_clients
from adabest.federation.partitioners import PARTITIONERS, Deal
from adabest.random import Purpose

NAMES = PARTITIONERS.names()
CIFAR_LABELS = np.repeat(np.arange(10), 5000)


def make_scheme(**changes: Any) -> Scheme:
    scheme = Scheme(clients=10, validation_clients=1, partitioner="dirichlet", alpha=0.3, unbalance=0.0, seed=0)
    return dataclasses.replace(scheme, **changes)


def cut_digits(**changes: Any) -> Partition:
    return cut(np.arange(500) % 10, 10, make_scheme(**changes))


@st.composite
def deals(draw: st.DrawFn) -> Deal:
    """Any labels, some classes perhaps empty, and any sizes that they can fill."""
    classes = draw(st.integers(1, 12))
    labels = np.array(draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=300)))
    cuts = [*draw(st.lists(st.integers(0, len(labels)), max_size=20)), draw(st.integers(1, len(labels)))]
    alpha = 10 ** draw(st.floats(-4, 2))
    return Deal(labels, classes, np.diff([0, *sorted(cuts)]), alpha, seed=draw(st.integers(-(2**70), 2**70)))


def dealt_one_by_one(deal: Deal, places: np.ndarray) -> np.ndarray:
    """The exact partition in PROTOCOL.md's words, one place after another.

    Priors, order and uniforms are those of the package; the rule is written down again.
    """
    client_of_place = [client for client, size in enumerate(deal.sizes) for _ in range(size)]
    uniforms = random.uniform(random.bits(deal.seed, Purpose.PARTITION, rooms._UNIFORMS, np.arange(len(places))))
    pools: list[list[int]] = [[] for _ in range(deal.classes)]
    for sample in deal.shuffled(rooms._SAMPLES, len(deal.labels)).tolist():
        pools[deal.labels[sample]].append(sample)
    for pool in pools:
        pool.reverse()  # so that pop() takes the first
    priors = deal.priors()
    samples = np.full(len(places), -1)
    for place, uniform in zip(places.tolist(), uniforms.tolist(), strict=True):
        left = [label for label in range(deal.classes) if pools[label]]
        prior = priors[client_of_place[place]][left]
        prior = prior / prior.sum() if prior.sum() > 0 else np.full(len(left), 1 / len(left))
        label = left[min(int(np.searchsorted(np.cumsum(prior), uniform, side="right")), len(left) - 1)]
        samples[place] = pools[label].pop()
    return samples


def entropy_of(deal: Deal, indices: np.ndarray) -> float:
    entropies = []
    for own in np.split(deal.labels[indices], np.cumsum(deal.sizes)[:-1]):
        share = np.unique(own, return_counts=True)[1] / len(own)
        entropies.append(-(share * np.log(share)).sum())
    return float(np.mean(entropies))


class TestEveryPartitioner:
    @pytest.mark.parametrize("name", NAMES)
    @given(deal=deals())
    def test_every_place_is_filled_with_a_sample_of_its_own(self, name: str, deal: Deal) -> None:
        # Ending is part of it: the reference code's loop doesn't.
        dealt = PARTITIONERS.find(name)(deal)
        assert dealt.shape == (deal.sizes.sum(),)
        assert len(set(dealt.tolist())) == len(dealt)
        assert set(dealt.tolist()) <= set(range(len(deal.labels)))
        np.testing.assert_array_equal(PARTITIONERS.find(name)(deal), dealt)

    @pytest.mark.parametrize("name", NAMES)
    def test_partitions_depend_on_the_seed(self, name: str) -> None:
        prints = {cut_digits(partitioner=name, seed=seed).fingerprint for seed in (0, 1, -1, 2**40)}
        assert len(prints) == 4
        assert cut_digits(partitioner=name).fingerprint == cut_digits(partitioner=name).fingerprint

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("alpha", [1e-300, 1e-4, 100.0, 1e300])
    def test_extreme_priors_fill_every_place(self, name: str, alpha: float) -> None:
        partition = cut_digits(partitioner=name, alpha=alpha)
        assert len(np.unique(partition.indices)) == 11 * 45

    @pytest.mark.parametrize("name", NAMES)
    @given(
        samples=st.integers(100, 400),
        clients=st.integers(1, 20),
        validation=st.integers(0, 5),
        unbalance=st.sampled_from([0.0, 0.1, 0.3]),
        seed=st.integers(0, 1000),
    )
    def test_partition_is_complete(
        self, *, name: str, samples: int, clients: int, validation: int, unbalance: float, seed: int
    ) -> None:
        labels = np.arange(samples) % 7
        scheme = make_scheme(
            clients=clients, validation_clients=validation, partitioner=name, unbalance=unbalance, seed=seed
        )
        partition = cut(labels, 7, scheme)
        total = clients + validation
        if unbalance == 0:
            assert partition.samples.tolist() == [samples // total] * total
        else:
            assert partition.samples.sum() == samples
            assert partition.samples.min() > 0
        assert (len(partition.training), len(partition.validation)) == (clients, validation)
        assert sorted([*partition.training, *partition.validation]) == list(range(total))
        assert partition.training.tolist() == sorted(partition.training)
        assert partition.validation.tolist() == sorted(partition.validation)
        for client in range(total):
            own = partition.of(client)
            assert len(own) == partition.samples[client]
            assert np.bincount(labels[own], minlength=7).tolist() == partition.label_counts[client].tolist()
        np.testing.assert_array_equal(np.concatenate([partition.of(c) for c in range(total)]), partition.indices)


class TestSizes:
    def test_lognormal_sizes_are_rounded_down_and_the_rest_goes_to_the_first(self) -> None:
        partition = cut_digits(unbalance=0.3, seed=5)
        weights = random.numpy_generator(5, Purpose.PARTITION, rooms.SIZES).lognormal(0.0, 0.3, size=11)
        shares = 500 * weights / weights.sum()
        sizes = np.floor(shares).astype(int)
        rest = 500 - sizes.sum()
        assert 0 < rest < 11
        sizes[:rest] += 1
        assert partition.samples.tolist() == sizes.tolist()

    def test_lognormal_sizes_spread_by_sigma(self) -> None:
        sizes = cut(
            np.zeros(200_000, dtype=int), 1, make_scheme(clients=1000, partitioner="iid", unbalance=0.3)
        ).samples
        assert 0.28 < np.log(sizes).std() < 0.32

    def test_sizes_are_the_same_for_every_partitioner(self) -> None:
        sizes = {tuple(cut_digits(partitioner=name, unbalance=0.3).samples) for name in NAMES}
        assert len(sizes) == 1

    def test_validation_clients_are_a_tenth_rounded_up_in_integers(self) -> None:
        expected = {1: 1, 9: 1, 10: 1, 11: 2, 100: 10, 101: 11, 10**17 + 1: 10**16 + 1}
        assert {clients: default_validation_clients(clients) for clients in expected} == expected

    def test_roles_are_dealt_at_random(self) -> None:
        partitions = [cut_digits(clients=10, validation_clients=10, seed=seed) for seed in range(200)]
        times = np.bincount(np.concatenate([p.validation for p in partitions]), minlength=20)
        assert times.sum() == 2000
        assert abs(times - 100).max() < 5 * np.sqrt(200 * 0.25)


class TestSkew:
    def test_iid_is_one_permutation_cut_up(self) -> None:
        deal = Deal(np.arange(500) % 10, 10, np.full(11, 45), 1.0, seed=3)
        dealt = PARTITIONERS.find("iid")(deal)
        np.testing.assert_array_equal(dealt, deal.shuffled(rooms._SAMPLES, 500)[:495])
        assert cut_digits(partitioner="iid", alpha=0.01).fingerprint == cut_digits(partitioner="iid").fingerprint

    @settings(max_examples=150)
    @given(deal=deals())
    def test_dirichlet_is_the_one_by_one_rule(self, deal: Deal) -> None:
        places = deal.shuffled(rooms._PLACES, deal.sizes.sum())
        np.testing.assert_array_equal(rooms.dirichlet(deal), dealt_one_by_one(deal, places))

    @pytest.mark.parametrize("alpha", [0.01, 0.3, 10.0])
    def test_dirichlet_is_the_one_by_one_rule_over_several_blocks(self, alpha: float) -> None:
        labels = np.random.default_rng(1).integers(10, size=10_000)
        assert len(labels) > 2 * rooms._BLOCK
        deal = Deal(labels, 10, np.full(50, 200), alpha, seed=4)
        places = deal.shuffled(rooms._PLACES, 10_000)
        np.testing.assert_array_equal(rooms.dirichlet(deal), dealt_one_by_one(deal, places))

    @pytest.mark.parametrize(
        ("name", "alpha", "seeds", "each", "mean"),
        [
            ("dirichlet", 0.03, 10, (0.55, 0.80), (0.65, 0.72)),
            ("dirichlet", 0.3, 3, (1.40, 1.55), (1.44, 1.52)),
            ("dirichlet-legacy", 0.03, 1, (0.75, 1.40), (0.75, 1.40)),
            ("dirichlet-legacy", 0.3, 1, (1.65, 1.90), (1.65, 1.90)),
            pytest.param("dirichlet-legacy", 0.03, 3, (0.75, 1.40), (0.90, 1.30), marks=pytest.mark.soak),
            pytest.param("dirichlet-legacy", 0.3, 2, (1.65, 1.90), (1.65, 1.85), marks=pytest.mark.soak),
            ("iid", 0.3, 1, (2.285, 2.3), (2.285, 2.3)),
        ],
    )
    def test_entropy_at_the_size_of_cifar(
        self, name: str, alpha: float, seeds: int, each: tuple[float, float], mean: tuple[float, float]
    ) -> None:
        found = [
            cut(
                CIFAR_LABELS,
                10,
                Scheme(clients=100, validation_clients=10, partitioner=name, alpha=alpha, unbalance=0.0, seed=seed),
            ).label_entropy
            for seed in range(seeds)
        ]
        assert each[0] < min(found)
        assert max(found) < each[1]
        assert mean[0] < np.mean(found) < mean[1]

    def test_the_order_of_places_is_what_the_entropy_tells(self) -> None:
        # Served client by client, most clients find their classes untouched: the mistake the ranges above would catch.
        found = []
        for seed in range(2):
            deal = Deal(CIFAR_LABELS, 10, np.full(110, 454), 0.03, seed)
            found.append(entropy_of(deal, dealt_one_by_one(deal, np.arange(110 * 454))))
        assert max(found) < 0.45

    @pytest.mark.parametrize(
        ("row", "remaining"),
        [
            ([0.2, 0.1, 0.5, 0.3], [5, 5, 5, 5]),
            ([0.2, 0.1, 0.5, 0.3], [0, 5, 5, 5]),
            ([0.2, 0.1, 0.5, 0.3], [5, 0, 0, 5]),
            ([0.2, 0.1, 0.5, 0.3], [0, 0, 5, 0]),
            ([0.0, 0.0, 0.5, 1.0], [5, 5, 0, 0]),
            ([0.0, 0.0, 0.5, 1.0], [5, 5, 0, 5]),
            ([-1.0, 0.0, 0.0, 1.0], [0, 5, 5, 5]),
        ],
    )
    def test_legacy_draws_as_the_authors_loop_does(self, row: list[float], remaining: list[int]) -> None:
        left = np.array(remaining)
        frequencies = []
        draws = 6000
        for draw in (legacy_class_in_one_draw, legacy_class_by_rejection):
            generator = np.random.default_rng(0)
            frequencies.append(np.bincount([draw(np.array(row), left, generator) for _ in range(draws)], minlength=4))
        assert abs(frequencies[0] - frequencies[1]).max() <= 5 * np.sqrt(2 * draws * 0.25)
        assert ((frequencies[0] > 0) == (frequencies[1] > 0)).all()

    @pytest.mark.parametrize("classes", [2, 3, 10, 37])
    @pytest.mark.parametrize("alpha", [0.003, 0.03, 0.3, 10.0])
    @pytest.mark.parametrize("seed", range(4))
    def test_legacy_is_the_one_by_one_rule(self, classes: int, alpha: float, seed: int) -> None:
        generator = np.random.default_rng(seed)
        labels = generator.integers(classes, size=900)
        sizes = [np.full(9, 100), np.full(300, 3), np.array([0, 1, 600, 0, 99, 200]), np.array([850])][seed]
        deal = Deal(labels, classes, sizes, alpha, seed)
        np.testing.assert_array_equal(rooms.dirichlet_legacy(deal), legacy_dealt_one_by_one(deal))

    @pytest.mark.parametrize("alpha", [0.03, 0.3])
    def test_legacy_is_the_one_by_one_rule_at_the_size_of_cifar(self, alpha: float) -> None:
        deal = Deal(CIFAR_LABELS, 10, np.full(110, 454), alpha, seed=1)
        np.testing.assert_array_equal(rooms.dirichlet_legacy(deal), legacy_dealt_one_by_one(deal))

    @given(deal=deals())
    def test_legacy_is_the_one_by_one_rule_for_any_deal(self, deal: Deal) -> None:
        np.testing.assert_array_equal(rooms.dirichlet_legacy(deal), legacy_dealt_one_by_one(deal))

    def test_legacy_has_the_draws_of_a_generator_of_numpy(self) -> None:
        generator, draws = (np.random.Generator(np.random.Philox(key=5)) for _ in range(2))
        own = rooms._Draws(draws)
        counts = [1, 2, 3, 100, 2**31, 2**31 + 1, 3 * 2**30, 2**32 - 1]
        for number in range(3 * rooms._BLOCK):
            count = counts[number % len(counts)]
            assert own.integer_below(count) == generator.integers(count)
            if number % 3:
                assert own.uniform() == generator.random()

    @pytest.mark.parametrize(
        "row",
        [
            [5e-324, 1e-320, 0.4, 1.0],  # the first is too small for a number after a division
            [0.0, 0.0, 5e-324, 5e-324, 0.5, 0.9, 1.0],
            [0.1, 0.1, 0.3, 0.3, 0.7, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
            [0.0, 1.0],
            [0.0, 0.0, 0.0],
        ],
    )
    def test_legacy_rows_are_divided_as_by_the_one_by_one_rule(self, row: list[float]) -> None:
        plain, own = np.array(row), rooms._LegacyRow(np.array(row))
        generator, draws = (np.random.Generator(np.random.Philox(key=5)) for _ in range(2))
        fast = rooms._Draws(draws)
        remaining = np.arange(3, 3 + len(row))[::-1].copy()
        for _ in range(int(remaining.sum()) - 1):
            label = own.draw_class(remaining.tolist(), int((remaining == 0).sum()), fast)
            assert label == legacy_class_in_one_draw(plain, remaining, generator)
            remaining[label] -= 1

    def test_a_legacy_draw_of_zero_takes_the_first_class_that_is_left(self) -> None:
        class Zero(rooms._Draws):
            def uniform(self) -> float:
                return 0.0

        class ZeroOfNumpy(np.random.Generator):
            def random(self, *given: Any, **options: Any) -> Any:
                return 0.0

        for remaining in ([4, 4, 4, 4], [0, 4, 4, 4], [0, 0, 4, 4]):
            row = np.array([0.0, 0.0, 0.5, 1.0])
            expected = legacy_class_in_one_draw(row.copy(), np.array(remaining), ZeroOfNumpy(np.random.Philox(1)))
            draws = Zero(np.random.default_rng(0))
            assert rooms._LegacyRow(row).draw_class(remaining, remaining.count(0), draws) == expected

    def test_legacy_changes_its_row_in_place(self) -> None:
        row = np.array([0.2, 0.1, 0.5, 0.3])
        legacy_class_in_one_draw(row, np.array([1, 0, 1, 1]), np.random.default_rng(0))
        np.testing.assert_allclose(row, [0.2, -1, 0.5, 0.3])
        legacy_class_in_one_draw(row, np.array([1, 0, 0, 1]), np.random.default_rng(0))
        np.testing.assert_allclose(row, [0.4, -1, -1, 0.6])


def legacy_dealt_one_by_one(deal: Deal) -> np.ndarray:
    """The legacy partition with a call of NumPy for each draw."""
    generator = random.numpy_generator(deal.seed, Purpose.PARTITION, rooms._LEGACY)
    rows = np.cumsum(deal.priors(), axis=1)
    remaining = np.bincount(deal.labels, minlength=deal.classes)
    starts = np.cumsum(deal.sizes) - deal.sizes
    filled = np.zeros(len(deal.sizes), dtype=np.int64)
    open_clients = np.flatnonzero(deal.sizes > 0).tolist()
    drawn, places = [], []
    while open_clients:
        position = int(generator.integers(len(open_clients)))
        client = open_clients[position]
        label = legacy_class_in_one_draw(rows[client], remaining, generator)
        remaining[label] -= 1
        drawn.append(label)
        places.append(starts[client] + filled[client])
        filled[client] += 1
        if filled[client] == deal.sizes[client]:
            open_clients[position] = open_clients[-1]
            open_clients.pop()
    return rooms._hand_out(deal, np.array(drawn), np.array(places))


def legacy_class_in_one_draw(row: np.ndarray, remaining: np.ndarray, generator: np.random.Generator) -> int:
    row[remaining == 0] = -1.0
    positive = row > 0
    choices = np.flatnonzero(positive)
    if len(choices) == 0:
        left = np.flatnonzero(remaining)
        return int(left[generator.integers(len(left))])
    row[positive] /= row[positive].sum()
    if len(choices) == 1:
        return int(choices[0])
    draw = generator.random()
    if remaining[0] == 0:
        draw *= row.max()  # instead of redrawing until an entry reaches the draw
    return int(np.argmax(draw <= row))


def legacy_class_by_rejection(row: np.ndarray, remaining: np.ndarray, generator: np.random.Generator) -> int:
    """PROTOCOL.md's words: new u until the class has samples."""
    for label in range(len(row)):
        if remaining[label] == 0:
            row[label] = -1
    positive = [label for label in range(len(row)) if row[label] > 0]
    if not positive:
        return int(generator.choice(np.flatnonzero(remaining)))
    row[positive] /= row[positive].sum()
    if len(positive) == 1:
        return positive[0]
    while True:
        u = generator.random()
        label = next((label for label in range(len(row)) if u <= row[label]), 0)
        if remaining[label] > 0:
            return label


class TestStatistics:
    @pytest.fixture
    def tiny(self) -> Partition:
        return Partition(
            indices=np.array([3, 1, 0, 2]),
            offsets=np.array([0, 2, 4]),
            training=np.array([1]),
            validation=np.array([0]),
            label_counts=np.array([[2, 0], [1, 1]]),
        )

    def test_entropy_and_total_variation_by_hand(self, tiny: Partition) -> None:
        # Client 0 has one class (entropy 0), client 1 both (ln 2); all together are 3/4 and 1/4.
        assert tiny.label_entropy == pytest.approx(np.log(2) / 2)
        assert tiny.total_variation == pytest.approx((1 / 4 + 1 / 4) / 2)

    def test_clients_of_one_class_each_have_no_entropy(self) -> None:
        partition = cut(np.repeat([0, 1], 4), 2, Scheme(2, 0, "natural", 1.0, 0.0, seed=0), np.repeat([0, 1], 4))
        assert (partition.label_entropy, math.copysign(1, partition.label_entropy)) == (0, 1)  # not -0
        assert partition.total_variation == 0.5

    def test_one_client_is_no_different_from_all(self) -> None:
        partition = cut_digits(clients=1, validation_clients=0)
        assert partition.total_variation == pytest.approx(0, abs=1e-12)
        assert partition.label_entropy == pytest.approx(np.log(10))

    def test_the_fingerprint_of_many_samples_is_that_of_all_their_indices(self) -> None:
        """They are digested in chunks, since the indices of a federation's server take no memory."""
        count = (1 << 20) + 3
        every, none = np.array([0], dtype=np.int64), np.array([], dtype=np.int64)
        offsets, labels = np.array([0, count], dtype=np.int64), np.zeros((1, 0), dtype=np.int64)
        nowhere = np.broadcast_to(np.int64(0), count)
        digest = hashlib.sha256(bytes(8 * count) + b"|" + offsets.astype("<i8").tobytes() + b"|" + bytes(8) + b"||")
        assert Partition(nowhere, offsets, every, none, labels).fingerprint == digest.hexdigest()

    def test_the_fingerprint_sees_everything(self, tiny: Partition) -> None:
        others = [
            dataclasses.replace(tiny, indices=np.array([1, 3, 0, 2])),
            dataclasses.replace(tiny, offsets=np.array([0, 1, 4])),
            dataclasses.replace(tiny, training=np.array([0])),
            dataclasses.replace(tiny, validation=np.array([1])),
            dataclasses.replace(tiny, validation=np.array([], dtype=int)),
            dataclasses.replace(tiny, training=np.array([0, 1]), validation=np.array([], dtype=int)),
        ]
        assert len({p.fingerprint for p in [tiny, *others]}) == 1 + len(others)
        same = dataclasses.replace(tiny, indices=tiny.indices.astype(np.int32))
        assert same.fingerprint == tiny.fingerprint


class TestErrors:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"clients": 0}, "clients = 0: at least one client must train"),
            ({"validation_clients": -1}, "validation_clients = -1: it can't be negative"),
            ({"alpha": 0.0}, "alpha = 0.0: the Dirichlet concentration must be above 0"),
            ({"alpha": -0.5}, "alpha = -0.5"),
            ({"alpha": float("nan")}, "alpha = nan"),
            ({"alpha": float("inf")}, "alpha = inf"),
            ({"unbalance": -0.1}, "unbalance = -0.1"),
            ({"unbalance": float("nan")}, "unbalance = nan"),
            ({"partitioner": "dirichle"}, "unknown partition 'dirichle'; did you mean 'dirichlet'"),
        ],
    )
    def test_numbers_out_of_range_are_refused(self, changes: dict[str, Any], message: str) -> None:
        refusals: list[Callable[[], object]] = [
            lambda: check_scheme(make_scheme(**changes)),
            lambda: cut_digits(**changes),
        ]
        for refusal in refusals:
            with pytest.raises(InputError, match=message):
                refusal()

    def test_more_clients_than_samples_are_refused(self) -> None:
        message = r"501 clients \(491 to train, 10 to validate\) are more than the 500 training samples"
        with pytest.raises(InputError, match=message):
            cut_digits(clients=491, validation_clients=10)
        assert cut_digits(clients=490, validation_clients=10).samples.tolist() == [1] * 500

    @pytest.mark.parametrize("unbalance", [3.0, 30.0, 1000.0])
    def test_empty_clients_are_refused(self, unbalance: float) -> None:
        with pytest.raises(InputError, match=r"unbalance = .* clients would get no sample of 500"):
            cut_digits(unbalance=unbalance, clients=30)
