"""A data set: four tensors, their normalisation, and default settings."""

import dataclasses
import hashlib
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adabest.data.inputs import Inputs
from adabest.data.labels import (
    IF_QUANTITIES,
    Labels,
    as_texts,
    check_labels_option,
    map_numbers,
    number_texts,
    refuse_gaps,
    refuse_many_classes,
    warn_of_test_only,
)
from adabest.data.npz import read_npz
from adabest.errors import InputError
from adabest.machine import refuse_beyond_memory

_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_CLIENTS = "clients"
_FINGERPRINT = "_fingerprint"  # what a data set keeps its digest under


@dataclasses.dataclass(frozen=True)
class Defaults:
    """The default settings of runs on a data set.

    Attributes:
        model: A model specification, such as ``mlp,hidden=50``.
        batch_size: Samples per local step.
        weight_decay: λ.
        augmentation: The name of an augmentation of training images, or ``none``.
    """

    model: str = "mlp,hidden=100x100"
    batch_size: int = 45
    weight_decay: float = 1e-4
    augmentation: str = "none"


@dataclasses.dataclass(frozen=True, repr=False)
class Dataset:
    """A data set.

    Attributes:
        name: Its name.
        x_train: Training inputs, ``[samples, *shape]``: bytes, floating-point numbers, or ids in int64. A tensor, or
            ``Inputs`` that are made on access.
        y_train: Training targets: labels, int64 in [0, classes), one a sample or of any shape, where a negative one
            isn't counted; or floating-point numbers of any shape.
        x_test: Test inputs.
        y_test: Test targets.
        classes: How many classes there are; of floating-point targets, how many numbers one has.
        mean: The mean that is subtracted from inputs, a scalar or one value per channel ``[channels, 1, 1]``.
        std: The deviation by which they are then divided, of the same shapes.
        defaults: The default settings of runs on it.
        clients: The client of each training sample, int64 from 0 without gaps, if the data set comes split by client;
            else None.
        names: The names of the classes, where they have some; else empty. No result depends on them.
    """

    name: str
    x_train: Tensor | Inputs
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    classes: int
    mean: Tensor = dataclasses.field(default_factory=lambda: torch.tensor(0.0, dtype=torch.float32))
    std: Tensor = dataclasses.field(default_factory=lambda: torch.tensor(1.0, dtype=torch.float32))
    defaults: Defaults = Defaults()
    clients: Tensor | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check(self.name, {key: getattr(self, key) for key in _ARRAYS})
        if not self.y_train.is_floating_point():
            highest = max(int(self.y_train.max()), int(self.y_test.max()))
            if highest >= self.classes:
                raise InputError(
                    f"data set {self.name}: there is a label {highest}, but only {self.classes} classes from 0"
                )
            refuse_many_classes(f"data set {self.name}", self.classes, self.y_train.numel() + self.y_test.numel())
        if self.clients is not None:
            _check_clients(self.name, self.clients, len(self.y_train))
        if self.names and (len(self.names) != self.classes or not all(isinstance(name, str) for name in self.names)):
            raise InputError(
                f"data set {self.name}: names should hold one text for each of the {self.classes} classes, or nothing"
            )
        if self.holds_ids and (bool((self.mean != 0).any()) or bool((self.std != 1).any())):
            raise InputError(
                f"data set {self.name}: its inputs are whole numbers, which are ids and aren't normalised; leave mean "
                "and std out, or give the inputs as floating-point numbers"
            )

    @property
    def holds_ids(self) -> bool:
        """Whether inputs are ids, such as those of tokens: a model gets them as they are, never cast or normalised."""
        return self.x_train.dtype == torch.int64

    @property
    def has_labels(self) -> bool:
        """Whether each sample has one label, by which samples can be dealt to clients."""
        return self.y_train.ndim == 1 and not self.y_train.is_floating_point()

    def strata(self) -> tuple[np.ndarray, int]:
        """The labels by which samples are dealt to clients, and how many there are; without labels, all are alike."""
        if self.has_labels:
            return self.y_train.numpy(), self.classes
        return np.zeros(len(self.y_train), dtype=np.int64), 1

    @property
    def id_range(self) -> tuple[int, int] | None:
        """The lowest and the highest id of all inputs; None if they aren't ids."""
        if not self.holds_ids:
            return None
        ends = [torch.aminmax(x) for x in (self.x_train, self.x_test) if isinstance(x, Tensor) and len(x)]
        return min(int(low) for low, _ in ends), max(int(high) for _, high in ends)

    def example(self) -> Tensor:
        """Two inputs as a model gets them, on the CPU; of ids, one full of the lowest and one full of the highest."""
        if self.id_range is not None:
            return id_example(self.id_range, self.input_shape)
        two: Any = self.x_train[torch.arange(2) % len(self.y_train)]
        normalised: Tensor = (two.to(torch.float32) - self.mean) / self.std
        return normalised

    def __repr__(self) -> str:
        samples = f"{len(self.y_train)} training and {len(self.y_test)} test samples of shape {self.input_shape}"
        owners = "" if self.clients is None else f", {int(self.clients.max()) + 1} clients"
        if self.y_train.is_floating_point():
            shape = tuple(self.y_train.shape[1:])
            answers = "targets of " + (f"shape {shape}" if shape else "one number")
        else:
            answers = f"{self.classes} class{'' if self.classes == 1 else 'es'}"
        return f"Dataset({self.name}: {samples}, {answers}{owners})"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.x_train.shape[1:])

    def fingerprint(self) -> str:
        """A digest of all that training and testing use.

        It is computed once for all runs on the data set, and again after torch has changed one of the tensors in place.
        """
        parts = [self.x_train, self.y_train, self.x_test, self.y_test, self.mean, self.std]
        parts += [] if self.clients is None else [self.clients]
        state = [_state_of(part) for part in parts]
        known = vars(self).get(_FINGERPRINT)
        if known is None or None in state or known[0] != state:
            known = vars(self)[_FINGERPRINT] = state, self._hash()
        fingerprint: str = known[1]
        return fingerprint

    def _hash(self) -> str:
        digest = hashlib.sha256(repr((self.classes, self.input_shape)).encode())
        for part in (self.x_train, self.y_train, self.x_test, self.y_test, self.mean, self.std):
            digest.update(str(part.dtype).encode())
            digest.update(_bytes_of(part) if isinstance(part, Tensor) else part.fingerprint())
        if self.clients is not None:
            digest.update(_bytes_of(self.clients))
        return digest.hexdigest()


