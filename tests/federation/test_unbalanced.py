"""Clients of very different sizes, end to end: every algorithm against NumPy, written from the protocol's table alone.

Only what is drawn is taken from the package: the partition, the cohorts, the batches and the initial model. What is
trained is multinomial logistic regression, whose gradient is written out.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_runs
from cohorts import draw_cohort
from small import plain_inputs
from torch import nn

from adabest import Run
from adabest.federation.batches import batch_table
from adabest.runs.build import build_federation
from adabest.runs.settings.resolution import resolve

CLIENTS, COHORT, ROUNDS, EPOCHS, BATCH_SIZE, SEED = 9, 3, 7, 2, 6, 14
RATE, DECAY, WEIGHT_DECAY, CLIP, SERVER_RATE = 0.2, 0.9, 0.02, 1.5, 0.7

SETTINGS: dict[str, Any] = {
    "model": "logistic",
    "clients": CLIENTS,
    "validation_clients": 3,
    "unbalance": 0.6,
    "participation": COHORT / CLIENTS,
    "rounds": ROUNDS,
    "epochs": EPOCHS,
    "batch_size": BATCH_SIZE,
    "learning_rate": RATE,
    "learning_rate_decay": DECAY,
    "weight_decay": WEIGHT_DECAY,
    "clip": CLIP,
    "server_rate": SERVER_RATE,
    "precision": "float64",
    "seed": SEED,
}

CASES: list[tuple[str, dict[str, Any]]] = [
    ("fedavg", {}),
    ("fedprox", {"mu": 0.4}),
    ("feddyn", {"mu": 0.3, "clip_proximal": True}),
    ("feddyn", {"mu": 0.3, "clip_proximal": False}),
    ("scaffold", {"control_rate": "decayed"}),
    ("scaffold", {"control_rate": "undecayed"}),
    ("scaffold-m", {"control_rate": "decayed"}),
    ("scaffold-m", {"control_rate": "undecayed"}),
    ("adabest", {"mu": 0.3, "beta": 0.6}),
]
NAMES = [",".join([name, *(f"{key}={value}" for key, value in options.items())]) for name, options in CASES]


@dataclass
class World:
    """What the runs share, and how the reference finds its way in it."""

    x: np.ndarray
    y: np.ndarray
    own: list[np.ndarray]
    training: list[int]
    initial: np.ndarray
    local_steps: str
    clipped: list[bool] = field(default_factory=list)

    def samples(self, i: int) -> int:
        return len(self.own[i])

    def mean_samples(self) -> float:
        """n̄, over the training clients alone."""
        return sum(self.samples(i) for i in self.training) / len(self.training)

    def steps(self, i: int) -> int:
        """K_i: epochs of ⌈n_i / batch size⌉ steps each, or for all as many as n̄ samples would make."""
        samples = self.samples(i) if self.local_steps == "own" else self.mean_samples()
        return EPOCHS * int(np.ceil(samples / BATCH_SIZE))

    def batches(self, i: int, t: int) -> np.ndarray:
        """The samples of every local step, epoch after epoch until all K_i steps have some."""
        table = batch_table(
            SEED, t, np.array([i]), np.array([self.samples(i)]), epochs=self.steps(i), batch_size=BATCH_SIZE
        )
        chosen: np.ndarray = self.own[i][table.reshape(-1, BATCH_SIZE)[: self.steps(i)]]
        return chosen

    def cohort(self, t: int) -> list[int]:
        return [int(i) for i in draw_cohort(SEED, t, np.array(self.training), COHORT)]

    def gradient(self, w: np.ndarray, batch: np.ndarray) -> np.ndarray:
        """Of the mean cross-entropy, by hand: (softmax − one-hot) times the input."""
        x, y = self.x[batch], self.y[batch]
        weight, bias = w[:108].reshape(3, 36), w[108:]
        scores = x @ weight.T + bias
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        errors = (shares - np.eye(3)[y]) / len(y)
        return np.concatenate([(errors.T @ x).ravel(), errors.sum(axis=0)])

    def clip(self, direction: np.ndarray) -> np.ndarray:
        norm = np.sqrt((direction**2).sum())
        self.clipped.append(norm > CLIP)
        return direction * (CLIP / norm) if norm > CLIP else direction


@dataclass
class Result:
    """Where a run ends."""

    cloud: np.ndarray
    aggregate: np.ndarray
    scored: np.ndarray
    scored_of_all: np.ndarray
    h_norms: list[float]  # of the server, and the mean over the clients seen; empty without h


def play(world: World, algorithm: str, options: dict[str, Any]) -> Result:
    """All rounds of an algorithm, as the protocol's table has them, with its paragraph on unbalanced data."""
    zero = np.zeros_like(world.initial)
    theta, theta_bar, h = world.initial, world.initial, zero
    h_of: dict[int, np.ndarray] = defaultdict(lambda: zero)
    last: dict[int, int] = {}
    latest: dict[int, np.ndarray] = {}
    accepted: list[int] = []  # n_i of every reply so far
    present, n_bar = len(world.training), world.mean_samples()
    mu, beta = (float(options.get(name, 0.0)) for name in ("mu", "beta"))

    def n_bar_seen() -> float:
        return sum(accepted) / len(accepted) if accepted else 0.0

    def direction(i: int, w: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        weight = world.samples(i) / n_bar
        if algorithm == "fedavg":
            return world.clip(gradient)
        if algorithm == "fedprox":
            return world.clip(gradient + mu * (w - theta))
        if algorithm == "feddyn" and options["clip_proximal"]:
            return world.clip(gradient - h_of[i] + (mu / weight) * (w - theta))
        if algorithm == "feddyn":
            return world.clip(gradient - h_of[i] - (mu / weight) * theta) + (mu / weight) * w
        if algorithm in ("scaffold", "scaffold-m"):
            return world.clip(gradient - h_of[i] + h / weight)
        return world.clip(gradient - mu * (n_bar_seen() / world.samples(i)) * h_of[i])

    for t in range(1, ROUNDS + 1):
        eta = RATE * DECAY ** (t - 1)
        control_eta = RATE if options.get("control_rate") == "undecayed" else eta
        models: dict[int, np.ndarray] = {}
        for i in world.cohort(t):
            w = theta
            for batch in world.batches(i, t):
                w = w - eta * (direction(i, w, world.gradient(w, batch)) + WEIGHT_DECAY * w)
            models[i] = w
        weighted_changes = zero
        for i, model in models.items():
            g_i = theta - model
            weight = world.samples(i) / n_bar
            if algorithm == "feddyn":
                h_of[i] = h_of[i] + (mu / weight) * g_i  # the table's form: μ_i never changes
            elif algorithm in ("scaffold", "scaffold-m"):
                change = g_i / (world.steps(i) * control_eta) - h
                h_of[i] = h_of[i] + change
                weighted_changes = weighted_changes + weight * change
            elif algorithm == "adabest":
                h_of[i] = h_of[i] / (t - last.get(i, 0)) + g_i
        before, size = theta_bar, len(models)
        if algorithm in ("fedavg", "fedprox"):
            total = sum(world.samples(i) for i in models)
            theta_bar = sum((world.samples(i) / total * model for i, model in models.items()), zero)
        else:
            theta_bar = sum(models.values(), zero) / size
        new = theta_bar
        if algorithm == "feddyn":
            h = h + (size / present) * (theta - theta_bar)
            new = theta_bar - h
        elif algorithm in ("scaffold", "scaffold-m"):
            h = h + weighted_changes / present
        elif algorithm == "adabest":
            h = beta * (before - theta_bar)
            new = theta_bar - h
        theta = theta + SERVER_RATE * (new - theta)
        last |= dict.fromkeys(models, t)
        latest |= models
        accepted += [world.samples(i) for i in models]

    by_size = algorithm in ("fedavg", "fedprox")
    weights = {i: world.samples(i) if by_size else 1 for i in world.training}
    everyone = {i: latest.get(i, world.initial) for i in world.training}
    scale = {i: mu * n_bar_seen() / world.samples(i) if algorithm == "adabest" else 1.0 for i in latest}
    norms = [scale[i] * float(np.sqrt((h_of[i] ** 2).sum())) for i in latest]
    return Result(
        cloud=theta,
        aggregate=theta_bar,
        scored=sum((weights[i] * latest[i] for i in latest), zero) / sum(weights[i] for i in latest),
        scored_of_all=sum((weights[i] * everyone[i] for i in everyone), zero) / sum(weights.values()),
        h_norms=[] if by_size else [float(np.sqrt((h**2).sum())), float(np.mean(norms))],
    )


def make_world(local_steps: str) -> World:
    config, components = resolve(tiny_runs.tiny(**SETTINGS))
    federation = build_federation(config, components)
    partition, dataset = federation.partition, components.dataset
    return World(
        x=plain_inputs(dataset.x_train[:]).reshape(-1, 36).numpy(),
        y=dataset.y_train.numpy(),
        own=[partition.of(i) for i in range(CLIENTS + 3)],
        training=partition.training.tolist(),
        initial=federation.task.initial_model().numpy(),
        local_steps=local_steps,
    )


def model_of(run: Run, which: str) -> np.ndarray:
    vector: np.ndarray = nn.utils.parameters_to_vector(run.load_model(which).parameters()).detach().numpy()
    return vector


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("local_steps", ["own", "mean"])
@pytest.mark.parametrize(("algorithm", "options"), CASES, ids=NAMES)
def test_a_run_is_what_the_protocol_says(
    algorithm: str, options: dict[str, Any], local_steps: str, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "algorithm": algorithm, **options, "local_steps": local_steps}
    run = tiny_runs.run(tmp_path / "seen", **settings)
    expected = play(make_world(local_steps), algorithm, options)
    assert_close(model_of(run, "cloud"), expected.cloud)
    assert_close(model_of(run, "aggregate"), expected.aggregate)
    assert_close(model_of(run, "scored"), expected.scored)
    norms = [run.final[name] for name in ("h_norm", "client_h_norm") if run.final[name] is not None]
    assert norms == pytest.approx(expected.h_norms, rel=1e-10)
    everyone = tiny_runs.run(tmp_path / "all", **settings, scored_clients="all")
    assert_close(model_of(everyone, "scored"), expected.scored_of_all)


def test_the_setting_can_tell_mistakes() -> None:
    """Sizes, rounds away, clipping, validation clients: all that a mistake could hide behind is there."""
    world = make_world("own")
    sizes = [world.samples(i) for i in world.training]
    assert max(sizes) > 3 * min(sizes)
    everyone = sum(map(len, world.own)) / len(world.own)
    assert abs(world.mean_samples() / everyone - 1) > 0.05  # n̄ over all clients is another number
    assert len({world.steps(i) for i in world.training}) > 3
    assert len(world.training) == CLIENTS < len(world.own)
    seen: dict[int, int] = {}
    gaps = []
    for t in range(1, ROUNDS + 1):
        for i in world.cohort(t):
            gaps += [t - seen[i]] if i in seen else []
            seen[i] = t
    assert {1, 2} < set(gaps)
    assert len(seen) < CLIENTS  # some are never seen, so that "seen" and "all" differ
    for algorithm, options in CASES:
        world.clipped.clear()
        play(world, algorithm, options)
        assert 0.05 < np.mean(world.clipped) < 0.95, algorithm
