"""Sheets: rows of numbers or texts with labels, and perhaps a client and a split, which become a data set.

Readers of files and frames make a sheet each. What its labels mean, and which rows test, is decided here once.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from adabest.data.dataset import Dataset, from_arrays
from adabest.data.labels import Labels, check_labels_option, finite_number, warn_of_test_only, whole_number
from adabest.data.split import stratified_test_split
from adabest.data.text import TextOptions, TextSamples, read_texts
from adabest.errors import InputError, nearest
from adabest.registry import shown

_JOIN = "+"
_TRUTH = {"true": 1, "false": 0}
_SHOWN = 5  # labels in a message


@dataclasses.dataclass(frozen=True)
class Roles:
    """The columns of a table by what they are for.

    Attributes:
        label: The columns of labels; several for several targets a row, none if the inputs hold them.
        client: The column of clients, if there is one.
        split: The column that says train or test, if there is one.
        features: The columns of inputs; empty for all others.
        drop: Columns that are none of these.
        text: The column of texts, if inputs are texts.
    """

    label: tuple[str, ...]
    client: str | None = None
    split: str | None = None
    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    text: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that are read as texts."""
        return tuple(c for c in (*self.label, self.client, self.split, self.text) if c is not None)

    def for_test(self, columns: Sequence[str]) -> "Roles":
        """The roles of the same columns in a table that is only tested with."""
        return Roles(self.label, features=tuple(columns), text=self.text)

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
        named: list[tuple[str, str | None]] = [("label", column) for column in self.label]
        named += [("client", self.client), ("split", self.split), ("text", self.text)]
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
        if self.text is not None:
            if self.features:
                raise InputError(
                    f"{title}: inputs are text={self.text} or features=..., not both; leave one of them out"
                )
            return []
        chosen = list(self.features) or [column for column in header if column not in taken]
        if not chosen:
            raise InputError(
                f"{title} has no column left for inputs beside {', '.join(taken)}; it needs at least one of numbers, "
                "or text=... for one of texts"
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
        columns: The names of the columns of inputs; none if inputs are texts.
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
                raise empty_cell(self.title, self.place(list(texts).index("")), name, has_role=True)


def empty_cell(title: str, place: str, column: str, *, has_role: bool = False) -> InputError:
    """The error for a cell without a value; a column that was given a role can't be dropped."""
    where = f"{title}, {place}, column {column!r} is empty; fill it in"
    return InputError(
        f"{where}, or leave the row out"
        if has_role
        else f"{where}, leave the row out, or leave the column out by drop={column}"
    )


def wrong_number(title: str, place: str, column: str, cell: object) -> InputError:
    """The error for a cell that should be a number."""
    return InputError(
        f"{title}, {place}, column {column!r}: {shown(cell)} isn't a number, which inputs should be; leave the column "
        f"out by drop={column}, or choose the columns of inputs, as in features=age{_JOIN}height"
    )


def label_columns(title: str, label: Sequence[str], options: TextOptions | None) -> tuple[str, ...]:
    """The columns of labels: none if the next token of a text is to be predicted.

    Raises:
        InputError: If a column is named nevertheless.
    """
    if options is None or not options.next_token:
        return tuple(label)
    if tuple(label) != ("label",):
        raise InputError(
            f"{title}: label={_JOIN.join(label)} can't be given with next_token, by which the tokens of a text are its "
            "labels; leave one of the two out"
        )
    return ()


def dataset_of(
    name: str,
    training: Sheet,
    testing: Sheet | None,
    roles: Roles,
    *,
    test_share: float | None,
    labels: Labels,
    classes: int | None,
    standardise: bool,
    text: TextOptions | None,
) -> Dataset:
    """A data set of a sheet, whose test samples are a second sheet, some rows by a column, or a share of the rows.

    Args:
        name: The data set's name.
        training: The rows to train with.
        testing: The rows to test with, if they are a sheet of their own.
        roles: What the columns are for.
        test_share: The share of the rows that is put aside to test with, class by class.
        labels: Whether labels have to count from 0, are mapped to such numbers, or are quantities.
        classes: How many classes there are, where some have no row.
        standardise: Whether each column gets mean 0 and deviation 1 in training.
        text: How texts become ids, if inputs are texts.

    Raises:
        InputError: If the labels or the split can't be used.
    """
    check_labels_option(training.title, labels, classes)
    if standardise and text is not None:
        raise InputError(f"{training.title}: standardise is for numbers, and inputs are texts; leave it out")
    sheets = [training] if testing is None else [training, testing]
    count = sum(len(sheet.inputs) for sheet in sheets)
    targets, names = _targets(sheets, roles.label, labels, classes)
    if testing is not None:
        test = np.arange(count) >= len(training.inputs)
    elif roles.split is not None:
        test = _split_rows(training, roles.split)
    else:
        test = share_rows(training.title, "rows", strata_of(targets, count), float(test_share or 0))
    if names and test_share is None:
        where = testing.title if testing is not None else f"{training.title}, where column {roles.split!r} says test,"
        warn_of_test_only(where, targets[~test], targets[test], names)
    owners = None if roles.client is None else numbered(training.texts[roles.client])[0]
    if text is not None:
        read = _read_texts(sheets, roles, test, text)
        return dataset_of_texts(name, read, targets, test, owners, names=names, classes=classes)
    inputs = np.concatenate([sheet.inputs for sheet in sheets])
    if standardise:
        deviation = inputs[~test].std(axis=0)
        inputs = (inputs - inputs[~test].mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    inputs = inputs.astype(np.float32)
    return from_arrays(
        inputs[~test],
        targets[~test],
        inputs[test],
        targets[test],
        clients=None if owners is None else owners[~test[: len(owners)]],
        name=name,
        names=names,
        classes=classes,
    )


def _read_texts(sheets: Sequence[Sheet], roles: Roles, test: np.ndarray, options: TextOptions) -> TextSamples:
    first = len(sheets[0].inputs)

    def place(row: int) -> str:
        if row < first:
            return sheets[0].place(row)
        return f"{sheets[1].title}, {sheets[1].place(row - first)}"

    texts = [text for sheet in sheets for text in sheet.texts[str(roles.text)]]
    return read_texts(sheets[0].title, texts, test, options, place)


def dataset_of_texts(
    name: str,
    read: TextSamples,
    targets: Any,
    test: np.ndarray,
    owners: np.ndarray | None,
    *,
    names: tuple[str, ...],
    classes: int | None,
    labels: Labels = "count",
) -> Dataset:
    """A data set of texts.

    Args:
        name: The data set's name.
        read: The samples that were made of the texts.
        targets: The labels of all texts; not used where the next token is predicted.
        test: A mask of the texts that are tested with.
        owners: The clients of the first texts, which have all that are trained with.
        names: The names of classes.
        classes: How many classes there are, where some have no text; of tokens, how many there are to predict.
        labels: What labels are.
    """
    testing = test[read.rows]
    y = read.following
    if y is None:
        y = targets[read.rows]
    elif classes is None:
        names = read.vocabulary
    return from_arrays(
        read.inputs[~testing],
        y[~testing],
        read.inputs[testing],
        y[testing],
        clients=None if owners is None else owners[read.rows[~testing]],
        name=name,
        names=names,
        classes=classes,
        labels=labels,
    )


def strata_of(targets: np.ndarray, count: int) -> np.ndarray:
    """The labels by which a share of samples is put aside, from 0; without one label a sample, all are alike."""
    if targets.ndim == 1 and targets.dtype.kind in "iub":
        return np.unique(targets, return_inverse=True)[1]
    return np.zeros(count, np.int64)


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


def _targets(
    sheets: Sequence[Sheet], columns: Sequence[str], labels: Labels, classes: int | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The targets of all rows, and the names of classes."""
    if not columns:  # the tokens of texts are the targets
        if labels != "count":
            raise InputError(f"{sheets[0].title}: labels={labels} says nothing where next_token is given; leave it out")
        return np.empty(0, np.float32), ()
    if labels == "numbers":
        values = np.stack([_quantities(sheets, column) for column in columns], axis=1).astype(np.float32)
        return (values[:, 0] if len(columns) == 1 else values), ()
    if len(columns) == 1:
        return _classes(sheets, columns[0], labels, classes)
    if labels == "map" or classes is not None:
        option = "labels=map" if labels == "map" else f"classes={classes}"
        raise InputError(
            f"{sheets[0].title}: {option} is for one column of labels, and there are {len(columns)}; leave it out. "
            "Several hold 0 or 1 each, or any numbers with labels=numbers"
        )
    return np.stack([_answers(sheets, column) for column in columns], axis=1), ()


def _quantities(sheets: Sequence[Sheet], column: str) -> np.ndarray:
    """A column of labels as quantities."""
    texts = [text for sheet in sheets for text in sheet.texts[column]]
    found = {text: _TRUTH.get(text.lower(), finite_number(text)) for text in set(texts)}
    wrong = next((text for text in texts if found[text] is None), None)
    if wrong is not None:
        raise InputError(
            f"{_place_of(sheets, column, wrong)}: the label {shown(wrong)} isn't a finite number, which labels=numbers "
            "says; correct it, or leave the row out"
        )
    return np.array([found[text] for text in texts], np.float64)


def _answers(sheets: Sequence[Sheet], column: str) -> np.ndarray:
    """One of several columns of labels: 0 or 1 in each row."""
    texts = [text for sheet in sheets for text in sheet.texts[column]]
    found = {text: _TRUTH.get(text.lower(), whole_number(text)) for text in set(texts)}
    wrong = next((text for text in texts if found[text] not in (0, 1)), None)
    if wrong is not None:
        raise InputError(
            f"{_place_of(sheets, column, wrong)}: the label {shown(wrong)} should be 0 or 1, in each of several "
            "columns of labels; if they are quantities, say labels=numbers"
        )
    return np.array([found[text] for text in texts], np.int64)


def _classes(
    sheets: Sequence[Sheet], column: str, labels: Labels, classes: int | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The labels of all rows as numbers from 0, and the names of classes that have some."""
    texts = [text for sheet in sheets for text in sheet.texts[column]]
    mapped, names = numbered(texts)
    if labels == "map":
        return mapped, names
    whole = {text: whole_number(text) for text in dict.fromkeys(texts)}
    odd = [text for text, value in whole.items() if value is None]
    fractions = [text for text in odd if finite_number(text) is not None]
    if len(fractions) > len(whole) - len(odd):
        raise InputError(
            f"{_place_of(sheets, column, fractions[0])}: the label {fractions[0]!r} isn't a whole number; labels name "
            "classes. labels=numbers takes every value for a quantity, as in regression, labels=map for a class"
        )
    if len(odd) == len(whole):
        return mapped, names
    _refuse_unlike_files(sheets, column)
    if odd:
        text = odd[0]
        raise InputError(
            f"{_place_of(sheets, column, text)}: the label {shown(text)} isn't a whole number, as others are; correct "
            "it, or take every value for a class by labels=map, or for a quantity by labels=numbers"
        )
    values = list(map(int, names))
    if classes is not None and values[0] >= 0:  # that they are below it is checked with all other arrays
        return np.array(values)[mapped], ()
    if values != list(range(len(values))):
        absent = next(number for number in range(len(values) + 1) if number not in values)
        some = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
        raise InputError(
            f"{sheets[0].title}: the labels in column {column!r} are {some}, without {absent}; they should count the "
            "classes from 0 without gaps. labels=map maps them, in their order, labels=numbers takes them for "
            f"quantities; if a class really has no row, say how many there are, as in classes={max(values[-1] + 1, 2)}"
        )
    return mapped, ()


def _refuse_unlike_files(sheets: Sequence[Sheet], column: str) -> None:
    """Refuses labels that are whole numbers in one file and texts in the other."""
    for one, other in (sheets, sheets[::-1]) if len(sheets) > 1 else ():
        words, numbers = one.texts[column], other.texts[column]
        if all(whole_number(text) is None for text in set(words)) and None not in map(whole_number, set(numbers)):
            raise InputError(
                f"{one.title} has texts in column {column!r}, such as {shown(words[0])}, but {other.title} numbers, "
                f"such as {shown(numbers[0])}; labels of both should be written alike"
            )


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
