"""Algorithms that the package doesn't have (see ``relatives``): the idea carries them as it is.

Each is compared with a loop in plain NumPy that was written from the paper's formulas and knows nothing of the package.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from quadratics import random_quadratics, run, simulate
from relatives import FedAdam, FedAvgM, FedDane, FedNova, SlowMo, VrlSgd
from tiny_digits import dataset, digits_task, simulate_digits

from adabest.algorithms.base import Algorithm
from adabest.algorithms.catalog import ALGORITHMS
from adabest.algorithms.fedavg import FedAvg
from adabest.registry import naming
from adabest.tasks.quadratic import QuadraticTask

CLIENTS = 4
ETA, DECAY = 0.1, 0.8  # a rate that falls fast, so that a formula with the wrong round's rate is found out
RATES = [ETA * DECAY**t for t in range(8)]


# --- The same in NumPy ------------------------------------------------------------------------------------------------


class Plain:
    """The quadratic clients as arrays, and nothing of the package."""

    def __init__(self, task: QuadraticTask) -> None:
        self.curvatures, self.centres = task.curvatures.numpy(), task.centres.numpy()
        self.steps = list(task.paces)
        counts = np.array(task.counts, dtype=np.float64)
        self.share = counts / counts.sum()
        self.start = task.origin.numpy()
        self.zero = np.zeros_like(self.start)

    def gradient(self, i: int, w: np.ndarray) -> np.ndarray:
        return np.asarray(self.curvatures[i] @ (w - self.centres[i]))

    def train(self, i: int, x: np.ndarray, eta: float, offset: np.ndarray, spring: float = 0.0) -> np.ndarray:
        w = x
        for _ in range(self.steps[i]):
            w = w - eta * (self.gradient(i, w) + offset + spring * (w - x))
        return w

    def train_all(self, x: np.ndarray, eta: float) -> np.ndarray:
        return np.stack([self.train(i, x, eta, self.zero) for i in range(CLIENTS)])


Loop = Iterator[np.ndarray]  # the cloud model of one round after another


def fedavgm_loop(plain: Plain) -> Loop:
    x, v = plain.start, plain.zero
    for eta in RATES:
        v = 0.7 * v + (x - plain.share @ plain.train_all(x, eta))
        x = x - v
        yield x


def fedadam_loop(plain: Plain) -> Loop:
    x, m, v = plain.start, plain.zero, plain.zero + 1e-6
    for eta in RATES:
        change = plain.share @ plain.train_all(x, eta) - x  # the paper's sign: after minus before
        m = 0.9 * m + 0.1 * change
        v = 0.99 * v + 0.01 * change * change
        x = x + 0.1 * m / (np.sqrt(v) + 1e-3)
        yield x


def fednova_loop(plain: Plain) -> Loop:
    x = plain.start
    steps = np.array(plain.steps, dtype=np.float64)
    for eta in RATES:
        mean_gradients = (x - plain.train_all(x, eta)) / (eta * steps[:, None])
        x = x - eta * (plain.share @ steps) * (plain.share @ mean_gradients)
        yield x


def slowmo_loop(plain: Plain) -> Loop:
    x, u = plain.start, plain.zero
    for eta in RATES:
        u = 0.6 * u + (x - plain.share @ plain.train_all(x, eta)) / eta
        x = x - 0.9 * eta * u
        yield x


def vrl_sgd_loop(plain: Plain) -> Loop:
    x, h = plain.start, np.zeros((CLIENTS, len(plain.start)))
    for eta in RATES:
        ends = np.stack([plain.train(i, x, eta, -h[i]) for i in range(CLIENTS)])
        x = ends.mean(axis=0)
        h = h + (x - ends) / (np.array(plain.steps)[:, None] * eta)
        yield x


def feddane_loop(plain: Plain) -> Loop:
    x = plain.start
    for eta in RATES:
        own = np.stack([plain.gradient(i, x) for i in range(CLIENTS)])
        offsets = own.mean(axis=0) - own
        x = np.mean([plain.train(i, x, eta, offsets[i], spring=0.3) for i in range(CLIENTS)], axis=0)
        yield x


LOOPS: list[tuple[Algorithm, Callable[[Plain], Loop]]] = [
    (FedAvgM(beta=0.7), fedavgm_loop),
    (FedAdam(rate=0.1, beta1=0.9, beta2=0.99, tau=1e-3), fedadam_loop),
    (FedNova(), fednova_loop),
    (SlowMo(alpha=0.9, beta=0.6), slowmo_loop),
    (VrlSgd(), vrl_sgd_loop),
    (FedDane(mu=0.3), feddane_loop),
]
NAMES = [type(algorithm).__name__ for algorithm, _ in LOOPS]

each_with_its_loop = pytest.mark.parametrize(("algorithm", "loop"), LOOPS, ids=NAMES)
each = pytest.mark.parametrize("algorithm", [algorithm for algorithm, _ in LOOPS], ids=NAMES)


@each_with_its_loop
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_another_algorithm_gives_the_models_of_a_plain_loop(
    algorithm: Algorithm, loop: Callable[[Plain], Loop], seed: int
) -> None:
    task = random_quadratics(seed, CLIENTS, unbalanced=True)
    states = run(simulate(algorithm, task, eta=ETA, decay=DECAY), len(RATES))
    for state, expected in zip(states[1:], loop(Plain(task)), strict=True):
        np.testing.assert_allclose(state.cloud.numpy(), expected, rtol=0, atol=1e-10)


@each
def test_another_algorithm_is_not_just_fedavg(algorithm: Algorithm) -> None:
    """Otherwise the comparison above could hold for the wrong reason."""
    task = random_quadratics(0, CLIENTS, unbalanced=True)
    mine, fedavg = (run(simulate(a, task, eta=ETA, decay=DECAY), len(RATES))[-1] for a in (algorithm, FedAvg()))
    assert float((mine.cloud - fedavg.cloud).norm()) > 1e-3


@each
def test_another_algorithm_learns_the_digits(algorithm: Algorithm) -> None:
    simulation = simulate_digits(algorithm, digits_task(unbalance=0.3, dtype=torch.float32), participation=0.5)
    first = simulation.step(evaluate=True)
    for _ in range(8):
        last = simulation.step(evaluate=True)
    assert first is not None
    assert last is not None
    judged = "aggregate_loss" if simulation.scored_model() is None else "scored_loss"
    for key in (judged, "aggregate_loss", "cloud_loss", "train_loss", "cloud_norm"):
        value = last[key]
        assert value is not None
        assert math.isfinite(value)
    before, after = first[judged], last[judged]
    assert before is not None
    assert after is not None
    assert after < before


@each
def test_another_algorithm_resumes_to_the_last_bit(algorithm: Algorithm) -> None:
    task = random_quadratics(3, CLIENTS, unbalanced=True)
    whole, first, second = (simulate(algorithm, task, participation=0.5) for _ in range(3))
    run(whole, 6)
    run(first, 3)
    second.restore(first.snapshot())
    run(second, 3)
    one, other = whole.snapshot(), second.snapshot()
    assert one.numbers == other.numbers
    assert one.tensors.keys() == other.tensors.keys()
    assert all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


@pytest.mark.parametrize("name", NAMES)
def test_another_algorithm_is_found_by_module_and_name(name: str) -> None:
    """As ``--algorithm my_module:MyAlgorithm`` does it."""
    with naming(f"{__name__}:{name}"):
        assert ALGORITHMS.find(f"{__name__}:{name}") is globals()[name]


def test_two_exchanges_cost_two_exchanges() -> None:
    """FedDANE: down θ and g twice, up a gradient and a model; local steps are made in the second exchange only."""
    task = random_quadratics(0, CLIENTS)
    simulation = simulate(FedDane(), task)
    run(simulation, 3)
    vector = 8 * len(task.origin)
    assert simulation.state.bytes_down == 3 * CLIENTS * 2 * 2 * vector
    assert simulation.state.bytes_up == 3 * CLIENTS * 2 * vector
    assert simulation.state.local_steps == 3 * sum(task.paces)


def test_a_gradient_phase_takes_the_gradient_over_all_samples() -> None:
    """On real data, where that isn't the gradient of a batch: (softmax − label) times input, averaged by hand."""
    task, data = digits_task(unbalance=0.3), dataset()
    simulation = simulate_digits(FedDane(), task)
    start = task.initial_model()
    weights, biases = start[:-10].view(10, 64), start[-10:]
    simulation.step()
    gradients = []
    for client in simulation.cohort(1).tolist():
        mine = torch.from_numpy(task.partition.of(client))
        x = ((data.x_train[mine].double() - data.mean) / data.std).flatten(start_dim=1)
        errors = torch.softmax(x @ weights.T + biases, dim=1) - torch.eye(10)[data.y_train[mine]]
        gradients.append(torch.cat([(errors.T @ x).flatten(), errors.sum(dim=0)]) / len(mine))
        torch.testing.assert_close(simulation.client_state(client).vector, gradients[-1], rtol=0, atol=1e-12)
    mean = torch.stack(gradients).mean(dim=0)
    torch.testing.assert_close(simulation.state.server.vector, mean, rtol=0, atol=1e-12)
