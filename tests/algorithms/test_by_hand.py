"""Every algorithm and every option, in numbers that were worked out by hand."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from quadratics import (
    assert_close,
    estimate,
    round_quadratics,
    run_cohorts,
    simulate,
    vector,
)
from scored import scored_model

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Algorithm, ClientContext, ServerContext
from adabest.algorithms.catalog import ALGORITHMS, CORE
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddyn import FedDyn
from adabest.algorithms.fedprox import FedProx
from adabest.algorithms.scaffold import Scaffold
from adabest.algorithms.scaffold_gradient import ScaffoldGradient
from adabest.algorithms.scaffold_m import ScaffoldM

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
    # The gradient at θ is h_1. 1: −4 at 0. 2: −2 at 2. One full step makes it what SCAFFOLD works out of the models.
    ("scaffold-gradient", ScaffoldGradient(), ALONE, [(2, -4, -4, 2), (3, -2, -2, 3)]),
    # 1: as SCAFFOLD. 2: gradient 1, w = 1.5 as there; but h_1 = 2 − 4 = −2, Δh_1 = 2, h = −2 + ¼ · 2 · 2.
    ("scaffold-gradient unbalanced", ScaffoldGradient(), LARGEST_OF_FOUR, [(2, -4, -2, 2), (1.5, -2, -1, 1.5)]),
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
        assert float(scored_model(simulation)) == w
        assert float(simulation.state.cloud) == cloud
        if h is None:
            assert simulation.state.h is None
        else:
            assert float(estimate(simulation.state)) == h
            assert float(simulation.client_state(0).h) == h_i


def test_every_registered_algorithm_of_the_paper_was_worked_out_by_hand() -> None:
    assert {ALGORITHMS.find(name) for name in CORE} == {type(case[1]) for case in BY_HAND}


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
    assert float(scored_model(simulation)) == -1.0


@pytest.mark.parametrize("algorithm", [FedDyn(mu=0.5), Scaffold(), ScaffoldM(), ScaffoldGradient(), AdaBest()], ids=str)
def test_the_other_algorithms_weigh_models_equally_by_hand(algorithm: Algorithm) -> None:
    simulation = simulate(algorithm, round_quadratics([[4.0], [-4.0]], counts=[1, 3]), eta=0.5)
    simulation.step()
    # w_0 = 2, w_1 = −2
    assert float(simulation.state.aggregate) == 0.0
    assert float(scored_model(simulation)) == 0.0


# --- SCAFFOLD's option I: two exchanges -------------------------------------------------------------------------------


def test_scaffold_gradient_takes_its_gradient_before_it_trains_by_hand() -> None:
    """Two steps, so that the gradient at θ isn't the mean of those along the way; ∇L = w − 4, η = ½."""
    simulation = simulate(ScaffoldGradient(), round_quadratics([[4.0], [0.0]], steps=2), eta=0.5)
    # 1, client 0: h_0 = 0 − 4; w = 2, then 3, untouched by the new h_0; h = ½(−4) = −2, θ = 3
    run_cohorts(simulation, [[0]])
    assert float(simulation.state.cloud) == 3.0
    assert float(simulation.client_state(0).h) == -4.0
    assert float(estimate(simulation.state)) == -2.0
    # 2, client 0: −h_0 + h = 2; gradient −1 + 2, w = 2.5; gradient −1.5 + 2, w = 2.25; h_0 = 3 − 4, h = −2 + ½ · 3
    run_cohorts(simulation, [[0]])
    assert float(simulation.state.cloud) == 2.25
    assert float(simulation.client_state(0).h) == -1.0
    assert float(estimate(simulation.state)) == -0.5


def test_scaffold_gradient_sends_one_number_before_it_trains() -> None:
    """Down θ, then θ, h and n̄; up the size of the gradient, then θ_i and w_i Δh_i. Nobody trains in the first phase."""
    task = round_quadratics([[4.0, 1.0], [0.0, 2.0]], steps=3)
    simulation = simulate(ScaffoldGradient(), task)
    run_cohorts(simulation, [[0, 1]] * 2)
    assert simulation.state.bytes_down == 2 * 2 * 8 * (2 + 2 * 2 + 1)
    assert simulation.state.bytes_up == 2 * 2 * 8 * (1 + 2 * 2)
    assert simulation.state.local_steps == 2 * 2 * 3


def test_scaffold_gradient_leaves_a_client_out_whose_gradient_is_not_finite() -> None:
    """It doesn't train then, so its h_i can't become the gradient of an earlier round."""
    task = round_quadratics([[4.0], [math.inf]])
    simulation = simulate(ScaffoldGradient(), task, eta=0.5)
    run_cohorts(simulation, [[0, 1]])
    assert float(simulation.state.cloud) == 2.0
    assert [float(field) for field in simulation.client_state(1)] == [0.0, 0.0]
    assert simulation.state.local_steps == 1
    assert simulation.state.notes.rejected == 1


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


