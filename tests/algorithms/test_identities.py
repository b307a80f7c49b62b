"""What the paper proves about the algorithms, and what follows from it: identities that no implementation may break."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from quadratics import (
    assert_close,
    draw_cohorts,
    estimate,
    norm,
    pseudo_gradients,
    random_quadratics,
    regularised_optimum,
    round_quadratics,
    run,
    run_cohorts,
    serve,
    simulate,
    vector,
)
from replies import reduce_pairs
from scored import scored_model, scored_or_aggregate
from tiny_digits import digits_task, simulate_digits
from torch import Tensor

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Algorithm, Population, ServerContext, UndeclaredMeanError
from adabest.algorithms.catalog import ALGORITHMS, CORE
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddyn import FedDyn
from adabest.algorithms.fedprox import FedProx
from adabest.algorithms.scaffold import Scaffold
from adabest.algorithms.scaffold_gradient import ScaffoldGradient
from adabest.algorithms.scaffold_m import ScaffoldM
from adabest.engine.simulation import Simulation
from adabest.tasks.quadratic import QuadraticTask

CLIENTS = 5
ROUNDS = 6

seeds = st.integers(min_value=0, max_value=10_000)
cohort_sizes = st.integers(min_value=1, max_value=CLIENTS)
betas = st.floats(min_value=0.0, max_value=1.0)
mus = st.floats(min_value=0.0, max_value=0.5)
few = settings(max_examples=20)


# --- AdaBest without its two parameters is FedAvg ---------------------------------------------------------------------


def assert_same_models(one: Simulation, other: Simulation) -> None:
    """Bit for bit, in memory and in what would be written to disk."""
    assert torch.equal(one.state.cloud, other.state.cloud)
    assert torch.equal(one.state.aggregate, other.state.aggregate)
    assert torch.equal(scored_model(one), scored_model(other))
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


# --- SCAFFOLD's two options -------------------------------------------------------------------------------------------


@few
@given(seed=seeds, size=cohort_sizes)
def test_scaffolds_options_agree_where_a_client_makes_one_full_step(seed: int, size: int) -> None:
    """K = 1 on balanced data: g_i/(Kη) = ∇L_i(θ) − h_i + h, so option II's Δh_i is ∇L_i(θ) − h_i, too."""
    task, cohorts = (
        replace(random_quadratics(seed, CLIENTS), paces=[1] * CLIENTS),
        draw_cohorts(seed, CLIENTS, size, ROUNDS),
    )
    from_gradients, from_models = (simulate(a, task, decay=0.8) for a in (ScaffoldGradient(), Scaffold()))
    for one, other in zip(run_cohorts(from_gradients, cohorts), run_cohorts(from_models, cohorts), strict=True):
        assert_close(one.cloud, other.cloud)
        assert_close(estimate(one), estimate(other))
    for client in range(CLIENTS):
        assert_close(from_gradients.client_state(client).h, from_models.client_state(client).h)


def test_scaffolds_options_differ_after_several_steps() -> None:
    task, cohorts = random_quadratics(0, CLIENTS), draw_cohorts(0, CLIENTS, 3, ROUNDS)
    one, other = (run_cohorts(simulate(a, task), cohorts)[-1] for a in (ScaffoldGradient(), Scaffold()))
    assert float((one.cloud - other.cloud).norm()) > 1e-3


@few
@given(seed=seeds, size=cohort_sizes, unbalanced=st.booleans())
def test_scaffold_gradients_h_i_is_the_gradient_at_the_cloud_model_that_was_sent(
    seed: int, size: int, unbalanced: bool
) -> None:
    task = random_quadratics(seed, CLIENTS, unbalanced=unbalanced)
    simulation = simulate(ScaffoldGradient(), task, decay=0.9, clip=0.5)  # clips no h_i
    sent = dict[int, Tensor]()
    for cohort in draw_cohorts(seed, CLIENTS, size, ROUNDS):
        sent |= dict.fromkeys(map(int, cohort), simulation.state.cloud)
        simulation.step(cohort=np.array(cohort))
        for client, cloud in sent.items():
            assert torch.equal(simulation.client_state(client).h, task.full_gradient(cloud, client))


# --- What the server's h is made of -----------------------------------------------------------------------------------


@few
@given(seed=seeds, size=cohort_sizes, unbalanced=st.booleans())
def test_scaffolds_h_is_the_weighted_mean_of_all_clients_h(seed: int, size: int, unbalanced: bool) -> None:
    """That is, h = (1/|S|) Σ w_i h_i over all clients, those that never took part (h_i = 0) included."""
    task = random_quadratics(seed, CLIENTS, unbalanced=unbalanced)
    mean_samples = sum(task.counts) / CLIENTS
    for algorithm in (Scaffold(), ScaffoldM(), ScaffoldGradient()):
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
    replies = reduce_pairs(algorithm.means, [(client, algorithm.Reply(model)) for client, model in models.items()])
    context = ServerContext(
        round=2, phase=0, eta=0.1, base_eta=0.1, known_population=Population(size=population, mean_samples=7.0)
    )
    server = algorithm.server_init(cloud)._replace(h=h)
    after = algorithm.server_step(server, cloud, replies, context).h
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
    assert torch.equal(scored_model(alone), scored_model(among_others))
    for client in range(CLIENTS):
        for mine, theirs in zip(alone.client_state(client), among_others.client_state(client), strict=True):
            assert torch.equal(mine, theirs)
    here, there = alone.snapshot(), among_others.snapshot()
    counted = [name for name in here.numbers if not name.startswith("roster.")]  # the bystanders are in the roster
    assert [here.numbers[name] for name in counted] == [there.numbers[name] for name in counted]
    assert here.tensors.keys() == there.tensors.keys()
    assert all(torch.equal(here.tensors[name], there.tensors[name]) for name in here.tensors)


