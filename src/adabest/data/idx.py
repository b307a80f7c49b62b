"""The idx format of MNIST: a magic number, big-endian sizes, then the bytes of an array.

Described by Y. LeCun, C. Cortes and C. Burges on the page of *The MNIST database of handwritten digits*.
"""

import math
from collections.abc import Sequence

import numpy as np

from adabest.data.files import File, damaged
from adabest.data.spec import Arrays, Spec, Split, check_labels

_BYTES = 8  # the type code of unsigned bytes


def read_idx(files: Sequence[File], spec: Spec, split: Split) -> Arrays:
    """Reads a file of images and a file of labels.

    Raises:
        InputError: If one isn't an idx file, or holds another number of records.
    """
    images, labels = files
    records = spec.records[split]
    x = parse_idx(images, (records, *spec.shape[1:]))[:, None]
    y = parse_idx(labels, (records,))
    return x, check_labels(labels, y, spec)


def parse_idx(file: File, shape: tuple[int, ...]) -> np.ndarray:
    """The array of bytes in an idx file.

    Args:
        file: The file, unpacked.
        shape: The shape that the array should have.

    Raises:
        InputError: If it has another, or the file isn't an idx file, or is cut off.
    """
    start = 4 + 4 * len(shape)
    magic = bytes([0, 0, _BYTES, len(shape)])
    if file.content[:4] != magic or len(file.content) < start:
        raise damaged(
            file.where,
            f"begins with the bytes {file.content[:4].hex(' ') or '(none)'} and has {len(file.content):,}",
            f"{magic.hex(' ')}, the mark of an idx file of bytes in {len(shape)} dimensions, and at least {start} were",
        )
    found = tuple(int(size) for size in np.frombuffer(file.content, ">u4", len(shape), 4))
    if found != shape:
        raise damaged(file.where, f"says that it holds {_times(found)} bytes", f"{_times(shape)} were")
    size = len(file.content) - start
    if size != math.prod(shape):
        raise damaged(file.where, f"holds {size:,} bytes of data", f"{math.prod(shape):,} were")
    file.verify()
    return np.frombuffer(file.content, np.uint8, offset=start).reshape(shape)


def _times(shape: tuple[int, ...]) -> str:
    return " × ".join(f"{size:,}" for size in shape)
