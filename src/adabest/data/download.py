"""Downloads of published data sets: whole and with the right checksum, or not at all.

A file is fetched into a partial folder beside the data, under a lock, and moved into place once its md5 checksum is
right. The partial folder of a killed download is never read as data; the next download removes it.
"""

import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from adabest.data.location import VARIABLE, Found, find, incomplete
from adabest.data.spec import Remote, Spec
from adabest.errors import InputError

_LOCK = ".adabest.lock"
_PARTIAL = ".adabest-partial"
_CHUNK = 1 << 16
_WORDS = 300  # the most letters that are shown of an error
_TIMEOUT = 30.0  # seconds without a byte


def fetch(spec: Spec, folder: Path) -> Found:
    """Finds a data set below the data folder, or downloads it.

    Raises:
        InputError: If it can't be downloaded. No half-written file is left where data are looked for.
    """
    found = find(spec, folder)
    if found is not None:
        return found
    partial = folder / _PARTIAL
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / _LOCK):
            try:
                for remote in spec.remotes:
                    if not (
                        folder / remote.path
                    ).is_file():  # another process may have fetched it before we had the lock
                        _download(spec, remote, folder, partial)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise InputError(f"{spec.name} can't be downloaded to {folder}: {error.strerror or error}") from error
    found = find(spec, folder)
    assert found is not None, "what is downloaded makes a layout complete"
    return found


def _download(spec: Spec, remote: Remote, folder: Path, partial: Path) -> None:
    """Downloads a file from the first address that has it, and puts it in place."""
    import pooch

    pooch.get_logger().setLevel("WARNING")  # its notes of downloads would repeat the progress bar
    place = folder / remote.path
    problems = []
    for url in remote.urls:
        try:
            with _progress() as progress:
                downloader = pooch.HTTPDownloader(
                    progressbar=_Bar(progress, place.name),
                    chunk_size=_CHUNK,
                    timeout=_TIMEOUT,
                    headers={"User-Agent": f"adabest/{version('adabest')}", "Accept-Encoding": "identity"},
                    hooks={"response": _undecoded},
                )
                fetched = pooch.retrieve(
                    url, known_hash=f"md5:{remote.md5}", fname=place.name, path=partial, downloader=downloader
                )
        except (OSError, ValueError) as error:  # no connection, no such file, another checksum
            problems.append(f"{url}: {_brief(error)}")
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            Path(fetched).replace(place)
            return
    lacking = "".join(f"; {words}" for words in incomplete(spec, folder))
    raise InputError(
        f"{spec.name} isn't in {folder}{lacking}, and {place.name} can't be downloaded ({'; '.join(problems)}). "
        f"Download it by hand (see {spec.page}) and put it at {place}, or name the folder that has the data by "
        f"--data-dir or {VARIABLE}"
    )


def _brief(error: Exception) -> str:
    """The first line of an error, shortened; the others are details of the network library."""
    words = str(error).partition("\n")[0]
    return words if len(words) <= _WORDS else f"{words[:_WORDS]} …"


def _undecoded(response: Any, **_: Any) -> None:
    """Keeps a .gz file as it is: some servers declare it as an encoded plain file, and it would be decoded."""
    response.raw.headers.pop("Content-Encoding", None)


def _progress() -> Progress:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True, force_jupyter=False))


class _Bar:
    """A progress bar as pooch calls it.

    Attributes:
        total: How many bytes there will be; 0 if the server doesn't say.
    """

    def __init__(self, progress: Progress, name: str) -> None:
        self.total = 0
        self._progress = progress
        self._task = progress.add_task(name, total=None)

    def update(self, size: int) -> None:
        self._progress.update(self._task, total=self.total or None, advance=size)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.stop()
