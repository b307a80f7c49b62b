"""The two forms of CIFAR: binary records, and pickled dictionaries, which are read only if their md5 checksum matches.

Both are described by A. Krizhevsky on the page of *The CIFAR-10 dataset*.
"""

import io
import math
import pickle
import pickletools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adabest.data.files import File, damaged
from adabest.data.spec import Arrays, Reader, Spec, Split, check_labels
from adabest.errors import InputError


class _Described:
    """A pickle's description of an array, or of its type: the arguments of its constructor, and its state.

    NumPy would use both unchecked, and some states of a type crash the process.
    """

    __slots__ = ("arguments", "state")

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Maker:
    """A stand-in for a function of NumPy. It has no attribute that a pickle could change."""

    __slots__ = ()

    def __call__(self, *arguments: Any) -> _Described:
        return _Described(arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("it changes a function of NumPy's")


# The only names that a pickled array needs.
_NEEDED: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _Maker(),
    ("numpy", "ndarray"): "the type of arrays",
    ("numpy", "dtype"): _Maker(),
}
_PROTOCOL = 2  # Python 2 wrote the official files in it


def binary(label_bytes: int) -> Reader:
    """A reader of records: label bytes, of which the last one is the label, then the planes of an image."""

    def read(files: Sequence[File], spec: Spec, split: Split) -> Arrays:
        return _join(_binary_file, files, spec, split, label_bytes)

    return read


def pickled(key: str) -> Reader:
    """A reader of pickled dictionaries: images in ``data``, and labels under a key."""

    def read(files: Sequence[File], spec: Spec, split: Split) -> Arrays:
        return _join(_pickled_file, files, spec, split, key)

    return read


def _join(
    read: Callable[[File, Spec, int, Any], Arrays], files: Sequence[File], spec: Spec, split: Split, how: Any
) -> Arrays:
    """The images and labels of several files with equally many records each."""
    parts = [read(file, spec, spec.records[split] // len(files), how) for file in files]
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return images.reshape(-1, *spec.shape), labels


def _binary_file(file: File, spec: Spec, records: int, label_bytes: int) -> Arrays:
    width = label_bytes + math.prod(spec.shape)
    whole, rest = divmod(len(file.content), width)
    if rest or whole != records:
        raise damaged(
            file.where,
            f"has {len(file.content):,} bytes: {whole:,} records of {width:,} bytes and {rest:,} bytes more",
            f"{records:,} records ({records * width:,} bytes) were",
        )
    file.verify()
    content = np.frombuffer(file.content, np.uint8).reshape(records, width)
    return content[:, label_bytes:], check_labels(file, content[:, label_bytes - 1], spec)


class _ArrayUnpickler(pickle.Unpickler):
    """Rebuilds descriptions of arrays and nothing else, so that not even a file with the right md5 could run code."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _NEEDED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no array needs") from None


def _check_operations(content: bytes) -> None:
    """Refuses a pickle of a later protocol, or one with large memo indices.

    The unpickler's memo is a table as long as the largest index: without this check, a few bytes could take gigabytes.
    """
    for operation, argument, place in pickletools.genops(content):
        if operation.proto > _PROTOCOL:
            raise pickle.UnpicklingError(f"it uses {operation.name}, which protocol {_PROTOCOL} doesn't have")
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= (argument or 0) <= (place or 0):
            raise pickle.UnpicklingError(f"it remembers something as number {argument} at byte {place}")


def _bytes(described: Any) -> np.ndarray:
    """The array of bytes of a description, whose state is: version, shape, type, column order, content."""
    if type(described) is not _Described:
        raise TypeError(f"data should be an array, not a {type(described).__name__}")
    _, shape, kind, by_column, content = described.state
    if type(kind) is not _Described or kind.arguments[0] not in ("u1", b"u1"):
        raise TypeError("data should be an array of bytes")
    if type(content) is not bytes or type(shape) is not tuple or not all(type(size) is int for size in shape):
        raise TypeError("the shape or the content of data is something else")
    return np.frombuffer(content, np.uint8).reshape(shape, order="F" if by_column else "C")


def _labels(labels: Any) -> np.ndarray:
    """The labels of a list of numbers. Other lists are refused: nested ones could make a huge array."""
    if type(labels) is not list or not all(type(label) is int for label in labels):
        raise TypeError(f"labels should be a list of numbers, not a {type(labels).__name__}")
    return np.array(labels, dtype=np.int64)


def _pickled_file(file: File, spec: Spec, records: int, key: str) -> Arrays:
    if file.md5 is None:
        raise InputError(
            f"{file.where} is pickled and has no published md5 checksum to be trusted by, so it isn't read"
        )
    file.verify()
    width = math.prod(spec.shape)
    try:
        _check_operations(file.content)
        batch = _ArrayUnpickler(io.BytesIO(file.content), encoding="bytes").load()
        images, labels = _bytes(batch[b"data"]), _labels(batch[key.encode()])
    except Exception as error:  # a pickle is a program: it may raise exceptions of any type
        raise damaged(file.where, f"can't be unpickled ({error!r})", f"a dictionary with data and {key} was") from error
    if images.shape != (records, width) or labels.shape != (records,):
        raise damaged(
            file.where,
            f"holds data of shape {images.shape} and {len(labels):,} labels",
            f"data of shape {(records, width)} and as many labels were",
        )
    return images, check_labels(file, labels, spec)
