"""Metrics files: the rows of ``metrics.jsonl``, read only as far as they are needed.

A row has numbers. Where replies were left out since the row before, its line has two lists as well, which
``MetricsFile.notes`` gives: ``rejections``, with round, client and reason of each, and ``skips``, the rounds without
any accepted reply.

A run of a million rounds has a file of 600 MB. As one dictionary per row it would take 3 GB and a minute. So the last
row is read from the end of the file, and curves are arrays.
"""

import contextlib
import functools
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from adabest.engine.gate import Rejection
from adabest.errors import InputError

Rounds = NDArray[np.int64]
Values = NDArray[np.float64]

_BLOCK = 1 << 19  # bytes that are parsed at a time
_STEP = 1 << 16  # bytes that are read at a time from the end of a file
_LONGEST = 1 << 20  # most bytes of a line; a row has less than a thousand
_WORTHWHILE = 1 << 17  # bytes of a file from which the quick way saves more time than loading SciPy takes
_NEGATIVE_ZERO = b"-0.0\n"
_EXACT = 2**53  # up to here, float64 holds every whole number
_LARGEST = 2**63
_TOO_LONG = f"it is longer than {_LONGEST:,} bytes"

_ROUND = "round"
_DIVERGED = "diverged"
_REJECTED, _UNANSWERED = "rejected", "unanswered"
REJECTIONS, SKIPS = "rejections", "skips"
_LISTS = (REJECTIONS, SKIPS)
_LISTS_IN_BYTES = tuple(json.dumps(name).encode() for name in _LISTS)
_COLON = b'": '  # between a name and its number
_WHOLE = {b"0", b"-0"}
_EXPONENTS = (b"e-0", b"e-00", b"e+0", b"e+00")
_FRACTIONS = {
    sign + digits + exponent
    for sign in (b"", b"-")
    for digits, exponents in {b"0.0": (b"", *_EXPONENTS), b"0": _EXPONENTS}.items()
    for exponent in exponents
}
_ABSENT = {b"null"}
_SHAPES = _WHOLE | _FRACTIONS | _ABSENT


class Points(NamedTuple):
    """A metric where it was measured.

    Attributes:
        rounds: The rounds, in ascending order.
        values: The values, one for each of them.
    """

    rounds: Rounds
    values: Values


class ReplyNotes(NamedTuple):
    """The replies that were left out in a run so far.

    Attributes:
        rejected: How many they are.
        unanswered: How many rounds were skipped since no reply was accepted.
        rejections: Each of them; fewer than ``rejected`` if there were too many for a line of the file.
        skips: These rounds; likewise.
    """

    rejected: int = 0
    unanswered: int = 0
    rejections: tuple[Rejection, ...] = ()
    skips: tuple[int, ...] = ()


@dataclass
class _Column:
    """A metric while the file is read.

    Attributes:
        pieces: Its points, block by block. Most metrics of a block share their array of rounds.
        whole: Whether all values were written as whole numbers.
        exact: Whether float64 holds all values as they were written.
    """

    pieces: list[Points] = field(default_factory=list)
    whole: bool = True
    exact: bool = True

    def points(self) -> Points:
        return Points(*(np.concatenate(parts) for parts in zip(*self.pieces, strict=True)))


class _Piece(NamedTuple):
    """A metric in one block of lines; ``whole`` and ``exact`` as in ``_Column``."""

    points: Points
    whole: bool
    exact: bool


