"""The algorithms beside the paper's, each against a loop in plain NumPy.

A loop was written from a paper's formulas and knows nothing of the package. Clients are unbalanced, and η falls.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import relatives
import torch
from quadratics import random_quadratics, run, simulate
from tiny_digits import dataset, digits_task, simulate_digits

from adabest.algorithms.adaptive import FedAdagrad, FedAdam, FedYogi
from adabest.algorithms.aide import Aide
from adabest.algorithms.base import Algorithm, ServerContext
from adabest.algorithms.bvr_l_sgd import BvrLSgd
from adabest.algorithms.catalog import ALGORITHMS, CORE
from adabest.algorithms.dane import Dane
from adabest.algorithms.fedacg import FedACG
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.fedavgm import FedAvgM
from adabest.algorithms.fedcm import FedCM
from adabest.algorithms.feddane import FedDane
from adabest.algorithms.feddc import FedDC
from adabest.algorithms.fedexp import FedExP
from adabest.algorithms.fedlesam import FedLESAM
from adabest.algorithms.fednova import FedNova
from adabest.algorithms.fedpd import FedPD
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
from adabest.noise import NoiseKey
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
        self.zeros = np.zeros((CLIENTS, len(self.start)))

    def gradient(self, i: int, w: np.ndarray) -> np.ndarray:
        return np.asarray(self.curvatures[i] @ (w - self.centres[i]))

    def gradients(self, w: np.ndarray) -> np.ndarray:
        return np.stack([self.gradient(i, w) for i in range(CLIENTS)])

    def train(
        self,
        i: int,
        x: np.ndarray,
        eta: float,
        offset: np.ndarray,
        *,
        scale: float = 1.0,
        spring: float = 0.0,
        shift: float | np.ndarray = 0.0,
        radius: float = 0.0,
    ) -> np.ndarray:
        w = x
        for _ in range(self.steps[i]):
            point = w + shift
            if radius:
                ascent = self.gradient(i, w)
                point = point + radius * ascent / np.linalg.norm(ascent)
            w = w - eta * (scale * self.gradient(i, point) + offset + spring * (w - x))
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


def slowmo_loop(plain: Plain) -> Loop:
    x, u = plain.start, plain.zero
    for eta in RATES:
        u = 0.6 * u + (x - plain.share @ plain.train_all(x, eta)) / eta
        x = x - 0.9 * eta * u
        yield x


def adaptive_loop(plain: Plain, beta1: float, second: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Loop:
    x, m, v = plain.start, plain.zero, plain.zero + 1e-6
    for eta in RATES:
        change = plain.share @ plain.train_all(x, eta) - x  # the paper's sign: after minus before
        m = beta1 * m + (1 - beta1) * change
        v = second(v, change * change)
        x = x + 0.1 * m / (np.sqrt(v) + 1e-3)
        yield x


def fedadam_loop(plain: Plain) -> Loop:
    return adaptive_loop(plain, 0.9, lambda v, square: 0.99 * v + 0.01 * square)


def fedyogi_loop(plain: Plain) -> Loop:
    return adaptive_loop(plain, 0.9, lambda v, square: v - 0.01 * square * np.sign(v - square))


def fedadagrad_loop(plain: Plain) -> Loop:
    return adaptive_loop(plain, 0.0, lambda v, square: v + square)


def fedexp_loop(plain: Plain) -> Loop:
    x = plain.start
    for eta in RATES:
        changes = plain.train_all(x, eta) - x
        mean = changes.mean(axis=0)
        rate = max(1.0, float((changes**2).sum() / (2 * CLIENTS * ((mean**2).sum() + 1e-3))))
        x = x + rate * mean
        yield x


def fednova_loop(plain: Plain) -> Loop:
    x = plain.start
    steps = np.array(plain.steps, dtype=np.float64)
    for eta in RATES:
        mean_gradients = (x - plain.train_all(x, eta)) / (eta * steps[:, None])
        x = x - eta * (plain.share @ steps) * (plain.share @ mean_gradients)
        yield x


def mifa_loop(plain: Plain) -> Loop:
    """All clients reply, so no memory is old; ``test_mifa_replays_those_that_are_absent_by_hand`` has some."""
    x = plain.start
    for eta in RATES:
        x = x - eta * ((x - plain.train_all(x, eta)) / eta).mean(axis=0)
        yield x


def vrl_sgd_loop(plain: Plain) -> Loop:
    x, h = plain.start, plain.zeros
    for eta in RATES:
        ends = np.stack([plain.train(i, x, eta, -h[i]) for i in range(CLIENTS)])
        x = ends.mean(axis=0)
        h = h + (x - ends) / (np.array(plain.steps)[:, None] * eta)
        yield x


def dane_loop(plain: Plain, share: float = 0.5, mu: float = 0.3) -> Loop:
    x = plain.start
    for eta in RATES:
        own = plain.gradients(x)
        offsets = share * own.mean(axis=0) - own
        x = np.mean([plain.train(i, x, eta, offsets[i], spring=mu) for i in range(CLIENTS)], axis=0)
        yield x


def feddane_loop(plain: Plain) -> Loop:
    return dane_loop(plain, share=1.0)


def aide_loop(plain: Plain) -> Loop:
    """The recursion of Catalyst, with its root found by NumPy."""

    def following(zeta: float) -> float:
        return float(max(np.roots([1.0, zeta**2 - 0.2, -(zeta**2)])))

    x = y = plain.start
    zeta = following(1.0)
    for eta in RATES:
        own = plain.gradients(x)
        offsets = own.mean(axis=0) - own + 0.4 * (x - y)  # τ (w − y) = τ (w − x) + τ (x − y)
        before = x
        x = np.mean([plain.train(i, x, eta, offsets[i], spring=0.1 + 0.4) for i in range(CLIENTS)], axis=0)
        after = following(zeta)
        y = x + zeta * (1 - zeta) / (zeta**2 + after) * (x - before)
        zeta = after
        yield x


def feddc_loop(plain: Plain) -> Loop:
    x, drifts, controls, control = plain.start, plain.zeros, plain.zeros, plain.zero
    steps = np.array(plain.steps)[:, None]
    for eta in RATES:
        offsets = 0.2 * drifts + control - controls
        ends = np.stack([plain.train(i, x, eta, offsets[i], spring=0.2) for i in range(CLIENTS)])
        new = controls - control + (x - ends) / (steps * eta)
        control = control + (new - controls).mean(axis=0)
        controls, drifts = new, drifts + ends - x
        x = ends.mean(axis=0) + drifts.mean(axis=0)
        yield x


def fedpd_loop(plain: Plain) -> Loop:
    x, duals = plain.start, plain.zeros
    for eta in RATES:
        ends = np.stack([plain.train(i, x, eta, duals[i], spring=0.5) for i in range(CLIENTS)])
        duals = duals + 0.5 * (ends - x)
        x = (ends + duals / 0.5).mean(axis=0)
        yield x


def fedsplit_loop(plain: Plain) -> Loop:
    x = plain.start
    z = plain.zeros + x
    for eta in RATES:
        ends = np.stack([plain.train(i, 2 * x - z[i], eta, plain.zero, spring=1 / 0.5) for i in range(CLIENTS)])
        z = z + 2 * (ends - x)
        x = z.mean(axis=0)
        yield x


def fedcm_loop(plain: Plain) -> Loop:
    x, delta = plain.start, plain.zero
    for eta in RATES:
        ends = np.stack([plain.train(i, x, eta, 0.7 * delta, scale=0.3) for i in range(CLIENTS)])
        delta = ((x - ends) / (np.array(plain.steps)[:, None] * eta)).mean(axis=0)
        x = ends.mean(axis=0)
        yield x


def mimelite_loop(plain: Plain) -> Loop:
    x, m = plain.start, plain.zero
    for eta in RATES:
        full = plain.gradients(x).mean(axis=0)
        x = np.mean([plain.train(i, x, eta, 0.8 * m, scale=0.2) for i in range(CLIENTS)], axis=0)
        m = 0.2 * full + 0.8 * m
        yield x


def fedacg_loop(plain: Plain) -> Loop:
    """As the paper has it: a momentum, and a model that is sent out ahead of it."""
    x, m = plain.start, plain.zero
    for eta in RATES:
        sent = x + 0.85 * m
        ends = np.stack([plain.train(i, sent, eta, plain.zero, spring=0.4) for i in range(CLIENTS)])
        m = 0.85 * m + (ends - sent).mean(axis=0)
        x = x + m
        yield x + 0.85 * m


def local_momentum_loop(plain: Plain) -> Loop:
    x, momentum = plain.start, plain.zero
    for eta in RATES:
        ends, momenta = [], []
        for i in range(CLIENTS):
            w, m = x, momentum
            for _ in range(plain.steps[i]):
                m = 0.7 * m + plain.gradient(i, w)
                w = w - eta * m
            ends.append(w)
            momenta.append(m)
        x, momentum = plain.share @ np.stack(ends), plain.share @ np.stack(momenta)
        yield x


def drawn_steps(round_number: int) -> int:
    """K of a round, as the engine has it drawn: what is random can't be written anew."""
    context = ServerContext(round_number, 0, eta=ETA, base_eta=ETA, noise=NoiseKey(0).in_function("common_steps"))
    return Scaffnew(probability=0.4).common_steps(context)


