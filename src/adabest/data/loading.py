"""Loading of data sets by name."""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from adabest.data.catalog import OFFICIAL
from adabest.data.dataset import Dataset, from_npz
from adabest.data.digits import digits
from adabest.data.huggingface import huggingface
from adabest.data.image_folder import images
from adabest.data.leaf import leaf
from adabest.data.official import load_official
from adabest.data.synthetic import synthetic
from adabest.data.table import TABLE_ENDINGS, table
from adabest.errors import InputError
from adabest.registry import Option, Registry, blaming, check_options, options_of, shown, split_specification

DATASETS: Registry[Callable[..., Dataset]] = Registry(
    kind="data set",
    group="adabest.datasets",
    builtin={
        "digits": digits,
        **{name: functools.partial(load_official, spec) for name, spec in OFFICIAL.items()},
        "huggingface": huggingface,
        "images": images,
        "leaf": leaf,
        "npz": from_npz,
        "synthetic": synthetic,
        "table": table,
    },
)

_DATA_DIR = "data_dir"
_SPECIFICATION = re.compile(r"[\w.:-]+,\w+=")


def load_dataset(name: str, data_dir: str | None = None) -> Dataset:
    """Loads a data set by name.

    Args:
        name: A registered name or ``module:function``, with options, as in ``leaf,path=femnist``; or a path that ends
            in ``.npz``.
        data_dir: The folder of the official data files. By default the one that ``ADABEST_DATA`` names, or the
            platform's cache folder.

    Raises:
        InputError: If the data set is unknown, can't be read, or comes from a user's function that raised an exception.
    """
    if is_file_name(name):
        with _reading(name):
            return from_npz(Path(name))
    title, given = _take_apart(name)
    found = DATASETS.find(title)
    options = _options(found)
    values = check_options(f"data set {title!r}", given, {k: o for k, o in options.items() if k != _DATA_DIR})
    missing = [key for key, option in options.items() if option.default is dataclasses.MISSING and key not in values]
    if missing:
        raise InputError(f"data set {title!r} needs a value for {missing[0]}, as in {title},{missing[0]}=...")
    if _DATA_DIR in options:
        values[_DATA_DIR] = data_dir
    with _reading(name), blaming("data set", title):
        dataset: Any = found(**values) if callable(found) else found
    if not isinstance(dataset, Dataset):
        raise InputError(f"data set {name!r} gave a {type(dataset).__name__}, not an adabest Dataset")
    return dataset


def _take_apart(name: str) -> tuple[str, dict[str, str]]:
    """The title and the options of a data set's name.

    Raises:
        InputError: If it can't be taken apart, or is a path of a file that is read by another name.
    """
    title = name.partition(",")[0].strip()
    ending = Path(title).suffix.lower()
    if title not in DATASETS.builtin and ":" not in title:
        if ending in TABLE_ENDINGS:
            raise InputError(
                f"unknown data set {shown(title)}; a table is named by table,path={title},label=..., with the column "
                "of labels, and with test=FILE, split=COLUMN or test_share=0.2"
            )
        if ending == ".npy":
            raise InputError(
                f"unknown data set {shown(title)}; a file of arrays should be an .npz with x_train, y_train, x_test "
                "and y_test, as numpy.savez(path, x_train=..., ...) writes it; in Python, see adabest.from_arrays"
            )
    try:
        return split_specification(name)
    except InputError as error:
        keys = [part.partition("=")[0].strip() for part in name.split(",") if "=" in part]
        if not set(keys) & {"drop", "features", "label"}:
            raise
        raise InputError(f"{error}. Columns are joined by +, as in features=a+b") from error


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    """While entered, an OSError becomes an error that names the data set."""
    try:
        yield
    except OSError as error:
        raise InputError(f"data set {shown(name)} can't be read: {error.strerror or error}") from error


def findable(name: str) -> str:
    """The name of a data set with absolute paths, so that it is found from any working directory.

    Raises:
        InputError: If the data set is unknown, or a path has a comma.
    """
    if is_file_name(name):
        return str(Path(name).resolve())
    title, given = _take_apart(name)
    options = _options(DATASETS.find(title)) if given else {}
    for key, value in given.items():
        if key in options and options[key].type in (Path, Path | None):
            given[key] = str(Path(value).expanduser().resolve())
            if "," in given[key]:
                raise InputError(f"data set {title!r}: {key} = {given[key]}: a path with a comma in it can't be used")
    return ",".join([title, *(f"{key}={value}" for key, value in given.items())])


def uses_data_dir(name: str) -> bool:
    """Whether a data set depends on the folder of data files; True where that can't be told without importing it."""
    if is_file_name(name):
        return False
    title = name.partition(",")[0].strip()
    return title not in DATASETS.builtin or _DATA_DIR in _options(DATASETS.builtin[title])


def is_file_name(name: str) -> bool:
    """Whether the name of a data set is a path of an ``.npz`` file."""
    return name.endswith(".npz") and not _SPECIFICATION.match(name)


def _options(found: Any) -> dict[str, Option]:
    return options_of(found) if callable(found) else {}
