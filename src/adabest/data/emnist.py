"""EMNIST in MNIST's format or in NIST's .mat file. Both hold every image transposed.

G. Cohen, S. Afshar, J. Tapson, A. van Schaik: *EMNIST: an extension of MNIST to handwritten letters* (2017),
arXiv:1702.05373. The images were written column by column, so rows and columns are swapped back here.
"""

import math
from collections.abc import Sequence

import numpy as np

from adabest.data.files import File, damaged
from adabest.data.idx import read_idx
from adabest.data.matlab import read_matlab_array
from adabest.data.spec import Arrays, Spec, Split, check_labels


def read_transposed_idx(files: Sequence[File], spec: Spec, split: Split) -> Arrays:
    """Reads a file of images and a file of labels, and turns the images upright."""
    images, labels = read_idx(files, spec, split)
    return images.swapaxes(-1, -2), labels


def read_matlab(files: Sequence[File], spec: Spec, split: Split) -> Arrays:
    """Reads one of the two splits in a .mat file: ``dataset.train`` and ``dataset.test``, each of images and labels.

    Raises:
        InputError: If it isn't such a .mat file, or holds another number of records.
    """
    (file,) = files
    records, width = spec.records[split], math.prod(spec.shape)
    file.verify()
    try:
        images, labels = (
            read_matlab_array(file.where, file.content, ("dataset", split, name)) for name in ("images", "labels")
        )
    except ValueError as error:
        raise damaged(
            file.where, f"can't be read as a .mat file ({error})", f"one with dataset.{split}.images and .labels was"
        ) from error
    labels = labels.reshape(-1)
    if images.dtype != np.uint8 or images.shape != (records, width) or labels.shape != (records,):
        raise damaged(
            file.where,
            f"holds {split} images of {images.dtype} and shape {images.shape}, and {len(labels):,} labels",
            f"uint8 and shape {(records, width)}, and {records:,} labels were",
        )
    return images.reshape(records, *spec.shape).swapaxes(-1, -2), check_labels(file, labels, spec)
