"""A fixed split of samples into training and test samples."""

import numpy as np

from adabest import random

_SPLIT_SEED = 0


def stratified_test_split(labels: np.ndarray, samples: int) -> np.ndarray:
    """A mask of the test samples, stratified: each class's share, rounded by largest remainders.

    Args:
        labels: The labels of all samples, int64 from 0.
        samples: The number of test samples.
    """
    counts = np.bincount(labels)
    quotas = counts * samples / len(labels)
    per_class = np.floor(quotas).astype(np.int64)
    missing = samples - per_class.sum()
    per_class[np.argsort(per_class - quotas, kind="stable")[:missing]] += 1
    shuffled = random.order(random.bits(_SPLIT_SEED, random.Purpose.TEST_SPLIT, np.arange(len(labels))))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    test = np.zeros(len(labels), dtype=bool)
    test[by_class[rank < np.repeat(per_class, counts)]] = True
    return test
