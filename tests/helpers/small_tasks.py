"""Small problems of every kind that ``--task`` knows, each with a model that learns it in a few rounds."""

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adabest.data.dataset import Dataset, from_arrays
from adabest.tasks.objectives.base import Objective
from adabest.tasks.objectives.classification import Classification
from adabest.tasks.objectives.metric import Metric

TRAINED, TESTED = 200, 80
IGNORED = -100


def _split(name: str, x: np.ndarray, y: np.ndarray) -> Dataset:
    return from_arrays(x[:TRAINED], y[:TRAINED], x[TRAINED:], y[TRAINED:], name=name)


@functools.cache
def data_of(task: str) -> Dataset:
    """The data of a task."""
    generator = np.random.default_rng(3)
    count = TRAINED + TESTED
    features = generator.normal(size=(count, 5)).astype(np.float32)
    match task:
        case "regression" | "own":
            return _split("plane", features, features @ generator.normal(size=(5, 2)))
        case "multi-label":
            return _split("half-spaces", features, features @ generator.normal(size=(5, 3)) > 0)
        case "next-token":
            tokens = (generator.integers(0, 7, size=(count, 1)) + np.arange(7)) % 7
            following = np.where(np.arange(6) < generator.integers(3, 7, size=(count, 1)), tokens[:, 1:], IGNORED)
            return _split("counting", tokens[:, :-1], following)
    images = generator.normal(size=(count, 1, 6, 6)).astype(np.float32)
    return _split("thresholds", images, (images[:, 0] > 0).astype(np.int64) + (images[:, 0] > 1))


class Language(nn.Module):
    """Looks a token up, and scores the next one."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(classes, 8), nn.Linear(8, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.out(self.table(tokens))
        return scores


def pixels(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A convolutional network that judges every pixel."""
    return nn.Sequential(nn.Conv2d(input_shape[0], 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, classes, 1))


class Absolute(Objective):
    """A user's own: the mean absolute error, and the share of numbers that are less than a bound away."""

    metrics = (Metric("near", is_share=True), Metric("mae", higher_is_better=False))

    def __init__(self, bound: float = 0.5) -> None:
        self.bound = bound

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).abs().mean()

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        errors = (outputs - targets).abs().to(torch.float64)
        near = (errors < self.bound).to(torch.float64)
        return torch.stack([near.mean(dim=1), errors.mean(dim=1), torch.ones(len(errors), device=errors.device)], dim=1)

    def values(self, sums: Tensor) -> Tensor:
        return sums[..., :2] / sums[..., 2:]

    def outputs(self, dataset: Dataset) -> int:
        return int(dataset.y_train.shape[1])


class Classes(Classification):
    """Classification under another name, which no engine has code of its own for."""


TASKS: dict[str, dict[str, Any]] = {
    "multi-label": {"model": "mlp,hidden=8"},
    "regression": {"model": "mlp,hidden=8"},
    "next-token": {"model": Language},
    "segmentation": {"model": pixels},
    "own": {"model": "logistic", "task": "small_tasks:Absolute,bound=0.4"},
}


def settings_of(task: str) -> dict[str, Any]:
    """The settings of a run of a task that takes about a second."""
    common = {"dataset": data_of(task), "task": task, "clients": 5, "validation_clients": 2, "participation": 0.6}
    common |= {"rounds": 4, "epochs": 2, "batch_size": 10, "evaluate_every": 2, "learning_rate": 0.2, "show": False}
    return common | TASKS[task]
