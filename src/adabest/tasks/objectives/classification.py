"""Classification: one class for each sample."""

import torch
from torch import Tensor
from torch.nn import functional

from adabest.data.dataset import Dataset
from adabest.errors import InputError
from adabest.tasks.objectives.base import Objective
from adabest.tasks.objectives.metric import ACCURACY


class Classification(Objective):
    """Cross-entropy of class scores ``[samples, classes]``, and accuracy. Targets are int64 ``[samples]``."""

    metrics = (ACCURACY,)
    # Torch's own function, by which engines recognise what they have kernels for.
    loss = staticmethod(functional.cross_entropy)  # type: ignore[assignment]

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Whether a sample is classified rightly, and 1."""
        right = (outputs.argmax(dim=1) == targets).to(torch.float64)
        return torch.stack([right, torch.ones_like(right)], dim=1)

    def values(self, sums: Tensor) -> Tensor:
        """Accuracy."""
        return sums[..., :1] / sums[..., 1:]

    def check_data(self, dataset: Dataset) -> None:
        """Refuses targets that aren't one label a sample."""
        y = dataset.y_train
        refused = (
            f"data set {dataset.name}: y_train has the shape {tuple(y.shape)}, and classification has one label a "
        )
        if y.ndim == 2 and y.shape[1] == 1 and not y.is_floating_point():
            raise InputError(f"{refused}sample; give y_train[:, 0] and y_test[:, 0]")
        if y.ndim == 2 and y.shape[1] > 1 and bool(((y == 0) | (y == 1)).all() and (y.sum(dim=1) == 1).all()):
            raise InputError(
                f"{refused}sample. Each row has a single 1; if its place is the class, give y_train.argmax(1) and "
                "y_test.argmax(1), and for several labels a sample use --task multi-label"
            )
        if y.is_floating_point():
            raise InputError(
                f"data set {dataset.name}: y_train holds {y.dtype}, and classes are whole numbers from 0; if these are "
                "quantities, use --task regression"
            )
        if y.ndim != 1:
            raise InputError(f"{refused}sample; for several, use --task multi-label, next-token or segmentation")

    def check_output(self, shape: tuple[int, ...], dataset: Dataset) -> None:
        """Refuses anything but one score a class."""
        if len(shape) != 1:
            raise InputError(f"the model should give one row of class scores for each input, not {shape} for one")
        if shape[0] != dataset.classes:
            raise InputError(f"the model gives {shape[0]} class scores, but the data set has {dataset.classes} classes")

    def batch_value(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Accuracy; shorter than by sums, since it is part of every step."""
        return (outputs.argmax(dim=1) == targets).to(torch.float64).mean()
