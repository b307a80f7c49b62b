"""What makes one algorithm another: identities between the algorithms beside the paper's, and with the paper's."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quadratics import assert_close, draw_cohorts, norm, random_quadratics, run, run_cohorts, simulate

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.aide import Aide
from adabest.algorithms.base import Algorithm, ServerContext
from adabest.algorithms.bvr_l_sgd import BvrLSgd
from adabest.algorithms.dane import Dane
from adabest.algorithms.fedacg import FedACG
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.fedavgm import FedAvgM
from adabest.algorithms.fedcm import FedCM
from adabest.algorithms.feddane import FedDane
from adabest.algorithms.feddyn import FedDyn
from adabest.algorithms.fedlesam import FedLESAM
from adabest.algorithms.fednova import FedNova
from adabest.algorithms.fedpd import FedPD
from adabest.algorithms.fedsam import FedSAM
from adabest.algorithms.fedspeed import FedSpeed
from adabest.algorithms.fsvrg import Fsvrg
from adabest.algorithms.local_momentum import LocalMomentum
from adabest.algorithms.mifa import Mifa
from adabest.algorithms.mime import Mime
from adabest.algorithms.mimelite import MimeLite
from adabest.algorithms.mimelite_adam import MimeLiteAdam
from adabest.algorithms.mofedsam import MoFedSAM
from adabest.algorithms.scaffnew import Scaffnew
from adabest.algorithms.slowmo import SlowMo
from adabest.algorithms.vrl_sgd import VrlSgd

CLIENTS, ROUNDS = 4, 5

seeds = st.integers(min_value=0, max_value=10_000)
cohort_sizes = st.integers(min_value=1, max_value=CLIENTS)
shares = st.floats(min_value=0.0, max_value=0.99)
few = settings(max_examples=6)


@few
@given(seed=seeds, size=cohort_sizes, share=shares)
def test_fedacg_without_its_spring_is_adabest_without_its_correction(seed: int, size: int, share: float) -> None:
    """Bit for bit, whoever takes part, and however many samples they have."""
    task = random_quadratics(seed, CLIENTS, unbalanced=True)
    cohorts = draw_cohorts(seed, CLIENTS, size, ROUNDS)
    mine = run_cohorts(simulate(FedACG(momentum=share, beta=0.0), task, decay=0.9), cohorts)
    theirs = run_cohorts(simulate(AdaBest(mu=0.0, beta=share), task, decay=0.9), cohorts)
    for one, other in zip(mine[1:], theirs[1:], strict=True):
        assert torch.equal(one.cloud, other.cloud)
        assert torch.equal(one.aggregate, other.aggregate)
        assert one.h is not None
        assert other.h is not None
        assert torch.equal(one.h, other.h)


@few
@given(seed=seeds, size=cohort_sizes, beta=shares)
def test_slowmo_at_a_constant_rate_is_fedavgm(seed: int, size: int, beta: float) -> None:
    task = random_quadratics(seed, CLIENTS, unbalanced=True)
    cohorts = draw_cohorts(seed, CLIENTS, size, ROUNDS)
    mine, theirs = (
        run_cohorts(simulate(algorithm, task), cohorts)[-1] for algorithm in (SlowMo(beta=beta), FedAvgM(beta=beta))
    )
    assert_close(mine.cloud, theirs.cloud)


def test_slowmo_at_a_falling_rate_is_not_fedavgm() -> None:
    task = random_quadratics(0, CLIENTS)
    mine, theirs = (run(simulate(one, task, decay=0.7), ROUNDS)[-1] for one in (SlowMo(beta=0.9), FedAvgM(beta=0.9)))
    assert norm(mine.cloud - theirs.cloud) > 1e-3


@few
@given(seed=seeds, mu=shares)
def test_feddane_with_all_clients_is_dane_bit_for_bit(seed: int, mu: float) -> None:
    task = random_quadratics(seed, CLIENTS, unbalanced=True)
    mine, theirs = (run(simulate(one, task), ROUNDS)[-1] for one in (FedDane(mu=mu), Dane(mu=mu)))
    assert torch.equal(mine.cloud, theirs.cloud)


@few
@given(seed=seeds, mu=shares, tau=shares)
def test_aide_that_extrapolates_nothing_is_dane_with_both_springs(seed: int, mu: float, tau: float) -> None:
    """With q = 1, y is θ, so that τ pulls where μ does. With τ = 0 as well it is DANE bit for bit."""
    task = random_quadratics(seed, CLIENTS, unbalanced=True)
    pairs = [(Aide(mu=mu, tau=tau, q=1.0), Dane(mu=mu + tau)), (Aide(mu=mu, tau=0.0, q=1.0), Dane(mu=mu))]
    sums, without = ([run(simulate(one, task), ROUNDS)[-1].cloud for one in pair] for pair in pairs)
    assert_close(sums[0], sums[1])
    assert torch.equal(without[0], without[1])


def test_aide_that_extrapolates_is_not_dane() -> None:
    task = random_quadratics(0, CLIENTS, unbalanced=True)
    mine, theirs = (run(simulate(one, task), ROUNDS)[-1] for one in (Aide(tau=0.5, q=0.1), Dane(mu=0.5)))
    assert norm(mine.cloud - theirs.cloud) > 1e-3


@few
@given(seed=seeds, rho=st.floats(min_value=0.01, max_value=0.9))
def test_fedpd_that_talks_in_every_round_is_feddyn(seed: int, rho: float) -> None:
    """All clients, each with as many samples: FedDyn's μ_i depend on n_i, and its server on |S|."""
    task = random_quadratics(seed, CLIENTS)
    mine, theirs = (run(simulate(one, task, decay=0.9), ROUNDS) for one in (FedPD(rho=rho), FedDyn(mu=rho)))
    for one, other in zip(mine, theirs, strict=True):
        assert_close(one.cloud, other.cloud)


