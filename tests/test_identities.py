"""What the paper proves about the algorithms, and what follows from it: identities that no implementation may break."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from quadratics import (
    QuadraticTask,
    draw_cohorts,
    estimate,
    pseudo_gradients,
    random_quadratics,
    regularised_optimum,
    round_quadratics,
    run,
    run_cohorts,
    serve,
    simulate,
    weighted_optimum,
)
from tiny_digits import digits_task, simulate_digits
from torch import Tensor

from adabest.algorithms import ALGORITHMS, AdaBest, Algorithm, FedAvg, FedDyn, FedProx, Scaffold, ScaffoldM
from adabest.algorithms.base import ClientContext, Population, ServerContext
from adabest.engine import Simulation
from adabest.engine.reduction import reduce_replies

CLIENTS = 5
ROUNDS = 6

seeds = st.integers(min_value=0, max_value=10_000)
cohort_sizes = st.integers(min_value=1, max_value=CLIENTS)
betas = st.floats(min_value=0.0, max_value=1.0)
mus = st.floats(min_value=0.0, max_value=0.5)
few = settings(max_examples=20)


def norm(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector))


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    """Equal up to rounding in float64, relative to the largest entry."""
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * max(1.0, float(expected.abs().max())))


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# --- AdaBest without its two parameters is FedAvg ---------------------------------------------------------------------


def assert_same_models(one: Simulation, other: Simulation) -> None:
    """Bit for bit, in memory and in what would be written to disk."""
    assert torch.equal(one.state.cloud, other.state.cloud)
    assert torch.equal(one.state.aggregate, other.state.aggregate)
    assert torch.equal(one.scored_model(), other.scored_model())
    here, there = one.snapshot(), other.snapshot()
    for name in ("cloud", "aggregate", "scored.total", "clients.ids", "clients.model"):
        assert torch.equal(here.tensors[name], there.tensors[name]), name
    assert here.numbers["scored.weight"] == there.numbers["scored.weight"]


@few
@given(seed=seeds, size=cohort_sizes)
def test_adabest_without_beta_and_mu_is_fedavg_on_balanced_quadratics(seed: int, size: int) -> None:
    task = random_quadratics(seed, CLIENTS)
    cohorts = draw_cohorts(seed, CLIENTS, size, ROUNDS)
    adabest, fedavg = simulate(AdaBest(mu=0.0, beta=0.0), task), simulate(FedAvg(), task)
    run_cohorts(adabest, cohorts)
    run_cohorts(fedavg, cohorts)
    assert_same_models(adabest, fedavg)
    assert not torch.equal(adabest.state.cloud, task.origin), "nothing was trained, so nothing was compared"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_adabest_without_beta_and_mu_is_fedavg_on_balanced_digits(dtype: torch.dtype) -> None:
    adabest = simulate_digits(AdaBest(mu=0.0, beta=0.0), digits_task(dtype=dtype))
    fedavg = simulate_digits(FedAvg(), digits_task(dtype=dtype))
    for _ in range(4):
        mine, theirs = adabest.step(evaluate=True), fedavg.step(evaluate=True)
        assert_same_models(adabest, fedavg)
        assert mine is not None
        assert theirs is not None
        for key in ("scored_loss", "aggregate_loss", "cloud_loss", "train_loss", "validation_accuracy", "cloud_norm"):
            assert mine[key] == theirs[key], key


@pytest.mark.parametrize("algorithm", [AdaBest(mu=0.1, beta=0.0), AdaBest(mu=0.0, beta=0.1)], ids=str)
def test_either_parameter_alone_makes_adabest_differ_from_fedavg(algorithm: AdaBest) -> None:
    task = random_quadratics(0, CLIENTS)
    adabest, fedavg = simulate(algorithm, task), simulate(FedAvg(), task)
    run(adabest, 3)
    run(fedavg, 3)
    assert norm(adabest.state.cloud - fedavg.state.cloud) > 1e-4


# --- AdaBest's server at β = 1 is FedDyn's at full participation ------------------------------------------------------


def random_rounds(seed: int, size: int, dim: int = 4) -> list[dict[int, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        {client: torch.randn(dim, generator=generator, dtype=torch.float64) for client in range(size)}
        for _ in range(ROUNDS)
    ]


@few
@given(seed=seeds, size=cohort_sizes, mu=mus)
def test_adabest_server_at_beta_one_is_feddyns_at_full_participation(seed: int, size: int, mu: float) -> None:
    rounds = random_rounds(seed, size)
    origin, everyone = vector(1.0, -2.0, 0.5, 3.0), Population(size=size, mean_samples=7.0)
    adabest = serve(AdaBest(mu=mu, beta=1.0), origin, rounds, everyone)
    feddyn = serve(FedDyn(mu=mu), origin, rounds, everyone)
    for mine, theirs in zip(adabest, feddyn, strict=True):
        assert mine.h is not None
        assert theirs.h is not None
        assert_close(mine.cloud, theirs.cloud)
        assert_close(mine.h, theirs.h)
        assert torch.equal(mine.aggregate, theirs.aggregate)


def test_adabest_server_at_beta_one_is_not_feddyns_when_clients_are_missing() -> None:
    rounds, origin = random_rounds(0, 3), vector(1.0, -2.0, 0.5, 3.0)
    twice_as_many = Population(size=6, mean_samples=7.0)
    adabest = serve(AdaBest(beta=1.0), origin, rounds, twice_as_many)
    feddyn = serve(FedDyn(), origin, rounds, twice_as_many)
    assert norm(adabest[-1].cloud - feddyn[-1].cloud) > 0.1


# --- AdaBest's server state: closed form and Nesterov -----------------------------------------------------------------


@few
@given(seed=seeds, size=cohort_sizes, beta=betas, mu=mus)
def test_adabest_h_is_its_closed_form(seed: int, size: int, beta: float, mu: float) -> None:
    """That is, h_t = Σ_τ β^(t−τ+1) ḡ_τ."""
    simulation = simulate(AdaBest(mu=mu, beta=beta), random_quadratics(seed, CLIENTS))
    states = run_cohorts(simulation, draw_cohorts(seed, CLIENTS, size, ROUNDS))
    g = pseudo_gradients(states)
    for t in range(1, ROUNDS + 1):
        terms = [beta ** (t - tau + 1) * g[tau - 1] for tau in range(1, t + 1)]
        assert_close(estimate(states[t]), torch.stack(terms).sum(dim=0))


@few
@given(seed=seeds, size=cohort_sizes, beta=betas, mu=mus)
def test_adabest_server_is_nesterov_momentum(seed: int, size: int, beta: float, mu: float) -> None:
    """θ̄_t = θ̄_{t−1} − Δ_t with Δ_t = βΔ_{t−1} + ḡ_t, ḡ_t taken at θ̄_{t−1} − βΔ_{t−1}."""
    simulation = simulate(AdaBest(mu=mu, beta=beta), random_quadratics(seed, CLIENTS))
    states = run_cohorts(simulation, draw_cohorts(seed, CLIENTS, size, ROUNDS))
    aggregate, momentum = states[0].aggregate, torch.zeros_like(states[0].aggregate)
    for g, before, after in zip(pseudo_gradients(states), states[:-1], states[1:], strict=True):
        assert_close(before.cloud, aggregate - beta * momentum)
        momentum = beta * momentum + g
        aggregate = aggregate - momentum
        assert_close(after.aggregate, aggregate)


@few
@given(seed=seeds, beta=betas)
def test_adabest_without_client_states_is_an_independent_nesterov_loop(seed: int, beta: float) -> None:
    """At μ = 0 a round is a function of the cloud model alone, so the loop can be written without the package."""
    task, eta = random_quadratics(seed, CLIENTS), 0.1

    def mean_pseudo_gradient(point: Tensor) -> Tensor:
        total = torch.zeros_like(point)
        for client in range(CLIENTS):
            w = point
            for _ in range(task.steps(client)):
                w = w - eta * task.curvatures[client] @ (w - task.centres[client])
            total = total + (point - w)
        return total / CLIENTS

    x, momentum = task.origin, torch.zeros_like(task.origin)
    states = run(simulate(AdaBest(mu=0.0, beta=beta), task, eta=eta), ROUNDS)
    for state in states[1:]:
        momentum = beta * momentum + mean_pseudo_gradient(x - beta * momentum)
        x = x - momentum
        assert_close(state.aggregate, x)


# --- How far the aggregate moves --------------------------------------------------------------------------------------


def largest_residual(simulation: Simulation, cohorts: Sequence[Sequence[int]]) -> float:
    """How far θ̄_{t−1} − θ̄_t is from h_{t−1} + ḡ_t, at worst."""
    states = run_cohorts(simulation, cohorts)
    residuals = [
        norm(before.aggregate - after.aggregate - estimate(before) - g)
        for g, before, after in zip(pseudo_gradients(states), states[:-1], states[1:], strict=True)
    ]
    return max(residuals)


@few
@given(seed=seeds, size=cohort_sizes, beta=betas, mu=mus, unbalanced=st.booleans())
def test_the_aggregate_moves_by_h_and_the_pseudo_gradient_in_adabest_and_feddyn(
    seed: int, size: int, beta: float, mu: float, unbalanced: bool
) -> None:
    task = random_quadratics(seed, CLIENTS, unbalanced=unbalanced)
    cohorts = draw_cohorts(seed, CLIENTS, size, ROUNDS)
    for algorithm in (AdaBest(mu=mu, beta=beta), FedDyn(mu=mu)):
        assert largest_residual(simulate(algorithm, task), cohorts) < 1e-12


@pytest.mark.parametrize("algorithm", [Scaffold(), ScaffoldM()], ids=str)
def test_the_aggregate_does_not_move_like_that_in_scaffold(algorithm: Algorithm) -> None:
    task = random_quadratics(0, CLIENTS)
    assert largest_residual(simulate(algorithm, task), draw_cohorts(0, CLIENTS, 3, ROUNDS)) > 1e-2


# --- SCAFFOLD/m is SCAFFOLD -------------------------------------------------------------------------------------------


@few
@given(seed=seeds, size=cohort_sizes, unbalanced=st.booleans(), rate=st.sampled_from(["decayed", "undecayed"]))
def test_scaffold_m_is_scaffold_at_any_participation(seed: int, size: int, unbalanced: bool, rate: Any) -> None:
    task = random_quadratics(seed, CLIENTS, unbalanced=unbalanced)
    cohorts = draw_cohorts(seed, CLIENTS, size, ROUNDS)
    with_controls = simulate(Scaffold(control_rate=rate), task, decay=0.8)
    with_models = simulate(ScaffoldM(control_rate=rate), task, decay=0.8)
    pairs = zip(run_cohorts(with_controls, cohorts), run_cohorts(with_models, cohorts), strict=True)
    for one, other in pairs:
        assert_close(one.cloud, other.cloud)
        assert_close(estimate(one), estimate(other))
    for client in range(CLIENTS):
        assert_close(with_controls.client_state(client).h, with_models.client_state(client).h)


def test_scaffold_m_on_balanced_data_is_the_papers_line() -> None:
    """That is, h ← ((|S|−|P|)/|S|) h + (|P| / (K η |S|)) (θ − θ̄)."""
    task, eta = random_quadratics(3, CLIENTS), 0.1
    states = run_cohorts(simulate(ScaffoldM(), task, eta=eta), draw_cohorts(3, CLIENTS, 2, ROUNDS))
    for before, after in pairwise(states):
        kept = (CLIENTS - 2) / CLIENTS * estimate(before)
        fresh = 2 / (task.steps(0) * eta * CLIENTS) * (before.cloud - after.aggregate)
        assert_close(estimate(after), kept + fresh)


# --- What the server's h is made of -----------------------------------------------------------------------------------


@few
@given(seed=seeds, size=cohort_sizes, unbalanced=st.booleans())
def test_scaffolds_h_is_the_weighted_mean_of_all_clients_h(seed: int, size: int, unbalanced: bool) -> None:
    """That is, h = (1/|S|) Σ w_i h_i over all clients, those that never took part (h_i = 0) included."""
    task = random_quadratics(seed, CLIENTS, unbalanced=unbalanced)
    mean_samples = sum(task.counts) / CLIENTS
    for algorithm in (Scaffold(), ScaffoldM()):
        simulation = simulate(algorithm, task, decay=0.9)
        for cohort in draw_cohorts(seed, CLIENTS, size, ROUNDS):
            simulation.step(cohort=np.array(cohort))
            terms = [task.samples(i) / mean_samples * simulation.client_state(i).h for i in range(CLIENTS)]
            assert_close(estimate(simulation.state), torch.stack(terms).sum(dim=0) / CLIENTS)


@few
@given(seed=seeds, size=cohort_sizes, unbalanced=st.booleans(), mu=mus)
def test_feddyns_h_is_the_plain_mean_of_all_clients_unscaled_h(
    seed: int, size: int, unbalanced: bool, mu: float
) -> None:
    """That is, h = (1/|S|) Σ h_i / μ_i with the paper's h_i; the stored ones are already without μ_i."""
    simulation = simulate(FedDyn(mu=mu), random_quadratics(seed, CLIENTS, unbalanced=unbalanced))
    for cohort in draw_cohorts(seed, CLIENTS, size, ROUNDS):
        simulation.step(cohort=np.array(cohort))
        terms = [simulation.client_state(i).h for i in range(CLIENTS)]
        assert_close(estimate(simulation.state), torch.stack(terms).sum(dim=0) / CLIENTS)


