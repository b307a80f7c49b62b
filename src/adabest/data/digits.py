"""The default data set: 1,797 handwritten digits of 8×8 pixels that ship with scikit-learn, so nothing is downloaded.

They are the test set of Alpaydin and Kaynak's *Optical Recognition of Handwritten Digits* (UCI, 1998).
"""

import importlib.util
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from adabest.data.dataset import Dataset, Defaults, from_arrays
from adabest.data.split import stratified_test_split

_TEST_SAMPLES = 360


def _samples() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Pixels and labels, read from scikit-learn's file: importing its loader takes longer than a short run."""
    package = importlib.util.find_spec("sklearn")
    places = [] if package is None else package.submodule_search_locations or []
    for path in (Path(place) / "datasets" / "data" / "digits.csv.gz" for place in places):
        if path.is_file():
            table = np.loadtxt(path, delimiter=",")
            return table[:, :-1], table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits  # for a version that keeps the file elsewhere

    bunch = load_digits()
    return bunch.data, bunch.target.astype(np.int64)


def digits() -> Dataset:
    """Digits with a fixed stratified split: 1,437 to train, 360 to test."""
    pixels, labels = _samples()
    images = torch.from_numpy(pixels.astype(np.uint8).reshape(-1, 1, 8, 8))
    test = stratified_test_split(labels, _TEST_SAMPLES)
    return from_arrays(
        images[~test],
        labels[~test],
        images[test],
        labels[test],
        name="digits",
        defaults=Defaults(model="mlp,hidden=50", batch_size=10, weight_decay=1e-4),
    )
