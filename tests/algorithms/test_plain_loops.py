"""The algorithms beside the paper's, each against a loop in plain NumPy.

A loop was written from a paper's formulas and knows nothing of the package. Clients are unbalanced, and η falls. Each
is compared where all clients take part, and where some pause and steps are clipped and have weight decay.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import relatives
import torch
from quadratics import random_quadratics, run, run_cohorts, simulate
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
from adabest.engine.step_numbers import UniformSteps
from adabest.noise import NoiseKey
from adabest.registry import naming
from adabest.tasks.quadratic import QuadraticTask

CLIENTS = 4
ETA, DECAY = 0.1, 0.8  # a rate that falls fast, so that a formula with the wrong round's rate is found out
RATES = [ETA * DECAY**t for t in range(8)]
EVERYONE = [list(range(CLIENTS))] * len(RATES)
SOME = [[0, 2], [1, 3], [0, 1, 2], [2], [0, 3], [1, 2, 3], [0, 1], [2, 3]]  # of different sizes, and all come back
CLIP, WEIGHT_DECAY = 0.5, 0.05


# --- The same in NumPy ------------------------------------------------------------------------------------------------


class Plain:
    """The quadratic clients as arrays, and nothing of the package."""

    def __init__(
        self, task: QuadraticTask, cohorts: list[list[int]] = EVERYONE, clip: float = math.inf, decay: float = 0.0
    ) -> None:
        self.curvatures, self.centres = task.curvatures.numpy(), task.centres.numpy()
        self.steps = np.array(task.paces)
        self.counts = np.array(task.counts, dtype=np.float64)
        self.start = task.origin.numpy()
        self.zero = np.zeros_like(self.start)
        self.zeros = np.zeros((CLIENTS, len(self.start)))
        self.rounds = list(zip(RATES, cohorts, strict=True))
        self.limit, self.decay = clip, decay

    def gradient(self, i: int, w: np.ndarray) -> np.ndarray:
        return np.asarray(self.curvatures[i] @ (w - self.centres[i]))

    def gradients(self, cohort: list[int], w: np.ndarray) -> np.ndarray:
        return np.stack([self.gradient(i, w) for i in cohort])

    def by_samples(self, cohort: list[int], vectors: np.ndarray | list[np.ndarray]) -> np.ndarray:
        return np.average(np.stack(list(vectors)), axis=0, weights=self.counts[cohort])

    def clip(self, direction: np.ndarray) -> np.ndarray:
        length = float(np.linalg.norm(direction))
        return direction * (self.limit / length) if length > self.limit else direction

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
        steps: int | None = None,
    ) -> np.ndarray:
        w = x
        for _ in range(steps or self.steps[i]):
            point = w + shift
            if radius:
                ascent = self.gradient(i, w)
                point = point + radius * ascent / np.linalg.norm(ascent)
            direction = scale * self.gradient(i, point) + offset + spring * (w - x)
            w = w - eta * (self.clip(direction) + self.decay * w)
        return w

    def train_all(self, cohort: list[int], x: np.ndarray, eta: float) -> np.ndarray:
        return np.stack([self.train(i, x, eta, self.zero) for i in cohort])


Loop = Iterator[np.ndarray]  # the cloud model of one round after another


def fedavgm_loop(plain: Plain) -> Loop:
    x, v = plain.start, plain.zero
    for eta, cohort in plain.rounds:
        v = 0.7 * v + (x - plain.by_samples(cohort, plain.train_all(cohort, x, eta)))
        x = x - v
        yield x


def slowmo_loop(plain: Plain) -> Loop:
    x, u = plain.start, plain.zero
    for eta, cohort in plain.rounds:
        u = 0.6 * u + (x - plain.by_samples(cohort, plain.train_all(cohort, x, eta))) / eta
        x = x - 0.9 * eta * u
        yield x


def adaptive_loop(plain: Plain, beta1: float, second: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Loop:
    x, m, v = plain.start, plain.zero, plain.zero + 1e-6
    for eta, cohort in plain.rounds:
        # the paper's sign: after minus before
        change = plain.by_samples(cohort, plain.train_all(cohort, x, eta)) - x
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
    for eta, cohort in plain.rounds:
        changes = plain.train_all(cohort, x, eta) - x
        mean = changes.mean(axis=0)
        rate = max(1.0, float((changes**2).sum() / (2 * len(cohort) * ((mean**2).sum() + 1e-3))))
        x = x + rate * mean
        yield x


def fednova_loop(plain: Plain) -> Loop:
    x = plain.start
    for eta, cohort in plain.rounds:
        steps = plain.steps[cohort]
        share = plain.counts[cohort] / plain.counts[cohort].sum()
        mean_gradients = (x - plain.train_all(cohort, x, eta)) / (eta * steps[:, None])
        x = x - eta * (share @ steps) * (share @ mean_gradients)
        yield x


def mifa_loop(plain: Plain) -> Loop:
    """A table of updates on the server, whose mean is that of all clients."""
    x, table = plain.start, plain.zeros.copy()
    for eta, cohort in plain.rounds:
        table[cohort] = (x - plain.train_all(cohort, x, eta)) / eta
        x = x - eta * table.mean(axis=0)
        yield x


def vrl_sgd_loop(plain: Plain) -> Loop:
    """A client sees the average of its round in its next one, whenever that is."""
    x, h = plain.start, plain.zeros.copy()
    last: dict[int, tuple[np.ndarray, float]] = {}
    for eta, cohort in plain.rounds:
        for i in cohort:
            if i in last:
                end, length = last[i]
                h[i] += (x - end) / length
            last[i] = plain.train(i, x, eta, -h[i]), plain.steps[i] * eta
        x = np.mean([last[i][0] for i in cohort], axis=0)
        yield x


def dane_loop(plain: Plain, share: float = 0.5, mu: float = 0.3) -> Loop:
    x = plain.start
    for eta, cohort in plain.rounds:
        own = plain.gradients(cohort, x)
        offsets = share * own.mean(axis=0) - own
        x = np.mean([plain.train(i, x, eta, o, spring=mu) for i, o in zip(cohort, offsets, strict=True)], axis=0)
        yield x


def feddane_loop(plain: Plain) -> Loop:
    return dane_loop(plain, share=1.0)


def aide_loop(plain: Plain) -> Loop:
    """The recursion of Catalyst, with its root found by NumPy."""

    def following(zeta: float) -> float:
        return float(max(np.roots([1.0, zeta**2 - 0.2, -(zeta**2)])))

    x = y = plain.start
    zeta = following(1.0)
    for eta, cohort in plain.rounds:
        own = plain.gradients(cohort, x)
        offsets = own.mean(axis=0) - own + 0.4 * (x - y)  # τ (w − y) = τ (w − x) + τ (x − y)
        before = x
        ends = [plain.train(i, x, eta, o, spring=0.1 + 0.4) for i, o in zip(cohort, offsets, strict=True)]
        x = np.mean(ends, axis=0)
        after = following(zeta)
        y = x + zeta * (1 - zeta) / (zeta**2 + after) * (x - before)
        zeta = after
        yield x


def feddc_loop(plain: Plain) -> Loop:
    x, drifts, controls, control = plain.start, plain.zeros.copy(), plain.zeros.copy(), plain.zero
    for eta, cohort in plain.rounds:
        ends, changes = [], plain.zeros.copy()
        for i in cohort:
            end = plain.train(i, x, eta, 0.2 * drifts[i] + control - controls[i], spring=0.2)
            changes[i] = (x - end) / (plain.steps[i] * eta) - control
            drifts[i] += end - x
            ends.append(end)
        controls += changes
        control = control + changes.mean(axis=0)
        x = np.mean(ends, axis=0) + drifts.mean(axis=0)
        yield x


def fedpd_loop(plain: Plain, own: bool = False) -> Loop:
    x, duals = plain.start, plain.zeros.copy()
    last: dict[int, np.ndarray] = {}
    for eta, cohort in plain.rounds:
        starts = [last.get(i, x) if own else x for i in cohort]
        offsets = duals[cohort] + 0.5 * (starts - x)  # ρ (w − x) = ρ (w − start) + ρ (start − x)
        given = zip(cohort, starts, offsets, strict=True)
        ends = np.stack([plain.train(i, start, eta, offset, spring=0.5) for i, start, offset in given])
        last |= dict(zip(cohort, ends, strict=True))
        duals[cohort] += 0.5 * (ends - x)
        x = (ends + duals[cohort] / 0.5).mean(axis=0)
        yield x


def fedsplit_loop(plain: Plain) -> Loop:
    x = plain.start
    z: dict[int, np.ndarray] = {}
    for eta, cohort in plain.rounds:
        for i in cohort:
            own = z.get(i, x)
            z[i] = own + 2 * (plain.train(i, 2 * x - own, eta, plain.zero, spring=1 / 0.5) - x)
        x = np.mean([z[i] for i in cohort], axis=0)
        yield x


def fedcm_loop(plain: Plain, radius: float = 0.0) -> Loop:
    x, delta = plain.start, plain.zero
    for eta, cohort in plain.rounds:
        ends = np.stack([plain.train(i, x, eta, 0.7 * delta, scale=0.3, radius=radius) for i in cohort])
        delta = ((x - ends) / (plain.steps[cohort][:, None] * eta)).mean(axis=0)
        x = ends.mean(axis=0)
        yield x


def mofedsam_loop(plain: Plain) -> Loop:
    return fedcm_loop(plain, radius=0.2)


def mimelite_loop(plain: Plain) -> Loop:
    x, m = plain.start, plain.zero
    for eta, cohort in plain.rounds:
        full = plain.gradients(cohort, x).mean(axis=0)
        x = np.mean([plain.train(i, x, eta, 0.8 * m, scale=0.2) for i in cohort], axis=0)
        m = 0.2 * full + 0.8 * m
        yield x


def fedacg_loop(plain: Plain) -> Loop:
    """As the paper has it: a momentum, and a model that is sent out ahead of it."""
    x, m = plain.start, plain.zero
    for eta, cohort in plain.rounds:
        sent = x + 0.85 * m
        ends = np.stack([plain.train(i, sent, eta, plain.zero, spring=0.4) for i in cohort])
        m = 0.85 * m + (ends - sent).mean(axis=0)
        x = x + m
        yield x + 0.85 * m


def local_momentum_loop(plain: Plain) -> Loop:
    x, momentum = plain.start, plain.zero
    for eta, cohort in plain.rounds:
        ends, momenta = [], []
        for i in cohort:
            w, m = x, momentum
            for _ in range(plain.steps[i]):
                m = 0.7 * m + plain.clip(plain.gradient(i, w))
                w = w - eta * (m + plain.decay * w)
            ends.append(w)
            momenta.append(m)
        x, momentum = plain.by_samples(cohort, ends), plain.by_samples(cohort, momenta)
        yield x


def drawn_steps(round_number: int) -> int:
    """K of a round, as the engine has it drawn: what is random can't be written anew."""
    context = ServerContext(round_number, 0, eta=ETA, base_eta=ETA, noise=NoiseKey(0).in_function("common_steps"))
    return Scaffnew(probability=0.4).common_steps(context)


