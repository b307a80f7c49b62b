"""The location of data: the data folder, and the folders below it that may hold a published data set."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from adabest.data.files import File, read_archive, read_folder, stored_as
from adabest.data.spec import Layout, Spec
from adabest.errors import InputError

VARIABLE = "ADABEST_DATA"


def data_folder(data_dir: str | None = None) -> Path:
    """The folder in which data sets are looked for, and to which they are downloaded.

    Args:
        data_dir: The folder. By default the one that ``ADABEST_DATA`` names, else the platform's cache folder.

    Raises:
        InputError: If the named folder doesn't exist. It isn't made, since its name may be mistyped.
    """
    named = data_dir or os.environ.get(VARIABLE)
    if not named:
        return platformdirs.user_cache_path("adabest", appauthor=False)
    how = f"data_dir = {data_dir}" if data_dir else f"{VARIABLE} = {named}"
    folder = absolute(how, named)
    try:
        there = folder.is_dir()
    except OSError:  # a name that is too long
        there = False
    if not there:
        raise InputError(f"{how}: there is no such folder; name the one with the data, or make it to download to it")
    return folder


def absolute(how: str, named: str) -> Path:
    """The absolute path of a folder.

    Args:
        how: The setting that named it, for messages.
        named: Its name.

    Raises:
        InputError: If its name begins with ~ and an unknown user.
    """
    try:
        return Path(named).expanduser().absolute()
    except RuntimeError as error:
        raise InputError(f"{how}: {error}; name the folder with the data in full") from error


@dataclass(frozen=True)
class Found:
    """A complete data set on disk.

    Attributes:
        layout: The published form that it has.
        path: The folder or the archive that holds it.
    """

    layout: Layout
    path: Path

    def bytes_on_disk(self) -> int:
        """The size of its files."""
        paths = [stored_as(self.path, name) for name in self.layout.files] if self.path.is_dir() else [self.path]
        return sum(path.stat().st_size for path in paths if path is not None)

    def read(self) -> dict[str, File]:
        """The contents of its files.

        Raises:
            InputError: If one can't be read.
        """
        archive = self.layout.archive
        if archive is None or self.path.is_dir():
            return read_folder(self.path, self.layout.files)
        return read_archive(self.path, archive.md5, archive.folder, self.layout.files)


def find(spec: Spec, folder: Path) -> Found | None:
    """Looks for a data set below the data folder; nothing is read or downloaded.

    Layouts are tried in order of preference; of each, unpacked files before the archive.
    """
    for layout in spec.layouts:
        for place in _folders(spec, layout, folder):
            if all(stored_as(place, name) for name in layout.files):
                return Found(layout, place)
        for home in spec.homes:
            if layout.archive and (folder / home / layout.archive.name).is_file():
                return Found(layout, folder / home / layout.archive.name)
    return None


def incomplete(spec: Spec, folder: Path) -> list[str]:
    """In words, the folders that hold only some files of a layout, and which ones are missing."""
    words = []
    for layout in spec.layouts:
        for place in _folders(spec, layout, folder):
            missing = [name for name in layout.files if not stored_as(place, name)]
            if 0 < len(missing) < len(layout.files):
                words.append(f"{place} lacks {', '.join(missing)}")
    return words


def _folders(spec: Spec, layout: Layout, folder: Path) -> Iterator[Path]:
    """The folders that may hold a layout's files. The data folder itself may be one of them."""
    for home in spec.homes:
        for name in layout.folders:
            yield folder / home / name
    if folder.name in layout.folders:
        yield folder