@pytest.mark.parametrize(("begin", "unbalanced"), [("cloud", True), ("own", False)])
def test_fedpd_with_unequal_clients_or_a_start_of_their_own_is_not_feddyn(begin: Any, unbalanced: bool) -> None:
    task = random_quadratics(0, CLIENTS, unbalanced=unbalanced)
    pair = FedPD(rho=0.5, begin=begin), FedDyn(mu=0.5)
    mine, theirs = (run(simulate(one, task), ROUNDS)[-1] for one in pair)
    assert norm(mine.cloud - theirs.cloud) > 1e-3


def test_where_fedpd_begins_makes_no_difference_to_an_exact_solution() -> None:
    task = replace(random_quadratics(0, CLIENTS), paces=[300] * CLIENTS)
    mine, theirs = (run(simulate(FedPD(rho=0.5, begin=begin), task), ROUNDS)[-1] for begin in ("own", "cloud"))
    assert_close(mine.cloud, theirs.cloud)


@pytest.mark.parametrize(
    "algorithm",
    [FedAvgM(beta=0.0), FedNova(), FedCM(own_share=1.0), MimeLite(beta=0.0), FedACG(momentum=0.0, beta=0.0)],
)
def test_what_is_left_without_its_term_is_fedavg(algorithm: Algorithm) -> None:
    """With equal clients, of which two are asked in a round."""
    task = random_quadratics(3, CLIENTS)
    mine, fedavg = (run(simulate(one, task, participation=0.5), ROUNDS)[-1] for one in (algorithm, FedAvg()))
    assert_close(mine.cloud, fedavg.cloud)


def test_mifa_with_all_clients_is_fedavg() -> None:
    task = random_quadratics(3, CLIENTS)
    mine, fedavg = (run(simulate(one, task, decay=0.9), ROUNDS)[-1] for one in (Mifa(), FedAvg()))
    assert_close(mine.cloud, fedavg.cloud)


@few
@given(seed=seeds)
def test_vrl_sgds_estimates_sum_to_zero_with_all_clients(seed: int) -> None:
    """So their mean pulls θ nowhere."""
    task = random_quadratics(seed, CLIENTS)
    simulation = simulate(VrlSgd(), task)
    run(simulation, ROUNDS)
    total = torch.stack([simulation.client_state(client).h for client in range(CLIENTS)]).sum(dim=0)
    assert_close(total, torch.zeros_like(total))
    assert norm(simulation.client_state(0).h) > 1e-3