@pytest.mark.parametrize("algorithm", [FedDyn(mu=0.1), Scaffold(), ScaffoldM(), ScaffoldGradient()], ids=str)
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
    models = (simulation.state.cloud, simulation.state.aggregate, scored_model(simulation))
    return max(norm(model - target) for model in models)


@heterogeneous
@pytest.mark.parametrize("algorithm", [Scaffold(), ScaffoldM(), ScaffoldGradient(), FedDyn(mu=0.5)], ids=str)
def test_variance_reduced_algorithms_reach_the_sample_weighted_optimum(algorithm: Algorithm, unbalanced: bool) -> None:
    task = random_quadratics(1, 4, unbalanced=unbalanced)
    assert distance_after(algorithm, task, task.optimum(), rounds=250) < 1e-8


def test_the_sample_weighted_optimum_is_not_the_plain_one() -> None:
    """Otherwise the unbalanced cases above would say nothing about the weights."""
    task = random_quadratics(1, 4, unbalanced=True)
    plain = QuadraticTask(task.curvatures, task.centres, [1] * 4, task.paces, task.origin)
    assert norm(task.optimum() - plain.optimum()) > 0.1


@heterogeneous
@pytest.mark.parametrize("algorithm", [FedAvg(), FedProx(mu=0.5)], ids=str)
def test_fedavg_and_fedprox_stall_away_from_the_optimum(algorithm: Algorithm, unbalanced: bool) -> None:
    task = random_quadratics(1, 4, unbalanced=unbalanced)
    simulation = simulate(algorithm, task, eta=0.2)
    states = run(simulation, 200)
    assert norm(states[-1].cloud - task.optimum()) > 1e-2
    assert norm(states[-1].cloud - states[-2].cloud) < 1e-10, "it is still moving, so it hasn't stalled"


def test_fedavg_has_no_bias_where_clients_share_their_curvature() -> None:
    """So the stall above is due to curvature, not to the engine."""
    task = round_quadratics([[4.0, 0.0], [-1.0, 2.0], [0.0, 7.0]], steps=3)
    assert distance_after(FedAvg(), task, task.optimum(), rounds=200) < 1e-12


@pytest.mark.parametrize(("mu", "beta"), [(0.3, 0.5), (0.5, 0.8), (0.5, 0.0)])
def test_adabest_reaches_the_minimiser_of_a_regularised_objective(mu: float, beta: float) -> None:
    """That of f + (μ(1−β)/2) ‖θ − θ_0‖², because Σ ḡ_t = (1−β)(θ̄_0 − θ̄_∞)."""
    task = random_quadratics(1, 4)
    target = regularised_optimum(task, mu * (1 - beta))
    assert distance_after(AdaBest(mu=mu, beta=beta), task, target, rounds=300) < 1e-8
    assert norm(target - task.optimum()) > 1e-2


# --- The reduction of replies -----------------------------------------------------------------------------------------

# Sums of these depend on their order: the small ones vanish next to the large ones unless those have cancelled.
AWKWARD = [1e16, 1.0, -1e16, 1.0, 0.1, -3e15, 3e15, 0.3]


def test_the_awkward_values_have_a_mean_that_depends_on_the_order() -> None:
    """Otherwise the next test would say nothing."""
    replies = [(client, FedDyn.Reply(vector(value))) for client, value in enumerate(AWKWARD)]
    renumbered = [(-client, reply) for client, reply in replies]
    one, other = (reduce_pairs(FedDyn.means, pairs).mean("model") for pairs in (replies, renumbered))
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
    reduced = reduce_pairs(ScaffoldM.means, replies)
    assert reduced.count == 2
    assert torch.equal(reduced.mean("model"), vector(3.0, 1.0))
    assert torch.equal(reduced.mean("model", "pace"), vector(2.0, 3.0))  # (3 · 1 + 5)/4, (3 · 5 − 3)/4
    assert torch.equal(reduced.mean("weight"), vector(15.0))


def test_a_mean_that_was_not_declared_is_refused_by_name() -> None:
    reduced = reduce_pairs(FedAvg.means, [(0, FedAvg.Reply(vector(1.0), vector(2.0)))])
    with pytest.raises(
        UndeclaredMeanError, match=r"no mean of 'model' under 'one': it isn't declared.*model under samples"
    ):
        reduced.mean("model")


# --- The server rate --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "server_rate"),
    [(name, rate) for name in sorted(ALGORITHMS.builtin) for rate in (0.5, 1.75)[: 1 + (name in CORE)]],
)
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
    assert torch.equal(scored_or_aggregate(rated), scored_or_aggregate(plain))


def test_adabest_with_a_server_rate_in_later_rounds() -> None:
    """Both h and θ̄ come from plain means in every round; only the step from cloud to cloud is scaled."""
    beta, server_rate = 0.6, 0.5
    states = run(simulate(AdaBest(beta=beta), random_quadratics(2, CLIENTS), server_rate=server_rate), 4)
    for before, after in pairwise(states):
        h = beta * (before.aggregate - after.aggregate)
        assert_close(estimate(after), h)
        assert_close(after.cloud, before.cloud + server_rate * (after.aggregate - h - before.cloud))