def scaffnew_loop(plain: Plain) -> Loop:
    """Clients that see the average late, as VRL-SGD's do."""
    x, h = plain.start, plain.zeros.copy()
    last: dict[int, tuple[np.ndarray, float]] = {}
    for t, (eta, cohort) in enumerate(plain.rounds, start=1):
        for i in cohort:
            if i in last:
                end, pace = last[i]
                h[i] += pace * (x - end)
            last[i] = plain.train(i, x, eta, -h[i], steps=drawn_steps(t)), 0.4 / eta
        x = np.mean([last[i][0] for i in cohort], axis=0)
        yield x


def iterations_of_scaffnew(plain: Plain) -> Loop:
    """As the paper has it: all iterations in a row, and an average of all at those where the coin says so."""
    models, h = plain.zeros + plain.start, plain.zeros
    for t, eta in enumerate(RATES, start=1):
        averaging = [False] * (drawn_steps(t) - 1) + [True]
        for coin in averaging:
            hats = np.stack([w - eta * (plain.gradient(i, w) - h[i]) for i, w in enumerate(models)])
            models = plain.zeros + hats.mean(axis=0) if coin else hats
            h = h + 0.4 / eta * (models - hats)
        yield models[0]


def fsvrg_loop(plain: Plain, own_rate: bool = False) -> Loop:
    """With a rate of its own for each client, what is clipped is a step's share of the round's, and the decay η's."""
    x = plain.start
    for eta, cohort in plain.rounds:
        own = plain.gradients(cohort, x)
        offsets = plain.by_samples(cohort, own) - own
        ends = []
        for i, offset in zip(cohort, offsets, strict=True):
            share = 1 / plain.steps[i] if own_rate else 1.0
            ends.append(plain.train(i, x, eta, share * offset, scale=share))
        x = plain.by_samples(cohort, ends)
        yield x