def test_the_logged_client_estimate_is_mu_times_the_stored_one() -> None:
    """What acts on the gradient, μ n̄/n_i h_i, is logged, and it is what the division by μ_i above undoes."""
    task = round_quadratics([[4.0], [-4.0]], counts=[1, 3])  # n̄ = 2
    simulation = simulate(FedDyn(mu=0.5), task, eta=0.5)
    metrics = simulation.step(evaluate=True)
    assert metrics is not None
    # g_0 = 0 − 2, g_1 = 0 + 2; μ_0 = .5 · 2/1 = 1, μ_1 = .5 · 2/3 = 1/3: the mean of 1 · 2 and 1/3 · 2
    assert metrics["client_h_norm"] == pytest.approx((2.0 + 2.0 / 3.0) / 2.0, abs=1e-12)


# --- Theorem 1 --------------------------------------------------------------------------------------------------------


def theorem_1(seed: int, size: int, population: int, reach: float) -> tuple[bool, bool, float]:
    """One server step of FedDyn: whether ‖h‖ didn't grow, whether the theorem says so, and how far from a tie it is."""
    generator = torch.Generator().manual_seed(seed)

    def draw() -> Tensor:
        return torch.randn(3, generator=generator, dtype=torch.float64)

    algorithm = FedDyn()
    h, cloud = draw(), draw()
    models = {client: cloud + reach * draw() for client in range(size)}
    replies = reduce_replies(algorithm.means, [(client, algorithm.Reply(model)) for client, model in models.items()])
    context = ServerContext(
        round=2, phase=0, eta=0.1, base_eta=0.1, known_population=Population(size=population, mean_samples=7.0)
    )
    after = algorithm.server_step(algorithm.Server(h), cloud, replies, context).h
    assert after is not None
    g = cloud - torch.stack(list(models.values())).mean(dim=0)
    cosine = float(torch.dot(h, g)) / (norm(h) * norm(g))
    bound = -size / (2 * population) * norm(g) / norm(h)
    return norm(after) <= norm(h), cosine <= bound, abs(cosine - bound)


