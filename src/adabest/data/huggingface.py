"""Sets of Hugging Face's ``datasets``, of images, numbers or texts: from disk, from the hub, or as objects."""

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from adabest.data.dataset import Dataset, from_arrays
from adabest.data.labels import Labels, check_labels_option, warn_of_test_only
from adabest.data.sheet import column_names, dataset_of_texts, label_columns, strata_of
from adabest.data.split import stratified_test_split
from adabest.data.text import TextOptions, TextSamples, read_texts, text_options
from adabest.errors import AdabestError, InputError, nearest, told
from adabest.machine import refuse_beyond_memory
from adabest.registry import naming, shown

_GREY = {"1", "L", "LA"}
_DEEP = ("I", "F")  # more than a byte a pixel
_PIXELS = "uint8"

Kind = Literal["images", "texts", "numbers"]


@dataclasses.dataclass(frozen=True)
class _Options:
    """What was said about a set's columns and splits."""

    image: str | None
    features: tuple[str, ...]
    label: tuple[str, ...] | None
    client: str | None
    train: str
    test: str
    test_share: float | None
    labels: Labels
    classes: int | None
    text: str | None
    reading: TextOptions | None


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
    features: str | None = None,
    text: str | None = None,
    length: int | None = None,
    tokenizer: str | None = None,
    next_token: bool = False,
    labels: Labels = "count",
    classes: int | None = None,
) -> Dataset:
    """A set in the form of the package ``datasets``, which ``pip install "adabest[huggingface]"`` installs.

    Images have one channel if all of them are grey, else red, green and blue.

    Args:
        path: A folder that ``save_to_disk`` wrote, a folder of parquet files or of images, or a parquet file.
        name: Instead of a path, the name of a set on the hub.
        subset: Its configuration, if it has several.
        image: The column with the images. By default the first column of images.
        label: The column with the labels. By default the one of class labels, else the one called ``label``. Or
            several, joined by ``+``: each 0 or 1, or quantities.
        client: The column with the client of each sample, if the set comes split by client.
        train: The split to train with.
        test: The split to test with.
        test_share: The share of the training split that is put aside to test with, class by class, instead of ``test``.
        features: Instead of images, the columns of numbers, joined by ``+``, or one of lists of numbers.
        text: Instead of images, the column of texts.
        length: How many tokens of a text are taken. By default 80.
        tokenizer: ``module:function`` of a function from a text to a list of ids, or of an object that has one called
            ``encode``. By default, the characters of a text are its tokens.
        next_token: Whether texts are cut into windows of ``length``, and the token that follows each is the target.
        labels: ``count`` if labels that are numbers have to count the classes from 0; ``map`` to map any; ``numbers``
            if they are quantities.
        classes: How many classes there are, where some have no sample, and the column doesn't declare it.

    Raises:
        InputError: If it can't be read, or lacks a split or a column, or its images differ in size.
    """
    if (path is None) == (name is None):
        raise InputError(
            "data set 'huggingface' needs either path=..., for one on disk, or name=..., for one on the hub"
        )
    title = str(name if path is None else path)
    reading = text_options(title, text, length=length, tokenizer=tokenizer, next_token=next_token)
    answers = None if label is None else column_names(label)
    inputs = column_names(features)
    options = _Options(image, inputs, answers, client, train, test, test_share, labels, classes, text, reading)
    check_labels_option(title, labels, classes)
    with _reading(title):
        return _dataset(title, title if path is None else path.stem, _open(path, name, subset), options)


