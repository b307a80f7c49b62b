"""The default data set: 1,797 handwritten digits of 8×8 pixels that ship with scikit-learn, so nothing is downloaded.

They are the test set of Alpaydin and Kaynak's *Optical Recognition of Handwritten Digits* (UCI, 1998).
"""

import numpy as np
import torch

from adabest import random
from adabest.data.dataset import Dataset, Defaults, from_arrays

_TEST_SAMPLES = 360
_SPLIT_SEED = 0


def digits() -> Dataset:
    """Digits with a fixed stratified split: 1,437 to train, 360 to test."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.from_numpy(bunch.images.astype(np.uint8)).unsqueeze(1)
    labels = bunch.target.astype(np.int64)
    test = _stratified_test_split(labels)
    return from_arrays(
        images[~test],
        labels[~test],
        images[test],
        labels[test],
        name="digits",
        defaults=Defaults(model="mlp,hidden=50", batch_size=10, weight_decay=1e-4),
    )


def _stratified_test_split(labels: np.ndarray) -> np.ndarray:
    """A mask of the test samples: every class's share of the 360, the rest to the largest remainders."""
    counts = np.bincount(labels)
    quotas = counts * _TEST_SAMPLES / len(labels)
    per_class = np.floor(quotas).astype(np.int64)
    missing = _TEST_SAMPLES - per_class.sum()
    per_class[np.argsort(per_class - quotas, kind="stable")[:missing]] += 1
    shuffled = random.order(random.bits(_SPLIT_SEED, random.Purpose.TEST_SPLIT, np.arange(len(labels))))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    test = np.zeros(len(labels), dtype=bool)
    test[by_class[rank < np.repeat(per_class, counts)]] = True
    return test
