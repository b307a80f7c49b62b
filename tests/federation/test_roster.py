"""Who is present in a round, and who takes part."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adabest.errors import InputError
from adabest.federation.roster import Attendance, Roster
from adabest.federation.sampling import SAMPLERS, Draw, independent_positions
from adabest.federation.weights import WeightTree
from adabest.random import Purpose

every_sampler = pytest.mark.parametrize("sampler", SAMPLERS.names())


def make_roster(clients: Sequence[int] | int, samples: Sequence[int] | None = None, **attendance: Any) -> Roster:
    ids = np.arange(clients) if isinstance(clients, int) else np.array(clients)
    counts = np.ones(len(ids), dtype=np.int64) if samples is None else np.array(samples)
    return Roster(ids, counts, Attendance(**attendance))


def cohorts(rounds: int, clients: int, samples: Sequence[int] | None = None, **attendance: Any) -> list[list[int]]:
    roster = make_roster(clients, samples, **attendance)
    found = []
    for round_number in range(1, rounds + 1):
        roster.advance(round_number)
        found.append(roster.cohort().tolist())
    return found


def assert_shares(counts: Counter[int], expected: Sequence[float], rounds: int) -> None:
    """Each client came in about its share of the rounds: within 4.5 standard deviations."""
    for client, share in enumerate(expected):
        assert abs(counts[client] - rounds * share) < 4.5 * np.sqrt(rounds * share * (1 - share)), client


# Enough that a wrong probability shows; three times as many show smaller mistakes.
many_rounds = pytest.mark.parametrize("rounds", [4000, pytest.param(12_000, marks=pytest.mark.soak)])


class TestSamplers:
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
    @pytest.mark.parametrize("sampler", ["uniform", "weighted", "round-robin"])
    def test_cohorts_have_exactly_k_clients(
        self, sampler: str, participation: float, present: int, expected: int
    ) -> None:
        assert len(cohorts(1, present, participation=participation, sampler=sampler)[0]) == expected

    @every_sampler
    @given(
        present=st.sets(st.integers(0, 10_000), min_size=1, max_size=50),
        seed=st.integers(),
        round_number=st.integers(1, 60),
        participation=st.floats(0.01, 1.0),
        data=st.data(),
    )
    def test_cohorts_are_clients_present_each_once_and_always_the_same(
        self,
        *,
        sampler: str,
        present: set[int],
        seed: int,
        round_number: int,
        participation: float,
        data: st.DataObject,
    ) -> None:
        samples = data.draw(st.lists(st.integers(1, 1000), min_size=len(present), max_size=len(present)))
        found = []
        for _ in range(2):
            roster = make_roster(sorted(present), samples, participation=participation, sampler=sampler, seed=seed)
            roster.advance(round_number)
            found.append(roster.cohort().tolist())
        assert found[0] == found[1]
        assert found[0] == sorted(set(found[0]))
        assert found[0]
        assert set(found[0]) <= present

    @every_sampler
    def test_full_participation_takes_everyone(self, sampler: str) -> None:
        assert cohorts(3, 4, [5, 1, 2, 9], participation=1.0, sampler=sampler) == [[0, 1, 2, 3]] * 3

    @pytest.mark.parametrize("sampler", ["uniform", "bernoulli", "weighted"])
    def test_cohorts_depend_on_seed_and_round(self, sampler: str) -> None:
        drawn = {
            tuple(cohort)
            for seed in range(10)
            for cohort in cohorts(10, 1000, participation=0.01, sampler=sampler, seed=seed)
        }
        assert len(drawn) == 100

    @many_rounds
    def test_uniform_draws_every_client_and_every_pair_equally_often(self, rounds: int) -> None:
        # 3 of 12: a client comes with probability 1/4, a pair with 1/22.
        drawn = cohorts(rounds, 12, participation=0.25)
        singles = Counter(itertools.chain.from_iterable(drawn))
        pairs = Counter(itertools.chain.from_iterable(itertools.combinations(cohort, 2) for cohort in drawn))
        assert (len(singles), len(pairs)) == (12, 66)
        for counts, share in ((singles, 1 / 4), (pairs, 1 / 22)):
            spread = np.sqrt(rounds * share * (1 - share))
            assert max(abs(count - rounds * share) for count in counts.values()) < 4.5 * spread

    @many_rounds
    def test_bernoulli_is_one_coin_each_given_that_someone_comes(self, rounds: int) -> None:
        clients, coin = 5, 0.2
        drawn = cohorts(rounds, clients, participation=coin, sampler="bernoulli")
        someone = 1 - (1 - coin) ** clients
        assert_shares(Counter(itertools.chain.from_iterable(drawn)), [coin / someone] * clients, rounds)
        sizes = Counter(map(len, drawn))
        for size in range(1, clients + 1):
            ways = np.prod([(clients - i) / (i + 1) for i in range(size)])
            share = ways * coin**size * (1 - coin) ** (clients - size) / someone
            assert abs(sizes[size] - rounds * share) < 4.5 * np.sqrt(rounds * share)

    def test_bernoulli_ends_where_hardly_anyone_comes(self) -> None:
        drawn = cohorts(2000, 10, participation=1e-9, sampler="bernoulli")
        assert {len(cohort) for cohort in drawn} == {1}
        assert_shares(Counter(itertools.chain.from_iterable(drawn)), [0.1] * 10, 2000)

    @pytest.mark.parametrize(
        ("samples", "participation"),
        [([1, 2, 3, 4, 5, 6] * 5, 0.066), ([1, 2, 3, 4, 10], 0.4), ([100_000, *[1, 3] * 10], 0.09)],
        ids=["many", "few", "giant"],
    )
    @many_rounds
    def test_weighted_draws_one_after_another_in_proportion_to_samples(
        self, samples: list[int], participation: float, rounds: int
    ) -> None:
        drawn = cohorts(rounds, len(samples), samples, participation=participation, sampler="weighted")
        assert {len(cohort) for cohort in drawn} == {2}
        weights = np.array(samples) / sum(samples)
        # First, or second after any other.
        expected = [
            w + sum(v * w / (1 - v) for other, v in enumerate(weights) if other != own) for own, w in enumerate(weights)
        ]
        assert_shares(Counter(itertools.chain.from_iterable(drawn)), expected, rounds)

    def test_round_robin_goes_round(self) -> None:
        drawn = cohorts(6, 7, participation=0.43, sampler="round-robin")
        assert drawn == [[0, 1, 2], [3, 4, 5], [0, 1, 6], [2, 3, 4], [0, 5, 6], [1, 2, 3]]

    def test_round_robin_passes_over_who_is_absent(self) -> None:
        roster = make_roster(30, churn=0.2, participation=0.2, sampler="round-robin")
        pointer = 0
        for round_number in range(1, 200):
            roster.advance(round_number)
            present = set(roster.present().tolist())
            expected: list[int] = []
            while len(expected) < max(1, round(0.2 * len(present))):
                if pointer in present:
                    expected.append(pointer)
                pointer = (pointer + 1) % 30
            assert roster.cohort().tolist() == sorted(expected)

    @pytest.mark.parametrize("sampler", ["uniform", "bernoulli"])
    def test_a_draw_looks_at_few_however_many_there_are(self, sampler: str) -> None:
        def unwanted(_: Any) -> np.ndarray:
            raise AssertionError("no need to look at anyone")

        positions = []
        for round_number in range(20):
            draw = Draw(0, round_number, 2 * 10**9, 5e-9, unwanted, unwanted, unwanted)
            positions += SAMPLERS.find(sampler)(draw).tolist()
        assert 130 < len(positions) < 270
        assert min(positions) < 10**8
        assert 19 * 10**8 < max(positions) < 2 * 10**9

    @pytest.mark.parametrize(("sampler", "cost"), [("weighted", 2 * 20), ("round-robin", 0)])
    @pytest.mark.parametrize("clients", [1_000, 100_000])
    def test_other_samplers_cost_by_the_cohort_as_well(
        self, sampler: str, cost: int, clients: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One client has as much as all others: what is looked at must not grow with their number."""
        changes: list[int] = []
        original = WeightTree.add

        def add(self: WeightTree, item: int, weight: int) -> None:
            changes.append(item)
            original(self, item, weight)

        monkeypatch.setattr(WeightTree, "add", add)
        roster = make_roster(clients, [clients, *[1] * (clients - 1)], participation=20 / clients, sampler=sampler)
        roster.advance(1)
        assert len(roster.cohort()) == 20
        assert len(changes) == cost

    @given(weights=st.lists(st.integers(0, 50), min_size=1, max_size=40), data=st.data())
    def test_the_tree_finds_what_a_search_would(self, weights: list[int], data: st.DataObject) -> None:
        tree = WeightTree(np.array(weights))
        for _ in range(5):
            assert tree.total == sum(weights)
            for target in range(tree.total):
                assert tree.find(target) == int(np.searchsorted(np.cumsum(weights), target, side="right"))
            item = data.draw(st.integers(0, len(weights) - 1))
            change = data.draw(st.integers(-weights[item], 20))
            weights[item] += change
            tree.add(item, change)

    @pytest.mark.parametrize(
        "found",
        [[], [5], [-1], [0, 0, 1], [0.5], [[0]], None],
        ids=["none", "absent", "below", "twice", "half", "table", "no list"],
    )
    def test_a_sampler_of_ones_own_is_watched(self, found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(vars(SAMPLERS)["builtin"], "mine", lambda draw: found)
        roster = make_roster(10, sampler="mine", schedule=("1:leave:5-9",))
        roster.advance(1)
        with pytest.raises(
            InputError, match=r"the sampler 'mine' gave .* in round 1; .* positions from 0 to 4, each once"
        ):
            roster.cohort()

    @given(
        seed=st.integers(),
        count=st.integers(0, 400),
        probability=st.sampled_from([1e-9, 0.003, 0.1, 0.5, 0.99, 1.0]),
    )
    def test_independent_positions_are_positions(self, seed: int, count: int, probability: float) -> None:
        found = independent_positions(seed, Purpose.COHORT, probability=probability, count=count)
        someone = independent_positions(seed, Purpose.COHORT, probability=probability, count=count + 1, nonempty=True)
        assert len(someone) > 0
        assert set(someone.tolist()) <= set(range(count + 1))
        assert found.tolist() == sorted(set(found.tolist()))
        assert all(0 <= position < count for position in found.tolist())
        if probability == 1.0:
            assert len(found) == count

    def test_independent_positions_are_independent_coins(self) -> None:
        count, probability, draws = 40, 0.3, 4_000
        hits = np.zeros((draws, count))
        for number in range(draws):
            found = independent_positions(0, Purpose.COHORT, number, probability=probability, count=count)
            hits[number, found] = 1
        assert_shares(Counter(dict(enumerate(hits.sum(axis=0)))), [probability] * count, draws)
        together = (hits[:, :-1] * hits[:, 1:]).sum(axis=0)
        assert_shares(Counter(dict(enumerate(together))), [probability**2] * (count - 1), draws)


class TestPopulations:
    @given(seed=st.integers(), churn=st.floats(0.0, 1.0), clients=st.integers(1, 30))
    def test_clients_present_are_counted_right(self, seed: int, churn: float, clients: int) -> None:
        samples = np.arange(1, clients + 1)
        roster = make_roster(clients, samples.tolist(), churn=churn, seed=seed, schedule=("4:leave:0", "6:join:0"))
        for round_number in range(1, 12):
            roster.advance(round_number)
            present = roster.present()
            assert len(present) == roster.size == len(set(present.tolist()))
            assert set(roster.cohort().tolist()) <= set(present.tolist())
            if roster.size:
                assert roster.mean_samples == samples[present].mean()
            assert (0 in present.tolist()) if round_number == 6 else True
            assert (0 not in present.tolist()) if round_number == 4 else True

    def test_everyone_is_present_in_round_one_and_half_of_them_in_the_long_run(self) -> None:
        roster = make_roster(400, churn=0.05)
        roster.advance(1)
        assert roster.size == 400
        sizes = []
        for round_number in range(2, 600):
            roster.advance(round_number)
            sizes.append(roster.size)
        # P(present) = ½ + ½ (1 − 2c)^(t−1)
        assert abs(sizes[0] - 380) < 4.5 * np.sqrt(400 * 0.05 * 0.95)
        assert abs(sizes[9] - 200 * (1 + 0.9**10)) < 4.5 * 10
        assert abs(np.mean(sizes[100:]) - 200) < 10

    def test_clients_leave_and_join_by_coins_of_their_own(self) -> None:
        churn, rounds, clients = 0.2, 3_000, 12
        roster = make_roster(clients, churn=churn)
        roster.advance(1)
        before = set(roster.present().tolist())
        flips = np.zeros((rounds, clients))
        for number in range(rounds):
            roster.advance(number + 2)
            now = set(roster.present().tolist())
            flips[number, sorted(before ^ now)] = 1
            before = now
        assert_shares(Counter(dict(enumerate(flips.sum(axis=0)))), [churn] * clients, rounds)
        both = flips[:, :-1] * flips[:, 1:]
        assert_shares(Counter(dict(enumerate(both.sum(axis=0)))), [churn**2] * (clients - 1), rounds)
        later = flips[:-1] * flips[1:]
        assert_shares(Counter(dict(enumerate(later.sum(axis=0)))), [churn**2] * clients, rounds - 1)

    def test_a_schedule_is_kept(self) -> None:
        schedule = ("1:leave:3-5", "3:join:4", "3:leave:0,2", "5:leave:0-5", "7:join:1")
        roster = make_roster([10, 11, 12, 13, 14, 15], schedule=schedule, participation=1.0)
        present = []
        for round_number in range(1, 9):
            roster.advance(round_number)
            present.append(roster.present().tolist())
            assert roster.cohort().tolist() == present[-1]
        assert present == [[10, 11, 12]] * 2 + [[11, 14]] * 2 + [[]] * 2 + [[11]] * 2

    def test_a_schedule_has_the_last_word(self) -> None:
        roster = make_roster(5, churn=1.0, schedule=("2:join:0-4",))
        roster.advance(2)
        assert roster.size == 5

    @pytest.mark.parametrize(
        ("attendance", "message"),
        [
            ({"schedule": ("5:leave:3-9",)}, "names client 9, but the training clients count from 0 to 5"),
            ({"schedule": ("5:depart:3",)}, "'5:depart:3' should look like 100:leave:0-49"),
            ({"schedule": ("0:leave:3",)}, "rounds from 1"),
            ({"schedule": ("5:leave:",)}, "should look like"),
            ({"schedule": ("5:leave:4-2",)}, "has the range 4-2, which ends before it starts"),
            ({"churn": 1.5}, "churn = 1.5: a probability"),
            ({"churn": float("nan")}, "churn = nan: a probability"),
            ({"participation": 0.0}, "participation = 0.0: it must be above 0"),
            ({"participation": 1.01}, "participation = 1.01: it must be above 0 and at most 1"),
            ({"participation": float("nan")}, "participation = nan"),
            ({"sampler": "unifrom"}, "unknown sampler 'unifrom'; did you mean 'uniform'"),
        ],
    )
    def test_impossible_schedules_are_refused(self, attendance: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError, match=message):
            make_roster(6, **attendance)

    @every_sampler
    @given(seed=st.integers(0, 100), stop=st.integers(0, 12), drawn=st.booleans())
    @pytest.mark.parametrize("changes", [{}, {"churn": 0.3, "schedule": ("5:leave:0-8",)}], ids=["fixed", "changing"])
    def test_a_restored_roster_goes_on_as_if_nothing_had_happened(
        self, *, sampler: str, seed: int, stop: int, drawn: bool, changes: dict[str, Any]
    ) -> None:
        def make() -> Roster:
            return make_roster(9, range(1, 10), sampler=sampler, participation=0.4, seed=seed, **changes)

        def go_on(roster: Roster, first: int) -> list[list[int]]:
            found = []
            for round_number in range(first, 16):
                roster.advance(round_number)
                found.append(roster.cohort().tolist())
            return found

        roster, straight = make(), go_on(make(), 1)
        before = []
        for round_number in range(1, stop + 1):
            roster.advance(round_number)
            before.append(roster.cohort().tolist())
        if drawn:  # the next round was begun, and broken off
            roster.advance(stop + 1)
            roster.cohort()
        other = make()
        other.restore(*roster.state())
        other.advance(stop)
        assert before + go_on(other, stop + 1) == straight
        assert before + go_on(roster, stop + 1) == straight

    def test_the_cost_of_a_round_does_not_depend_on_the_population(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Counted, not timed: swaps, and coins that were drawn."""
        swaps: list[int] = []
        original = Roster._swap

        def swap(self: Roster, a: int, b: int) -> None:
            swaps.append(a)
            original(self, a, b)

        monkeypatch.setattr(Roster, "_swap", swap)
        roster = make_roster(200_000, churn=1e-4, participation=1e-4)
        roster.advance(1)
        assert not swaps
        for round_number in range(2, 12):
            roster.advance(round_number)
            assert len(roster.cohort()) == 20
        assert 120 < len(swaps) < 290
