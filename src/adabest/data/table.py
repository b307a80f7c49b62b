"""Tables in files: CSV by the standard library, Parquet by pyarrow. Cells are data: checked, never evaluated."""

import array
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from adabest.data.dataset import Dataset
from adabest.data.labels import Labels
from adabest.data.limits import refuse_growth
from adabest.data.sheet import (
    Roles,
    Sheet,
    column_names,
    dataset_of,
    empty_cell,
    label_columns,
    wrong_number,
)
from adabest.data.text import text_options
from adabest.errors import InputError, told
from adabest.extras import require
from adabest.machine import refuse_beyond_memory

Separator = Literal["comma", "semicolon", "tab"]

_SEPARATORS: dict[Separator, str] = {"comma": ",", "semicolon": ";", "tab": "\t"}
_TEXT_ENDINGS = (".csv", ".tsv", ".txt")
_PARQUET_ENDINGS = (".parquet", ".pq")
TABLE_ENDINGS = (*_TEXT_ENDINGS, *_PARQUET_ENDINGS)
_GROWTH = 12  # bytes in memory per byte of CSV: "1," is 2 bytes and takes 20, as float64 twice and as float32
_TRUTH = {"true": 1.0, "false": 0.0}
_BATCH = 65_536  # rows of a Parquet file that are read at a time


def table(
    *,
    path: Path,
    label: str = "label",
    client: str | None = None,
    features: str | None = None,
    drop: str | None = None,
    test: Path | None = None,
    split: str | None = None,
    test_share: float | None = None,
    labels: Labels = "count",
    classes: int | None = None,
    standardise: bool = False,
    text: str | None = None,
    length: int | None = None,
    tokenizer: str | None = None,
    next_token: bool = False,
    separator: Separator | None = None,
) -> Dataset:
    """A table whose rows are samples, from a CSV or Parquet file with named columns.

    Labels that are texts are mapped to numbers from 0, in sorted order, and kept as names of classes.

    Args:
        path: The file. Its ending says what it is: ``.csv``, ``.tsv`` or ``.txt``, or ``.parquet``.
        label: The column of labels, or several, joined by ``+``: each 0 or 1, or quantities.
        client: The column with the client of each row, if the table comes split by client.
        features: The columns of inputs, joined by ``+``. By default all that have no other role.
        drop: Columns that are left out, joined by ``+``.
        test: A second file, whose rows are tested with.
        split: Instead, the column that says for each row whether it is for ``train`` or ``test``.
        test_share: Instead, the share of the rows that is put aside to test with, class by class.
        labels: ``count`` if labels that are numbers have to count the classes from 0; ``map`` to map any;
            ``numbers`` if they are quantities.
        classes: How many classes there are, where some have no row.
        standardise: Whether each column is brought to mean 0 and deviation 1, by the rows to train with.
        text: The column of texts that are the inputs, instead of columns of numbers.
        length: How many tokens of a text are taken. By default 80.
        tokenizer: ``module:function`` of a function from a text to a list of ids, or of an object that has one called
            ``encode``. By default, the characters of a text are its tokens.
        next_token: Whether texts are cut into windows of ``length``, and the token that follows each is the target.
        separator: What stands between two cells of a text file. By default a tab in ``.tsv``, else a comma.

    Raises:
        InputError: If a file can't be read or used; the message names the line and the column.
    """
    ways = {"test": test, "split": split, "test_share": test_share}
    given = [way for way, value in ways.items() if value is not None]
    if len(given) != 1:
        raise InputError(
            f"data set 'table' needs one way to tell its test rows, not {' and '.join(given) or 'none'}: test=FILE, "
            "split=COLUMN (of train and test), or test_share=0.2"
        )
    options = text_options(str(path), text, length=length, tokenizer=tokenizer, next_token=next_token)
    answers = label_columns(str(path), column_names(label), options)
    roles = Roles(answers, client, split, column_names(features), column_names(drop), text)
    training = _read(path, roles, separator)
    testing = None
    if test is not None:
        testing = _read(test, roles.for_test(training.columns), separator)
    return dataset_of(
        path.stem,
        training,
        testing,
        roles,
        test_share=test_share,
        labels=labels,
        classes=classes,
        standardise=standardise,
        text=options,
    )


def _read(path: Path, roles: Roles, separator: Separator | None) -> Sheet:
    if not path.is_file():
        raise InputError(f"{path} doesn't exist, or is no file; a table is one file with a line of column names")
    ending = path.suffix.lower()
    if ending in _PARQUET_ENDINGS:
        return _read_parquet(path, roles)
    if ending in _TEXT_ENDINGS:
        return _read_csv(path, roles, separator or ("tab" if ending == ".tsv" else "comma"))
    raise InputError(f"{path}: a table's file should end in {', '.join(TABLE_ENDINGS)}")


def _read_csv(path: Path, roles: Roles, separator: Separator) -> Sheet:
    refuse_beyond_memory(f"{path} as a table", {"its cells": _GROWTH * path.stat().st_size}, "split it into files")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _sheet_of_lines(path, csv.reader(file, delimiter=_SEPARATORS[separator], strict=True), roles)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} isn't text in UTF-8: {error}; save it in that encoding") from error


def _lines(path: Path, reader: Any) -> Iterator[list[str]]:
    """The lines of a file that aren't blank."""
    while True:
        try:
            cells: list[str] = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{path}, line {reader.line_num} can't be read as CSV: {error}") from error
        if cells:
            yield cells