@pytest.mark.parametrize(
    "algorithm",
    [
        VrlSgd(),
        FedPD(rho=0.5),
        FedPD(rho=0.5, begin="own"),
        Dane(mu=0.5),
        Scaffnew(probability=0.4),
        Fsvrg(),
        BvrLSgd(),
        Mime(beta=0.5),
    ],
    ids=str,
)
def test_clients_that_differ_meet_at_the_optimum(algorithm: Algorithm) -> None:
    """With equal samples and steps, which is what FedAvg can't."""
    task = random_quadratics(1, CLIENTS)
    states = run(simulate(algorithm, task), 60)
    assert norm(states[-1].cloud - task.optimum()) < 1e-4
    assert norm(run(simulate(FedAvg(), task), 60)[-1].cloud - task.optimum()) > 1e-3


@pytest.mark.parametrize("algorithm", [LocalMomentum(beta=0.0), FedSAM(radius=0.0), FedLESAM(radius=0.0)], ids=str)
def test_what_is_left_without_momentum_or_radius_is_fedavg_bit_for_bit(algorithm: Algorithm) -> None:
    """With clients that differ in samples and steps, of which two are asked in a round."""
    task = random_quadratics(3, CLIENTS, unbalanced=True)
    mine, fedavg = (run(simulate(one, task, participation=0.5, clip=1.0), ROUNDS)[-1] for one in (algorithm, FedAvg()))
    assert torch.equal(mine.cloud, fedavg.cloud)


def test_mofedsam_without_a_radius_is_fedcm_bit_for_bit() -> None:
    task = random_quadratics(3, CLIENTS, unbalanced=True)
    pair = MoFedSAM(own_share=0.3, radius=0.0), FedCM(own_share=0.3)
    mine, theirs = (run(simulate(one, task, participation=0.5), ROUNDS)[-1] for one in pair)
    assert torch.equal(mine.cloud, theirs.cloud)


@few
@given(seed=seeds, size=cohort_sizes)
def test_mofedsam_without_everyones_momentum_is_fedsam(seed: int, size: int) -> None:
    """With equal clients: their means weigh them otherwise."""
    task, cohorts = random_quadratics(seed, CLIENTS), draw_cohorts(seed, CLIENTS, size, ROUNDS)
    pair = MoFedSAM(own_share=1.0, radius=0.2), FedSAM(radius=0.2)
    mine, theirs = (run_cohorts(simulate(one, task), cohorts)[-1] for one in pair)
    assert_close(mine.cloud, theirs.cloud)


@few
@given(seed=seeds, size=cohort_sizes, mu=st.floats(min_value=0.01, max_value=0.9))
def test_fedspeed_without_a_radius_is_feddyn(seed: int, size: int, mu: float) -> None:
    """Whoever takes part, if all have as many samples."""
    task, cohorts = random_quadratics(seed, CLIENTS), draw_cohorts(seed, CLIENTS, size, ROUNDS)
    pair = FedSpeed(mu=mu, radius=0.0), FedDyn(mu=mu)
    mine, theirs = (run_cohorts(simulate(one, task, decay=0.9), cohorts) for one in pair)
    for one, other in zip(mine, theirs, strict=True):
        assert_close(one.cloud, other.cloud)


def test_fedspeed_with_a_radius_is_not_feddyn() -> None:
    task = random_quadratics(0, CLIENTS)
    mine, theirs = (run(simulate(one, task), ROUNDS)[-1] for one in (FedSpeed(mu=0.5), FedDyn(mu=0.5)))
    assert norm(mine.cloud - theirs.cloud) > 1e-3


@pytest.mark.parametrize("algorithm", [Fsvrg(), BvrLSgd(), Mime(beta=0.0)], ids=str)
@few
@given(seed=seeds, size=cohort_sizes)
def test_a_correction_on_batches_of_all_samples_is_feddanes(algorithm: Algorithm, seed: int, size: int) -> None:
    """∇L(θ) of a batch is ∇L_i(θ) then, and SARAH's differences add up to SVRG's."""
    task, cohorts = random_quadratics(seed, CLIENTS), draw_cohorts(seed, CLIENTS, size, ROUNDS)
    mine, theirs = (run_cohorts(simulate(one, task, decay=0.9), cohorts) for one in (algorithm, FedDane(mu=0.0)))
    for one, other in zip(mine, theirs, strict=True):
        assert_close(one.cloud, other.cloud)


