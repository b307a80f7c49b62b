"""The interface of objectives: what models are trained for, and how they are judged.

An objective is what ``--task`` names. It knows outputs and targets of samples, and neither clients nor engines. Your
own is a class with a loss, and with metrics that follow from sums over samples: such sums can be taken over a test set,
over the samples of one client, and over parts of either, in any order.
"""

import abc
from typing import ClassVar

import torch
from torch import Tensor

from adabest.data.dataset import Dataset
from adabest.tasks.objectives.metric import Metric


class Objective(abc.ABC):
    """What models are trained for.

    All functions are pure, and made of torch operations alone: engines call them for many clients at once.

    Attributes:
        metrics: What models are judged by. Tables, targets, early stopping and tuning speak of the first.
    """

    metrics: ClassVar[tuple[Metric, ...]]

    @abc.abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss over a batch, a scalar.

        Args:
            outputs: What the model gives, samples first.
            targets: The targets of the same samples, as the data set has them.
        """

    @abc.abstractmethod
    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What each sample adds to the sums that metrics are made of, float64 ``[samples, sums]``."""

    @abc.abstractmethod
    def values(self, sums: Tensor) -> Tensor:
        """The metrics, from sums over any number of samples.

        Args:
            sums: ``[..., sums]``.

        Returns:
            The values in the order of ``metrics``, ``[..., metrics]``. NaN where one isn't defined.
        """

    def weight(self, targets: Tensor) -> int:
        """By how much a batch counts in a mean of losses: its number of samples, or of whatever ``loss`` averages."""
        return len(targets)

    def outputs(self, dataset: Dataset) -> int:
        """The number that model factories get as ``classes``: how many outputs there are, for a sample or a place."""
        return dataset.classes

    def check_data(self, dataset: Dataset) -> None:  # noqa: B027 - nothing is refused by default
        """Refuses targets that don't fit.

        Raises:
            InputError: If they don't.
        """

    def check_output(self, shape: tuple[int, ...], dataset: Dataset) -> None:  # noqa: B027 - likewise
        """Refuses a model by the shape of what it gives for one sample.

        Raises:
            InputError: If it doesn't fit.
        """

    def batch_value(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The first metric of a batch, float64, a scalar."""
        return self.values(self.sums(outputs, targets).sum(dim=0))[0].to(torch.float64)
