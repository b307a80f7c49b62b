"""A task of one's own: the value that nine patients of ten stay below, learnt from the data of ``regression.py``."""

import torch
from regression import dataset
from torch import Tensor

import adabest


class Quantile(adabest.Objective):
    """Quantile regression: a model should be above a share q of targets, and no farther than it must.

    Attributes:
        share: q.
    """

    metrics = (adabest.Metric("pinball", higher_is_better=False), adabest.Metric("covered", is_share=True))

    def __init__(self, share: float = 0.9) -> None:
        self.share = share

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean pinball loss: q for each unit that the model is too low, 1 − q for each that it is too high."""
        return self._pinball(outputs, targets).mean()

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """A sample's loss, whether it is covered, and 1."""
        covered = outputs.reshape(targets.shape) >= targets
        columns = (self._pinball(outputs, targets), covered, torch.ones_like(targets))
        return torch.stack([column.to(torch.float64) for column in columns], dim=1)

    def values(self, sums: Tensor) -> Tensor:
        """The mean loss, and the share that is covered."""
        return sums[..., :2] / sums[..., 2:]

    def _pinball(self, outputs: Tensor, targets: Tensor) -> Tensor:
        missing = targets.to(outputs.dtype) - outputs.reshape(targets.shape)
        return torch.maximum(self.share * missing, (self.share - 1) * missing)


if __name__ == "__main__":
    comparison = adabest.compare(
        algorithms=["fedavg", "adabest"],
        dataset=dataset,
        task=Quantile(share=0.9),
        model="mlp,hidden=16",
        clients=20,
        validation_clients=3,
        participation=0.5,
        batch_size=10,
        learning_rate=0.05,
        rounds=40,
        out="runs/own-task",
        overwrite=True,
    )
    print(comparison.table.markdown())
