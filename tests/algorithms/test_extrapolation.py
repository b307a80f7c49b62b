"""The β that sets itself: its formula in numbers worked out by hand, its bounds, and what it doesn't depend on."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from quadratics import random_quadratics, run, simulate, vector
from tiny_digits import CLIENTS, digits_task, simulate_digits
from torch import Tensor

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.extrapolation import extrapolated_share, next_means, no_means

Round = tuple[float, list[float], list[float]]  # the mean of ‖g_i‖², ḡ_t and Δ_t

# In round 2 ḡ points along Δ_1, and in round 3 against Δ_2.
ROUNDS: list[Round] = [
    (25.0, [3.0, 4.0], [3.0, 4.0]),
    (4.0, [0.0, 2.0], [0.0, -1.0]),
    (9.0, [0.0, 3.0], [0.0, 1.0]),
]

entries = st.floats(min_value=-10.0, max_value=10.0).filter(lambda x: x == 0 or abs(x) > 1e-3)
vectors = st.lists(entries, min_size=3, max_size=3)
rounds = st.lists(st.tuples(st.floats(min_value=0.01, max_value=100.0), vectors, vectors), min_size=1, max_size=5)


def play(played: list[Round], scale: float = 1.0) -> Tensor:
    """The means after some rounds, with all vectors times ``scale``."""
    means, last = no_means(vector(0.0)), torch.zeros(len(played[0][1]), dtype=torch.float64)
    for square, pseudo_gradient, change in played:
        delta = scale * vector(*change)
        means = next_means(means, vector(scale**2 * square), scale * vector(*pseudo_gradient), last, delta)
        last = delta
    return means


def share(played: list[Round], replies: int = 10, scale: float = 1.0) -> float:
    return float(extrapolated_share(play(played, scale), replies))


def repeated(square: float, cosine: float, length: float, count: int = 30) -> list[Round]:
    """Rounds that are all alike: ‖Δ‖ is the length, and ḡ has a cosine with the change before."""
    sine = math.sqrt(1.0 - cosine**2)
    return [(square, [cosine, sine], [length, 0.0])] * count


# --- By hand ----------------------------------------------------------------------------------------------------------


def test_means_by_hand() -> None:
    """Each is .9 of what it was and .1 of what is new; they hold G², D², and for c its weight and its sum."""
    # 1: ‖Δ‖² = 25; there is no Δ_0, so no angle
    assert play(ROUNDS[:1]).tolist() == pytest.approx([2.5, 2.5, 0.0, 0.0])
    # 2: ‖Δ‖² = 1, −cos = −8 / (2 · 5) = −.8; .9 · 2.5 + .4 and .9 · 2.5 + .1
    assert play(ROUNDS[:2]).tolist() == pytest.approx([2.65, 2.35, 0.1, -0.08])
    # 3: ‖Δ‖² = 1, −cos = 3 / (3 · 1) = 1; .9 · 2.65 + .9, .9 · 2.35 + .1, .9 · .1 + .1 and .9 · (−.08) + .1
    assert play(ROUNDS).tolist() == pytest.approx([3.285, 2.215, 0.19, 0.028])


@pytest.mark.parametrize("replies", [1, 2, 10])
def test_beta_by_hand(replies: int) -> None:
    # 1: r = .6, G = D
    assert share(ROUNDS[:1], replies) == pytest.approx(0.6)
    # 2: c would be −.8, so it is 0
    assert share(ROUNDS[:2], replies) == pytest.approx(0.6 * math.sqrt(2.65 / 2.35))
    # 3: c = .028 / .19
    r = 0.6 * (1 - 3 * (0.028 / 0.19) / replies**2)
    assert share(ROUNDS, replies) == pytest.approx(r * math.sqrt(3.285 / 2.215))


# --- Bounds -----------------------------------------------------------------------------------------------------------


def test_the_first_round_has_no_angle() -> None:
    means = play([(1.0, [1.0, 0.0], [1.0, 0.0])])
    assert means[2:].tolist() == [0.0, 0.0]
    assert share([(1.0, [1.0, 0.0], [1.0, 0.0])], replies=1) == pytest.approx(0.6)


def test_a_round_without_a_pseudo_gradient_has_no_angle() -> None:
    with_one = [*ROUNDS[:2], (0.0, [0.0, 0.0], [1.0, 0.0])]
    assert play(with_one)[2:].tolist() == pytest.approx([0.09, -0.072])  # .9 of those before


def test_a_change_of_zero_gives_no_beta() -> None:
    for square in (0.0, 4.0):
        for count in (1, 2, 5):
            assert share([(square, [0.0, 0.0], [0.0, 0.0])] * count, replies=1) == 0.0
    assert float(extrapolated_share(no_means(vector(1.0, 2.0)), 1)) == 0.0


def test_a_change_of_zero_after_others_leaves_beta_finite() -> None:
    assert 0.0 < share([*ROUNDS, *[(0.0, [0.0, 0.0], [0.0, 0.0])] * 50]) <= 0.99


@given(rounds, st.integers(min_value=1, max_value=100))
def test_beta_is_between_zero_and_its_largest(played: list[Round], replies: int) -> None:
    assert 0.0 <= share(played, replies) <= 0.99


def test_beta_reaches_its_largest_where_clients_move_far_and_the_aggregate_little() -> None:
    assert share(repeated(square=100.0, cosine=0.0, length=0.1)) == 0.99


@pytest.mark.parametrize(("square", "length"), [(1.0, 1.0), (4.0, 5.0), (1e-6, 2e-3)])
def test_h_is_a_fixed_share_of_one_clients_way_where_rounds_are_alike(square: float, length: float) -> None:
    """‖h‖ = β ‖Δ‖ = r_0 G, as long as β is below its largest value."""
    beta = share(repeated(square, cosine=0.0, length=length))
    assert beta < 0.99
    assert beta * length == pytest.approx(0.6 * math.sqrt(square))


@given(st.floats(min_value=-1.0, max_value=1.0))
def test_undone_changes_hardly_count_for_ten_clients(cosine: float) -> None:
    beta = share(repeated(1.0, cosine, length=1.0), replies=10)
    assert 0.97 * 0.6 - 1e-12 <= beta <= 0.6 + 1e-12


def test_a_cohort_of_one_keeps_nothing_that_is_undone() -> None:
    assert share(repeated(1.0, cosine=-1.0, length=1.0), replies=1) == 0.0
    # c = .2: 1 − 3 · .2
    assert share(repeated(1.0, cosine=-0.2, length=1.0), replies=1) == pytest.approx(0.4 * 0.6)


@pytest.mark.parametrize("cosine", [0.0, 0.1, 0.5, 1.0])
def test_a_change_that_goes_on_counts_as_one_that_isnt_undone(cosine: float) -> None:
    assert share(repeated(1.0, cosine, length=1.0), replies=1) == pytest.approx(0.6)


# --- What it doesn't depend on ----------------------------------------------------------------------------------------


@given(rounds, st.sampled_from([1, 2, 10]), st.sampled_from([10.0, 1e-6, 1e6]))
def test_beta_has_no_scale(played: list[Round], replies: int, scale: float) -> None:
    assert share(played, replies, scale) == pytest.approx(share(played, replies), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_runs_that_are_stacked_have_the_bits_of_each_alone(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    lanes, size = 3, 37

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    drawn = [(draw(lanes, 1) ** 2, draw(lanes, size), draw(lanes, size), draw(lanes, size)) for _ in range(4)]
    together = no_means(drawn[0][1])
    assert (together.shape, together.dtype) == ((lanes, 4), torch.float64)
    alone = [no_means(drawn[0][1][lane]) for lane in range(lanes)]
    for values in drawn:
        together = next_means(together, *values)
        beta = extrapolated_share(together, 2)
        assert (beta.shape, beta.dtype) == ((lanes, 1), torch.float64)
        for lane in range(lanes):
            alone[lane] = next_means(alone[lane], *(tensor[lane].clone() for tensor in values))
            assert torch.equal(together[lane], alone[lane])
            assert torch.equal(beta[lane], extrapolated_share(alone[lane], 2))


# --- One client a round -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_auto_stays_near_the_optimum_with_one_client_a_round_where_a_large_beta_doesnt(seed: int) -> None:
    """β = .96 adds up what single clients undo; 2.6 to 2.8 times the excess loss when this was written."""
    task = random_quadratics(seed, 20, dim=10)
    best = task.test(task.optimum()).loss

    def late_excess(algorithm: AdaBest) -> float:
        states = run(simulate(algorithm, task, participation=1 / 20), 60)
        return sum(task.test(state.aggregate).loss - best for state in states[-20:]) / 20

    auto = late_excess(AdaBest(beta="auto"))
    assert auto < 0.3 * (task.test(task.origin).loss - best)
    assert late_excess(AdaBest(beta=0.96)) > 2 * auto


def test_auto_keeps_the_model_of_skewed_digits_small_with_one_client_a_round() -> None:
    """The norms were 17 and 4 when this was written."""
    norms = {}
    for beta in (0.96, "auto"):
        algorithm = AdaBest(beta=beta)
        simulation = simulate_digits(algorithm, digits_task(dtype=torch.float32), participation=1 / CLIENTS)
        for _ in range(15):
            simulation.step()
        norms[beta] = float(torch.linalg.vector_norm(simulation.state.cloud))
    assert norms[0.96] > 3 * norms["auto"]