@settings(max_examples=200)
@given(
    seed=seeds,
    size=st.integers(min_value=1, max_value=4),
    absent=st.integers(min_value=0, max_value=6),
    reach=st.floats(min_value=0.01, max_value=4.0),
)
def test_theorem_1_is_an_if_and_only_if(seed: int, size: int, absent: int, reach: float) -> None:
    """‖h_t‖ ≤ ‖h_{t−1}‖ iff cos(h_{t−1}, ḡ_t) ≤ −(|P| / 2|S|) ‖ḡ_t‖ / ‖h_{t−1}‖, ties excluded."""
    shrank, predicted, distance_from_tie = theorem_1(seed, size, size + absent, reach)
    assume(distance_from_tie > 1e-9)
    assert shrank == predicted


def test_theorem_1_was_seen_from_both_sides() -> None:
    outcomes = [theorem_1(seed, 2, 5, 1.0)[0] for seed in range(200)]
    assert sum(outcomes) > 30
    assert len(outcomes) - sum(outcomes) > 30


def test_theorem_1_holds_along_a_run() -> None:
    """The same with the pseudo-gradients of real local training, at partial participation."""
    states = run_cohorts(simulate(FedDyn(mu=0.3), random_quadratics(1, CLIENTS)), draw_cohorts(1, CLIENTS, 2, 60))
    seen = set()
    for g, before, after in list(zip(pseudo_gradients(states), states[:-1], states[1:], strict=True))[1:]:
        h = estimate(before)
        bound = -2 / (2 * CLIENTS) * norm(g) / norm(h)
        shrank = norm(estimate(after)) <= norm(h)
        assert shrank == (float(torch.dot(h, g)) / (norm(h) * norm(g)) <= bound)
        seen.add(shrank)
    assert seen == {True, False}


