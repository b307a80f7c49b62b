"""Image sets of Hugging Face's ``datasets`` that have a label column, from disk or from the hub."""

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from adabest.data.dataset import Dataset, from_arrays
from adabest.data.split import stratified_test_split
from adabest.errors import InputError, nearest, told

_GREY = {"1", "L", "LA"}
_DEEP = ("I", "F")  # more than a byte a pixel


def huggingface(
    *,
    path: Path | None = None,
    name: str | None = None,
    subset: str | None = None,
    image: str | None = None,
    label: str | None = None,
    client: str | None = None,
    train: str = "train",
    test: str = "test",
    test_share: float | None = None,
) -> Dataset:
    """An image set in the form of the package ``datasets``, which ``pip install "adabest[huggingface]"`` installs.

    Images have one channel if all of them are grey, else red, green and blue.

    Args:
        path: A folder that ``save_to_disk`` wrote, a folder of parquet files or of images, or a parquet file.
        name: Instead of a path, the name of a set on the hub.
        subset: Its configuration, if it has several.
        image: The column with the images. By default the first column of images.
        label: The column with the labels. By default the one of class labels, else the one called ``label``.
        client: The column with the client of each sample, if the set comes split by client.
        train: The split to train with.
        test: The split to test with.
        test_share: The share of the training split that is put aside to test with, class by class, instead of ``test``.

    Raises:
        InputError: If it can't be read, or lacks a split or a column, or its images differ in size.
    """
    if (path is None) == (name is None):
        raise InputError(
            "data set 'huggingface' needs either path=..., for one on disk, or name=..., for one on the hub"
        )
    title = str(name if path is None else path)
    with _reading(title):
        opened = _open(path, name, subset)
        training = _choose(title, "split", opened, train)
        columns = _columns(title, training.features, image, label, client)
        splits = {train: training}
        if test_share is None:
            splits[test] = _test_split(title, opened, train, test)
            _columns(title, splits[test].features, columns["image"], columns["label"], None)
        labels, classes = _labels(title, columns["label"], splits.values())
        images = _images(title, columns["image"], splits)
        testing = (
            np.arange(len(labels)) >= len(training) if test_share is None else _put_aside(title, labels, test_share)
        )
        clients = None
        if client is not None:
            clients = np.asarray(training[client][:])[~testing[: len(training)]]
        dataset = from_arrays(
            images[~testing],
            labels[~testing],
            images[testing],
            labels[testing],
            clients=clients,
            name=title if path is None else path.stem,
        )
        return dataclasses.replace(dataset, classes=max(classes, dataset.classes))


@contextlib.contextmanager
def _reading(title: str) -> Iterator[None]:
    """While entered, errors name the data set: readers of ``datasets`` find damaged files late, in any call."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # ``datasets`` has no exception type of its own for damaged files
        raise InputError(f"{title} can't be read by the package datasets: {told(error)}") from error


def _open(path: Path | None, name: str | None, subset: str | None) -> Mapping[str, Any]:
    """The splits of a set by name."""
    try:
        import datasets
    except ImportError as error:
        raise InputError(
            f"data set 'huggingface' needs the package datasets ({error}): pip install \"adabest[huggingface]\""
        ) from error
    if path is not None and not path.exists():
        raise InputError(f"{path} doesn't exist; a set on the hub is named by name=..., not by path=...")
    opened: Any
    try:
        if path is None:
            opened = datasets.load_dataset(name, subset)
        elif (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
            opened = datasets.load_from_disk(path)
        elif path.is_file():
            opened = datasets.load_dataset("parquet", data_files=str(path))
        else:
            opened = datasets.load_dataset(str(path), subset)
    except Exception as error:  # its readers, and the network, raise exceptions of many types
        raise InputError(f"{name or path} can't be loaded by the package datasets: {error}") from error
    return opened if isinstance(opened, Mapping) else {str(opened.split or "train"): opened}


def _test_split(title: str, splits: Mapping[str, Any], train: str, test: str) -> Any:
    if test == train:
        raise InputError(f"{title}: the split {train!r} can't be trained and tested with; see test_share")
    if test not in splits:
        raise InputError(
            f"{title} has no split {test!r} to test with; it has {', '.join(splits)}. Name one, as in test=validation, "
            "or put a share of the training samples aside, as in test_share=0.1"
        )
    return splits[test]


def _columns(
    title: str, features: Mapping[str, Any], image: str | None, label: str | None, client: str | None
) -> dict[str, str]:
    """The columns of images, labels and clients; those that aren't named are found by their types."""
    import datasets

    def of(kind: type) -> list[str]:
        return [column for column, feature in features.items() if isinstance(feature, kind)]

    columns = {}
    pictures = of(datasets.Image)
    if not pictures:
        raise InputError(f"{title} has no column of images; its columns are {', '.join(features)}")
    columns["image"] = _choose(title, "column of images", {column: column for column in pictures}, image or pictures[0])
    labels = of(datasets.ClassLabel) or [column for column in features if column == "label"]
    if label is None and len(labels) != 1:
        raise InputError(
            f"{title} has {' and '.join(labels) or 'no column'} for labels; choose one by label=..., of "
            f"{', '.join(features)}"
        )
    for key, column in (("label", label or labels[0]), ("client", client)):
        if column is not None:
            _choose(title, "column", features, column)
            columns[key] = column
    return columns


