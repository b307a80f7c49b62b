"""Multi-label classification: any number of labels for each sample."""

import torch
from torch import Tensor
from torch.nn import functional

from adabest.data.dataset import Dataset
from adabest.errors import InputError
from adabest.tasks.objectives.base import Objective
from adabest.tasks.objectives.metric import Metric


class MultiLabel(Objective):
    """Binary cross-entropy of scores ``[samples, labels]``, where one above 0 says yes; F1 and exact matches.

    Targets are 0 or 1, ``[samples, labels]``. F1 is 2·TP / (2·TP + FP + FN), with all labels' counts together (micro)
    or as the mean over labels (macro), of which those are left out that neither occur nor are predicted.
    """

    metrics = (
        Metric("f1_micro", is_share=True),
        Metric("f1_macro", is_share=True),
        Metric("exact_match", is_share=True),
    )

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Binary cross-entropy, averaged over samples and labels."""
        return functional.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype))

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """True positives, false positives and false negatives of each label; whether all are right, and 1."""
        said, true = outputs > 0, targets > 0
        exact = (said == true).all(dim=1, keepdim=True)
        counts = torch.cat([said & true, said & ~true, ~said & true, exact, torch.ones_like(exact)], dim=1)
        return counts.to(torch.float64)

    def values(self, sums: Tensor) -> Tensor:
        """F1, micro and macro, and the share of samples of which all labels are right."""
        right, wrong, missed = sums[..., :-2].chunk(3, dim=-1)
        by_label = 2 * right / (2 * right + wrong + missed)
        together = 2 * right.sum(dim=-1)
        micro = together / (together + wrong.sum(dim=-1) + missed.sum(dim=-1))
        return torch.stack([micro, by_label.nanmean(dim=-1), sums[..., -2] / sums[..., -1]], dim=-1)

    def outputs(self, dataset: Dataset) -> int:
        """The number of labels."""
        return int(dataset.y_train.shape[1])

    def check_data(self, dataset: Dataset) -> None:
        """Refuses targets that aren't 0 or 1, one for each label."""
        for name, y in (("y_train", dataset.y_train), ("y_test", dataset.y_test)):
            if y.ndim != 2 or not bool(((y == 0) | (y == 1)).all()):
                raise InputError(
                    f"data set {dataset.name}: {name} {tuple(y.shape)} should have a row for each sample, with a 0 "
                    "or 1 for each label"
                )

    def check_output(self, shape: tuple[int, ...], dataset: Dataset) -> None:
        """Refuses anything but one score a label."""
        if shape != (self.outputs(dataset),):
            raise InputError(
                f"the model gives outputs of shape {shape} for one sample; {self.outputs(dataset)} labels need as many "
                "scores"
            )