# --- Clients that never take part -------------------------------------------------------------------------------------


def with_bystanders(algorithm: Algorithm, seed: int, size: int) -> tuple[Simulation, Simulation]:
    """The same cohorts in a small federation and in one with more clients, none of which is ever asked."""
    task = random_quadratics(seed, 2 * CLIENTS + 1, unbalanced=True)
    cohorts = draw_cohorts(seed, CLIENTS, size, ROUNDS)
    alone, among_others = simulate(algorithm, task, clients=CLIENTS), simulate(algorithm, task)
    run_cohorts(alone, cohorts)
    run_cohorts(among_others, cohorts)
    return alone, among_others


@few
@given(seed=seeds, size=cohort_sizes, beta=betas, mu=mus)
def test_clients_that_never_take_part_change_no_bit_of_adabest(seed: int, size: int, beta: float, mu: float) -> None:
    alone, among_others = with_bystanders(AdaBest(mu=mu, beta=beta), seed, size)
    assert torch.equal(alone.state.cloud, among_others.state.cloud)
    assert torch.equal(alone.state.aggregate, among_others.state.aggregate)
    assert torch.equal(estimate(alone.state), estimate(among_others.state))
    assert torch.equal(alone.scored_model(), among_others.scored_model())
    for client in range(CLIENTS):
        for mine, theirs in zip(alone.client_state(client), among_others.client_state(client), strict=True):
            assert torch.equal(mine, theirs)
    here, there = alone.snapshot(), among_others.snapshot()
    assert here.numbers == there.numbers
    assert here.tensors.keys() == there.tensors.keys()
    assert all(torch.equal(here.tensors[name], there.tensors[name]) for name in here.tensors)


@pytest.mark.parametrize("algorithm", [FedDyn(mu=0.1), Scaffold(), ScaffoldM()], ids=str)
@pytest.mark.parametrize("size", [2, CLIENTS])
def test_clients_that_never_take_part_change_feddyn_and_scaffold(algorithm: Algorithm, size: int) -> None:
    alone, among_others = with_bystanders(algorithm, 0, size)
    assert norm(alone.state.cloud - among_others.state.cloud) > 1e-3
    assert norm(estimate(alone.state) - estimate(among_others.state)) > 1e-3


# --- Where the algorithms end up --------------------------------------------------------------------------------------

heterogeneous = pytest.mark.parametrize("unbalanced", [False, True], ids=["balanced", "unbalanced"])


def distance_after(algorithm: Algorithm, task: QuadraticTask, target: Tensor, rounds: int, eta: float = 0.2) -> float:
    """The largest distance of the three models and the target."""
    simulation = simulate(algorithm, task, eta=eta)
    run(simulation, rounds)
    models = (simulation.state.cloud, simulation.state.aggregate, simulation.scored_model())
    return max(norm(model - target) for model in models)


@heterogeneous
@pytest.mark.parametrize("algorithm", [Scaffold(), ScaffoldM(), FedDyn(mu=0.5)], ids=str)
def test_variance_reduced_algorithms_reach_the_sample_weighted_optimum(algorithm: Algorithm, unbalanced: bool) -> None:
    task = random_quadratics(1, 4, unbalanced=unbalanced)
    assert distance_after(algorithm, task, weighted_optimum(task), rounds=400) < 1e-8


def test_the_sample_weighted_optimum_is_not_the_plain_one() -> None:
    """Otherwise the unbalanced cases above would say nothing about the weights."""
    task = random_quadratics(1, 4, unbalanced=True)
    plain = QuadraticTask(task.curvatures, task.centres, [1] * 4, task.paces, task.origin)
    assert norm(weighted_optimum(task) - weighted_optimum(plain)) > 0.1


@heterogeneous
@pytest.mark.parametrize("algorithm", [FedAvg(), FedProx(mu=0.5)], ids=str)
def test_fedavg_and_fedprox_stall_away_from_the_optimum(algorithm: Algorithm, unbalanced: bool) -> None:
    task = random_quadratics(1, 4, unbalanced=unbalanced)
    simulation = simulate(algorithm, task, eta=0.2)
    states = run(simulation, 200)
    assert norm(states[-1].cloud - weighted_optimum(task)) > 1e-2
    assert norm(states[-1].cloud - states[-2].cloud) < 1e-10, "it is still moving, so it hasn't stalled"


def test_fedavg_has_no_bias_where_clients_share_their_curvature() -> None:
    """So the stall above is due to curvature, not to the engine."""
    task = round_quadratics([[4.0, 0.0], [-1.0, 2.0], [0.0, 7.0]], steps=3)
    assert distance_after(FedAvg(), task, weighted_optimum(task), rounds=200) < 1e-12


