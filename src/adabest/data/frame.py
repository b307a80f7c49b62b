"""Frames of pandas and polars as data sets. Neither package is imported: a frame brings its own methods along."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from adabest.data.dataset import Dataset
from adabest.data.sheet import Labels, Roles, Sheet, dataset_of, empty_cell, wrong_number
from adabest.errors import InputError
from adabest.machine import refuse_beyond_memory
from adabest.registry import shown

_MISSING = ("NAType", "NaTType")  # the types of pandas' own values for a missing one


def from_frame(
    frame: Any,
    *,
    label: str = "label",
    client: str | None = None,
    features: Sequence[str] = (),
    drop: Sequence[str] = (),
    test: Any = None,
    split: str | None = None,
    test_share: float | None = None,
    labels: Labels = "count",
    standardise: bool = False,
    name: str = "frame",
) -> Dataset:
    """Makes a data set of a pandas or polars frame whose rows are samples.

    Inputs are numbers, in float32; ``from_arrays`` takes ids. Labels that are texts are mapped to numbers from 0, in
    sorted order, and kept as names of classes.

    Args:
        frame: The frame.
        label: The column of labels.
        client: The column with the client of each row, if the frame comes split by client.
        features: The columns of inputs. By default all that have no other role.
        drop: Columns that are left out.
        test: A second frame, whose rows are tested with.
        split: Instead, the column that says for each row whether it is for ``train`` or ``test``.
        test_share: Instead, the share of the rows that is put aside to test with, class by class.
        labels: ``count`` if labels that are numbers have to count the classes from 0; ``map`` to map any.
        standardise: Whether each column is brought to mean 0 and deviation 1, by the rows to train with.
        name: The data set's name.

    Raises:
        InputError: If a frame can't be used; the message names the row and the column.
    """
    if sum(way is not None for way in (test, split, test_share)) != 1:
        raise InputError(
            f"{name} needs one way to tell its test rows: test=frame, split=column (of train and test), or "
            "test_share=0.2"
        )
    if labels not in ("count", "map"):
        raise InputError(f"{name}: labels = {shown(labels)} should be 'count' or 'map'")
    for option, columns in (("features", features), ("drop", drop)):
        if isinstance(columns, str):
            raise InputError(f"{name}: {option} should be a list of columns, as in [{columns!r}]")
    roles = Roles(label, client, split, tuple(features), tuple(drop))
    training = _sheet(name, frame, roles)
    testing = None
    if test is not None:
        testing = _sheet(f"{name} to test with", test, Roles(label, features=tuple(training.columns)))
    return dataset_of(name, training, testing, roles, test_share=test_share, labels=labels, standardise=standardise)


def _sheet(title: str, frame: Any, roles: Roles) -> Sheet:
    if not (hasattr(frame, "columns") and hasattr(frame, "__getitem__") and hasattr(frame, "__len__")):
        raise InputError(f"{title} should be a pandas or polars frame, not a {type(frame).__name__}")
    originals = list(frame.columns)
    header = list(map(str, originals))
    columns = roles.inputs(title, header)
    refuse_beyond_memory(title, {"its numbers": 20 * len(frame) * len(columns)}, "choose fewer columns or rows")
    column_of = dict(zip(header, originals, strict=True))
    inputs = np.empty((len(frame), len(columns)))
    for position, column in enumerate(columns):
        inputs[:, position] = _numbers(title, column, frame[column_of[column]].to_numpy())
    texts = {column: list(map(_text, frame[column_of[column]].to_numpy().tolist())) for column in roles.texts}
    return Sheet(title, columns, inputs, texts, _place)


def _place(row: int) -> str:
    return f"row {row} from 0"


def _numbers(title: str, column: str, values: np.ndarray) -> np.ndarray:
    """A column of inputs as numbers."""
    if values.dtype.kind in "iufb":
        numbers = values.astype(np.float64)
        missing = np.flatnonzero(np.isnan(numbers))
        if len(missing):
            raise empty_cell(title, _place(int(missing[0])), column)
        return numbers
    for row, value in enumerate(values.tolist()):
        if _is_missing(value):
            raise empty_cell(title, _place(row), column)
        if not isinstance(value, int | float):
            raise wrong_number(title, _place(row), column, value)
    try:
        return values.astype(np.float64)
    except OverflowError as error:
        raise InputError(f"{title}, column {column!r} holds a whole number that is too large: {error}") from error


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in _MISSING or (isinstance(value, float) and math.isnan(value))


def _text(value: Any) -> str:
    """A label, a client or a split as text; empty if it is missing."""
    return "" if _is_missing(value) else str(value).strip()
