"""The same small federation under two engines, and how far apart they are."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adabest.algorithms.base import Algorithm
from adabest.data.augmentation import none
from adabest.data.dataset import Dataset, from_arrays
from adabest.engine.batched import BatchedEngine
from adabest.engine.gpu.trainer import GpuTrainer, Precision
from adabest.engine.interface import Engine
from adabest.engine.local_step import LocalTraining
from adabest.engine.metrics import Metrics
from adabest.engine.reference import ReferenceEngine
from adabest.engine.simulation import Rules, Simulation
from adabest.errors import InputError
from adabest.federation.partition import Partition, Scheme, cut
from adabest.federation.roster import Attendance
from adabest.models.factory import build_model
from adabest.tasks.base import Heartbeat
from adabest.tasks.classification import ClassificationTask

CLIENTS = 8


class StackedEngine(BatchedEngine):
    """The batched engine with the trainer for GPUs, on a CPU as well: all clients in one program."""

    def __init__(
        self, heartbeat: Heartbeat, *, precision: Precision | None = None, clients_in_parallel: int | None = None
    ) -> None:
        super().__init__(heartbeat, lambda task: GpuTrainer(task, precision, clients_in_parallel))


@functools.cache
def make_dataset(shape: tuple[int, ...], classes: int = 3) -> Dataset:
    """Random bytes, or random numbers where inputs aren't images; labels that have something to do with them."""
    generator = np.random.default_rng(0)

    def split(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.arange(count) % classes
        x = generator.integers(0, 150, (count, *shape)) + 25 * y.reshape(-1, *[1] * len(shape))
        return (x.astype(np.uint8) if len(shape) == 3 else (x / 100 - 1).astype(np.float32)), y

    return from_arrays(*split(130), *split(20), name="noise")


@functools.cache
def make_partition(shape: tuple[int, ...], classes: int = 3, *, unbalance: float = 1.0, seed: int = 1) -> Partition:
    dataset = make_dataset(shape, classes)
    scheme = Scheme(CLIENTS, 0, "dirichlet", alpha=0.5, unbalance=unbalance, seed=seed)
    return cut(dataset.y_train.numpy(), dataset.classes, scheme)


class Case(NamedTuple):
    """What a federation learns, and how."""

    model: str | nn.Module
    shape: tuple[int, ...]
    unbalance: float = 1.0
    partition_seed: int = 1
    seed: int = 0
    dtype: torch.dtype = torch.float64
    augmentation: Any = none
    kind: Any = None
    options: tuple[tuple[str, Any], ...] = ()

    def task(self) -> ClassificationTask:
        dataset = make_dataset(self.shape)
        partition = make_partition(self.shape, unbalance=self.unbalance, seed=self.partition_seed)
        example = (dataset.x_train[:2].float() - dataset.mean) / dataset.std
        return ClassificationTask(
            dataset,
            partition,
            build_model(self.model, example, dataset.classes, self.seed),
            augmentation=self.augmentation,
            seed=self.seed,
            dtype=self.dtype,
            kind=self.kind,
            **{"epochs": 2, "batch_size": 7, **dict(self.options)},
        )


def with_norms(case: Case) -> Case:
    """A case whose model has a normalisation layer, for algorithms that ask for one."""
    features = int(np.prod(case.shape))
    layers = [nn.Flatten(), nn.Linear(features, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 3)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(case.seed)
        for layer in layers:
            if isinstance(layer, nn.Linear):
                layer.reset_parameters()
    return case._replace(model=nn.Sequential(*layers))


def fitting(algorithm: Algorithm, case: Case) -> Case:
    """The case, or one with norms and two more layers where its model lacks what the algorithm keeps private."""
    part = algorithm.private_part()
    if part is not None:
        try:
            case.task().mask_of(part)
        except InputError:
            return with_norms(case)
    return case


def simulate(
    algorithm: Algorithm,
    case: Case,
    engine: Callable[[Heartbeat], Engine],
    training: LocalTraining | None = None,
    rules: Rules | None = None,
) -> Simulation:
    task = case.task()
    return Simulation(
        algorithm,
        task,
        task.partition.training,
        training=training or LocalTraining(weight_decay=1e-3, learning_rate_decay=0.9, clip=1.0),
        attendance=Attendance(participation=0.4, seed=case.seed),
        rules=rules,
        engine=engine,
    )


def run(simulation: Simulation, rounds: int = 3) -> list[Metrics]:
    found = [simulation.step(evaluate=True) for _ in range(rounds)]
    return [metrics for metrics in found if metrics is not None]


def distance(mine: Simulation, other: Simulation) -> float:
    """The largest ‖a − b‖ / ‖θ‖ over θ, θ̄, h, the scored model, and all that the server and the clients keep."""
    scale = float(other.state.cloud.norm())
    one, two = mine.snapshot().tensors, other.snapshot().tensors
    assert one.keys() == two.keys()
    vectors = [(one[name], two[name]) for name in one]
    scored = mine.scored_model(), other.scored_model()
    assert (scored[0] is None) == (scored[1] is None)
    if scored[0] is not None and scored[1] is not None:
        vectors.append((scored[0], scored[1]))
    if other.state.h is not None:
        assert mine.state.h is not None
        vectors.append((mine.state.h, other.state.h))
    return max(_norm(a, b) for a, b in vectors if a.is_floating_point() and a.numel() > 0) / scale


def _norm(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    return float((a - b).norm())


@functools.lru_cache(maxsize=1)
def _reference(algorithm: Algorithm, case: Case, rounds: int, **settings: Any) -> tuple[Simulation, list[Metrics]]:
    """The reference engine's run, made once for all engines that are compared with it one after another."""
    truth = simulate(algorithm, case, ReferenceEngine, **settings)
    return truth, run(truth, rounds)


def assert_alike(
    algorithm: Algorithm,
    case: Case,
    engine: Callable[[Heartbeat], Engine],
    *,
    rounds: int = 3,
    limit: float = 1e-11,
    **settings: Any,
) -> tuple[Simulation, Simulation]:
    """A federation comes to the same under an engine as under the reference engine, its metrics included.

    Returns:
        Both simulations. The reference may be looked at, but not stepped: the next engine is compared with it, too.
    """
    mine = simulate(algorithm, case, engine, **settings)
    found_metrics = run(mine, rounds)
    try:
        truth, expected_metrics = _reference(algorithm, case, rounds, **settings)
    except TypeError:  # something of it has no hash
        truth, expected_metrics = _reference.__wrapped__(algorithm, case, rounds, **settings)
    for found, expected in zip(found_metrics, expected_metrics, strict=True):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            rounding = 10 * limit if limit < 1e-6 or "accuracy" not in name else 0.1  # a guess may be a close one
            assert found[name] == (value if value is None else pytest.approx(value, rel=rounding, abs=rounding)), name
    assert distance(mine, truth) <= limit
    return mine, truth