@pytest.mark.parametrize(("mu", "beta"), [(0.3, 0.5), (0.5, 0.8), (0.5, 0.0)])
def test_adabest_reaches_the_minimiser_of_a_regularised_objective(mu: float, beta: float) -> None:
    """That of f + (μ(1−β)/2) ‖θ − θ_0‖², because Σ ḡ_t = (1−β)(θ̄_0 − θ̄_∞)."""
    task = random_quadratics(1, 4)
    target = regularised_optimum(task, mu * (1 - beta))
    assert distance_after(AdaBest(mu=mu, beta=beta), task, target, rounds=300) < 1e-8
    assert norm(target - weighted_optimum(task)) > 1e-2


# --- One client, one step, by hand ------------------------------------------------------------------------------------

# The client's objective is ½(w − 4)², so its gradient is w − 4; θ_0 = 0 and η = ½, so that a step is w − ½(gradient).
# A row holds what a round leaves: the client's θ_1 (= θ̄), its h_1, the server's h, and θ; None where there is no such.
Row = tuple[float, float | None, float | None, float]

ALONE = (3,)  # n_1 = n̄: one client, |S| = 1
LARGEST_OF_FOUR = (4, 1, 1, 2)  # n_1 = 4, n̄ = 2, so w_1 = 2; |S| = 4, of which only the first ever takes part

BY_HAND: list[tuple[str, Algorithm, tuple[int, ...], list[Row]]] = [
    # w = 0 − ½(−4) = 2; then w = 2 − ½(−2) = 3. A cohort of one weighs everything, whatever n is.
    ("fedavg", FedAvg(), ALONE, [(2, None, None, 2), (3, None, None, 3)]),
    ("fedavg unbalanced", FedAvg(), LARGEST_OF_FOUR, [(2, None, None, 2), (3, None, None, 3)]),
    # The first step starts at θ, where the spring is slack.
    ("fedprox", FedProx(mu=0.5), ALONE, [(2, None, None, 2), (3, None, None, 3)]),
    # 1: w = 2, g = 0 − 2 = −2, h_1 = −2, h = (1/1)(0 − 2) = −2, θ = 2 + 2 = 4.
    # 2: gradient 4 − 4 − ½(−2) = 1, w = 4 − ½ = 3.5, g = ½, h_1 = −2 + ½, h = −2 + ½, θ = 3.5 + 1.5 = 5.
    ("feddyn", FedDyn(mu=0.5), ALONE, [(2, -2, -2, 4), (3.5, -1.5, -1.5, 5)]),
    # μ_1 = ½ · 2/4 = ¼. 1: w = 2, h_1 = −2, h = ¼(−2) = −½, θ = 2 + ½ = 2.5.
    # 2: gradient 2.5 − 4 − ¼(−2) = −1, w = 3, g = −½, h_1 = −2.5, h = −½ − ⅛ = −.625, θ = 3 + .625.
    ("feddyn unbalanced", FedDyn(mu=0.5), LARGEST_OF_FOUR, [(2, -2, -0.5, 2.5), (3, -2.5, -0.625, 3.625)]),
    # 1: w = 2, g/(Kη) = −2/½ = −4 = Δh_1 = h_1 = h, θ = 2.
    # 2: gradient −2 − (−4) + (−4) = −2, w = 3, g/(Kη) = −1/½ = −2, Δh_1 = −2 + 4 = 2, h_1 = h = −4 + 2, θ = 3.
    ("scaffold", Scaffold(), ALONE, [(2, -4, -4, 2), (3, -2, -2, 3)]),
    ("scaffold/m", ScaffoldM(), ALONE, [(2, -4, -4, 2), (3, -2, -2, 3)]),
    # 1: w = 2, Δh_1 = −4 = h_1, h = ¼ · 2 · (−4) = −2, θ = 2.
    # 2: gradient −2 − (−4) + (−2)/2 = 1, w = 1.5, g/(Kη) = ½/½ = 1, Δh_1 = 1 + 2 = 3, h_1 = −1, h = −2 + ¼ · 2 · 3.
    ("scaffold unbalanced", Scaffold(), LARGEST_OF_FOUR, [(2, -4, -2, 2), (1.5, -1, -0.5, 1.5)]),
    ("scaffold/m unbalanced", ScaffoldM(), LARGEST_OF_FOUR, [(2, -4, -2, 2), (1.5, -1, -0.5, 1.5)]),
    # 1: w = 2, h_1 = g = −2, h = ½(0 − 2) = −1, θ = 2 + 1 = 3.
    # 2: gradient 3 − 4 − ¼(−2) = −½, w = 3.25, g = −¼, h_1 = −2/1 − ¼, h = ½(2 − 3.25) = −.625, θ = 3.25 + .625.
    ("adabest", AdaBest(mu=0.25, beta=0.5), ALONE, [(2, -2, -1, 3), (3.25, -2.25, -0.625, 3.875)]),
    # The server knows no other client, so n̄_t = n_1 and nothing changes.
    (
        "adabest unbalanced",
        AdaBest(mu=0.25, beta=0.5),
        LARGEST_OF_FOUR,
        [(2, -2, -1, 3), (3.25, -2.25, -0.625, 3.875)],
    ),
]


@pytest.mark.parametrize(
    ("algorithm", "counts", "rows"), [case[1:] for case in BY_HAND], ids=[case[0] for case in BY_HAND]
)
def test_one_client_one_step_by_hand(algorithm: Algorithm, counts: tuple[int, ...], rows: list[Row]) -> None:
    """All numbers are sums of powers of two, so they must come out exactly."""
    simulation = simulate(algorithm, round_quadratics([[4.0]] * len(counts), counts=counts), eta=0.5)
    for w, h_i, h, cloud in rows:
        simulation.step(cohort=np.array([0]))
        assert float(simulation.state.aggregate) == w
        assert float(simulation.scored_model()) == w
        assert float(simulation.state.cloud) == cloud
        if h is None:
            assert simulation.state.h is None
        else:
            assert float(estimate(simulation.state)) == h
            assert float(simulation.client_state(0).h) == h_i