def id_example(id_range: tuple[int, int], shape: tuple[int, ...]) -> Tensor:
    """Two inputs, one full of the lowest id and one full of the highest: a model that takes both takes all."""
    return torch.tensor(id_range).view(2, *[1] * len(shape)).repeat(1, *shape)


_SAMPLED = 2**16  # numbers of a part of a data set that are looked at to tell whether it has changed


def _state_of(part: Tensor | Inputs) -> Any:
    """What changes when a part of a data set does: cheap to have, and None where only the content tells."""
    if not isinstance(part, Tensor):
        return part.fingerprint()
    if part.is_inference():
        return None
    flat = part.reshape(-1)
    # A sample of the content, too: what is changed through NumPy or ``.data`` doesn't change the version.
    return part.data_ptr(), part._version, hashlib.sha256(_bytes_of(flat[:: max(len(flat) // _SAMPLED, 1)])).digest()


def _bytes_of(tensor: Tensor) -> memoryview:
    """A tensor's bytes, without a copy of them if it is contiguous."""
    flat: Any = tensor.contiguous().numpy().reshape(-1)
    return memoryview(flat).cast("B")


def from_arrays(
    x_train: Any,
    y_train: Any,
    x_test: Any,
    y_test: Any,
    *,
    clients: Any = None,
    name: str = "arrays",
    defaults: Defaults | None = None,
    names: tuple[str, ...] = (),
    labels: Labels = "count",
    classes: int | None = None,
) -> Dataset:
    """Makes a data set of NumPy arrays, tensors, frames of numbers, or SciPy's sparse matrices, which become dense.

    Floating-point inputs are used as they are. Bytes are taken for pixels and standardised by the mean and the standard
    deviation of all training pixels. Whole numbers of any other type are ids, such as those of tokens, for a model that
    looks them up: they become int64 and are never cast or normalised.

    Args:
        x_train: Training inputs, samples first.
        y_train: Training targets: labels, whole numbers from 0, or texts, which are mapped to such numbers in sorted
            order and kept as names of classes; several labels a sample, in an array of any shape, where a negative one
            isn't counted; or floating-point numbers of any shape.
        x_test: Test inputs.
        y_test: Test targets.
        clients: The client of each training sample, as a number or a text.
        name: The data set's name.
        defaults: The default settings of runs on it.
        names: The names of all classes, where they have some.
        labels: ``count`` if labels, one a sample, have to count the classes from 0 without gaps; ``map`` to map any
            values to such numbers, in their order; ``numbers`` if they are quantities, in floating point.
        classes: How many classes there are, where some have no sample.

    Raises:
        InputError: If the arrays don't fit together; the message names the array.
    """
    title = f"data set {name}"
    check_labels_option(title, labels, classes)
    if labels != "numbers":
        y_train, y_test, names = _named(title, y_train, y_test, tuple(names))
    arrays = dict(zip(_ARRAYS, map(as_tensor, _ARRAYS, (x_train, y_train, x_test, y_test)), strict=True))
    if arrays["x_train"].is_floating_point() and arrays["x_test"].is_floating_point():
        wider = torch.promote_types(arrays["x_train"].dtype, arrays["x_test"].dtype)
        arrays |= {key: arrays[key].to(wider) for key in ("x_train", "x_test")}
    if arrays["y_train"].is_floating_point() and arrays["y_test"].is_floating_point():
        wider = torch.promote_types(arrays["y_train"].dtype, arrays["y_test"].dtype)
        arrays |= {key: arrays[key].to(wider) for key in ("y_train", "y_test")}
    arrays, names = _labelled(title, arrays, tuple(names), labels)
    _check(name, arrays)  # before anything is computed from them
    inputs = arrays["x_train"]
    normalisation = {}
    if inputs.dtype == torch.uint8:
        mean, std = pixel_statistics(inputs)
        normalisation = {"mean": mean, "std": std.clamp(min=1e-8)}
    y_train, y_test = arrays["y_train"], arrays["y_test"]
    if y_train.is_floating_point():
        if classes is not None:
            raise InputError(f"{title}: classes = {classes}, but y_train holds quantities; leave one of the two out")
        classes = math.prod(y_train.shape[1:])
    elif classes is None:
        if y_train.ndim == 1 and not names:
            refuse_gaps(title, y_train, y_test)
        classes = max(_highest(y_train, y_test) + 1, len(names))
    return Dataset(
        name=name,
        classes=classes,
        names=names,
        defaults=defaults or Defaults(),
        clients=None if clients is None else _number_clients(name, clients),
        **arrays,
        **normalisation,
    )


def _named(title: str, y_train: Any, y_test: Any, names: tuple[str, ...]) -> tuple[Any, Any, tuple[str, ...]]:
    """Labels that are texts as numbers, and the names of classes; labels that have names already as they are."""
    if not names:
        y_train, y_test, names = number_texts(title, y_train, y_test)
        if names:
            warn_of_test_only(f"{title}: y_test", y_train, y_test, names)
    elif as_texts(y_train) is not None or as_texts(y_test) is not None:
        raise InputError(
            f"{title}: y_train or y_test holds texts, and labels that are texts bring their names; leave names out, or "
            "give labels as numbers from 0 that count the names"
        )
    return y_train, y_test, names


def _labelled(
    title: str, arrays: dict[str, Tensor], names: tuple[str, ...], labels: Labels
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """The arrays with labels as they are to be understood, and the names of classes."""
    y_train, y_test = arrays["y_train"], arrays["y_test"]
    if labels == "numbers":
        kept = [y if y.is_floating_point() else y.to(torch.float32) for y in (y_train, y_test)]
        wider = torch.promote_types(kept[0].dtype, kept[1].dtype)
        return arrays | {"y_train": kept[0].to(wider), "y_test": kept[1].to(wider)}, ()
    finite = all(not y.is_floating_point() or bool(y.isfinite().all()) for y in (y_train, y_test))
    if labels == "map" and finite and y_train.dtype == y_test.dtype and y_train.numel() and y_test.numel():
        y_train, y_test, names = map_numbers(title, y_train, y_test, names)
    return arrays | {"y_train": y_train, "y_test": y_test}, names


def pixel_statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the standard deviation of all pixels, which are bytes: exact, from their histogram."""
    counts = torch.bincount(images.flatten(), minlength=256).to(torch.float64)
    values = torch.arange(256, dtype=torch.float64)
    mean = (counts * values).sum() / counts.sum()
    variance = (counts * (values - mean) ** 2).sum() / counts.sum()
    return mean.float(), variance.sqrt().float()


def from_npz(path: Path, labels: Labels = "count", classes: int | None = None) -> Dataset:
    """Reads a data set from an ``.npz`` file with x_train, y_train, x_test, y_test and, optionally, clients.

    Args:
        path: The file.
        labels: What labels are, as in ``from_arrays``.
        classes: How many classes there are, where some have no sample.

    Raises:
        InputError: If the file can't be read or lacks an array.
    """
    if not path.is_file():
        raise InputError(f"data set file {path} doesn't exist")
    arrays = read_npz(path)
    missing = [key for key in _ARRAYS if key not in arrays]
    if missing:
        raise InputError(f"data set file {path} lacks {', '.join(missing)}; it holds {', '.join(arrays) or 'nothing'}")
    unused = [key for key in arrays if key not in {*_ARRAYS, _CLIENTS}]
    if unused:
        warnings.warn(
            f"data set file {path} holds {', '.join(unused)}, which isn't used; beside {', '.join(_ARRAYS)} a file may "
            f"hold {_CLIENTS}, the owner of each training sample",
            stacklevel=2,
        )
    try:
        return from_arrays(
            *(arrays[key] for key in _ARRAYS),
            clients=arrays.get(_CLIENTS),
            name=path.stem,
            labels=labels,
            classes=classes,
        )
    except InputError as error:
        raise InputError(f"data set file {path}: {error}") from error


def as_tensor(key: str, value: Any) -> Tensor:
    """Inputs or labels of samples as a tensor on the CPU, of a type that data sets have.

    Args:
        key: The name of the array, as in ``from_arrays``: ``x_`` for inputs, ``y_`` for labels.
        value: A NumPy array, a tensor, or nested sequences of numbers.

    Raises:
        InputError: If it can't be used; the message names the array.
    """
    try:
        if isinstance(value, Tensor):
            if value.layout != torch.strided:
                _refuse_dense_beyond_memory(key, value.shape, value.dtype.itemsize)
            tensor = value.detach().cpu().to_dense()
        else:
            array = _as_array(key, value)
            tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))  # always a copy
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{key} can't be used as numbers: {error}; give an array of numbers of one type") from error
    are_whole = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
    if key.startswith("y"):
        if tensor.is_floating_point():
            return tensor if tensor.dtype == torch.float64 else tensor.to(torch.float32)
        if tensor.dtype == torch.bool:
            return tensor.to(torch.int64)
        if not are_whole:
            raise InputError(f"{key} should hold whole or floating-point numbers, not {tensor.dtype}")
        return _as_int64(f"{key} holds labels of 2⁶³ and more; labels count from 0", tensor)
    if tensor.dtype == torch.uint8:
        return tensor
    if are_whole:
        return _as_int64(f"{key} holds ids of 2⁶³ and more; number them anew", tensor)
    if not tensor.is_floating_point():
        raise InputError(
            f"{key} should hold bytes (pixels), whole numbers (ids) or floating-point numbers, not {tensor.dtype}"
        )
    return tensor if tensor.dtype == torch.float64 else tensor.to(torch.float32)


def _as_array(key: str, value: Any) -> np.ndarray:
    """A value as an array; SciPy's sparse ones, which NumPy takes for one object, are made dense."""
    if type(value).__module__.startswith("scipy.sparse"):
        _refuse_dense_beyond_memory(key, value.shape, value.dtype.itemsize)
        dense: np.ndarray = value.toarray()
        return dense
    return np.asarray(value)


def _refuse_dense_beyond_memory(key: str, shape: Sequence[int], itemsize: int) -> None:
    cells = {f"a dense array of shape {tuple(shape)}": 2 * math.prod(shape) * itemsize}  # it is copied once
    refuse_beyond_memory(f"{key}, a sparse matrix,", cells, "choose fewer columns, or make them fewer by a projection")


def _as_int64(complaint: str, tensor: Tensor) -> Tensor:
    whole = tensor.to(torch.int64)
    if tensor.dtype == torch.uint64 and bool((whole < 0).any()):
        raise InputError(complaint)
    return whole


def _number_clients(name: str, clients: Any) -> Tensor:
    """The clients of samples as numbers from 0, in the order of the clients' names."""
    texts = as_texts(clients)
    names = np.asarray(clients if texts is None else texts)
    if names.ndim != 1 or names.dtype.kind not in "iuUS":
        raise InputError(f"data set {name}: clients should be one number or text a sample, not {names.dtype}")
    return torch.from_numpy(np.unique(names, return_inverse=True)[1].astype(np.int64))


def _check_clients(name: str, clients: Tensor, samples: int) -> None:
    if clients.dtype != torch.int64 or clients.shape != (samples,):
        raise InputError(
            f"data set {name}: clients ({tuple(clients.shape)}, {clients.dtype}) should be one int64 for each of the "
            f"{samples} training samples"
        )
    least, most = int(clients.min()), int(clients.max())
    if least < 0 or most >= samples or not bool((torch.bincount(clients) > 0).all()):
        raise InputError(f"data set {name}: clients should count from 0 without gaps; from_arrays numbers them so")


def _highest(*labels: Tensor) -> int:
    return max(int(own.max()) for own in labels)


def _not_finite(name: str, key: str, values: Tensor) -> InputError:
    """The error for samples with values that aren't finite in float32; it names the first of them."""
    bad = (~torch.isfinite(values.to(torch.float32))).flatten(1 if values.ndim > 1 else 0)
    samples = bad.any(dim=1) if bad.ndim > 1 else bad
    first, count = int(samples.nonzero()[0]), int(samples.sum())
    return InputError(
        f"data set {name}: {key} holds values that aren't finite in float32, in {count} of {len(samples)} samples, the "
        f"first of which is number {first} from 0; replace such values, or leave these samples out"
    )


def _check_targets(name: str, key: str, y: Tensor) -> None:
    if y.is_floating_point():
        if not bool(torch.isfinite(y).all()):
            raise _not_finite(name, key, y)
    elif y.ndim == 1 and int(y.min()) < 0:
        raise InputError(
            f"data set {name}: {key} has the label {int(y.min())}; labels count from 0. labels=map maps any numbers, "
            f"in their order; {IF_QUANTITIES}"
        )
    elif _highest(y) < 0:
        raise InputError(f"data set {name}: all labels of {key} are negative, which says that they aren't counted")


def _check(name: str, arrays: Mapping[str, Any]) -> None:
    for split in ("train", "test"):
        x, y = arrays[f"x_{split}"], arrays[f"y_{split}"]
        if y.ndim < 1 or len(x.shape) < 2 or len(x) != len(y) or 0 in (*x.shape, *y.shape):
            raise InputError(
                f"data set {name}: x_{split} {tuple(x.shape)} and y_{split} {tuple(y.shape)} should have the same, "
                "non-zero number of samples, x at least two dimensions, y at least one, and none of them 0"
            )
        _check_targets(name, f"y_{split}", y)
        if x.dtype.is_floating_point and isinstance(x, Tensor) and not bool(torch.isfinite(x.to(torch.float32)).all()):
            raise _not_finite(name, f"x_{split}", x)
    y_train, y_test = arrays["y_train"], arrays["y_test"]
    if y_train.shape[1:] != y_test.shape[1:] or y_train.dtype != y_test.dtype:
        raise InputError(
            f"data set {name}: y_train ({tuple(y_train.shape[1:])}, {y_train.dtype}) and y_test "
            f"({tuple(y_test.shape[1:])}, {y_test.dtype}) differ in shape or type"
        )
    x_train, x_test = arrays["x_train"], arrays["x_test"]
    if x_train.shape[1:] != x_test.shape[1:] or x_train.dtype != x_test.dtype:
        raise InputError(
            f"data set {name}: x_train ({tuple(x_train.shape[1:])}, {x_train.dtype}) and x_test "
            f"({tuple(x_test.shape[1:])}, {x_test.dtype}) differ in shape or type"
        )
