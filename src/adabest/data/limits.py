"""Limits on the unpacked size of files: one rule for archives, compressed files and arrays.

A file of a few megabytes can claim, or inflate to, any number of gigabytes. So the size is read from the header, or
counted while the file is inflated, and refused above a limit before the memory is allocated.
"""

import gzip
import io
import zipfile
import zlib
from typing import Protocol

from adabest.errors import InputError
from adabest.machine import size_in_words, total_memory

# Images and tables of numbers become 2 to 20 times smaller by compression; zeros alone become 1,000 times smaller.
_GROWTH = 100
_ALWAYS = 64 * 2**20  # bytes that every file may grow to, however small it is
_CHUNK = 2**20
# The methods that NumPy and NIST use. For others, zipfile has no bound on the bytes that it inflates at once.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Readable(Protocol):
    """A source of bytes."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most ``size``; empty at the end."""


def limit_of(size: int) -> int:
    """The most unpacked bytes of a file: 100 times its size, but at least 64 MiB, and never more than the memory."""
    return min(max(_ALWAYS, _GROWTH * size), total_memory())


def refuse_growth(where: object, size: int, grown: int, *, at_least: bool = False) -> None:
    """Refuses a content that is larger than its file may grow to.

    Args:
        where: The file, for messages.
        size: Its bytes on disk.
        grown: The bytes of its content.
        at_least: Whether counting stopped there, and the content may be larger.

    Raises:
        InputError: With all sizes and the rule.
    """
    limit = limit_of(size)
    if grown > limit:
        raise InputError(
            f"{where} has {size_in_words(size)} and would grow to {'over ' * at_least}{size_in_words(grown)} when it "
            f"is unpacked; the limit is {size_in_words(limit)} (the larger of {size_in_words(_ALWAYS)} and "
            f"{_GROWTH} times its size, and never more than the machine's memory). "
            "Check where it comes from; data that do compress so well can be stored uncompressed"
        )


def read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """The content of a file in a .zip archive; never more than the archive's directory declares.

    The caller must first check that size by ``refuse_growth``.

    Raises:
        zipfile.BadZipFile: If it is compressed in an unusual way, or isn't as long as declared. ``zipfile`` raises
            other exceptions, too.
    """
    if entry.compress_type not in _METHODS:
        raise zipfile.BadZipFile(f"{entry.filename} is compressed by a method other than deflate")
    with archive.open(entry) as file:
        content = read_up_to(file, entry.file_size + 1)
    if len(content) != entry.file_size:
        raise zipfile.BadZipFile(f"{entry.filename} has {len(content):,} bytes instead of {entry.file_size:,}")
    return content


def gunzip(where: object, content: bytes) -> bytes:
    """Inflates the content of a gzip file, up to the limit. The size that the file declares can't be trusted.

    Raises:
        InputError: If it grows beyond the limit.
        OSError: If it is damaged; or EOFError or zlib.error.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        grown = read_up_to(file, limit_of(len(content)) + 1)
    refuse_growth(where, len(content), len(grown), at_least=True)
    return grown


def inflate(where: object, size: int, deflated: bytes) -> bytes:
    """Inflates a zlib stream inside a file, up to the file's limit.

    Args:
        where: The file, for messages.
        size: Its bytes on disk.
        deflated: The stream.

    Raises:
        InputError: If it grows beyond the limit.
        zlib.error: If it is damaged or cut off.
    """
    engine = zlib.decompressobj()
    grown = engine.decompress(deflated, limit_of(size) + 1)
    refuse_growth(where, size, len(grown), at_least=True)
    if not engine.eof:
        raise zlib.error("the compressed data are cut off")
    return grown


def read_up_to(file: Readable, most: int) -> bytes:
    """The next bytes of a file, at most ``most``, read in pieces: one large read would allocate all of ``most``."""
    pieces = []
    while most > 0 and (piece := file.read(min(_CHUNK, most))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


class Counted(io.RawIOBase):
    """A stream of unpacked bytes that stops with an error at its file's limit."""

    def __init__(self, where: object, size: int, file: Readable) -> None:
        """Wraps a stream.

        Args:
            where: The file, for messages.
            size: Its bytes on disk.
            file: The unpacked bytes.
        """
        super().__init__()
        self._where, self._size, self._file = where, size, file
        self._count, self._limit = 0, limit_of(size)

    def readable(self) -> bool:
        """Always True."""
        return True

    def readinto(self, buffer: object) -> int:
        """Reads the next bytes into a buffer; returns how many.

        Raises:
            InputError: If the limit is passed.
        """
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        piece = self._file.read(min(len(view), _CHUNK))
        self._count += len(piece)
        if self._count > self._limit:
            refuse_growth(self._where, self._size, self._count, at_least=True)
        view[: len(piece)] = piece
        return len(piece)