def from_huggingface(
    data: Any,
    *,
    image: str | None = None,
    label: str | Sequence[str] | None = None,
    client: str | None = None,
    train: str = "train",
    test: str = "test",
    test_share: float | None = None,
    features: Sequence[str] = (),
    text: str | None = None,
    length: int | None = None,
    tokenizer: Any = None,
    next_token: bool = False,
    labels: Labels = "count",
    classes: int | None = None,
    name: str = "huggingface",
) -> Dataset:
    """Makes a data set of an object of Hugging Face's package ``datasets``, of images, numbers or texts.

    Images are bytes, and standardised. Columns of numbers become float32. A single column of lists of numbers, all of
    one shape, is as in ``from_arrays``: floating-point numbers as they are, bytes are pixels, and whole numbers ids.

    Args:
        data: A ``Dataset``, or a ``DatasetDict`` or another mapping of some by the names of splits.
        image: The column with the images. By default the first column of images.
        label: The column of labels. By default the one of class labels, else the one called ``label``. Or a list of
            several: each 0 or 1, or quantities.
        client: The column with the client of each sample, if the set comes split by client.
        train: The split to train with.
        test: The split to test with.
        test_share: The share of the training split that is put aside to test with, class by class, instead of ``test``.
        features: Instead of images, the columns of numbers.
        text: Instead of images, the column of texts.
        length: How many tokens of a text are taken. By default 80.
        tokenizer: A function from a text to a list of ids, an object that has one called ``encode``, or the name of
            either, ``module:name``. By default, the characters of a text are its tokens.
        next_token: Whether texts are cut into windows of ``length``, and the token that follows each is the target.
        labels: ``count`` if labels that are numbers have to count the classes from 0; ``map`` to map any; ``numbers``
            if they are quantities.
        classes: How many classes there are, where some have no sample, and the column doesn't declare it.
        name: The data set's name.

    Raises:
        InputError: If it can't be used; the message names the column, and the row where there is one.
    """
    check_labels_option(name, labels, classes)
    if isinstance(features, str):
        raise InputError(f"{name}: features should be a list of columns, as in [{features!r}]")
    reading = text_options(name, text, length=length, tokenizer=tokenizer, next_token=next_token)
    answers = None if label is None else (label,) if isinstance(label, str) else tuple(label)
    options = _Options(image, tuple(features), answers, client, train, test, test_share, labels, classes, text, reading)
    with naming(tokenizer), _reading(name):
        return _dataset(name, name, _splits(name, data, train), options)


def _splits(title: str, data: Any, train: str) -> dict[str, Any]:
    """The splits of an object by name, without formats, which would change what columns give."""
    _require_package()
    import datasets

    found = dict(data) if isinstance(data, Mapping) else {train: data}
    for split in found.values():
        if not isinstance(split, datasets.Dataset):
            streamed = isinstance(split, datasets.IterableDataset)
            raise InputError(
                f"{title} should be a Dataset of the package datasets, or a DatasetDict of some, not "
                f"{'one that is streamed; load it without streaming=True' if streamed else type(split).__name__}"
            )
    return {key: split.with_format(None) for key, split in found.items()}


def _dataset(title: str, name: str, splits: Mapping[str, Any], options: _Options) -> Dataset:
    """The data set that some splits make."""
    training = _choose(title, "split", splits, options.train)
    kind = _kind(title, training.features, options)
    inputs = _input_columns(title, training.features, kind, options)
    label = _label_columns(title, training.features, options)
    for column in (*label, options.client):
        if column is not None:
            _choose(title, "column", training.features, column)
    used = {options.train: training}
    if options.test_share is not None and options.test in splits and options.test != options.train:
        raise InputError(
            f"{title} has a split {options.test!r}, so test_share = {options.test_share:g} can't be given, too; leave "
            f"test_share out to test with that split, or say test={options.train} to leave the split unused"
        )
    if options.test_share is None:
        used[options.test] = _test_split(title, splits, options.train, options.test)
        for column in (*inputs, *label):
            _choose(f"{title}, split {options.test},", "column", used[options.test].features, column)
    for split, samples in used.items():
        if not len(samples):
            raise InputError(f"{title}: the split {split!r} has no samples; name another by train= or test=")
    targets, names = _targets(title, label, used.values(), options)
    count = sum(map(len, used.values()))
    made = _images(title, inputs[0], used) if kind == "images" else None
    if options.test_share is None:
        test = np.arange(count) >= len(training)
        if names and not _declares_classes(training, label):
            warn_of_test_only(f"{title}, split {options.test}", targets[~test], targets[test], names)
    else:
        test = _put_aside(title, targets, count, options.test_share)
    owners = None if options.client is None else np.asarray(training[options.client][:])
    if kind == "texts":
        read = _texts(title, inputs[0], used, test, options)
        return dataset_of_texts(
            name, read, targets, test, owners, names=names, classes=options.classes, labels=options.labels
        )
    if made is None:
        made = _numbers(title, inputs, used)
    return from_arrays(
        made[~test],
        targets[~test],
        made[test],
        targets[test],
        clients=None if owners is None else owners[~test[: len(owners)]],
        name=name,
        names=names,
        labels=options.labels,
        classes=options.classes,
    )


@contextlib.contextmanager
def _reading(title: str) -> Iterator[None]:
    """While entered, errors name the data set: readers of ``datasets`` find damaged files late, in any call."""
    try:
        yield
    except AdabestError:
        raise
    except Exception as error:  # ``datasets`` has no exception type of its own for damaged files
        raise InputError(f"{title} can't be read by the package datasets: {told(error)}") from error


def _open(path: Path | None, name: str | None, subset: str | None) -> Mapping[str, Any]:
    """The splits of a set by name."""
    _require_package()
    import datasets

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