def bvr_l_sgd_loop(plain: Plain) -> Loop:
    x = plain.start
    for eta, cohort in plain.rounds:
        full = plain.gradients(cohort, x).mean(axis=0)
        ends = []
        for i in cohort:
            v, before, w = full, x, x
            for _ in range(plain.steps[i]):
                v = v + plain.gradient(i, w) - plain.gradient(i, before)
                before, w = w, w - eta * (plain.clip(v) + plain.decay * w)
            ends.append(w)
        x = np.mean(ends, axis=0)
        yield x


def mime_loop(plain: Plain) -> Loop:
    x, m = plain.start, plain.zero
    for eta, cohort in plain.rounds:
        own = plain.gradients(cohort, x)
        full = own.mean(axis=0)
        offsets = 0.3 * (full - own) + 0.7 * m
        x = np.mean([plain.train(i, x, eta, o, scale=0.3) for i, o in zip(cohort, offsets, strict=True)], axis=0)
        m = 0.3 * full + 0.7 * m
        yield x


def mimelite_adam_loop(plain: Plain) -> Loop:
    x, m, v = plain.start, plain.zero, plain.zero + 0.09
    for eta, cohort in plain.rounds:
        full = plain.gradients(cohort, x).mean(axis=0)
        root = np.sqrt(v) + 0.3
        ends = []
        for i in cohort:
            w = x
            for _ in range(plain.steps[i]):
                w = w - eta * (plain.clip((0.2 * plain.gradient(i, w) + 0.8 * m) / root) + plain.decay * w)
            ends.append(w)
        x = np.mean(ends, axis=0)
        m, v = 0.8 * m + 0.2 * full, 0.9 * v + 0.1 * full**2
        yield x


