"""What makes one algorithm another: identities between the algorithms beside the paper's, and with the paper's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quadratics import assert_close, draw_cohorts, norm, random_quadratics, run, run_cohorts, simulate

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.aide import Aide
from adabest.algorithms.base import Algorithm
from adabest.algorithms.dane import Dane
from adabest.algorithms.fedacg import FedACG
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.fedavgm import FedAvgM
from adabest.algorithms.fedcm import FedCM
from adabest.algorithms.feddane import FedDane
from adabest.algorithms.feddyn import FedDyn
from adabest.algorithms.fednova import FedNova
from adabest.algorithms.fedpd import FedPD
from adabest.algorithms.mifa import Mifa
from adabest.algorithms.mimelite import MimeLite
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
@given(seed=seeds, mu=shares)
def test_aide_that_extrapolates_nothing_is_dane(seed: int, mu: float) -> None:
    task = random_quadratics(seed, CLIENTS, unbalanced=True)
    mine, theirs = (run(simulate(one, task), ROUNDS)[-1] for one in (Aide(mu=mu, tau=0.0, q=1.0), Dane(mu=mu)))
    assert torch.equal(mine.cloud, theirs.cloud)


@few
@given(seed=seeds, rho=st.floats(min_value=0.01, max_value=0.9))
def test_fedpd_that_talks_in_every_round_is_feddyn(seed: int, rho: float) -> None:
    """All clients, each with as many samples: FedDyn's μ_i depend on n_i, and its server on |S|."""
    task = random_quadratics(seed, CLIENTS)
    mine, theirs = (run(simulate(one, task, decay=0.9), ROUNDS) for one in (FedPD(rho=rho), FedDyn(mu=rho)))
    for one, other in zip(mine, theirs, strict=True):
        assert_close(one.cloud, other.cloud)


def test_fedpd_with_unequal_clients_is_not_feddyn() -> None:
    task = random_quadratics(0, CLIENTS, unbalanced=True)
    mine, theirs = (run(simulate(one, task), ROUNDS)[-1] for one in (FedPD(rho=0.5), FedDyn(mu=0.5)))
    assert norm(mine.cloud - theirs.cloud) > 1e-3


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


@pytest.mark.parametrize("algorithm", [VrlSgd(), FedPD(rho=0.5), Dane(mu=0.5)], ids=str)
def test_clients_that_differ_meet_at_the_optimum(algorithm: Algorithm) -> None:
    """With equal samples and steps, which is what FedAvg can't."""
    task = random_quadratics(1, CLIENTS)
    states = run(simulate(algorithm, task), 60)
    assert norm(states[-1].cloud - task.optimum()) < 1e-4
    assert norm(run(simulate(FedAvg(), task), 60)[-1].cloud - task.optimum()) > 1e-3
