"""The example that holds the whole method in one file is held to the package, parameter by parameter."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from cohorts import draw_cohort
from imports import imports_of
from scored import scored_model
from small import plain_inputs
from tiny_runs import tiny
from torch import Tensor, nn

from adabest.federation.batches import batch_table
from adabest.federation.partition import Partition
from adabest.runs.build import build_federation
from adabest.runs.settings.config import Config
from adabest.runs.settings.resolution import resolve

FILE = Path(__file__).parents[2] / "examples" / "adabest_in_one_file.py"

# 3 of 8 clients a round; the learning rate halves on the way, and the clipping bites.
SETTINGS: dict[str, Any] = {
    "algorithm": "adabest",
    "mu": 0.3,
    "beta": 0.7,
    "rounds": 8,
    "epochs": 2,
    "learning_rate": 0.2,
    "learning_rate_decay": 0.9,
    "weight_decay": 0.01,
    "clip": 1.0,
    "precision": "float64",
    "seed": 5,
}


@pytest.fixture(scope="module")
def one_file() -> ModuleType:
    spec = importlib.util.spec_from_file_location("adabest_in_one_file", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def of_the_package(**settings: Any) -> tuple[Config, Partition, Tensor, list[tuple[Tensor, ...]]]:
    """What a run draws, its initial model, and cloud, aggregate and scored model after each round."""
    config, components = resolve(tiny(**settings))
    federation = build_federation(config, components)
    simulation = federation.simulation
    models: list[tuple[Tensor, ...]] = []
    for _ in range(config.rounds):
        simulation.step()
        models.append((simulation.state.cloud, simulation.state.aggregate, scored_model(simulation)))
    return config, federation.partition, federation.task.initial_model(), models


def of_the_file(
    one_file: ModuleType, config: Config, partition: Partition, initial: Tensor
) -> list[tuple[Tensor, ...]]:
    """The same rounds by the example, with the package's draws."""
    own = {client: torch.from_numpy(partition.of(client)) for client in range(len(partition.samples))}
    size = max(1, round(config.participation * len(partition.training)))
    batch_size, seed = config.batch_size, config.seed
    assert batch_size is not None

    def cohorts(t: int) -> list[int]:
        return [int(client) for client in draw_cohort(seed, t, partition.training, size)]

    def batches(t: int, i: int) -> list[Tensor]:
        counts = np.array([len(own[i])])
        table = batch_table(seed, t, np.array([i]), counts, epochs=config.epochs, batch_size=batch_size)
        return [own[i][positions] for positions in torch.from_numpy(table).reshape(-1, batch_size)]

    components = resolve(config.flat())[1]
    args = one_file.Args(
        rounds=config.rounds,
        eta=config.learning_rate,
        eta_decay=config.learning_rate_decay,
        weight_decay=config.weight_decay,
        clip=config.clip,
        mu=config.hyperparameters["mu"],
        beta=config.hyperparameters["beta"],
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    nn.utils.vector_to_parameters(initial, model.parameters())
    dataset = components.dataset
    rounds = one_file.train(
        args,
        model,
        plain_inputs(dataset.x_train[:]),
        dataset.y_train,
        partition=list(own.values()),
        cohorts=cohorts,
        batches=batches,
    )
    return [tuple(models) for models in rounds]


def assert_equal(found: list[tuple[Tensor, ...]], expected: list[tuple[Tensor, ...]]) -> None:
    assert len(found) == len(expected) == SETTINGS["rounds"]
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("unbalance", [0.0, 0.6])
def test_the_example_gives_the_packages_parameters(one_file: ModuleType, unbalance: float) -> None:
    config, partition, initial, expected = of_the_package(**SETTINGS, unbalance=unbalance)
    assert (np.ptp(partition.samples[partition.training]) > 10) == (unbalance > 0)
    assert_equal(of_the_file(one_file, config, partition, initial), expected)


@pytest.mark.parametrize("change", [{"clip": 10.0}, {"learning_rate_decay": 1.0}, {"weight_decay": 0.0}, {"mu": 0.0}])
def test_each_setting_makes_a_difference(change: dict[str, float]) -> None:
    """Else the test above would hold for files that ignore it."""
    expected = of_the_package(**SETTINGS)[3][-1]
    for model, other in zip(of_the_package(**{**SETTINGS, **change})[3][-1], expected, strict=True):
        assert float((model - other).abs().max()) > 1e-4


def test_clients_come_back_after_a_while() -> None:
    """Else nobody would see how h_i fades."""
    config, partition, _, _ = of_the_package(**SETTINGS)
    seen: dict[int, int] = {}
    gaps = set()
    for t in range(1, config.rounds + 1):
        for client in draw_cohort(config.seed, t, partition.training, 3).tolist():
            gaps.add(t - seen.get(client, t))
            seen[client] = t
    assert gaps >= {1, 2, 3}


def test_the_example_draws_what_is_not_given(one_file: ModuleType) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(203, 5, generator=generator), torch.randint(4, (203,), generator=generator)
    args = one_file.Args(clients=10, cohort=4, rounds=3, epochs=1, batch_size=7)
    owned = one_file.shards(y, 10, generator)
    assert sorted(torch.cat(owned).tolist()) == list(range(203))
    assert {len(own) for own in owned} <= {20, 21, 22}
    assert max(len(set(y[own].tolist())) for own in owned) <= 4

    def model() -> nn.Module:
        linear = nn.Linear(5, 4)
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
        return linear

    once, again = ([models.cloud for models in one_file.train(args, model(), x, y)] for _ in range(2))
    assert len(once) == 3
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    other = [models.cloud for models in one_file.train(one_file.Args(**{**vars(args), "seed": 1}), model(), x, y)]
    assert not torch.equal(once[0], other[0])


@pytest.mark.parametrize(("samples", "steps"), [(14, 2), (15, 3), (3, 1)])
def test_batches_of_the_example_are_full(one_file: ModuleType, samples: int, steps: int) -> None:
    own = torch.arange(100, 100 + samples)
    args = one_file.Args(epochs=2, batch_size=7)
    batches = list(one_file.shuffled_batches(own, args, torch.Generator().manual_seed(0)))
    assert [len(batch) for batch in batches] == [7] * 2 * steps
    for epoch in (batches[:steps], batches[steps:]):
        assert torch.cat(epoch)[:samples].sort().values.tolist() == own.tolist()
        assert set(torch.cat(epoch).tolist()) == set(own.tolist())


def run_script(*options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FILE), *options], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stderr == ""
    return done.stdout


def test_the_example_runs_by_itself() -> None:
    shown = [re.findall(r"[\d.]+", line) for line in run_script("--rounds", "12", "--clients", "40").splitlines()]
    assert [numbers[0] for numbers in shown] == ["10", "12"]
    assert all(float(number) > 60 for number in shown[-1][1:])
    assert len(shown[-1]) == 4


def test_the_example_is_short_and_imports_nothing_of_the_package() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 150
    imported = {name.split(".")[0] for name in imports_of(FILE)}
    assert imported == {"argparse", "collections", "dataclasses", "typing", "torch", "sklearn"}