def test_every_registered_algorithm_of_the_paper_was_worked_out_by_hand() -> None:
    assert set(ALGORITHMS.builtin.values()) == {type(case[1]) for case in BY_HAND}


def test_fedprox_two_steps_by_hand() -> None:
    """The second step feels the spring."""
    simulation = simulate(FedProx(mu=0.5), round_quadratics([[4.0]], steps=2), eta=0.5)
    # from 0: w = 2; gradient −2 + ½(2 − 0) = −1, w = 2.5
    simulation.step()
    assert float(simulation.state.cloud) == 2.5
    # from 2.5: w = 2.5 + ½ · 1.5 = 3.25; gradient −.75 + ½(3.25 − 2.5) = −.375, w = 3.4375
    simulation.step()
    assert float(simulation.state.cloud) == 3.4375


@pytest.mark.parametrize("algorithm", [FedAvg(), FedProx(mu=0.5)], ids=str)
def test_fedavg_and_fedprox_weigh_by_samples_by_hand(algorithm: Algorithm) -> None:
    simulation = simulate(algorithm, round_quadratics([[4.0], [-4.0]], counts=[1, 3]), eta=0.5)
    simulation.step()
    # w_0 = 2, w_1 = −2: (1 · 2 − 3 · 2) / 4 = −1
    assert float(simulation.state.cloud) == -1.0
    assert float(simulation.scored_model()) == -1.0


@pytest.mark.parametrize("algorithm", [FedDyn(mu=0.5), Scaffold(), ScaffoldM(), AdaBest()], ids=str)
def test_the_other_algorithms_weigh_models_equally_by_hand(algorithm: Algorithm) -> None:
    simulation = simulate(algorithm, round_quadratics([[4.0], [-4.0]], counts=[1, 3]), eta=0.5)
    simulation.step()
    # w_0 = 2, w_1 = −2
    assert float(simulation.state.aggregate) == 0.0
    assert float(simulation.scored_model()) == 0.0


# --- AdaBest: time between participations, and the running mean of samples --------------------------------------------


def test_adabest_divides_by_the_rounds_since_a_client_last_took_part() -> None:
    simulation = simulate(AdaBest(mu=0.25, beta=0.5), round_quadratics([[4.0], [0.0]]), eta=0.5)
    # 1, client 0: w = 2, h_0 = −2; h = ½(0 − 2) = −1, θ = 2 + 1 = 3
    # 2, client 1: gradient 3, w = 1.5, h_1 = 1.5; h = ½(2 − 1.5) = .25, θ = 1.5 − .25 = 1.25
    run_cohorts(simulation, [[0], [1]])
    assert float(simulation.state.cloud) == 1.25
    # 3, client 1: gradient 1.25 − ¼ · 1.5 = .875, w = .8125, g = .4375, h_1 = 1.5/1 + .4375; one round has passed
    #              h = ½(1.5 − .8125) = .34375, θ = .8125 − .34375 = .46875
    run_cohorts(simulation, [[1]])
    assert float(simulation.client_state(1).h) == 1.9375
    assert float(simulation.state.cloud) == 0.46875
    # 4, client 0: gradient .46875 − 4 − ¼(−2) = −3.03125, w = .46875 + 1.515625; three rounds have passed: −2/3 + g
    run_cohorts(simulation, [[0]])
    assert float(simulation.state.aggregate) == 1.984375
    assert float(simulation.client_state(0).h) == pytest.approx(-2 / 3 - 1.515625, abs=1e-15)
    assert float(simulation.client_state(1).h) == 1.9375, "a client that isn't asked changes nothing"


def test_the_first_participation_is_not_divided_by_anything() -> None:
    simulation = simulate(AdaBest(mu=0.25, beta=0.5), round_quadratics([[4.0], [0.0]]), eta=0.5)
    # rounds 1 and 2 as above without client 0 ever moving: client 1 starts at its optimum, so everything stays at 0
    run_cohorts(simulation, [[1], [1], [0]])
    assert float(simulation.client_state(0).h) == -2.0


def test_adabest_scales_by_the_running_mean_of_samples() -> None:
    """n̄_t counts every reply before round t, repeats included."""
    task = round_quadratics([[4.0], [-4.0]], counts=[2, 6])
    algorithm = AdaBest(mu=0.5, beta=0.5)
    simulation = simulate(algorithm, task, eta=0.5)

    def mean_samples() -> float:
        context = ServerContext(round=1, phase=0, eta=0.5, base_eta=0.5)
        message = algorithm.downlink(simulation.state.server, simulation.state.cloud, context)
        return float(message.mean_samples)

    # 1, both: w = ±2, h_0 = −2, h_1 = 2, θ̄ = 0, h = 0, θ = 0
    run_cohorts(simulation, [[0, 1]])
    assert mean_samples() == 4.0  # (2 + 6) / 2
    # 2, client 0: μ n̄/n_0 = ½ · 4/2 = 1; gradient −4 − 1 · (−2) = −2, w = 1, h_0 = −2 − 1
    #              h = ½(0 − 1) = −½, θ = 1.5
    run_cohorts(simulation, [[0]])
    assert float(simulation.state.aggregate) == 1.0
    assert float(simulation.client_state(0).h) == -3.0
    assert mean_samples() == pytest.approx(10 / 3, abs=1e-15)  # (2 + 6 + 2) / 3
    # 3, client 1: μ n̄/n_1 = ½ · (10/3)/6 = 5/18; gradient 1.5 + 4 − 5/18 · 2 = 5.5 − 5/9, w = 1.5 − 2.75 + 5/18
    #              h_1 = 2/(3 − 1) + (2.75 − 5/18)
    run_cohorts(simulation, [[1]])
    assert float(simulation.state.aggregate) == pytest.approx(-1.25 + 5 / 18, abs=1e-14)
    assert float(simulation.client_state(1).h) == pytest.approx(1 + 2.75 - 5 / 18, abs=1e-14)
    assert mean_samples() == pytest.approx(4.0, abs=1e-15)  # (2 + 6 + 2 + 6) / 4