def scaffnew_loop(plain: Plain) -> Loop:
    """As the paper has it: all iterations in a row, and an average at those where the coin says so."""
    models, h = plain.zeros + plain.start, plain.zeros
    for t, eta in enumerate(RATES, start=1):
        averaging = [False] * (drawn_steps(t) - 1) + [True]
        for coin in averaging:
            hats = np.stack([w - eta * (plain.gradient(i, w) - h[i]) for i, w in enumerate(models)])
            models = plain.zeros + hats.mean(axis=0) if coin else hats
            h = h + 0.4 / eta * (models - hats)
        yield models[0]


def fsvrg_loop(plain: Plain) -> Loop:
    x = plain.start
    for eta in RATES:
        own = plain.gradients(x)
        offsets = plain.share @ own - own
        x = plain.share @ np.stack([plain.train(i, x, eta / plain.steps[i], offsets[i]) for i in range(CLIENTS)])
        yield x


def bvr_l_sgd_loop(plain: Plain) -> Loop:
    x = plain.start
    for eta in RATES:
        full = plain.gradients(x).mean(axis=0)
        ends = []
        for i in range(CLIENTS):
            v, before, w = full, x, x
            for _ in range(plain.steps[i]):
                v = v + plain.gradient(i, w) - plain.gradient(i, before)
                before, w = w, w - eta * v
            ends.append(w)
        x = np.mean(ends, axis=0)
        yield x


