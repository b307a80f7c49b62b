"""The files of a data set, read whole: in a folder, plain or gzipped, or inside the archive they are published in."""

import contextlib
import gzip
import hashlib
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from adabest.data.limits import Counted, gunzip, read_entry, refuse_growth
from adabest.errors import InputError

_ADVICE = "Replace it by a good copy, or delete it, and the data set is downloaded again"
_CHUNK = 1 << 20


@dataclass(frozen=True)
class File:
    """A file of a data set.

    Attributes:
        where: The file, for messages: its path, after that of its archive, if it is in one.
        content: Its bytes, unpacked.
        md5: The published md5 checksum of these bytes; None if there is none.
    """

    where: str
    content: bytes
    md5: str | None = None

    def verify(self) -> None:
        """Compares the content with the published md5 checksum, if there is one.

        Raises:
            InputError: If they differ.
        """
        found = hashlib.md5(self.content, usedforsecurity=False).hexdigest()
        if self.md5 not in (None, found):
            raise wrong_checksum(self.where, len(self.content), found, str(self.md5))


def damaged(where: object, found: str, expected: str) -> InputError:
    """The error for a damaged file: what was found, and what was expected."""
    return InputError(f"{where} {found}, but {expected} expected. {_ADVICE}")


def wrong_checksum(where: object, size: int, found: str, expected: str) -> InputError:
    """The error for a file whose md5 checksum isn't the published one."""
    return damaged(
        where, f"({size:,} bytes) has the md5 checksum {found}", f"that of the official file, {expected}, was"
    )


def stored_as(folder: Path, name: str) -> Path | None:
    """The path of a file in a folder, plain or gzipped; None if it isn't there."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def read_folder(folder: Path, sums: Mapping[str, str | None]) -> dict[str, File]:
    """Reads files in a folder, plain or gzipped.

    Args:
        folder: The folder.
        sums: The md5 checksums of the files, by name.

    Raises:
        InputError: If one is missing, or can't be read or unpacked.
    """
    files = {}
    for name, md5 in sums.items():
        path = stored_as(folder, name) or folder / name
        with _reading(path):
            refuse_growth(path, path.stat().st_size, path.stat().st_size)
            content = path.read_bytes()
        files[name] = File(str(path), _unpacked(str(path), content), md5)
    return files


def read_archive(path: Path, md5: str | None, inside: str, sums: Mapping[str, str | None]) -> dict[str, File]:
    """Reads files inside a .zip or .tar.gz archive; nothing is written to disk.

    Args:
        path: The archive.
        md5: The archive's md5 checksum, which is checked first; None if none is published.
        inside: The folder of the files in it.
        sums: The md5 checksums of the files, by name.

    Raises:
        InputError: If the archive or a file in it is damaged or missing.
    """
    if md5 is not None:
        found = _md5_of(path)
        if found != md5:
            raise wrong_checksum(path, path.stat().st_size, found, md5)
    wanted = {f"{inside}/{name}{ending}": name for name in sums for ending in ("", ".gz")}
    try:
        members = _zip_members(path, wanted) if path.suffix == ".zip" else _tar_members(path, wanted)
    except InputError:
        raise
    except Exception as error:  # zipfile and tarfile raise exceptions of many types for a damaged archive
        raise damaged(path, f"can't be unpacked ({error!r})", "an intact archive was") from error
    contents = {wanted[member]: (f"{path}: {member}", content) for member, content in members.items()}
    for name in sums:
        if name not in contents:
            raise damaged(path, f"has no {inside}/{name} in it", "one was")
    return {name: File(contents[name][0], _unpacked(*contents[name]), sums[name]) for name in sums}


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror or error}") from error


def _unpacked(where: str, content: bytes) -> bytes:
    if not where.endswith(".gz"):
        return content
    try:
        return gunzip(where, content)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(where, f"can't be unpacked ({error})", "an intact gzip file was") from error


def _md5_of(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with _reading(path), path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _zip_members(path: Path, wanted: Mapping[str, str]) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        entries = [archive.getinfo(name) for name in archive.namelist() if name in wanted]
        refuse_growth(path, path.stat().st_size, sum(entry.file_size for entry in entries))
        return {entry.filename: read_entry(archive, entry) for entry in entries}


def _tar_members(path: Path, wanted: Mapping[str, str]) -> dict[str, bytes]:
    """The wanted files of a .tar.gz archive, read as a stream: each byte is inflated once, up to a limit.

    Sparse files are skipped: a few bytes of one may stand for any number of zeros.
    """
    size, members = path.stat().st_size, {}
    with (
        gzip.open(path) as unpacked,
        io.BufferedReader(Counted(path, size, unpacked)) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        for member in archive:
            if member.name in wanted and member.isfile() and not member.issparse():
                refuse_growth(path, size, member.size)
                file = archive.extractfile(member)
                members[member.name] = b"" if file is None else file.read()
    return members
