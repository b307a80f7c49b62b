"""The algorithms beside the paper's, in numbers that were worked out by hand.

A client's objective is ½(w − c)², so its gradient is w − c; θ_0 = 0 and η = ½. Unless they differ, c = 4.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from quadratics import estimate, round_quadratics, run_cohorts, simulate

from adabest.algorithms.adaptive import FedAdagrad, FedAdam, FedYogi
from adabest.algorithms.aide import Aide
from adabest.algorithms.base import Algorithm, ServerContext
from adabest.algorithms.bvr_l_sgd import BvrLSgd
from adabest.algorithms.catalog import ALGORITHMS, CORE
from adabest.algorithms.dane import Dane
from adabest.algorithms.ditto import Ditto
from adabest.algorithms.fedacg import FedACG
from adabest.algorithms.fedavgm import FedAvgM
from adabest.algorithms.fedbn import FedBN
from adabest.algorithms.fedcm import FedCM
from adabest.algorithms.feddane import FedDane
from adabest.algorithms.feddc import FedDC
from adabest.algorithms.fedexp import FedExP
from adabest.algorithms.fedlesam import FedLESAM
from adabest.algorithms.fednova import FedNova
from adabest.algorithms.fedpd import FedPD
from adabest.algorithms.fedper import FedPer
from adabest.algorithms.fedsam import FedSAM
from adabest.algorithms.fedspeed import FedSpeed
from adabest.algorithms.fedsplit import FedSplit
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

ZETA = (math.sqrt(5) - 1) / 2  # ζ² = 1 − ζ
NEXT = (math.sqrt(ZETA**4 + 4 * ZETA**2) - ZETA**2) / 2
AHEAD = ZETA * (1 - ZETA) / (ZETA**2 + NEXT)

# The algorithm, the clients' centres, the number of steps, and the cloud models after the rounds; all are asked.
Case = tuple[Algorithm, Sequence[float], int, Sequence[float]]
BY_HAND: list[Case] = [
    # 1: w = 2, v = −2. 2: w = 3, v = −1 − 1.
    (FedAvgM(beta=0.5), [4], 1, [2, 4]),
    # 1: w = 2, u = −2/½ = −4, θ = ½ · ½ · 4. 2: w = 2.5, u = −2 − 3, θ = 1 + ½ · ½ · 5.
    (SlowMo(slow_rate=0.5, beta=0.5), [4], 1, [1, 2.25]),
    # ḡ = −2, m = −1, v = ¾ · ¼ + ¼ · 4
    (FedAdam(rate=1.0, beta1=0.5, beta2=0.75, tau=0.5), [4], 1, [1 / (math.sqrt(1.1875) + 0.5)]),
    # v = ¼ − ¼ · 4 · sign(¼ − 4)
    (FedYogi(rate=1.0, beta1=0.5, beta2=0.75, tau=0.5), [4], 1, [1 / (math.sqrt(1.25) + 0.5)]),
    # m = −2, v = ¼ + 4
    (FedAdagrad(rate=1.0, tau=0.5), [4], 1, [2 / (math.sqrt(4.25) + 0.5)]),
    # g = −4 and 2, so the mean of ‖g_i‖² is 10; ḡ = −1, rate = 10/2
    (FedExP(epsilon=0.0), [8, -4], 1, [5]),
    # rate = 10/(2(1 + 9)) = ½, but at least 1
    (FedExP(epsilon=9.0), [8, -4], 1, [1]),
    # 1: w = 2 and 0. 2: h_i = (1 − 2)/½ and 1/½; gradients 1 − 4 + 2 and 1 − 2. 3: h_i stay; 1.5 − 4 + 2 and 1.5 − 2.
    (VrlSgd(), [4, 0], 1, [1, 1.5, 1.75]),
    # ∇L_i(0) = −4 and 0, h = −2; first steps −4 + 4 − 2 and −2, second ones −3 + 4 − 2 + ½ and 1 − 2 + ½
    (Dane(mu=0.5), [4, 0], 2, [1.25]),
    (FedDane(mu=0.5), [4, 0], 2, [1.25]),
    # half of h: first steps −1, second ones −3.5 + 4 − 1 + ¼
    (Dane(mu=0.5, share=0.5), [4, 0], 2, [0.625]),
    # 1: step −4 + 4 − 4; y is ahead of 2 by 2a. 2: gradient −2, and ½(2 − y) = −a.
    (Aide(tau=0.5, q=0.0), [4], 1, [2, 3 + AHEAD / 2]),
    # 1: w = 2, λ = 1, θ = 2 + 2. 2: gradient 0 + 1, w = 3.5, λ = ¾, θ = 3.5 + 1.5: FedDyn's.
    (FedPD(rho=0.5), [4], 1, [4, 5]),
    # 2, from w = 2: −2 + 1 + ½(2 − 4), w = 3, λ = ½, θ = 3 + 1. 3, from 3: −1 + ½ + ½(3 − 4), w = 3.5, λ = ¼.
    (FedPD(rho=0.5, begin="own"), [4], 1, [4, 4, 4]),
    # 1: w = 2 and 0, z = 4 and 0. 2: from 2 · 2 − z = 0 and 4 to 2 and 2, so each z stays.
    (FedSplit(s=1.0), [4, 0], 1, [2, 2]),
    # 1: first step 2, second −2 + 2/½ = 2 up, so w = 2 − 1, z = 2. 2: from 4 − 2, gradient −2 so w = 3; −1 + 1/½ = 1.
    (FedSplit(s=0.5), [4], 2, [2, 3]),
    # 1: step ½(−4), w = 1, h = −1/½. 2: step ½(−3) + ½(−2), w = 2.25.
    (FedCM(own_share=0.5), [4], 1, [1, 2.25]),
    # 1: as FedCM, h = ½(−4). 2: ½(−3) + ½(−2), h = ½(−3) − 1. 3: ½(−1.75) + ½(−2.5), w = 2.25 + 1.0625.
    (MimeLite(beta=0.5), [4], 1, [1, 2.25, 3.3125]),
    # 1: w = 2, then −2 + 1, w = 2.5, h = −1.25. 2: −¼, w = 3.875; −⅛ + ¹⁄₁₆, w = 3.90625, h = ½(2.5 − w).
    (FedACG(momentum=0.5, beta=0.5), [4], 2, [3.75, 4.609375]),
    # 1: m = −4, w = 2; m = −2 − 2, w = 4. 2: m = −2 + 0, w = 5; m = −1 + 1.
    (LocalMomentum(beta=0.5), [4], 2, [4, 5]),
    # one step always: VRL-SGD's numbers
    (Scaffnew(probability=1.0), [4, 0], 1, [1, 1.5, 1.75]),
    # 1: h = −2; −2, then 1 − 2. 2: h = −½; −½, then ¼ − ½: the clients are alike, since they differ in c alone.
    (Fsvrg(), [4, 0], 2, [1.5, 1.875]),
    # η = ¼: −2, then ½ − 2
    (Fsvrg(own_rate="by_steps"), [4, 0], 2, [0.875]),
    # 1: m = −2, then −2 + 1. 2: m = −½, then −½ + ¼.
    (BvrLSgd(), [4, 0], 2, [1.5, 1.875]),
    # 1: c = −2, h = −1; −1, then ½ · ½ − 1. 2: c = −1.125, h = ½(−1.125) − ½; h, then ½ · 0.53125 + h.
    (Mime(beta=0.5), [4, 0], 2, [0.875, 1.8046875]),
    # 1: v = ¼, length 1: ½(−4), w = 1; h = ½(−4), v = ¾ · 16 + ¹⁄₁₆. 2: ½(−3) + ½(−2) over the new length.
    (MimeLiteAdam(beta1=0.5, beta2=0.25, tau=0.5), [4], 1, [1, 1 + 1.25 / (math.sqrt(12.0625) + 0.5)]),
    # 1: gradient −4, so e = −1, where it is −5. 2: −1.5, −2.5. 3: −0.25, −1.25.
    (FedSAM(radius=1.0), [4], 1, [2.5, 3.75, 4.375]),
    # 1: ½(−5), h = −1.25/½. 2: gradient −2.75, at e −3.75; ½(−3.75) + ½(−2.5).
    (MoFedSAM(own_share=0.5, radius=1.0), [4], 1, [1.25, 2.8125]),
    # 1: −5, w = 2.5; −2.5 + ½ · 2.5, w = 3.125 and h_i = h = −w, θ = w − h.
    # 2: 3.25 + 1.5625, w = 3.84375; −1.15625 + 1.5625 + ½(w − 6.25), w = 4.2421875, h = −3.125 + 6.25 − w.
    (FedSpeed(mu=0.5, radius=1.0), [4], 2, [6.25, 5.359375]),
    # 1: no θ' yet. 2: from 0 to 2, so e = −1, where the gradient is −3. 3: from 2 to 3.5, so −1.5.
    (FedLESAM(radius=1.0), [4], 1, [2, 3.5, 4.25]),
]


@pytest.mark.parametrize(("algorithm", "centres", "steps", "clouds"), BY_HAND, ids=[str(case[0]) for case in BY_HAND])
def test_all_clients_by_hand(
    algorithm: Algorithm, centres: Sequence[float], steps: int, clouds: Sequence[float]
) -> None:
    simulation = simulate(algorithm, round_quadratics([[centre] for centre in centres], steps=steps), eta=0.5)
    for cloud in clouds:
        simulation.step()
        assert float(simulation.state.cloud) == pytest.approx(cloud, abs=1e-12)


def test_slowmo_counts_an_old_move_at_the_new_rate_by_hand() -> None:
    """η falls from ½ to ¼. 1: u = −4, θ = 2. 2: w = 2.5, u = −2 − ½/¼ = −4, θ = 2 + ¼ · 4; FedAvgM would be at 3.5."""
    simulation = simulate(SlowMo(beta=0.5), round_quadratics([[4.0]]), eta=0.5, decay=0.5)
    run_cohorts(simulation, [[0], [0]])
    assert float(simulation.state.cloud) == 3.0


def test_fednova_divides_by_steps_by_hand() -> None:
    """K = 1 and 2, n = 1 and 3: d = −2 and −3/2; Σ p K = ¼ + 1.5, Σ p d = −½ − 1.125."""
    task = replace(round_quadratics([[4.0], [4.0]], counts=[1, 3]), paces=[1, 2])
    simulation = simulate(FedNova(), task, eta=0.5)
    simulation.step()
    assert float(simulation.state.cloud) == pytest.approx(1.75 * 1.625, abs=1e-12)


def test_mifa_replays_those_that_are_absent_by_hand() -> None:
    """Two clients, drawn to 4 and 0; η falls from ½ to ¼."""
    simulation = simulate(Mifa(), round_quadratics([[4.0], [0.0]]), eta=0.5, decay=0.5)
    # 1, client 0: w = 2, h_0 = −2/½ = −4, h = ½(−4), θ = ½ · 2
    run_cohorts(simulation, [[0]])
    assert float(simulation.state.cloud) == 1.0
    # 2, client 1: w = ¾, h_1 = ¼/¼ = 1, h = −2 + ½ · 1, θ = 1 + ¼ · 1.5
    run_cohorts(simulation, [[1]])
    assert float(simulation.state.cloud) == 1.375
    assert [float(simulation.client_state(client).h) for client in (0, 1)] == [-4.0, 1.0]


def test_feddc_by_hand() -> None:
    """|S| = 2, and only the first client is asked."""
    simulation = simulate(FedDC(strength=0.5), round_quadratics([[4.0], [4.0]]), eta=0.5)
    # 1: w = 2, d_0 = 2, h_0 = −2/½, h = ½(−4), d = ½ · 2, θ = 2 + 1
    run_cohorts(simulation, [[0]])
    assert float(simulation.state.cloud) == 3.0
    assert (float(simulation.client_state(0).drift), float(simulation.client_state(0).h)) == (2.0, -4.0)
    # 2: −1 + ½(3 + 2 − 3) − 2 + 4 = 2, w = 2, d_0 = 1, Δh = 1/½ + 2, h_0 = 0, h = −2 + ½ · 4, d = 1 − ½, θ = 2 + ½
    run_cohorts(simulation, [[0]])
    assert float(simulation.state.cloud) == 2.5
    assert (float(simulation.client_state(0).drift), float(simulation.client_state(0).h)) == (1.0, 0.0)
    assert float(estimate(simulation.state)) == 0.0


def test_a_cohorts_gradient_is_its_own_mean_by_hand() -> None:
    """FedDANE asks client 0 alone: h is its gradient, and what is left is FedProx: 0 → 2, then −2 + ½ · 2."""
    simulation = simulate(FedDane(mu=0.5), round_quadratics([[4.0], [0.0]], steps=2), eta=0.5)
    simulation.step(cohort=np.array([0]))
    assert float(simulation.state.cloud) == 2.5


def test_a_new_client_of_fedsplit_starts_at_the_cloud_model_by_hand() -> None:
    """1, client 0: z_0 = 4, θ = 4. 2, client 1, drawn to 0: z_1 = 4, from 4 to 2, z_1 = 4 − 4."""
    simulation = simulate(FedSplit(), round_quadratics([[4.0], [0.0]]), eta=0.5)
    run_cohorts(simulation, [[0], [1]])
    assert float(simulation.state.cloud) == 0.0


@dataclass(frozen=True)
class TwoSteps(Scaffnew):
    """Scaffnew whose coin always shows its side at the second toss."""

    def common_steps(self, context: ServerContext) -> int:
        return 2


def test_scaffnew_divides_by_its_probability_by_hand() -> None:
    """p/η = ½. 1: w = 3 and 0, θ = 1.5, h_i = ½(1.5 − 3) and ½ · 1.5. 2: −1.75 and ¾, then −0.875 and 0.375."""
    simulation = simulate(TwoSteps(probability=0.25), round_quadratics([[4.0], [0.0]]), eta=0.5)
    run_cohorts(simulation, [[0, 1], [0, 1]])
    assert float(simulation.state.cloud) == (2.8125 + 0.9375) / 2
    assert simulation.state.local_steps == 8


def test_fedspeeds_absent_clients_count_by_hand() -> None:
    """|S| = 2, and only the first client is asked: w = 2.5, h = ½(−2.5)."""
    simulation = simulate(FedSpeed(mu=0.5, radius=1.0), round_quadratics([[4.0], [4.0]]), eta=0.5)
    run_cohorts(simulation, [[0]])
    assert float(simulation.state.cloud) == 3.75


def test_fedlesam_looks_back_to_what_the_client_received_by_hand() -> None:
    """1, client 0: to 2. 2, client 1, new and drawn to 0: to 1. 3, client 0: from 0 to 1, e = −1, gradient −4."""
    simulation = simulate(FedLESAM(radius=1.0), round_quadratics([[4.0], [0.0]]), eta=0.5)
    run_cohorts(simulation, [[0], [1], [0]])
    assert float(simulation.state.cloud) == 3.0


def test_every_algorithm_beside_the_core_was_worked_out_by_hand() -> None:
    single = {FedNova, Mifa, FedDC, FedPer, FedBN, Ditto}  # the last three in test_personal_algorithms.py
    others = {kind for name, kind in ALGORITHMS.builtin.items() if name not in CORE}
    assert others == {type(case[0]) for case in BY_HAND} | single
