"""Algorithms with personal models: by hand, and each against a loop in plain NumPy.

In the quadratic task each coordinate counts as a layer, the last one as a normalisation layer.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from quadratics import random_quadratics, round_quadratics, run_cohorts, simulate

from adabest.algorithms.base import Algorithm
from adabest.algorithms.ditto import Ditto
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.fedbn import FedBN
from adabest.algorithms.fedper import FedPer
from adabest.engine.simulation import Simulation
from adabest.errors import InputError
from adabest.tasks.quadratic import QuadraticTask

# --- By hand: the gradient is w − c, θ_0 = 0 and η = ½ ----------------------------------------------------------------

TWO = round_quadratics([[4.0, 8.0], [0.0, -8.0]], counts=[1, 3])


def personal(simulation: Simulation, client: int) -> list[float]:
    return simulation.personal_model(client).tolist()


@pytest.mark.parametrize(
    ("algorithm", "clouds"),
    # The first coordinate. 1: w = 2 and 0. 2: from ½, 2.25 and ¼; weights ¼ and ¾. Or from 1, 2.5 and ½; equal ones.
    [(FedPer(), [0.5, 0.75]), (FedPer(private="1"), [0.5, 0.75]), (FedBN(), [1.0, 1.5])],
    ids=str,
)
def test_a_private_coordinate_stays_with_its_client_by_hand(algorithm: Algorithm, clouds: list[float]) -> None:
    """The private one goes from 0 to ±4, and from there to ±6; on the server it stays 0."""
    simulation = simulate(algorithm, TWO, eta=0.5)
    for cloud, own in zip(clouds, (4.0, 6.0), strict=True):
        simulation.step()
        assert simulation.state.cloud.tolist() == simulation.state.aggregate.tolist() == [cloud, 0.0]
        assert simulation.scored_model() is not None
        assert simulation.client_model(0).tolist()[1] == 0.0  # as far as the server knows it
        assert personal(simulation, 0) == [cloud, own]
        assert personal(simulation, 1) == [cloud, -own]


def test_a_client_that_pauses_keeps_its_private_part_by_hand() -> None:
    simulation = simulate(FedPer(), TWO, eta=0.5)
    run_cohorts(simulation, [[0], [1]])
    # 1: w = (2, 4). 2: from (2, 0) to (1, −4).
    assert personal(simulation, 0) == [1.0, 4.0]
    assert personal(simulation, 1) == [1.0, -4.0]
    run_cohorts(simulation, [[0]])  # from (1, 4)
    assert personal(simulation, 0) == [2.5, 6.0]


def test_any_layers_may_be_private_by_hand() -> None:
    simulation = simulate(FedPer(private="0.*"), TWO, eta=0.5)
    simulation.step()
    assert simulation.state.cloud.tolist() == [0.0, -2.0]  # ¼ · 4 − ¾ · 4
    assert personal(simulation, 0) == [2.0, -2.0]


def test_ditto_by_hand() -> None:
    """λ = ½, two steps, one coordinate; v pulls to the θ that was sent, and w doesn't know of v."""
    simulation = simulate(Ditto(pull=0.5), round_quadratics([[4.0], [0.0]], steps=2), eta=0.5)
    simulation.step()
    # w: 2, 3 and 0, 0. v: 2, then −2 + ½ · 2 = −1, 2.5
    assert simulation.state.cloud.tolist() == [1.5]
    assert personal(simulation, 0) == [2.5]
    assert personal(simulation, 1) == [0.0]
    assert simulation.client_model(0).tolist() == [3.0]
    simulation.step()
    # v_0: −1.5 + ½(2.5 − 1.5) = −1, 3; −1 + ½ · 1.5 = −¼, 3.125. v_1: ½(−1.5), 0.375; 0.375 − ½ · 1.125, 0.46875
    assert personal(simulation, 0) == [3.125]
    assert personal(simulation, 1) == [0.46875]


def test_a_client_of_ditto_that_was_never_asked_has_the_initial_model() -> None:
    simulation = simulate(Ditto(), TWO)
    run_cohorts(simulation, [[0]])
    assert personal(simulation, 1) == [0.0, 0.0]
    assert simulation.clients_with_models() == [0]


# --- The same in NumPy ------------------------------------------------------------------------------------------------

CLIENTS, DIM = 4, 3
RATES = [0.1 * 0.8**t for t in range(8)]
COHORTS = [[0, 1, 2, 3], [1, 3], [0, 2, 3], [2], [0, 1], [3], [0, 1, 2, 3], [1, 2]]
Models = dict[int, np.ndarray]
Loop = Iterator[tuple[np.ndarray, Models]]  # the cloud model, and the personal ones


class Plain:
    """The quadratic clients as arrays, and nothing of the package."""

    def __init__(self, task: QuadraticTask) -> None:
        self.curvatures, self.centres = task.curvatures.numpy(), task.centres.numpy()
        self.steps, self.counts, self.start = list(task.paces), list(task.counts), task.origin.numpy()

    def train(self, i: int, w: np.ndarray, eta: float, pull: float = 0.0, to: np.ndarray | float = 0.0) -> np.ndarray:
        for _ in range(self.steps[i]):
            w = w - eta * (self.curvatures[i] @ (w - self.centres[i]) + pull * (w - to))
        return w

    def mean(self, models: Models, *, by_samples: bool) -> np.ndarray:
        weights = np.array([self.counts[i] if by_samples else 1 for i in models])
        return np.asarray(weights @ np.stack(list(models.values())) / weights.sum())


