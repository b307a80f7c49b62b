"""Frames of pandas and polars as data sets. Neither package is imported: a frame brings its own methods along."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from adabest.data.dataset import Dataset
from adabest.data.labels import Labels, check_labels_option
from adabest.data.sheet import Roles, Sheet, column_names, dataset_of, empty_cell, label_columns, wrong_number
from adabest.data.text import text_options
from adabest.errors import InputError
from adabest.machine import refuse_beyond_memory
from adabest.registry import naming, shown

_MISSING = ("NAType", "NaTType")  # the types of pandas' own values for a missing one


def from_frame(
    frame: Any,
    *,
    label: str | int | Sequence[str | int] = "label",
    client: str | int | None = None,
    features: Sequence[str | int] = (),
    drop: Sequence[str | int] = (),
    test: Any = None,
    split: str | int | None = None,
    test_share: float | None = None,
    labels: Labels = "count",
    classes: int | None = None,
    standardise: bool = False,
    text: str | int | None = None,
    length: int | None = None,
    tokenizer: Any = None,
    next_token: bool = False,
    name: str = "frame",
) -> Dataset:
    """Makes a data set of a pandas or polars frame whose rows are samples.

    Columns that are called by numbers, as pandas does by default, are named by them: ``label=2``.

    Inputs are numbers, in float32, or a column of texts; ``from_arrays`` takes ids. Labels that are texts are mapped to
    numbers from 0, in sorted order, and kept as names of classes.

    Args:
        frame: The frame.
        label: The column of labels, or a list of several: each 0 or 1, or quantities.
        client: The column with the client of each row, if the frame comes split by client.
        features: The columns of inputs. By default all that have no other role.
        drop: Columns that are left out.
        test: A second frame, whose rows are tested with.
        split: Instead, the column that says for each row whether it is for ``train`` or ``test``.
        test_share: Instead, the share of the rows that is put aside to test with, class by class.
        labels: ``count`` if labels that are numbers have to count the classes from 0; ``map`` to map any;
            ``numbers`` if they are quantities.
        classes: How many classes there are, where some have no row.
        standardise: Whether each column is brought to mean 0 and deviation 1, by the rows to train with.
        text: The column of texts that are the inputs, instead of columns of numbers.
        length: How many tokens of a text are taken. By default 80.
        tokenizer: A function from a text to a list of ids, an object that has one called ``encode``, or the name of
            either, ``module:name``. By default, the characters of a text are its tokens.
        next_token: Whether texts are cut into windows of ``length``, and the token that follows each is the target.
        name: The data set's name.

    Raises:
        InputError: If a frame can't be used; the message names the row and the column.
    """
    if sum(way is not None for way in (test, split, test_share)) != 1:
        raise InputError(
            f"{name} needs one way to tell its test rows: test=frame, split=column (of train and test), or "
            "test_share=0.2"
        )
    check_labels_option(name, labels, classes)
    body = _named(text)
    options = text_options(name, body, length=length, tokenizer=tokenizer, next_token=next_token)
    answers = label_columns(name, _all_named(label), options)
    for option, columns in (("features", features), ("drop", drop)):
        if isinstance(columns, str):
            listed = list(column_names(columns))
            raise InputError(f"{name}: {option} should be a list of columns, as in {listed!r}")
    roles = Roles(answers, _named(client), _named(split), _all_named(features), _all_named(drop), body)
    training = _sheet(name, frame, roles)
    testing = None
    if test is not None:
        testing = _sheet(f"{name} to test with", test, roles.for_test(training.columns))
    with naming(tokenizer):
        return dataset_of(
            name,
            training,
            testing,
            roles,
            test_share=test_share,
            labels=labels,
            classes=classes,
            standardise=standardise,
            text=options,
        )


def _named(column: str | int | None) -> str | None:
    """A column's name, which may be a number, as a text."""
    return None if column is None else str(column)


def _all_named(columns: str | int | Sequence[str | int]) -> tuple[str, ...]:
    """The names of one column or of several as texts."""
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        return (str(columns),)
    return tuple(map(str, columns))


def _sheet(title: str, frame: Any, roles: Roles) -> Sheet:
    if not (hasattr(frame, "columns") and hasattr(frame, "__getitem__") and hasattr(frame, "__len__")):
        way_out = "; collect() makes a frame of it" if hasattr(frame, "collect") else ""
        raise InputError(f"{title} should be a pandas or polars frame, not a {type(frame).__name__}{way_out}")
    originals = list(frame.columns)
    header = list(map(str, originals))
    columns = roles.inputs(title, header)
    refuse_beyond_memory(title, {"its numbers": 20 * len(frame) * len(columns)}, "choose fewer columns or rows")
    column_of = dict(zip(header, originals, strict=True))
    inputs = np.empty((len(frame), len(columns)))
    for position, column in enumerate(columns):
        inputs[:, position] = _numbers(title, column, frame[column_of[column]].to_numpy())
    texts = {column: list(map(_text, frame[column_of[column]].to_numpy().tolist())) for column in roles.texts}
    if roles.text is not None:
        texts[roles.text] = _texts(title, roles.text, frame[column_of[roles.text]].to_numpy().tolist())
    return Sheet(title, columns, inputs, texts, _place)


def _texts(title: str, column: str, values: Sequence[Any]) -> list[str]:
    """A column of texts as they are."""
    for row, value in enumerate(values):
        if _is_missing(value):
            raise empty_cell(title, _place(row), column, has_role=True)
        if not isinstance(value, str):
            raise InputError(f"{title}, {_place(row)}, column {column!r}: {shown(value)} isn't a text, as text= says")
    return list(values)


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