def fedsam_loop(plain: Plain) -> Loop:
    x = plain.start
    for eta, cohort in plain.rounds:
        x = plain.by_samples(cohort, [plain.train(i, x, eta, plain.zero, radius=0.3) for i in cohort])
        yield x


def fedspeed_loop(plain: Plain) -> Loop:
    """As the authors' code has it: h_i are sums of θ_i − θ, and their mean is added."""
    x, duals = plain.start, plain.zeros.copy()
    for eta, cohort in plain.rounds:
        ends = np.stack([plain.train(i, x, eta, 0.3 * duals[i], spring=0.3, radius=0.2) for i in cohort])
        duals[cohort] += ends - x
        x = ends.mean(axis=0) + duals.mean(axis=0)
        yield x


def fedlesam_loop(plain: Plain) -> Loop:
    x = plain.start
    received: dict[int, np.ndarray] = {}
    for eta, cohort in plain.rounds:
        ends = []
        for i in cohort:
            back = received.get(i, x) - x
            shift = 0.3 * back / np.linalg.norm(back) if i in received else plain.zero
            ends.append(plain.train(i, x, eta, plain.zero, shift=shift))
            received[i] = x
        x = plain.by_samples(cohort, ends)
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
    (FedPD(rho=0.5, begin="own"), lambda plain: fedpd_loop(plain, own=True)),
    (FedSplit(s=0.5), fedsplit_loop),
    (FedCM(own_share=0.3), fedcm_loop),
    (MimeLite(beta=0.8), mimelite_loop),
    (FedACG(momentum=0.85, beta=0.4), fedacg_loop),
    (LocalMomentum(beta=0.7), local_momentum_loop),
    (Scaffnew(probability=0.4), scaffnew_loop),
    (Fsvrg(), fsvrg_loop),
    (Fsvrg(own_rate="by_steps"), lambda plain: fsvrg_loop(plain, own_rate=True)),
    (BvrLSgd(), bvr_l_sgd_loop),
    (Mime(beta=0.7), mime_loop),
    (MimeLiteAdam(beta1=0.8, beta2=0.9, tau=0.3), mimelite_adam_loop),
    (FedSAM(radius=0.3), fedsam_loop),
    (MoFedSAM(own_share=0.3, radius=0.2), mofedsam_loop),
    (FedSpeed(mu=0.3, radius=0.2), fedspeed_loop),
    (FedLESAM(radius=0.3), fedlesam_loop),
]
NAMES = [str(algorithm) for algorithm, _ in LOOPS]

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