def mime_loop(plain: Plain) -> Loop:
    x, m = plain.start, plain.zero
    for eta in RATES:
        own = plain.gradients(x)
        full = own.mean(axis=0)
        offsets = 0.3 * (full - own) + 0.7 * m
        x = np.mean([plain.train(i, x, eta, offsets[i], scale=0.3) for i in range(CLIENTS)], axis=0)
        m = 0.3 * full + 0.7 * m
        yield x


def mimelite_adam_loop(plain: Plain) -> Loop:
    x, m, v = plain.start, plain.zero, plain.zero + 0.09
    for eta in RATES:
        full = plain.gradients(x).mean(axis=0)
        root = np.sqrt(v) + 0.3
        ends = []
        for i in range(CLIENTS):
            w = x
            for _ in range(plain.steps[i]):
                w = w - eta * (0.2 * plain.gradient(i, w) + 0.8 * m) / root
            ends.append(w)
        x = np.mean(ends, axis=0)
        m, v = 0.8 * m + 0.2 * full, 0.9 * v + 0.1 * full**2
        yield x


def fedsam_loop(plain: Plain) -> Loop:
    x = plain.start
    for eta in RATES:
        x = plain.share @ np.stack([plain.train(i, x, eta, plain.zero, radius=0.3) for i in range(CLIENTS)])
        yield x


def mofedsam_loop(plain: Plain) -> Loop:
    x, delta = plain.start, plain.zero
    for eta in RATES:
        ends = np.stack([plain.train(i, x, eta, 0.7 * delta, scale=0.3, radius=0.2) for i in range(CLIENTS)])
        delta = ((x - ends) / (np.array(plain.steps)[:, None] * eta)).mean(axis=0)
        x = ends.mean(axis=0)
        yield x


def fedspeed_loop(plain: Plain) -> Loop:
    """As the authors' code has it: h_i are sums of θ_i − θ, and their mean is added."""
    x, duals = plain.start, plain.zeros
    for eta in RATES:
        ends = np.stack([plain.train(i, x, eta, 0.3 * duals[i], spring=0.3, radius=0.2) for i in range(CLIENTS)])
        duals = duals + ends - x
        x = ends.mean(axis=0) + duals.mean(axis=0)
        yield x


def fedlesam_loop(plain: Plain) -> Loop:
    x, e = plain.start, plain.zero
    for eta in RATES:
        before = x
        x = plain.share @ np.stack([plain.train(i, x, eta, plain.zero, shift=e) for i in range(CLIENTS)])
        e = 0.3 * (before - x) / np.linalg.norm(before - x)
        yield x


