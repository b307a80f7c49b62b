"""The default data set: 1,797 handwritten digits of 8×8 pixels that ship with scikit-learn, so nothing is downloaded.

They are the test set of Alpaydin and Kaynak's *Optical Recognition of Handwritten Digits* (UCI, 1998).
"""

import numpy as np
import torch

from adabest.data.dataset import Dataset, Defaults, from_arrays
from adabest.data.split import stratified_test_split

_TEST_SAMPLES = 360


def digits() -> Dataset:
    """Digits with a fixed stratified split: 1,437 to train, 360 to test."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.from_numpy(bunch.images.astype(np.uint8)).unsqueeze(1)
    labels = bunch.target.astype(np.int64)
    test = stratified_test_split(labels, _TEST_SAMPLES)
    return from_arrays(
        images[~test],
        labels[~test],
        images[test],
        labels[test],
        name="digits",
        defaults=Defaults(model="mlp,hidden=50", batch_size=10, weight_decay=1e-4),
    )