@dataclass(frozen=True)
class MetricsFile:
    """A file of one JSON object per evaluated round. A missing file counts as one without rows.

    A half-written last line, which a killed process leaves, is left out.

    Attributes:
        path: The file.
        length: How many of its bytes are read. By default all.
    """

    path: Path
    length: int | None = None

    def checked(self) -> "MetricsFile":
        """The file itself, once its last row has been read and checked.

        Raises:
            InputError: If that row, or a line after it, is damaged.
        """
        self.last()
        return self

    def rows(self) -> list[dict[str, Any]]:
        """All rows.

        Raises:
            InputError: If a line is damaged.
        """
        before = 0
        rows = []
        for first, block in self._blocks():
            rows += self._parsed(first, block, before)
            before = rows[-1][_ROUND]
        return rows

    def last(self) -> dict[str, Any]:
        """The last row that has metrics, not the reason of a divergence; empty if there is none.

        Raises:
            InputError: If that row, or a line after it, is damaged.
        """
        return self._last

    @functools.cached_property
    def _last(self) -> dict[str, Any]:
        with self._opened() as file:
            for begin, line in self._backwards(file):
                if line.endswith(b"\n") or _is_json(line):
                    row, problem = _read(line)
                    if problem:
                        self._refuse(1 + _lines_before(file, begin), problem)
                    if _DIVERGED not in row:
                        return row
        return {}

    def notes(self) -> ReplyNotes:
        """The replies that were left out; a file that has none is read only at its end.

        Raises:
            InputError: If a line is damaged.
        """
        return self._notes

    @functools.cached_property
    def _notes(self) -> ReplyNotes:
        counts = self._last_counts()
        if not any(counts):
            return ReplyNotes()
        rejections, skips = list[Rejection](), list[int]()
        for first, block in self._blocks():
            for number, line in enumerate(block.split(b"\n")[:-1], start=first):
                if any(name in line for name in _LISTS_IN_BYTES):
                    row, problem = _read_whole(line)
                    if problem:
                        self._refuse(number, problem)
                    rejections += (Rejection(*one) for one in row.get(REJECTIONS, ()))
                    skips += row.get(SKIPS, ())
        return ReplyNotes(*counts, tuple(rejections), tuple(skips))

    def _last_counts(self) -> tuple[int, int]:
        """The counts of the last row, which may tell of a divergence."""
        with self._opened() as file:
            for begin, line in self._backwards(file):
                if line.endswith(b"\n") or _is_json(line):
                    row, problem = _read(line)
                    if problem:
                        self._refuse(1 + _lines_before(file, begin), problem)
                    return int(row.get(_REJECTED) or 0), int(row.get(_UNANSWERED) or 0)
        return 0, 0

    def points(self, name: str) -> Points:
        """A metric where it was measured, as arrays.

        Raises:
            InputError: If a line is damaged.
        """
        if name not in self._columns:
            return Points(np.empty(0, np.int64), np.empty(0))
        return self._columns[name].points()

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """A metric where it was measured: rounds and values. Values are integers if all were written as integers.

        Raises:
            InputError: If a line is damaged.
        """
        column = self._columns.get(name)
        if column is not None and not column.exact:
            kept = [row for row in self.rows() if row.get(name) is not None and _DIVERGED not in row]
            return [row[_ROUND] for row in kept], [row[name] for row in kept]
        points = self.points(name)
        values = points.values.astype(np.int64) if column is not None and column.whole else points.values
        return points.rounds.tolist(), values.tolist()

    @functools.cached_property
    def _columns(self) -> dict[str, _Column]:
        columns: dict[str, _Column] = {}
        before = 0
        long = False
        for first, block in self._blocks():
            long = long or len(block) >= _WORTHWHILE
            pieces = _read_quickly(block, before) if long else None
            if pieces is None:
                rows = self._parsed(first, block, before)
                pieces = _by_name(row for row in rows if _DIVERGED not in row)
                before = rows[-1][_ROUND]
            else:
                before = int(pieces[_ROUND].points.rounds[-1])
            for name, (points, whole, exact) in pieces.items():
                column = columns.setdefault(name, _Column())
                column.pieces.append(points)
                column.whole &= whole
                column.exact &= exact
        return columns

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        """Blocks of whole lines, each with the number of its first line."""
        number, rest = 1, b""
        with self._opened() as file:
            left = self._size(file)
            while left > 0 and (read := file.read(min(left, _BLOCK))):
                left -= len(read)
                lines, newline, tail = read.rpartition(b"\n")
                if newline:
                    block = rest + lines + newline
                    yield number, block
                    number += block.count(b"\n")
                    rest = b""
                rest += tail
                if len(rest) > _LONGEST:
                    self._refuse(number, _TOO_LONG)
        if rest and _is_json(rest):
            yield number, rest + b"\n"

    def _backwards(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """The lines from the last to the first, each with the offset of its first byte."""
        place, rest = self._size(file), b""
        while place > 0:
            step = min(_STEP, place)
            place -= step
            file.seek(place)
            rest = file.read(step) + rest
            end = len(rest)
            while (newline := rest.rfind(b"\n", 0, end - 1)) >= 0:
                yield place + newline + 1, rest[newline + 1 : end]
                end = newline + 1
            rest = rest[:end]
            if len(rest) > _LONGEST:
                self._refuse(1 + _lines_before(file, place), _TOO_LONG)
        if rest:
            yield 0, rest

    def _parsed(self, first: int, block: bytes, before: int) -> list[dict[str, Any]]:
        """The rows of a block; ``first`` is the number of its first line, ``before`` the last round before it."""
        rows = []
        for number, line in enumerate(block.split(b"\n")[:-1], start=first):
            row, problem = _read(line)
            if not problem and row[_ROUND] <= before:
                problem = f"round {row[_ROUND]} comes after round {before}"
            if problem:
                self._refuse(number, problem)
            before = row[_ROUND]
            rows.append(row)
        return rows

    @contextlib.contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with self.path.open("rb") if self.path.is_file() else io.BytesIO() as file:
                yield file
        except OSError as error:
            raise InputError(f"can't read {self.path}: {error.strerror or error}") from error

    def _size(self, file: BinaryIO) -> int:
        """The number of bytes that are read."""
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        return size if self.length is None else min(size, self.length)

    def _refuse(self, number: int, problem: str) -> NoReturn:
        raise InputError(f"{self.path}, line {number} is damaged: {problem}")


# --- Line by line -----------------------------------------------------------------------------------------------------


def _read(line: bytes) -> tuple[dict[str, Any], str]:
    """A row without its lists, and its problem in words; the words are empty if it has none."""
    row, problem = _read_whole(line)
    return {name: value for name, value in row.items() if name not in _LISTS}, problem


def _read_whole(line: bytes) -> tuple[dict[str, Any], str]:
    """A row, and its problem in words; the words are empty if it has none."""
    try:
        row = json.loads(line.decode("utf-8"))
    except RecursionError:
        return {}, "it is nested too deeply"
    except ValueError as error:  # no JSON, no UTF-8, or a number of more digits than Python converts
        return {}, str(error)
    if not isinstance(row, dict):
        return {}, "it isn't an object"
    if not _is_round(row.get(_ROUND)):
        return {}, f"{_ROUND} should be a whole number from 1, not {_brief(row.get(_ROUND))}"
    for name, value in row.items():
        if name == _DIVERGED:
            if not isinstance(value, str):
                return {}, f"{_DIVERGED} should be text, not {_brief(value)}"
        elif name == REJECTIONS:
            if not (isinstance(value, list) and all(map(_is_rejection, value))):
                return {}, f"{REJECTIONS} should be a list of [round, client, reason], not {_brief(value)}"
        elif name == SKIPS:
            if not (isinstance(value, list) and all(map(_is_round, value))):
                return {}, f"{SKIPS} should be a list of rounds, not {_brief(value)}"
        elif value is not None and not _is_number(value):
            return {}, f"{_brief(name)} should be a number or null, not {_brief(value)}"
    return row, ""


def _is_number(value: Any) -> bool:
    if type(value) is int:
        return -_LARGEST <= value < _LARGEST
    return type(value) is float and math.isfinite(value)


def _is_round(value: Any) -> bool:
    return type(value) is int and 1 <= value <= _EXACT


def _is_rejection(value: Any) -> bool:
    if not (isinstance(value, list) and len(value) == 3):
        return False
    number, client, reason = value
    is_client = type(client) is int and 0 <= client <= _EXACT
    # A lone surrogate couldn't be printed.
    return _is_round(number) and is_client and isinstance(reason, str) and reason.isprintable()


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    return True


def _by_name(rows: Iterable[dict[str, Any]]) -> dict[str, _Piece]:
    """The metrics of some rows, by name."""
    found: dict[str, tuple[list[int], list[float]]] = {}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                rounds, values = found.setdefault(name, ([], []))
                rounds.append(row[_ROUND])
                values.append(value)
    return {name: _piece(rounds, values) for name, (rounds, values) in found.items()}


def _piece(rounds: list[int], values: list[float]) -> _Piece:
    whole = all(type(value) is int for value in values)
    exact = all(type(value) is float or abs(value) <= _EXACT for value in values)
    return _Piece(Points(np.array(rounds, np.int64), np.array(values, np.float64)), whole, exact)


def _lines_before(file: BinaryIO, end: int) -> int:
    """The number of lines that end before an offset in a file."""
    file.seek(0)
    count = 0
    for begin in range(0, end, _BLOCK):
        count += file.read(min(_BLOCK, end - begin)).count(b"\n")
    return count


# --- Many lines at once -----------------------------------------------------------------------------------------------


def _read_quickly(block: bytes, before: int) -> dict[str, _Piece] | None:
    """The metrics of lines that all have the same names, by name, in a third of the time that ``json`` takes.

    Most of the time goes into converting numbers of 16 digits. Among this package's dependencies, SciPy's reader of
    Matrix Market files does that fastest, with the same bits. It would accept a word that only begins like a number,
    so the form of every word is checked first.

    Args:
        block: The lines.
        before: The last round before the block.

    Returns:
        None if the lines must be read one by one: their names differ, or one of them is damaged.
    """
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    count = block.count(b"\n")
    frame = _Frame.of(block[: block.index(b"\n")])
    numbers = b"" if frame is None else frame.numbers(block, count)
    if frame is None or numbers.count(b"\n") != len(frame.names) * count:
        return None
    names, kinds = frame.names, _kinds(numbers, count)
    if not all(kind <= _SHAPES for kind in kinds):
        return None
    if any(kind & _ABSENT for kind in kinds):
        numbers = numbers.replace(b"null", b"nan")
    table = _converted(numbers, len(names), count)
    by_name = dict(zip(names, zip(table, kinds, strict=True), strict=True))
    rounds = by_name[_ROUND][0]
    ascending = by_name[_ROUND][1] <= _WHOLE and rounds[0] > before and (np.diff(rounds) > 0).all()
    inexact = any(kind & _WHOLE and (np.abs(column) > _EXACT).any() for column, kind in by_name.values())
    if not ascending or inexact or np.isinf(table).any():
        return None
    return _pieces(rounds.astype(np.int64), by_name)


class _Frame(NamedTuple):
    """The bytes that lines with the same names share: all but their numbers.

    Attributes:
        names: The names.
        opening: The bytes before the first name's closing quotation mark.
        ends: For each name, the bytes between its number and the closing quotation mark of the next name, which may be
            on the next line.
    """

    names: list[str]
    opening: bytes
    ends: list[bytes]

    @classmethod
    def of(cls, line: bytes) -> "_Frame | None":
        """The frame of a line; None if the line is damaged, or its names can't be told from its numbers."""
        row, problem = _read(line)
        keys = [json.dumps(name)[:-1].encode() for name in row]
        if problem or _DIVERGED in row or any(_COLON in key for key in keys):
            return None
        opening = b"{" + keys[0]
        return cls(list(row), opening, [*(b", " + key for key in keys[1:]), b"}\n" + opening])

    def numbers(self, block: bytes, count: int) -> bytes:
        """The numbers of ``count`` lines, one per line, column by column; empty if a line has another frame."""
        parts = block.split(_COLON)
        if parts[0] != self.opening or len(parts) != 1 + len(self.ends) * count:
            return b""
        parts[-1] += self.opening  # so that the last line ends as the others do
        columns = []
        for place, end in enumerate(self.ends, start=1):
            framed = b"\n".join(parts[place :: len(self.ends)]) + b"\n"
            column = framed.replace(end + b"\n", b"\n")
            if len(framed) - len(column) != count * len(end):
                return b""
            columns.append(column)
        return b"".join(columns)


def _kinds(numbers: bytes, count: int) -> list[set[bytes]]:
    """The forms of the numbers in each column: every run of digits becomes 0, or 00 if it has a leading zero.

    So 012, which isn't JSON, differs from 12. Digits behind a point may begin with 0.

    Args:
        numbers: The numbers, one per line, column by column.
        count: The numbers of each column.
    """
    letters = np.frombuffer(numbers, np.uint8)
    is_digit = (letters >= ord("0")) & (letters <= ord("9"))
    leading = letters == ord("0")
    leading[1:] &= ~is_digit[:-1] & (letters[:-1] != ord("."))
    kept = np.append(True, ~(is_digit[1:] & is_digit[:-1]) | leading[:-1])
    shapes = np.where(is_digit, np.uint8(ord("0")), letters)[kept]
    edges = 1 + np.flatnonzero(shapes == ord("\n"))[count - 1 :: count]
    kinds = []
    for column in np.split(shapes, edges[:-1]):
        text = column.tobytes()
        first = text[: 1 + text.index(b"\n")]
        alike = text == first * count  # the usual case, checked faster than by splitting
        kinds.append({first[:-1]} if alike else set(text.split(b"\n")[:-1]))
    return kinds


def _converted(numbers: bytes, width: int, count: int) -> Values:
    """Numbers, one per line and column by column, as an array ``[width, count]``."""
    from scipy.io import mmread

    head = f"%%MatrixMarket matrix array real general\n{count} {width}\n"
    table = np.ascontiguousarray(mmread(io.BytesIO(head.encode() + numbers)).T)
    if numbers.startswith(_NEGATIVE_ZERO) or b"\n" + _NEGATIVE_ZERO in numbers:  # that reader drops its sign
        negative = [word + b"\n" == _NEGATIVE_ZERO for word in numbers.split(b"\n")[:-1]]
        table[np.reshape(negative, table.shape)] = -0.0
    return table


def _pieces(rounds: Rounds, by_name: Mapping[str, tuple[Values, set[bytes]]]) -> dict[str, _Piece]:
    pieces = {}
    for name, (values, kinds) in by_name.items():
        points = Points(rounds, values)
        if kinds & _ABSENT:
            there = ~np.isnan(values)
            points = Points(rounds[there], values[there])
        if len(points.values):
            pieces[name] = _Piece(points, whole=kinds <= _WHOLE | _ABSENT, exact=True)
    return pieces