LOOPS: list[tuple[Algorithm, Callable[[Plain], Loop]]] = [
    (FedAvgM(beta=0.7), fedavgm_loop),
    (SlowMo(slow_rate=0.9, beta=0.6), slowmo_loop),
    (FedAdam(rate=0.1), fedadam_loop),
    (FedYogi(rate=0.1), fedyogi_loop),
    (FedAdagrad(rate=0.1), fedadagrad_loop),
    (FedExP(epsilon=1e-3), fedexp_loop),
    (FedNova(), fednova_loop),
    (Mifa(), mifa_loop),
    (VrlSgd(), vrl_sgd_loop),
    (Dane(mu=0.3, share=0.5), dane_loop),
    (Aide(mu=0.1, tau=0.4, q=0.2), aide_loop),
    (FedDane(mu=0.3), feddane_loop),
    (FedDC(strength=0.2), feddc_loop),
    (FedPD(rho=0.5), fedpd_loop),
    (FedSplit(s=0.5), fedsplit_loop),
    (FedCM(own_share=0.3), fedcm_loop),
    (MimeLite(beta=0.8), mimelite_loop),
    (FedACG(momentum=0.85, beta=0.4), fedacg_loop),
    (LocalMomentum(beta=0.7), local_momentum_loop),
    (Scaffnew(probability=0.4), scaffnew_loop),
    (Fsvrg(own_rate="by_steps"), fsvrg_loop),
    (BvrLSgd(), bvr_l_sgd_loop),
    (Mime(beta=0.7), mime_loop),
    (MimeLiteAdam(beta1=0.8, beta2=0.9, tau=0.3), mimelite_adam_loop),
    (FedSAM(radius=0.3), fedsam_loop),
    (MoFedSAM(own_share=0.3, radius=0.2), mofedsam_loop),
    (FedSpeed(mu=0.3, radius=0.2), fedspeed_loop),
    (FedLESAM(radius=0.3), fedlesam_loop),
]
NAMES = [type(algorithm).__name__ for algorithm, _ in LOOPS]

each_with_its_loop = pytest.mark.parametrize(("algorithm", "loop"), LOOPS, ids=NAMES)
each = pytest.mark.parametrize("algorithm", [algorithm for algorithm, _ in LOOPS], ids=NAMES)


@each_with_its_loop
@pytest.mark.parametrize("seed", [0, 1])
def test_an_algorithm_gives_the_models_of_a_plain_loop(
    algorithm: Algorithm, loop: Callable[[Plain], Loop], seed: int
) -> None:
    task = random_quadratics(seed, CLIENTS, unbalanced=True)
    states = run(simulate(algorithm, task, eta=ETA, decay=DECAY), len(RATES))
    for state, expected in zip(states[1:], loop(Plain(task)), strict=True):
        np.testing.assert_allclose(state.cloud.numpy(), expected, rtol=0, atol=1e-10)


@each
def test_an_algorithm_is_not_just_fedavg(algorithm: Algorithm) -> None:
    """Otherwise the comparison above could hold for the wrong reason."""
    task = random_quadratics(0, CLIENTS, unbalanced=True)
    mine, fedavg = (run(simulate(a, task, eta=ETA, decay=DECAY), len(RATES))[-1] for a in (algorithm, FedAvg()))
    assert float((mine.cloud - fedavg.cloud).norm()) > 1e-3


@each
def test_an_algorithm_learns_the_digits(algorithm: Algorithm) -> None:
    """With half of the clients, also where the paper asks all."""
    simulation = simulate_digits(algorithm, digits_task(unbalance=0.3, dtype=torch.float32), participation=0.5)
    first = simulation.step(evaluate=True)
    for _ in range(4):
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


def test_every_algorithm_beside_the_core_has_a_loop() -> None:
    personal = {"fedper", "fedbn", "ditto"}  # whose loops have personal models, too: test_personal_algorithms.py
    assert {type(algorithm) for algorithm, _ in LOOPS} == {
        kind for name, kind in ALGORITHMS.builtin.items() if name not in {*CORE, *personal}
    }


@pytest.mark.parametrize("name", ["Differences", "NoisyFedAvg"])
def test_an_algorithm_is_found_by_module_and_name(name: str) -> None:
    """As ``--algorithm my_module:MyAlgorithm`` does it."""
    with naming(f"relatives:{name}"):
        assert ALGORITHMS.find(f"relatives:{name}") is getattr(relatives, name)


def test_two_exchanges_cost_two_exchanges() -> None:
    """FedDANE: down θ, then θ and h, up a gradient and a model; local steps are made in the second exchange only."""
    task = random_quadratics(0, CLIENTS)
    simulation = simulate(FedDane(), task)
    run(simulation, 3)
    vector = 8 * len(task.origin)
    assert simulation.state.bytes_down == 3 * CLIENTS * 3 * vector
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
        torch.testing.assert_close(simulation.client_state(client).gradient, gradients[-1], rtol=0, atol=1e-12)
    mean = torch.stack(gradients).mean(dim=0)
    torch.testing.assert_close(simulation.state.server.h, mean, rtol=0, atol=1e-12)
