"""Segmentation: a class for each pixel of an image."""

import torch
from torch import Tensor

from adabest.data.dataset import Dataset
from adabest.errors import InputError
from adabest.tasks.objectives.base import Objective
from adabest.tasks.objectives.metric import Metric
from adabest.tasks.objectives.next_token import surprise

_VOID = 255  # what masks of images have where no class is known


class Segmentation(Objective):
    """Cross-entropy of class scores ``[samples, classes, height, width]``; mean IoU, and the accuracy of single pixels.

    Targets are int64 ``[samples, height, width]``; a pixel with a negative one isn't counted. The IoU of a class is how
    many pixels it is and is said to be, divided by how many it is or is said to be, over all samples together; the mean
    is over the classes for which there are any.
    """

    metrics = (Metric("mean_iou", is_share=True), Metric("pixel_accuracy", is_share=True))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean cross-entropy over pixels; 0 for a batch in which none counts."""
        return surprise(outputs.movedim(1, -1), targets).sum() / (targets >= 0).sum().clamp(min=1)

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """For each class its pixels that are found, and those that are its own or said to be; right and all pixels."""
        classes = torch.arange(outputs.shape[1], device=outputs.device)
        counted = (targets >= 0).flatten(1)
        said, true = outputs.argmax(dim=1).flatten(1), targets.flatten(1)
        is_said = (said.unsqueeze(1) == classes[:, None]) & counted.unsqueeze(1)
        is_true = true.unsqueeze(1) == classes[:, None]
        columns = [(is_said & is_true).sum(dim=2), (is_said | is_true).sum(dim=2)]
        columns += [((said == true) & counted).sum(dim=1, keepdim=True), counted.sum(dim=1, keepdim=True)]
        return torch.cat(columns, dim=1).to(torch.float64)

    def values(self, sums: Tensor) -> Tensor:
        """Mean IoU and pixel accuracy."""
        both, either = sums[..., :-2].chunk(2, dim=-1)
        return torch.stack([(both / either).nanmean(dim=-1), sums[..., -2] / sums[..., -1]], dim=-1)

    def weight(self, targets: Tensor) -> int:
        """The number of pixels that count."""
        return int((targets >= 0).sum())

    def check_data(self, dataset: Dataset) -> None:
        """Refuses targets that aren't one class a pixel."""
        y = dataset.y_train
        if y.is_floating_point() or y.ndim != 3:
            raise InputError(
                f"data set {dataset.name}: y_train ({tuple(y.shape)}, {y.dtype}) should hold a class for each pixel, "
                "whole numbers [samples, height, width], and a negative one for pixels that don't count"
            )
        if dataset.classes == _VOID + 1 and not dataset.names:
            found = torch.cat([dataset.y_train.flatten(), dataset.y_test.flatten()])
            if bool((found == _VOID).any()) and not bool((found == _VOID - 1).any()):
                raise InputError(
                    f"data set {dataset.name}: some pixels have the label {_VOID}, and none has {_VOID - 1}, so it "
                    "seems to say that a pixel doesn't count; pixels that don't count are negative, such as -100: "
                    f"y[y == {_VOID}] = -100, in whole numbers that can be negative, such as int64"
                )

    def check_output(self, shape: tuple[int, ...], dataset: Dataset) -> None:
        """Refuses anything but a score for each class at each pixel."""
        wanted = (dataset.classes, *dataset.y_train.shape[1:])
        if shape != wanted:
            raise InputError(
                f"the model gives outputs of shape {shape} for one sample; it should give {wanted}: a score for each "
                f"of {dataset.classes} classes at each pixel"
            )
