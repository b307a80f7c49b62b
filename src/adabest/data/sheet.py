"""Sheets: rows of numbers with a label, and perhaps a client and a split, which become a data set.

Readers of files and frames make a sheet each. What its labels mean, and which rows test, is decided here once.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from adabest.data.dataset import Dataset, from_arrays
from adabest.data.split import stratified_test_split
from adabest.errors import InputError, nearest
from adabest.registry import shown

Labels = Literal["count", "map"]
_JOIN = "+"
_LARGEST = 2**53  # from here on, float64 doesn't hold every whole number
_SHOWN = 5  # labels in a message


@dataclasses.dataclass(frozen=True)
class Roles:
    """The columns of a table by what they are for.

    Attributes:
        label: The column of labels.
        client: The column of clients, if there is one.
        split: The column that says train or test, if there is one.
        features: The columns of inputs; empty for all others.
        drop: Columns that are none of these.
    """

    label: str
    client: str | None = None
    split: str | None = None
    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that are read as texts."""
        return tuple(column for column in (self.label, self.client, self.split) if column is not None)

    def inputs(self, title: str, header: Sequence[str]) -> list[str]:
        """The columns of inputs in a table.

        Args:
            title: The table, for messages.
            header: The names of all its columns.

        Raises:
            InputError: If a column is missing, has two roles, or no column is left.
        """
        doubled = (
            sorted({column for column in header if header.count(column) > 1}) if len(set(header)) < len(header) else []
        )
        if doubled:
            raise InputError(f"{title} has several columns called {doubled[0]!r}; each needs a name of its own")
        named = [("label", self.label), ("client", self.client), ("split", self.split)]
        named += [("features", column) for column in self.features] + [("drop", column) for column in self.drop]
        taken: dict[str, str] = {}
        for role, column in named:
            if column is None:
                continue
            if column not in header:
                raise InputError(f"{title} has no column {column!r} for {role}=...; {nearest(column, header)}")
            if column in taken:
                raise InputError(f"{title}: the column {column!r} is named twice, by {taken[column]}= and by {role}=")
            taken[column] = role
        chosen = list(self.features) or [column for column in header if column not in taken]
        if not chosen:
            raise InputError(
                f"{title} has no column left for inputs beside {', '.join(taken)}; it needs at least one of numbers"
            )
        if "" in chosen:
            raise InputError(
                f"{title}: column {header.index('') + 1} has no name, so it would be an input by mistake (pandas "
                "writes its index so, unless index=False); remove or name it, or choose the columns by features=..."
            )
        return chosen


def column_names(text: str | None) -> tuple[str, ...]:
    """The columns of an option such as ``age+height``."""
    return () if text is None else tuple(part.strip() for part in text.split(_JOIN))


@dataclasses.dataclass(frozen=True)
class Sheet:
    """Rows of a table.

    Attributes:
        title: The table, for messages.
        columns: The names of the columns of inputs.
        inputs: Their numbers in float64, ``[rows, columns]``.
        texts: The texts of the other columns by name, one for each row.
        place: Where a row is, in words, as in ``line 7``.
    """

    title: str
    columns: Sequence[str]
    inputs: np.ndarray
    texts: Mapping[str, Sequence[str]]
    place: Callable[[int], str]

    def __post_init__(self) -> None:
        if not len(self.inputs):
            raise InputError(f"{self.title} has no rows below its header; each row should be a sample")
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite
            wrong = np.argwhere(~np.isfinite(self.inputs.astype(np.float32)))
        if len(wrong):
            row, column = map(int, wrong[0])
            raise InputError(
                f"{self.title}, {self.place(row)}, column {self.columns[column]!r}: {self.inputs[row, column]} isn't a "
                "finite number of float32; replace it, or leave the row out"
            )
        for name, texts in self.texts.items():
            if "" in texts:
                raise empty_cell(self.title, self.place(list(texts).index("")), name)


def empty_cell(title: str, place: str, column: str) -> InputError:
    """The error for a cell without a value."""
    return InputError(
        f"{title}, {place}, column {column!r} is empty; fill it in, leave the row out, or leave the column out by "
        f"drop={column}"
    )


def wrong_number(title: str, place: str, column: str, cell: object) -> InputError:
    """The error for a cell that should be a number."""
    return InputError(
        f"{title}, {place}, column {column!r}: {shown(cell)} isn't a number, which inputs should be; leave the column "
        f"out by drop={column}, or choose the columns of inputs, as in features=age{_JOIN}height"
    )