def _sheet_of_lines(path: Path, reader: Any, roles: Roles) -> Sheet:
    lines = _lines(path, reader)
    header = [cell.strip() for cell in next(lines, [])]
    if not header:
        raise InputError(f"{path} is empty; its first line should name the columns")
    if len(header) == 1:
        _refuse_other_separator(path, header[0])
    columns = roles.inputs(str(path), header)
    positions = [header.index(column) for column in columns]
    texts: dict[str, list[str]] = {column: [] for column in roles.texts}
    kept = [(texts[column], header.index(column)) for column in texts if column != roles.text]
    body = 0 if roles.text is None else header.index(roles.text)
    numbers, places = array.array("d"), array.array("q")
    same: dict[str, str] = {}  # one object for each text, however often it occurs
    for cells in lines:
        if len(cells) != len(header):
            raise InputError(
                f"{path}, line {reader.line_num} has {len(cells)} cells, but the header has {len(header)} columns; a "
                "cell with a separator in it goes between quotation marks"
            )
        chosen = [cells[position] for position in positions]
        try:
            if "_" in "".join(chosen):  # Python would take 1_000 for a number
                raise ValueError
            numbers.extend(map(float, chosen))
        except ValueError:
            del numbers[len(places) * len(columns) :]
            numbers.extend(_numbers(str(path), f"line {reader.line_num}", columns, chosen))
        places.append(reader.line_num)
        for values, position in kept:
            text = cells[position].strip()
            values.append(same.setdefault(text, text))
        if roles.text is not None:
            texts[roles.text].append(cells[body])
    inputs = np.frombuffer(numbers, np.float64) if numbers else np.empty(0)
    inputs = inputs.reshape(len(places), len(columns))
    return Sheet(str(path), columns, inputs, texts, lambda row: f"line {places[row]}")


def _refuse_other_separator(path: Path, header: str) -> None:
    """A header of one column that has another separator in it was meant to be several."""
    for name, letter in _SEPARATORS.items():
        if letter in header:
            raise InputError(
                f"{path}: its first line, {header!r}, has one column by this separator; try separator={name}"
            )


def _numbers(title: str, place: str, columns: Sequence[str], cells: Sequence[str]) -> Iterator[float]:
    """The numbers of cells of which one isn't written as a number, but may be true or false."""
    for column, cell in zip(columns, cells, strict=True):
        text = cell.strip().lower()
        if not text:
            raise empty_cell(title, place, column)
        if text in _TRUTH:
            yield _TRUTH[text]
            continue
        try:
            if "_" in text:
                raise ValueError
            yield float(text)
        except ValueError:
            raise wrong_number(title, place, column, cell) from None


def _read_parquet(path: Path, roles: Roles) -> Sheet:
    require(f"{path}, a Parquet file,", "parquet", "pyarrow")
    try:
        return _sheet_of_parquet(path, roles)
    except InputError:
        raise
    except Exception as error:  # pyarrow raises exceptions of many types for a damaged file
        raise InputError(f"{path} can't be read as Parquet: {told(error)}") from error


def _sheet_of_parquet(path: Path, roles: Roles) -> Sheet:
    import pyarrow
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
        columns = roles.inputs(str(path), schema.names)
        for column in columns:
            kind = schema.field(column).type
            if not (
                pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_boolean(kind)
            ):
                raise InputError(
                    f"{path}: the column {column!r} holds {kind}, and inputs should be numbers; leave it out by "
                    f"drop={column}, or choose the columns of inputs, as in features=age+height"
                )
        for column in roles.texts:
            kind = schema.field(column).type
            if pyarrow.types.is_nested(kind):
                raise InputError(f"{path}: the column {column!r} holds {kind}; it should hold texts or whole numbers")
            if column == roles.text and not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
                raise InputError(f"{path}: the column {column!r} holds {kind}; it should hold texts, as text= says")
        # A few bytes can stand for any number of equal rows.
        refuse_growth(path, path.stat().st_size, 8 * rows * (len(columns) + len(roles.texts)))
        inputs = np.empty((rows, len(columns)))
        texts: dict[str, list[str]] = {column: [] for column in roles.texts}
        same: dict[str, str] = {}
        start = 0
        for batch in file.iter_batches(_BATCH, columns=[*columns, *roles.texts], use_threads=False):
            if start + len(batch) > rows:
                raise InputError(f"{path} has more rows than the {rows:,} that its end declares; write it anew")
            for position, column in enumerate(columns):
                values = _filled(path, start, column, batch.column(column))
                inputs[start : start + len(batch), position] = values.to_numpy(zero_copy_only=False)
            for column in texts:
                values = _filled(path, start, column, batch.column(column), has_role=True).to_pylist()
                texts[column] += [same.setdefault(text, text) for text in map(str, values)]
            start += len(batch)
    if start != rows:
        raise InputError(f"{path} has {start:,} rows, but its end declares {rows:,}; write it anew")
    return Sheet(str(path), columns, inputs, texts, lambda row: f"row {row + 1}")


def _filled(path: Path, start: int, column: str, values: Any, *, has_role: bool = False) -> Any:
    """The values of a column in a batch, if none is missing."""
    if values.null_count:
        row = start + values.is_null().to_pylist().index(True)
        raise empty_cell(str(path), f"row {row + 1}", column, has_role=has_role)
    return values