# --- Options of the baselines, by hand --------------------------------------------------------------------------------


def proximal_context() -> ClientContext:
    one = vector(1.0)
    return ClientContext(round=2, phase=0, eta=0.5, base_eta=0.5, steps=one, samples=4 * one)


def test_feddyn_leaves_the_proximal_term_to_the_decay_if_told_to() -> None:
    cloud, h_i = vector(2.0, -4.0), vector(1.0, 3.0)
    for clip_proximal in (True, False):
        algorithm = FedDyn(mu=0.5, clip_proximal=clip_proximal)
        message = algorithm.Message(cloud, mean_samples=vector(2.0))
        correction = algorithm.client_start(algorithm.Client(h_i), message, proximal_context())
        # μ_i = ½ · 2/4 = ¼; −¼(h_i + θ) = −¼ (3, −1)
        assert correction.offset is not None
        assert torch.equal(correction.offset, vector(-0.75, 0.25))
        inside, outside = (0.25, 0.0) if clip_proximal else (0.0, 0.25)
        assert float(correction.rho) == inside
        assert float(correction.rho_prime) == outside
        assert float(correction.scale) == 1.0


def test_feddyn_with_an_unclipped_proximal_term_by_hand() -> None:
    """A step is w − η(clip(∇L − μ_i h_i − μ_i θ) + μ_i w); here μ_i = η = ½, the clip is 2.5, ∇L = w − (6, 8)."""
    task = round_quadratics([[6.0, 8.0]], steps=2)
    simulation = simulate(FedDyn(mu=0.5, clip_proximal=False), task, eta=0.5, clip=2.5)
    # Everything lies along (3, 4)/5, where the clip is (1.5, 2).
    # 1: clip(−6, −8) = (−1.5, −2), w = (.75, 1)
    #    clip(−5.25, −7) + ½w = (−1.5, −2) + (.375, .5), w = (.75, 1) + ½(1.125, 1.5) = (1.3125, 1.75)
    simulation.step()
    assert_close(simulation.state.aggregate, vector(1.3125, 1.75))
    #    g = h_i = h = −w, θ = 2w = (2.625, 3.5)
    assert_close(simulation.state.cloud, vector(2.625, 3.5))
    # 2: ∇L − ½h_i − ½θ = (−3.375 + .65625 − 1.3125, …) = (−4.03125, −5.375), clipped (−1.5, −2)
    #    … + ½w = (−1.5 + 1.3125, −2 + 1.75) = (−.1875, −.25), w = (2.71875, 3.625)
    #    ∇L − ½h_i − ½θ = (−3.28125 − .65625, −4.375 − .875), clipped (−1.5, −2)
    #    … + ½w = (−1.5 + 1.359375, −2 + 1.8125) = (−.140625, −.1875), w = (2.7890625, 3.71875)
    simulation.step()
    assert_close(simulation.state.aggregate, vector(2.7890625, 3.71875))


def test_feddyn_with_a_clipped_proximal_term_by_hand() -> None:
    """The same with w − η clip(∇L − μ_i h_i + μ_i (w − θ))."""
    task = round_quadratics([[6.0, 8.0]], steps=2)
    simulation = simulate(FedDyn(mu=0.5), task, eta=0.5, clip=2.5)
    # 1: w = (.75, 1); clip((−5.25, −7) + ½(.75, 1)) = (−1.5, −2), w = (1.5, 2); g = h_i = h = −w, θ = (3, 4)
    simulation.step()
    assert_close(simulation.state.aggregate, vector(1.5, 2.0))
    # 2: (−3, −4) + (.75, 1) = (−2.25, −3), clipped (−1.5, −2), w = (3.75, 5)
    #    (−2.25, −3) + (.75, 1) + (.375, .5) = (−1.125, −1.5), not clipped, w = (3.75 + .5625, 5 + .75)
    simulation.step()
    assert_close(simulation.state.aggregate, vector(4.3125, 5.75))


def test_fedprox_is_clipped_with_its_spring_by_hand() -> None:
    """A step is w − η clip(∇L + μ(w − θ)), in the same setting."""
    simulation = simulate(FedProx(mu=0.5), round_quadratics([[6.0, 8.0]], steps=2), eta=0.5, clip=2.5)
    # 1: clip(−6, −8) = (−1.5, −2), w = (.75, 1); clip(−5.25 + .375, −7 + .5) = (−1.5, −2), w = (1.5, 2)
    simulation.step()
    assert_close(simulation.state.cloud, vector(1.5, 2.0))
    # 2: clip(−4.5, −6) = (−1.5, −2), w = (2.25, 3); clip(−3.75 + .375, −5 + .5) = (−1.5, −2), w = (3, 4)
    simulation.step()
    assert_close(simulation.state.cloud, vector(3.0, 4.0))