def dataset_of(
    name: str,
    training: Sheet,
    testing: Sheet | None,
    roles: Roles,
    *,
    test_share: float | None,
    labels: Labels,
    standardise: bool,
) -> Dataset:
    """A data set of a sheet, whose test samples are a second sheet, some rows by a column, or a share of the rows.

    Args:
        name: The data set's name.
        training: The rows to train with.
        testing: The rows to test with, if they are a sheet of their own.
        roles: What the columns are for.
        test_share: The share of the rows that is put aside to test with, class by class.
        labels: Whether labels have to count from 0, or are mapped to such numbers.
        standardise: Whether each column gets mean 0 and deviation 1 in training.

    Raises:
        InputError: If the labels or the split can't be used.
    """
    sheets = [training] if testing is None else [training, testing]
    numbers, names = _classes(sheets, roles.label, labels)
    inputs = np.concatenate([sheet.inputs for sheet in sheets])
    if testing is not None:
        test = np.arange(len(numbers)) >= len(training.inputs)
    elif roles.split is not None:
        test = _split_rows(training, roles.split)
    else:
        test = share_rows(training.title, "rows", numbers, float(test_share or 0))
    if standardise:
        deviation = inputs[~test].std(axis=0)
        inputs = (inputs - inputs[~test].mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    clients = None
    if roles.client is not None:
        owners, _ = numbered(training.texts[roles.client])
        clients = owners[~test[: len(owners)]]
    inputs = inputs.astype(np.float32)
    return from_arrays(
        inputs[~test], numbers[~test], inputs[test], numbers[test], clients=clients, name=name, names=names
    )


def numbered(texts: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Texts as numbers from 0 without gaps, in the order of the texts, or of the whole numbers that all of them are."""
    known = set(texts)
    whole = {text: whole_number(text) for text in known}
    if None in whole.values():
        ordered = sorted(known)
        number = {text: position for position, text in enumerate(ordered)}
        names = tuple(ordered)
    else:
        values = sorted({value for value in whole.values() if value is not None})
        place = {value: position for position, value in enumerate(values)}
        number = {text: place[value] for text, value in whole.items() if value is not None}
        names = tuple(map(str, values))
    return np.fromiter((number[text] for text in texts), np.int64, len(texts)), names


def whole_number(text: str) -> int | None:
    """The whole number that a text is, as in ``3`` or ``3.0``; None if it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if "_" not in text and value.is_integer() and abs(value) < _LARGEST else None


def _classes(sheets: Sequence[Sheet], column: str, labels: Labels) -> tuple[np.ndarray, tuple[str, ...]]:
    """The labels of all rows as numbers from 0, and the names of classes that have some."""
    texts = [text for sheet in sheets for text in sheet.texts[column]]
    mapped, names = numbered(texts)
    if labels == "map":
        return mapped, names
    whole = [whole_number(text) for text in dict.fromkeys(texts)]
    if all(value is None for value in whole):
        if any(_is_number(text) for text in names):
            example = next(text for text in names if _is_number(text))
            raise InputError(
                f"{_place_of(sheets, column, example)}: the label {example!r} isn't a whole number; labels name "
                "classes. labels=map takes every value for a class"
            )
        return mapped, names
    if None in whole:
        text = next(text for text in dict.fromkeys(texts) if whole_number(text) is None)
        raise InputError(
            f"{_place_of(sheets, column, text)}: the label {shown(text)} isn't a whole number, as others are; correct "
            "it, or take every value for a class by labels=map"
        )
    values = list(map(int, names))
    if values != list(range(len(values))):
        absent = next(number for number in range(len(values) + 1) if number not in values)
        some = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
        raise InputError(
            f"{sheets[0].title}: the labels in column {column!r} are {some}, without {absent}; they should count the "
            "classes from 0 without gaps. labels=map maps them, in their order"
        )
    return mapped, ()


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _place_of(sheets: Sequence[Sheet], column: str, text: str) -> str:
    sheet = next(sheet for sheet in sheets if text in sheet.texts[column])
    return f"{sheet.title}, {sheet.place(list(sheet.texts[column]).index(text))}, column {column!r}"


def _split_rows(sheet: Sheet, column: str) -> np.ndarray:
    """A mask of the test rows, by the column that says so."""
    texts = [text.strip().lower() for text in sheet.texts[column]]
    for row, text in enumerate(texts):
        if text not in ("train", "test"):
            raise InputError(
                f"{sheet.title}, {sheet.place(row)}, column {column!r}: {shown(sheet.texts[column][row])} should be "
                "train or test; leave out rows that are neither"
            )
    test = np.array([text == "test" for text in texts])
    if test.all() or not test.any():
        raise InputError(
            f"{sheet.title}: the column {column!r} says {texts[0]} in every row; some should be train, and some test"
        )
    return test


def share_rows(title: str, what: str, labels: np.ndarray, share: float) -> np.ndarray:
    """A mask of the test samples: a share of each class, always the same.

    Args:
        title: The data, for messages.
        what: What its samples are called there.
        labels: The labels of all samples, from 0.
        share: The share.

    Raises:
        InputError: If it leaves no sample to train or to test.
    """
    samples = round(share * len(labels)) if 0 < share < 1 else 0
    if not 0 < samples < len(labels):
        raise InputError(
            f"{title}: test_share = {share:g} of {len(labels):,} {what} leaves none to train or to test; it should be "
            "between 0 and 1, as in test_share=0.2"
        )
    return stratified_test_split(labels, samples)
