"""Next-token prediction: a class for each place of a sequence."""

import torch
from torch import Tensor
from torch.nn import functional

from adabest.data.dataset import Dataset
from adabest.errors import InputError
from adabest.tasks.objectives.base import Objective
from adabest.tasks.objectives.metric import ACCURACY, Metric


class NextToken(Objective):
    """Cross-entropy of token scores ``[samples, length, vocabulary]``; perplexity, and the accuracy of single tokens.

    Targets are int64 ``[samples, length]``, the token that follows each place. A negative one, such as torch's −100, is
    padding and isn't counted. Perplexity is exp of the mean cross-entropy over all tokens that count.
    """

    metrics = (Metric("perplexity", higher_is_better=False), ACCURACY)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean cross-entropy over tokens; 0 for a batch of nothing but padding."""
        counted = targets >= 0
        return surprise(outputs, targets).sum() / counted.sum().clamp(min=1)

    def sums(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """A sample's cross-entropy, how many of its tokens are predicted rightly, and how many count."""
        counted = targets >= 0
        right = (outputs.argmax(dim=-1) == targets) & counted
        columns = (surprise(outputs, targets), right, counted)
        return torch.stack([column.to(torch.float64).sum(dim=1) for column in columns], dim=1)

    def values(self, sums: Tensor) -> Tensor:
        """Perplexity and accuracy."""
        surprises, right, count = sums.unbind(dim=-1)
        return torch.stack([(surprises / count).exp(), right / count], dim=-1)

    def weight(self, targets: Tensor) -> int:
        """The number of tokens that count."""
        return int((targets >= 0).sum())

    def outputs(self, dataset: Dataset) -> int:
        """The size of the vocabulary: every token that is read or predicted."""
        read = 0 if dataset.id_range is None else dataset.id_range[1] + 1
        return max(dataset.classes, read)

    def check_data(self, dataset: Dataset) -> None:
        """Refuses targets that aren't one token a place."""
        y = dataset.y_train
        if dataset.x_train.dtype == torch.uint8:
            raise InputError(
                f"data set {dataset.name}: x_train holds bytes, which are taken for pixels and standardised; give "
                "tokens in a wider type, such as int64"
            )
        if y.is_floating_point() or y.ndim != 2:
            raise InputError(
                f"data set {dataset.name}: y_train ({tuple(y.shape)}, {y.dtype}) should hold a row of tokens for each "
                "sample, whole numbers [samples, length], and a negative one for padding; of "
                "texts, next_token=yes makes them"
            )

    def check_output(self, shape: tuple[int, ...], dataset: Dataset) -> None:
        """Refuses anything but a score for each token of the vocabulary at each place."""
        length, vocabulary = int(dataset.y_train.shape[1]), self.outputs(dataset)
        if len(shape) != 2 or shape[0] != length or shape[1] < dataset.classes:
            raise InputError(
                f"the model gives outputs of shape {shape} for one sample; it should give a score for each of "
                f"{vocabulary} tokens at each of {length} places, {(length, vocabulary)}"
            )


def surprise(outputs: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy at each place, 0 where it doesn't count: −log softmax(outputs), over the last dimension."""
    logarithms = functional.log_softmax(outputs, dim=-1)
    chosen = logarithms.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -chosen * (targets >= 0)