def _require_package() -> None:
    try:
        import datasets  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"data set 'huggingface' needs the package datasets ({error}): pip install \"adabest[huggingface]\""
        ) from error


def _test_split(title: str, splits: Mapping[str, Any], train: str, test: str) -> Any:
    if test == train:
        raise InputError(f"{title}: the split {train!r} can't be trained and tested with; see test_share")
    if test not in splits:
        raise InputError(
            f"{title} has no split {test!r} to test with; it has {', '.join(splits)}. Name one, as in test=validation, "
            "or put a share of the training samples aside, as in test_share=0.1"
        )
    return splits[test]


def _of_type(features: Mapping[str, Any], kind: type) -> list[str]:
    return [column for column, feature in features.items() if isinstance(feature, kind)]


def _kind(title: str, features: Mapping[str, Any], options: _Options) -> Kind:
    """What inputs are."""
    import datasets

    given = {"image": options.image, "features": options.features, "text": options.text}
    said = [option for option, value in given.items() if value]
    if len(said) > 1:
        raise InputError(f"{title}: inputs are those of {said[0]}= or of {said[1]}=; leave one of them out")
    if options.text:
        return "texts"
    if options.features:
        return "numbers"
    if not _of_type(features, datasets.Image):
        raise InputError(
            f"{title} has no column of images; its columns are {', '.join(features)}. Name one of texts by text=..., "
            "or columns of numbers by features=..."
        )
    return "images"


def _input_columns(title: str, features: Mapping[str, Any], kind: Kind, options: _Options) -> tuple[str, ...]:
    """The columns of inputs, which have the right types."""
    import datasets

    if kind == "images":
        pictures = _of_type(features, datasets.Image)
        return (_choose(title, "column of images", dict.fromkeys(pictures), options.image or pictures[0], key=True),)
    for column in options.features:
        _choose(title, "column", features, column)
    if kind == "numbers":
        return options.features
    column = str(options.text)
    feature = _choose(title, "column", features, column)
    if getattr(feature, "dtype", None) not in ("string", "large_string"):
        raise InputError(f"{title}: the column {column!r} holds {shown(feature)}; it should hold texts, as text= says")
    return (column,)


def _label_columns(title: str, features: Mapping[str, Any], options: _Options) -> tuple[str, ...]:
    """The columns of labels; one that isn't named is found by its type."""
    import datasets

    if options.reading is not None and options.reading.next_token:
        return label_columns(title, options.label or ("label",), options.reading)
    if options.label is not None:
        return options.label
    found = _of_type(features, datasets.ClassLabel) or [column for column in features if column == "label"]
    if len(found) != 1:
        raise InputError(
            f"{title} has {' and '.join(found) or 'no column'} for labels; choose one by label=..., of "
            f"{', '.join(features)}"
        )
    return (found[0],)


def _choose(title: str, kind: str, known: Mapping[str, Any], name: str, *, key: bool = False) -> Any:
    if name not in known:
        raise InputError(f"{title} has no {kind} {name!r}; {nearest(name, known)}")
    return name if key else known[name]