@each_with_its_loop
@pytest.mark.parametrize("seed", [0, 1])
def test_clients_that_pause_give_the_models_of_a_plain_loop(
    algorithm: Algorithm, loop: Callable[[Plain], Loop], seed: int
) -> None:
    """Steps are clipped, and have weight decay."""
    task = random_quadratics(seed, CLIENTS, unbalanced=True)
    simulation = simulate(algorithm, task, eta=ETA, decay=DECAY, clip=CLIP, weight_decay=WEIGHT_DECAY)
    states = run_cohorts(simulation, SOME)
    plain = Plain(task, SOME, CLIP, WEIGHT_DECAY)
    for state, expected in zip(states[1:], loop(plain), strict=True):
        np.testing.assert_allclose(state.cloud.numpy(), expected, rtol=0, atol=1e-10)


@each_with_its_loop
def test_numbers_of_steps_that_are_drawn_anew_give_the_models_of_a_plain_loop(
    algorithm: Algorithm, loop: Callable[[Plain], Loop]
) -> None:
    """As with ``--local-steps uniform:1:5``: each client's in every round, and some clients pause."""
    task, drawn = random_quadratics(0, CLIENTS, unbalanced=True), UniformSteps(1, 5)
    simulation = simulate(algorithm, task, eta=ETA, decay=DECAY, steps=drawn)
    plain = Plain(task, SOME)
    expected = loop(plain)
    for round_number, cohort in enumerate(SOME, start=1):
        plain.steps = drawn.of(0, round_number, np.arange(CLIENTS))
        simulation.step(cohort=np.array(cohort))
        np.testing.assert_allclose(simulation.state.cloud.numpy(), next(expected), rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", [0, 1])
def test_rounds_of_scaffnew_are_the_papers_iterations(seed: int) -> None:
    task = random_quadratics(seed, CLIENTS, unbalanced=True)
    states = run(simulate(Scaffnew(probability=0.4), task, eta=ETA, decay=DECAY), len(RATES))
    for state, expected in zip(states[1:], iterations_of_scaffnew(Plain(task)), strict=True):
        np.testing.assert_allclose(state.cloud.numpy(), expected, rtol=0, atol=1e-10)


@each
def test_an_algorithm_is_not_just_fedavg(algorithm: Algorithm) -> None:
    """Otherwise the comparison above could hold for the wrong reason."""
    task = random_quadratics(0, CLIENTS, unbalanced=True)
    mine, fedavg = (run(simulate(a, task, eta=ETA, decay=DECAY), len(RATES))[-1] for a in (algorithm, FedAvg()))
    assert float((mine.cloud - fedavg.cloud).norm()) > 1e-3


@each
def test_an_algorithm_learns_the_digits(algorithm: Algorithm) -> None:
    """With half of the clients, also where the paper asks all; but old models of FedPD's own make it diverge then."""
    participation = 1.0 if algorithm == FedPD(rho=0.5, begin="own") else 0.5
    task = digits_task(unbalance=0.3, dtype=torch.float32)
    simulation = simulate_digits(algorithm, task, participation=participation)
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
