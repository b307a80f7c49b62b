"""Regression: quantities for each sample."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from adabest.data.dataset import Dataset
from adabest.errors import InputError
from adabest.tasks.objectives.base import Objective
from adabest.tasks.objectives.metric import Metric

_ROUNDED = 1e-13  # of a sum of squares in float64, may be rounding alone


class Regression(Objective):
    """Mean squared error; its root, the mean absolute error, and R².

    Targets are floating-point numbers of any shape, ``[samples, ...]``, and outputs as many numbers. R² is
    1 − Σ(ŷ − y)² / Σ(y − ȳ)², where ȳ is the mean of all numbers of the samples that are looked at; it isn't
    defined where all of them are equal.
    """

    metrics = (
        Metric("rmse", higher_is_better=False),
        Metric("mae", higher_is_better=False),
        Metric("r2"),
    )

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean of squared errors."""
        # In the targets' shape: [samples, 1] − [samples] would be every output less every target.
        return functional.mse_loss(outputs.reshape(targets.shape), targets.to(outputs.dtype))

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Of a sample's numbers: squared and absolute errors, values, their squares, and how many there are."""
        y = targets.to(torch.float64).flatten(1) if targets.ndim > 1 else targets.to(torch.float64)[:, None]
        errors = outputs.to(torch.float64).reshape(y.shape) - y
        columns = (errors**2, errors.abs(), y, y**2, torch.ones_like(y))
        return torch.stack([column.sum(dim=1) for column in columns], dim=1)

    def values(self, sums: Tensor) -> Tensor:
        """RMSE, MAE and R²."""
        squared, absolute, total, squares, count = sums.unbind(dim=-1)
        spread = squares - total**2 / count
        # Of equal numbers it would be 0 but for rounding.
        explained = torch.where(spread > _ROUNDED * squares, 1 - squared / spread, torch.nan)
        return torch.stack([(squared / count).sqrt(), absolute / count, explained], dim=-1)

    def outputs(self, dataset: Dataset) -> int:
        """How many numbers a target has."""
        return math.prod(dataset.y_train.shape[1:])

    def check_data(self, dataset: Dataset) -> None:
        """Refuses targets that aren't floating-point numbers."""
        if not dataset.y_train.is_floating_point():
            raise InputError(
                f"data set {dataset.name}: y_train holds {dataset.y_train.dtype}, and regression has floating-point "
                "targets; convert them, or leave --task out if they are classes"
            )

    def check_output(self, shape: tuple[int, ...], dataset: Dataset) -> None:
        """Refuses a model that doesn't give as many numbers as a target has."""
        if math.prod(shape) != self.outputs(dataset):
            raise InputError(
                f"the model gives outputs of shape {shape} for one sample, but a target has the shape "
                f"{tuple(dataset.y_train.shape[1:])}"
            )