def partly_private_loop(plain: Plain, private: list[int], *, by_samples: bool) -> Loop:
    shared = [place for place in range(DIM) if place not in private]
    x, own = plain.start.copy(), dict.fromkeys(range(CLIENTS), plain.start[private])

    def with_own(i: int) -> np.ndarray:
        w = x.copy()
        w[private] = own[i]
        return w

    for eta, cohort in zip(RATES, COHORTS, strict=True):
        ends = {i: plain.train(i, with_own(i), eta) for i in cohort}
        own |= {i: w[private] for i, w in ends.items()}
        x = x.copy()
        x[shared] = plain.mean(ends, by_samples=by_samples)[shared]
        yield x, {i: with_own(i) for i in range(CLIENTS)}


def ditto_loop(plain: Plain) -> Loop:
    x, own = plain.start, dict.fromkeys(range(CLIENTS), plain.start)
    for eta, cohort in zip(RATES, COHORTS, strict=True):
        own |= {i: plain.train(i, own[i], eta, 0.7, x) for i in cohort}
        x = plain.mean({i: plain.train(i, x, eta) for i in cohort}, by_samples=False)
        yield x, own


LOOPS: list[tuple[Algorithm, Callable[[Plain], Loop]]] = [
    (FedPer(), lambda plain: partly_private_loop(plain, [2], by_samples=True)),
    (FedPer(layers=2), lambda plain: partly_private_loop(plain, [1, 2], by_samples=True)),
    (FedPer(private="0+2.w"), lambda plain: partly_private_loop(plain, [0, 2], by_samples=True)),
    (FedBN(), lambda plain: partly_private_loop(plain, [2], by_samples=False)),
    (Ditto(pull=0.7), ditto_loop),
]
with_loops = pytest.mark.parametrize(("algorithm", "loop"), LOOPS, ids=[str(algorithm) for algorithm, _ in LOOPS])


@with_loops
@pytest.mark.parametrize("seed", [0, 1])
def test_an_algorithm_gives_the_models_of_a_plain_loop(
    algorithm: Algorithm, loop: Callable[[Plain], Loop], seed: int
) -> None:
    task = random_quadratics(seed, CLIENTS, dim=DIM, unbalanced=True)
    simulation = simulate(algorithm, task, decay=0.8)
    for cohort, (cloud, models) in zip(COHORTS, loop(Plain(task)), strict=True):
        simulation.step(cohort=np.array(cohort))
        np.testing.assert_allclose(simulation.state.cloud.numpy(), cloud, rtol=0, atol=1e-10)
        for client in simulation.clients_with_models():
            np.testing.assert_allclose(simulation.personal_model(client).numpy(), models[client], rtol=0, atol=1e-10)


def test_personal_models_are_better_where_clients_differ() -> None:
    """Each on its own client's objective, beside the cloud model of FedAvg."""
    task = random_quadratics(0, CLIENTS, dim=DIM)

    def loss(model: np.ndarray, client: int) -> float:
        away = model - task.centres[client].numpy()
        return float(away @ task.curvatures[client].numpy() @ away)

    cloud = simulate(FedAvg(), task)
    run_cohorts(cloud, [range(CLIENTS)] * 40)
    common = sum(loss(cloud.state.cloud.numpy(), client) for client in range(CLIENTS))
    for algorithm in (FedPer(), FedBN(), Ditto(pull=0.1)):
        simulation = simulate(algorithm, task)
        run_cohorts(simulation, [range(CLIENTS)] * 40)
        assert sum(loss(simulation.personal_model(i).numpy(), i) for i in range(CLIENTS)) < 0.9 * common


def test_the_cloud_model_of_ditto_does_not_know_the_personal_ones() -> None:
    task = random_quadratics(0, CLIENTS, unbalanced=True)
    clouds = []
    for pull in (0.0, 3.0):
        simulation = simulate(Ditto(pull=pull), task)
        run_cohorts(simulation, COHORTS)
        clouds.append(simulation.state.cloud)
    assert clouds[0].tolist() == clouds[1].tolist()


def test_a_client_of_ditto_without_a_pull_learns_alone() -> None:
    task = replace(random_quadratics(0, 1), paces=[200])
    simulation = simulate(Ditto(pull=0.0), task)
    simulation.step()
    np.testing.assert_allclose(simulation.personal_model(0).numpy(), task.centres[0].numpy(), atol=1e-3)


# --- Hyper-parameters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("private", ["+", "3.*+", "a++b"])
def test_empty_names_of_private_parameters_are_refused(private: str) -> None:
    with pytest.raises(
        InputError, match=r"^private = .*it should be names that are joined by \+, as in 3\.\*\+5\.bias"
    ):
        FedPer(private=private)


def test_the_number_of_layers_is_idle_beside_names() -> None:
    assert FedPer(layers=2, private="0").idle() == {"layers": "private says what is private"}
    assert not FedPer(layers=2).idle()
