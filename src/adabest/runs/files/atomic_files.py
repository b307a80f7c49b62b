"""Atomic files: written whole or not at all, and never through a symbolic link.

New content goes into a partial file with a random name beside the old file, is forced to disk, and replaces the old
file in one step. So a kill, a full disk or a power cut leaves the old content or the new one. A link in the file's
place is replaced, never followed.
"""

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, TypeVar

from adabest.errors import InputError, naming_file

PARTIAL = ".partial"
_ATTEMPTS = 20
_PATIENCE = 1.0  # seconds; on Windows a file can't be replaced while a process reads it
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Windows has no such flag

T = TypeVar("T")


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    write_atomically(path, lambda file: file.write(content))


def write_atomically(path: Path, write: Callable[[BinaryIO], T]) -> T:
    """Lets ``write`` fill a partial file, forces it to disk, and puts it in place.

    Returns:
        The result of ``write``.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}{PARTIAL}")
    try:
        with naming_file(path), partial.open("xb") as file:
            result = write(file)
            file.flush()
            os.fsync(file.fileno())
        _replace(partial, path)
    except Exception:  # on a full disk, for instance, the partial file would take the space that is missing
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    return result


def _replace(partial: Path, path: Path) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            partial.replace(path)
            return
        except PermissionError:
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_PATIENCE / _ATTEMPTS)


def append_bytes(path: Path, content: bytes) -> None:
    """Appends to a file, which is made if it doesn't exist. The operating system may still have it in its cache.

    Raises:
        InputError: If the file is a symbolic link.
    """
    refuse_link(path)
    with naming_file(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NO_FOLLOW, 0o666)
        with os.fdopen(descriptor, "ab") as file:
            file.write(content)


def force_to_disk(path: Path) -> None:
    """Waits until a file is on the disk, not only in the operating system's cache."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def refuse_link(path: Path) -> None:
    """Refuses to write through a symbolic link.

    Raises:
        InputError: If the path is one.
    """
    if path.is_symlink():
        raise InputError(
            f"{path} is a symbolic link, and nothing is written through one; "
            "replace it by what it leads to, or choose another folder"
        )


def read_bytes(path: Path) -> bytes | None:
    """The content of a file; None if there is none.

    Raises:
        InputError: If it can't be read.
    """
    if not path.is_file():  # a pipe counts as none: reading it might never end
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise InputError(f"can't read {path}: {error.strerror or error}") from error


def write_texts(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Writes text files into a folder, by name; returns their paths.

    Raises:
        InputError: If one can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_text(folder / name, text)
    except OSError as error:
        raise InputError(f"can't write to the folder {folder}: {error.strerror or error}") from error
    return [folder / name for name in texts]