@pytest.mark.parametrize("kind", [Scaffold, ScaffoldM])
@pytest.mark.parametrize(("rate", "h_i", "h"), [("undecayed", -1.5, -0.75), ("decayed", -1.0, -0.5)])
def test_scaffolds_control_rate_by_hand(kind: type[Scaffold], rate: Any, h_i: float, h: float) -> None:
    """η_1 = ½ and η_2 = ¼; w_1 = 2 and |S| = 4 as above, where round 1 leaves θ = 2, h_1 = −4 and h = −2."""
    task = round_quadratics([[4.0]] * 4, counts=LARGEST_OF_FOUR)
    simulation = simulate(kind(control_rate=rate), task, eta=0.5, decay=0.5)
    run_cohorts(simulation, [[0], [0]])
    # 2: gradient −2 − (−4) + (−2)/2 = 1, w = 2 − ¼ = 1.75, g = ¼
    assert float(simulation.state.cloud) == 1.75
    # undecayed: g/(1 · ½) = ½, Δh_1 = ½ + 2 = 2.5, h_1 = −1.5, h = −2 + ¼ · 2 · 2.5 = −.75
    # decayed:   g/(1 · ¼) = 1, Δh_1 = 1 + 2 = 3, h_1 = −1, h = −2 + ¼ · 2 · 3 = −.5
    assert float(simulation.client_state(0).h) == h_i
    assert float(estimate(simulation.state)) == h


# --- The reduction of replies -----------------------------------------------------------------------------------------

# Sums of these depend on their order: the small ones vanish next to the large ones unless those have cancelled.
AWKWARD = [1e16, 1.0, -1e16, 1.0, 0.1, -3e15, 3e15, 0.3]


def test_the_awkward_values_have_a_mean_that_depends_on_the_order() -> None:
    """Otherwise the next test would say nothing."""
    replies = [(client, FedDyn.Reply(vector(value))) for client, value in enumerate(AWKWARD)]
    renumbered = [(-client, reply) for client, reply in replies]
    one, other = (reduce_replies(FedDyn.means, pairs).mean("model") for pairs in (replies, renumbered))
    assert not torch.equal(one, other)


@settings(max_examples=50)
@given(order=st.permutations(range(len(AWKWARD))), name=st.sampled_from(sorted(ALGORITHMS.builtin)))
def test_the_order_of_arrival_changes_no_bit(order: list[int], name: str) -> None:
    algorithm = ALGORITHMS.builtin[name]()
    population = Population(size=2 * len(AWKWARD), mean_samples=5.0)
    models = {client: vector(value, -3 * value) for client, value in enumerate(AWKWARD)}
    in_order = serve(algorithm, vector(0.0, 1.0), [models, models], population)
    arrived = serve(algorithm, vector(0.0, 1.0), [{client: models[client] for client in order}] * 2, population)
    for one, other in zip(in_order, arrived, strict=True):
        assert torch.equal(one.cloud, other.cloud)
        assert torch.equal(one.aggregate, other.aggregate)
        assert all(torch.equal(a, b) for a, b in zip(one.server, other.server, strict=True))


def test_a_weighted_mean_by_hand() -> None:
    reply = ScaffoldM.Reply
    replies = [
        (9, reply(vector(1.0, 5.0), pace=vector(3.0), weight=vector(10.0))),
        (4, reply(vector(5.0, -3.0), pace=vector(1.0), weight=vector(20.0))),
    ]
    reduced = reduce_replies(ScaffoldM.means, replies)
    assert reduced.count == 2
    assert torch.equal(reduced.mean("model"), vector(3.0, 1.0))
    assert torch.equal(reduced.mean("model", "pace"), vector(2.0, 3.0))  # (3 · 1 + 5)/4, (3 · 5 − 3)/4
    assert torch.equal(reduced.mean("weight"), vector(15.0))


def test_a_mean_that_was_not_declared_is_refused_by_name() -> None:
    reduced = reduce_replies(FedAvg.means, [(0, FedAvg.Reply(vector(1.0), vector(2.0)))])
    with pytest.raises(KeyError, match=r"the mean of 'model' under 'one' isn't declared.*model under samples"):
        reduced.mean("model")


# --- The server rate --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(ALGORITHMS.builtin))
@pytest.mark.parametrize("server_rate", [0.5, 1.75])
def test_the_server_rate_moves_the_cloud_only(name: str, server_rate: float) -> None:
    task = random_quadratics(2, CLIENTS, unbalanced=True)
    plain = simulate(ALGORITHMS.builtin[name](), task)
    rated = simulate(ALGORITHMS.builtin[name](), task, server_rate=server_rate)
    plain.step()
    rated.step()
    expected = task.origin + server_rate * (plain.state.cloud - task.origin)
    assert torch.equal(rated.state.cloud, expected)
    assert norm(rated.state.cloud - plain.state.cloud) > 1e-3
    assert torch.equal(rated.state.aggregate, plain.state.aggregate)
    assert torch.equal(estimate(rated.state), estimate(plain.state))
    assert torch.equal(rated.scored_model(), plain.scored_model())


def test_adabest_with_a_server_rate_in_later_rounds() -> None:
    """Both h and θ̄ come from plain means in every round; only the step from cloud to cloud is scaled."""
    beta, server_rate = 0.6, 0.5
    states = run(simulate(AdaBest(beta=beta), random_quadratics(2, CLIENTS), server_rate=server_rate), 4)
    for before, after in pairwise(states):
        h = beta * (before.aggregate - after.aggregate)
        assert_close(estimate(after), h)
        assert_close(after.cloud, before.cloud + server_rate * (after.aggregate - h - before.cloud))