def _targets(
    title: str, columns: Sequence[str], splits: Collection[Any], options: _Options
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The targets of the samples of all splits, one after the other, and the names of classes."""
    if not columns:  # the tokens of texts are the targets
        if options.labels != "count":
            raise InputError(f"{title}: labels={options.labels} says nothing where next_token is given; leave it out")
        return np.empty(0, np.float32), ()
    found = [_labels(title, column, splits, options.labels) for column in columns]
    if len(found) == 1:
        return found[0]
    for column, (values, _) in zip(columns, found, strict=True):
        if values.ndim != 1 or (options.labels == "count" and not np.isin(values, (0, 1)).all()):
            raise InputError(
                f"{title}: {column!r} should hold 0 or 1 for every sample, as one of several columns of labels; if "
                "they are quantities, say labels=numbers"
            )
    return np.stack([values for values, _ in found], axis=1), ()


def _labels(title: str, column: str, splits: Collection[Any], labels: Labels) -> tuple[np.ndarray, tuple[str, ...]]:
    """A column of labels of all splits, one after the other, and the names of classes."""
    declared = [split.features[column] for split in splits]
    names = getattr(declared[0], "names", None)
    if any(getattr(feature, "names", None) != names for feature in declared[1:]):
        raise InputError(f"{title}: the splits differ in the class names of {column!r}")
    try:
        values = np.concatenate([np.asarray(split[column][:]) for split in splits])
    except ValueError as error:  # lists of different lengths
        raise InputError(f"{title}: {column!r} should hold labels of one shape: {error}") from error
    if labels == "numbers":
        if values.dtype.kind not in "iubf":
            raise InputError(f"{title}: {column!r} should hold a number for every sample, as labels=numbers says")
        return values.astype(np.float32), ()
    if values.dtype.kind == "U" and values.ndim == 1:
        texts, values = np.unique(values, return_inverse=True)
        names = texts.tolist()
    quantities = labels == "map" and values.dtype.kind == "f"
    if not (values.dtype.kind in "iub" or quantities) or values.ndim > 2 or not len(values):
        hint = "; labels=numbers takes quantities" if values.dtype.kind == "f" else ""
        raise InputError(f"{title}: {column!r} should hold a whole number or a text for every sample, as a label{hint}")
    return values if quantities else values.astype(np.int64), () if names is None else tuple(names)


def _declares_classes(samples: Any, columns: Sequence[str]) -> bool:
    """Whether a split declares the names of its classes, so that a label of test samples alone is no mistake."""
    return any(getattr(samples.features[column], "names", None) is not None for column in columns)


def _texts(title: str, column: str, splits: Mapping[str, Any], test: np.ndarray, options: _Options) -> TextSamples:
    """The samples that the texts of all splits make, one split after the other."""
    texts = [text for samples in splits.values() for text in samples[column][:]]

    def place(row: int) -> str:
        for split, samples in splits.items():
            if row < len(samples):
                return f"row {row} from 0 of {split}"
            row -= len(samples)
        raise IndexError(row)

    if None in texts:
        raise InputError(f"{title}, {place(texts.index(None))}, column {column!r} is empty; leave the row out")
    assert options.reading is not None
    return read_texts(title, texts, test, options.reading, place)


def _numbers(title: str, columns: Sequence[str], splits: Mapping[str, Any]) -> np.ndarray:
    """The numbers of all splits, one after the other: ``[samples, columns]``, or of the shape of a column's lists."""
    blocks = []
    for column in columns:
        parts = [_column(title, column, split, samples) for split, samples in splits.items()]
        if len({part.shape[1:] for part in parts}) > 1:
            raise InputError(
                f"{title}, column {column!r}: lists of {' and '.join(str(part.shape[1:]) for part in parts)} numbers; "
                "all should have one length"
            )
        blocks.append(np.concatenate(parts))
    if len(blocks) == 1 and blocks[0].ndim > 1:
        return blocks[0]
    return np.concatenate([block.reshape(len(block), -1).astype(np.float32) for block in blocks], axis=1)


def _column(title: str, column: str, split: str, samples: Any) -> np.ndarray:
    """A column of numbers, or of lists of numbers that have one shape."""
    refuse_beyond_memory(title, {f"the column {column!r}": 8 * samples.data.nbytes}, "choose fewer columns or rows")
    where = f"{title}, split {split}, column {column!r}"
    values = samples[column][:]
    for row, value in enumerate(values):
        if value is None:
            raise InputError(f"{where}, row {row} from 0 is empty; fill it in, or leave the row out")
    try:
        array = np.asarray(values)
    except ValueError as error:
        first = np.shape(values[0])
        row = next(number for number, value in enumerate(values) if _shape(value) != first)
        raise InputError(
            f"{where}, row {row} from 0 has numbers of another shape than row 0, {first}; bring all to one length"
        ) from error
    if array.dtype.kind not in "iubf":
        raise InputError(
            f"{where} holds {shown(values[0])}, which isn't a number, or a list of numbers; texts are named by text=..."
        )
    if array.ndim == 1:
        return array
    return array.astype(np.uint8) if _dtype(samples.features[column]) == _PIXELS else _plain(array)


def _plain(array: np.ndarray) -> np.ndarray:
    """Numbers as ``from_arrays`` takes them: whole ones as ids, others in float32."""
    return array.astype(np.int64) if array.dtype.kind in "iu" else array.astype(np.float32)


def _shape(value: Any) -> tuple[int, ...] | None:
    try:
        shape: tuple[int, ...] = np.shape(value)
    except ValueError:
        return None
    return shape


def _dtype(feature: Any) -> str | None:
    """The type of the numbers in lists, however deep."""
    while (inner := getattr(feature, "feature", None)) is not None:
        feature = inner
    return getattr(feature, "dtype", None)


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


def _put_aside(title: str, targets: np.ndarray, count: int, share: float) -> np.ndarray:
    """A mask of the test samples."""
    samples = round(share * count)
    if not 0 < samples < count:
        raise InputError(f"{title}: test_share = {share:g} of {count:,} samples leaves none to train or to test")
    return stratified_test_split(strata_of(targets, count), samples)