def test_adabest_that_sets_beta_by_hand() -> None:
    """∇L = w − c_i, η = ½, μ = ¼. Means over rounds keep .9 and take .1."""
    algorithm = AdaBest(mu=0.25, beta="auto")
    alone = simulate(algorithm, round_quadratics([[4.0]]), eta=0.5)
    # 1: w = 2, h_1 = g = −2, Δ = −2, so G = D and β = .6; h = −1.2, θ = 2 + 1.2
    alone.step()
    assert_close(alone.state.server.beta, vector(0.6))
    assert_close(estimate(alone.state), vector(-1.2))
    assert_close(alone.state.cloud, vector(3.2))
    # 2: gradient 3.2 − 4 − ¼(−2) = −.3, w = 3.35, g = −.15, Δ = 2 − 3.35 = −1.35; g goes on where Δ_1 went, so c = 0
    #    G² ~ .9 · .4 + .1 · .0225 = .36225, D² ~ .9 · .4 + .1 · 1.8225 = .54225
    alone.step()
    beta = 0.6 * math.sqrt(0.36225 / 0.54225)
    assert_close(alone.state.aggregate, vector(3.35))
    assert_close(alone.client_state(0).h, vector(-2.15))
    assert_close(alone.state.server.beta, vector(beta))
    assert_close(alone.state.cloud, vector(3.35 + 1.35 * beta))


def test_adabest_that_sets_beta_extrapolates_less_what_is_undone_by_hand() -> None:
    """Without a local correction; client 0 is drawn to 4, and client 1 to 0."""
    simulation = simulate(AdaBest(mu=0.0, beta="auto"), round_quadratics([[4.0], [0.0]]), eta=0.5)
    # 1, client 0: as above; Δ = −2, θ = 3.2
    # 2, client 1: w = 1.6, ḡ = 1.6 against Δ_1 = −2, so c = 1 and r = .6(1 − 3), at least 0; Δ = 2 − 1.6 = .4
    run_cohorts(simulation, [[0], [1]])
    assert float(simulation.state.server.beta) == 0.0
    assert_close(simulation.state.cloud, vector(1.6))
    # 3, both: w_0 = 2.8, w_1 = .8, θ̄ = 1.8; ‖g_i‖² are 1.44 and .64, 1.04 in the mean; ḡ = −.2 against Δ_2 = .4
    #    c = 1, r = .6(1 − ¾) = .15; Δ = −.2
    #    G² ~ .9(.9 · .4 + .256) + .104 = .6584, D² ~ .9(.9 · .4 + .016) + .004 = .3424
    run_cohorts(simulation, [[0, 1]])
    beta = 0.15 * math.sqrt(0.6584 / 0.3424)
    assert_close(simulation.state.server.beta, vector(beta))
    assert_close(simulation.state.cloud, vector(1.8 + 0.2 * beta))


def test_adabest_that_sets_beta_sends_one_number_more() -> None:
    sent = {}
    for beta in (0.5, "auto"):
        simulation = simulate(AdaBest(beta=beta), round_quadratics([[4.0, 1.0], [0.0, 2.0]]))
        run_cohorts(simulation, [[0, 1]] * 2)
        sent[beta] = simulation.state.bytes_down, simulation.state.bytes_up
    assert sent["auto"] == (sent[0.5][0], sent[0.5][1] + 2 * 2 * 8)


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


@pytest.mark.parametrize("clip_proximal", [True, False])
def test_feddyn_with_half_a_spring_by_hand(clip_proximal: bool) -> None:
    """A step is w − η(∇L − μ_i h_i + ½ μ_i (w − θ)); here μ_i = η = ½, ∇L = w − 4. Nothing is clipped."""
    algorithm = FedDyn(mu=0.5, clip_proximal=clip_proximal, spring=0.5)
    simulation = simulate(algorithm, round_quadratics([[4.0]], steps=2), eta=0.5)
    # 1: w = 2; gradient −2 + ¼(2 − 0) = −1.5, w = 2.75; g = h_1 = h = −2.75, θ = 5.5
    simulation.step()
    assert float(simulation.state.aggregate) == 2.75
    assert float(simulation.client_state(0).h) == -2.75
    assert float(simulation.state.cloud) == 5.5
    # 2: gradient 1.5 + 1.375 = 2.875, w = 5.5 − 1.4375 = 4.0625
    #    gradient .0625 + 1.375 + ¼(4.0625 − 5.5) = 1.078125, w = 4.0625 − .5390625
    simulation.step()
    assert float(simulation.state.aggregate) == 3.5234375


def test_feddyn_without_a_spring_starts_like_adabest() -> None:
    """At σ = 0 a local step is w − η(∇L − μ_i h_i), which is AdaBest's."""
    context, h_i, cloud = proximal_context(), vector(1.0, 3.0), vector(2.0, -4.0)
    algorithm = FedDyn(mu=0.5, spring=0.0)
    message = algorithm.Message(cloud, mean_samples=vector(2.0))
    correction = algorithm.client_start(algorithm.Client(h_i), message, context)
    assert correction.offset is not None
    assert torch.equal(correction.offset, -0.25 * h_i)
    assert float(correction.rho) == 0.0


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