@few
@given(seed=seeds, beta=shares)
def test_local_momentum_at_a_single_step_is_fedavgm(seed: int, beta: float) -> None:
    """At a constant rate: then the mean of momenta is the momentum of means."""
    task = replace(random_quadratics(seed, CLIENTS, unbalanced=True), paces=[1] * CLIENTS)
    mine, theirs = (run(simulate(one, task), ROUNDS)[-1] for one in (LocalMomentum(beta=beta), FedAvgM(beta=beta)))
    assert_close(mine.cloud, theirs.cloud)


@dataclass(frozen=True)
class ThreeSteps(Scaffnew):
    """Scaffnew whose coin shows its side at every third toss, as it does on average."""

    probability: float = 1 / 3

    def common_steps(self, context: ServerContext) -> int:
        return 3


@few
@given(seed=seeds, size=cohort_sizes)
def test_scaffnew_with_its_mean_number_of_steps_is_vrl_sgd(seed: int, size: int) -> None:
    """Whoever takes part, since both correct h_i when a client receives its next θ."""
    task, cohorts = random_quadratics(seed, CLIENTS), draw_cohorts(seed, CLIENTS, size, ROUNDS)  # of three steps
    mine, theirs = (run_cohorts(simulate(one, task, decay=0.9), cohorts) for one in (ThreeSteps(), VrlSgd()))
    for one, other in zip(mine, theirs, strict=True):
        assert_close(one.cloud, other.cloud)


@pytest.mark.parametrize("algorithm", [ThreeSteps(), Scaffnew(probability=1 / 3)], ids=["three", "drawn"])
def test_scaffnew_with_other_numbers_of_steps_is_not_vrl_sgd(algorithm: Scaffnew) -> None:
    """VRL-SGD's clients make their own numbers of steps here, 1 to 4."""
    task = random_quadratics(0, CLIENTS, unbalanced=True)
    mine, theirs = (run(simulate(one, task), ROUNDS)[-1] for one in (algorithm, VrlSgd()))
    assert norm(mine.cloud - theirs.cloud) > 1e-3


def test_scaffnews_estimates_drift_where_some_clients_are_absent() -> None:
    """With all clients they sum to zero."""
    task = random_quadratics(0, CLIENTS)
    sums = []
    for cohorts in (None, [[0, 1], [2, 3], [0, 2], [1, 3], [0, 3]]):
        simulation = simulate(ThreeSteps(), task)
        run(simulation, ROUNDS) if cohorts is None else run_cohorts(simulation, cohorts)
        sums.append(norm(torch.stack([simulation.client_state(client).h for client in range(CLIENTS)]).sum(dim=0)))
    assert sums[0] < 1e-12
    assert sums[1] > 1e-3


def test_scaffnew_draws_one_number_of_steps_for_all_clients() -> None:
    """Whatever their own are; 1/p on average, and often 1, as a coin has it."""
    task = random_quadratics(0, CLIENTS, unbalanced=True)
    simulation, made = simulate(Scaffnew(probability=0.25), task), [0]
    for _ in range(400):
        simulation.step()
        made.append(simulation.state.local_steps)
    each = torch.tensor(made).diff()
    assert not torch.any(each % CLIENTS)
    drawn = each // CLIENTS
    assert float(drawn.double().mean()) == pytest.approx(4.0, abs=0.6)  # its deviation is √12/20
    assert float((drawn == 1).double().mean()) == pytest.approx(0.25, abs=0.08)
    assert int(drawn.min()) == 1


def test_mimelite_with_adam_whose_v_is_nothing_beside_tau_is_mimelite() -> None:
    """At a rate that is 2τ times as large: v stays at τ² if β₂ is almost 1."""
    task = random_quadratics(3, CLIENTS, unbalanced=True)
    mine = run(simulate(MimeLiteAdam(beta1=0.7, beta2=1 - 1e-15, tau=5.0), task, eta=1.0), ROUNDS)[-1]
    theirs = run(simulate(MimeLite(beta=0.7), task, eta=0.1), ROUNDS)[-1]
    torch.testing.assert_close(mine.cloud, theirs.cloud, rtol=0, atol=1e-12)
