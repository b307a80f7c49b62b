"""A reader of numbers in structs of MATLAB's level 5 ``.mat`` files, which EMNIST's file needs.

MathWorks describes the format in *MAT-File Format*. Only the wanted array is read, and other elements are skipped by
their size. So no file, however damaged, takes more memory than its own size and its limit of inflated bytes.
"""

import math
import struct
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from adabest.data.limits import inflate, refuse_growth

_HEADER = 128
_ORDERS = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}  # version 1.0, in the two byte orders
_MATRIX, _COMPRESSED = 14, 15
# The format's numbers of storage types, and of classes of arrays.
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_STRUCT = 2
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}


def read_matlab_array(where: object, content: bytes, path: Sequence[str]) -> np.ndarray:
    """An array of numbers in a file.

    Args:
        where: The file, for messages.
        content: Its bytes.
        path: The name of a variable, then those of nested fields; each struct on the way has one element.

    Raises:
        ValueError: If the file has another format, is damaged, or lacks the array.
        InputError: If it would grow beyond the limit for files of its size.
    """
    order = _ORDERS.get(content[_HEADER - 4 : _HEADER])
    if order is None:
        raise ValueError("it has no header of a level 5 .mat file")
    grown = 0
    try:
        for kind, data in _elements(memoryview(content)[_HEADER:], order, padded=False):
            element = (kind, data)
            if kind == _COMPRESSED:
                unpacked = memoryview(inflate(where, len(content), bytes(data)))
                grown += len(unpacked)
                refuse_growth(where, len(content), grown, at_least=True)
                element = next(_elements(unpacked, order))
            if element[0] == _MATRIX and _Matrix(element[1], order).name == path[0]:
                return _within(element[1], order, path[1:])
    except (struct.error, zlib.error, StopIteration) as error:
        raise ValueError(f"it is damaged ({error or 'an element is missing'})") from error
    raise ValueError(f"it has no variable {path[0]}")


def _within(data: memoryview, order: str, fields: Sequence[str]) -> np.ndarray:
    for name in fields:
        data = _Matrix(data, order).field(name)
    return _Matrix(data, order).numbers()


class _Matrix:
    """An array of any class. Its class, shape and name are read at once, its content on access."""

    def __init__(self, data: memoryview, order: str) -> None:
        self._order = order
        self._rest = _elements(data, order)
        self._class = self._integers(2)[0] & 0xFF
        self.shape = self._integers(None)
        self.name = self._text()

    def field(self, name: str) -> memoryview:
        """The content of a field of a struct with one element."""
        if self._class != _STRUCT or math.prod(self.shape) != 1:
            raise ValueError(f"what should hold {name} isn't a struct of one element")
        (length,) = self._integers(1)
        names = self._text(keep=True)
        if length < 1 or len(names) % length:
            raise ValueError("the names of a struct's fields are damaged")
        for start in range(0, len(names), length):
            kind, data = next(self._rest)
            if names[start : start + length].partition("\0")[0] == name and kind == _MATRIX:
                return data
        raise ValueError(f"there is no {name} in it")

    def numbers(self) -> np.ndarray:
        """The numbers of an array of real numbers, which the file stores column by column."""
        kind, data = next(self._rest)
        if self._class not in _CLASSES or kind not in _STORED:
            raise ValueError("an array holds something else than numbers")
        stored = np.dtype(self._order + _STORED[kind])
        if len(data) != math.prod(self.shape) * stored.itemsize or any(size < 0 for size in self.shape):
            raise ValueError(f"an array of shape {self.shape} has {len(data):,} bytes of {stored}")
        numbers = np.frombuffer(data, stored) if len(data) else np.empty(0, stored)
        return numbers.astype(_CLASSES[self._class], copy=False).reshape(self.shape, order="F")

    def _integers(self, count: int | None) -> tuple[int, ...]:
        """An element of int32 numbers: ``count`` of them, or all if it is None."""
        _, data = next(self._rest)
        return struct.unpack(f"{self._order}{len(data) // 4 if count is None else count}i", data)

    def _text(self, *, keep: bool = False) -> str:
        _, data = next(self._rest)
        text = bytes(data).decode("latin-1")
        return text if keep else text.partition("\0")[0]


def _elements(data: memoryview, order: str, *, padded: bool = True) -> Iterator[tuple[int, memoryview]]:
    """The elements in a range of bytes: their types and their bytes.

    Args:
        data: The bytes.
        order: The byte order of numbers.
        padded: Whether compressed elements, too, are padded to a multiple of eight bytes. In a file they aren't.
    """
    place = 0
    while place < len(data):
        kind, size = struct.unpack_from(f"{order}II", data, place)
        start = place + 8
        if kind >> 16:  # a small element: size and type in four bytes, and the content in the next four
            kind, size, start = kind & 0xFFFF, kind >> 16, place + 4
            end = place + 8
            if size > 4:
                raise ValueError("a small element is larger than four bytes")
        else:
            end = start + size + (-size % 8 if padded or kind != _COMPRESSED else 0)
        if start + size > len(data):
            raise ValueError("it is cut off")
        yield kind, data[start : start + size]
        place = end