def _choose(title: str, kind: str, known: Mapping[str, Any], name: str) -> Any:
    if name not in known:
        raise InputError(f"{title} has no {kind} {name!r}; {nearest(name, known)}")
    return known[name]


def _labels(title: str, column: str, splits: Collection[Any]) -> tuple[np.ndarray, int]:
    """The labels of all splits, one after the other, as numbers from 0, and the number of declared classes."""
    declared = [split.features[column] for split in splits]
    names = getattr(declared[0], "names", None)
    if any(getattr(feature, "names", None) != names for feature in declared[1:]):
        raise InputError(f"{title}: the splits differ in the class names of {column!r}")
    values = np.concatenate([np.asarray(split[column][:]) for split in splits])
    if values.dtype.kind == "U":
        names, values = np.unique(values, return_inverse=True)
    if values.dtype.kind not in "iub" or values.ndim != 1 or not len(values):
        raise InputError(f"{title}: {column!r} should hold a whole number or a text for every sample, as a label")
    return values.astype(np.int64), 0 if names is None else len(names)


def _images(title: str, column: str, splits: Mapping[str, Any]) -> np.ndarray:
    """The images of all splits, one after the other, as bytes ``[samples, channels, height, width]``."""
    import datasets

    arrays: list[np.ndarray] = []
    for split, samples in splits.items():
        feature = samples.features[column]
        for number, stored in enumerate(samples.cast_column(column, datasets.Image(decode=False))[column]):
            where = f"{title}, image {number} of {split}"
            try:
                array = _pixels(feature.decode_example(stored))
            except Exception as error:  # decoders of image formats raise exceptions of many types
                raise InputError(f"{where} can't be decoded: {error}") from error
            if arrays and array.shape[:2] != arrays[0].shape[:2]:
                sizes = [f"{width} × {height}" for height, width in (array.shape[:2], arrays[0].shape[:2])]
                raise InputError(
                    f"{where} has {sizes[0]} pixels, but the first one {sizes[1]}; all should have the same size"
                )
            arrays.append(array)
    if any(array.ndim == 3 for array in arrays):
        arrays = [array if array.ndim == 3 else np.repeat(array[..., None], 3, axis=2) for array in arrays]
        return np.stack(arrays).transpose(0, 3, 1, 2)
    return np.stack(arrays)[:, None]


def _pixels(picture: Any) -> np.ndarray:
    """An image as bytes ``[height, width]`` if it is grey, else ``[height, width, 3]``."""
    if picture.mode.startswith(_DEEP):
        raise ValueError(f"pixels of more than a byte (mode {picture.mode}) aren't supported")
    return np.asarray(picture.convert("L" if picture.mode in _GREY else "RGB"))


def _put_aside(title: str, labels: np.ndarray, share: float) -> np.ndarray:
    """A mask of the test samples."""
    samples = round(share * len(labels))
    if not 0 < samples < len(labels):
        raise InputError(f"{title}: test_share = {share:g} of {len(labels):,} samples leaves none to train or to test")
    return stratified_test_split(np.unique(labels, return_inverse=True)[1], samples)
