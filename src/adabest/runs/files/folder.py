"""A run's folder: its files, its lock, and its replacement by another run.

=====================  =====================================================================================
``config.toml``        the complete configuration; a run can be repeated from it
``manifest.json``      the run's id, its status, and the SHA-256 checksums that prove all other files
``identity.json``      fingerprints of data set, partition and initial model, and the partition's statistics
``environment.json``   versions, machine, threads
``metrics.jsonl``      one object per evaluated round; no wall-clock figure, so equal runs have equal files
``timings.jsonl``      all wall-clock figures
``log.txt``            the events of the run, in words
``checkpoints/``       the last two checkpoints, until the run is finished
``status.json``        running, interrupted, finished or diverged, the last round, and why if it ended early
``clients.json``       what a finished run with ``local_test`` found client by client
``tracking.json``      the run's id and group for trackers, if it has any; trackers may add files of their own
``model.safetensors``  the scored model, by parameter name; the aggregate, the cloud and, if asked for, the averaged
                       model have files of their own
=====================  =====================================================================================
"""

import contextlib
import json
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from adabest.errors import InputError
from adabest.runs.files.atomic_files import PARTIAL, append_bytes, read_bytes, refuse_link, write_text
from adabest.runs.files.background_writer import BackgroundWriter
from adabest.runs.files.records import check_status

CONFIG = "config.toml"
MANIFEST = "manifest.json"
IDENTITY = "identity.json"
ENVIRONMENT = "environment.json"
METRICS = "metrics.jsonl"
CLIENTS = "clients.json"
TIMINGS = "timings.jsonl"
LOG = "log.txt"
CHECKPOINTS = "checkpoints"
STATUS = "status.json"
TRACKING = "tracking.json"
EVENTS = "events.out.tfevents."  # the prefix of TensorBoard's files
MLFLOW = "mlflow"  # the folder of MLflow's store, if it has no other
_WANDB = "wandb"  # the folder that W&B makes
MODELS = {
    "scored": "model.safetensors",
    "aggregate": "aggregate.safetensors",
    "cloud": "cloud.safetensors",
    "averaged": "averaged.safetensors",
}
ENDED = ("finished", "diverged")
_LOCK = ".lock"
_MOVING = ".moving"  # a run that is being set aside or brought back: some of its files are here, some in the folder
_ASIDE = ".replaced"  # a run that has been set aside, whole
HIDDEN = (_MOVING, _ASIDE)
FOLDERS = (CHECKPOINTS, MLFLOW, _WANDB, *HIDDEN)  # all other entries are files
_PATIENCE = 1.0  # seconds; a reader holds the lock for a moment to find out whether a process writes
_OURS = {
    CONFIG,
    MANIFEST,
    IDENTITY,
    ENVIRONMENT,
    METRICS,
    CLIENTS,
    TIMINGS,
    LOG,
    CHECKPOINTS,
    STATUS,
    TRACKING,
    _LOCK,
    *HIDDEN,
    *MODELS.values(),
}


class RunFolder:
    """A folder that one process writes and anyone may read.

    Attributes:
        path: Its path.
        background: Writes files while the run goes on. The folder stays locked until they are written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.background = BackgroundWriter()
        self._lock = FileLock(path / _LOCK)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def holds_run(self) -> bool:
        """Whether the folder holds a run. A configuration alone isn't one; a run may have lost its configuration."""
        if (self / CONFIG).is_file():
            return any((self / name).is_file() for name in (STATUS, MANIFEST, _LOCK))
        return (self / MANIFEST).is_file() and self._has_results()

    def _has_results(self) -> bool:
        """Whether a run left results: rows, checkpoints or a model. One that was killed as it began left none."""
        rows = (self / METRICS).is_file() and (self / METRICS).stat().st_size > 0
        has_model = any((self / name).is_file() for name in MODELS.values())
        return rows or has_model or any((self / CHECKPOINTS).glob("round-*"))

    def status(self) -> dict[str, Any]:
        """The content of ``status.json``: ``status``, ``round`` and, if the run diverged or ended early, ``reason``.

        A run whose process was killed still has the status ``running``.

        Raises:
            InputError: If the file is damaged.
        """
        status = self.read_json(STATUS)
        if status is None:
            return {"status": "running", "round": 0}
        check_status(str(self / STATUS), status)
        return status

    def acquire(self) -> None:
        """Makes this process the only writer, and removes the partial files of a killed one.

        Raises:
            InputError: If the folder can't be made or written, holds a symbolic link, or another process writes it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._refuse_links()
            with tempfile.TemporaryFile(dir=self.path):
                pass
            self._lock.acquire(timeout=_PATIENCE)
        except Timeout:
            raise InputError(
                f"another process is working on {self.path}; wait for it, or choose another folder"
            ) from None
        except OSError as error:
            raise InputError(f"can't write to the folder {self.path}: {error.strerror or error}") from error
        try:
            self._settle()
            self._remove(entry for place in (self.path, self / CHECKPOINTS) for entry in place.glob(f"*{PARTIAL}"))
        except BaseException:
            self.release()
            raise

    def _refuse_links(self) -> None:
        """Refuses symbolic links in the folder: through them, writing or deleting would reach files elsewhere."""
        runs = (self.path, self / _MOVING, self / _ASIDE)
        for place in (*runs, *(run / CHECKPOINTS for run in runs)):
            for entry in place.iterdir() if place.is_dir() else ():
                refuse_link(entry)

    def is_being_written(self) -> bool:
        """Whether a process is working on the run."""
        if (
            self / _LOCK
        ).is_symlink():  # no process locks through a link, and trying the lock would write to its target
            return False
        try:
            with FileLock(self / _LOCK, timeout=0):
                return False
        except Timeout:
            return True
        except OSError:
            return False

    def release(self) -> None:
        """Lets other processes write."""
        self.background.close()
        self._lock.release()

    def refuse_foreign(self) -> None:
        """Makes sure that all entries of the folder are a run's, before any is removed.

        Raises:
            InputError: If one isn't.
        """
        _refuse_foreign(self.path)

    @contextlib.contextmanager
    def replacing(self) -> Iterator[Callable[[], None]]:
        """While entered, the old run in the folder is set aside. It comes back if an exception ends the new one.

        Yields a function that removes the old run for good, to be called once the new one's first files are written.
        After a kill at any moment, one of the two runs is whole; the next process restores it (see ``settle``).

        Raises:
            InputError: If the folder holds files that aren't a run's; then nothing was changed.
        """
        self.refuse_foreign()
        aside = self / _ASIDE
        if any(self._entries()):
            self._set_aside()
        try:
            yield lambda: self._remove([aside])
        except BaseException:
            self.background.close()  # else it would write among files that are moved
            if aside.is_dir():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the exception says what happened
                    self._settle()
            elif not (self / CONFIG).is_file():
                self._remove(self._entries())
            raise

    def _set_aside(self) -> None:
        """Moves all files away, the configuration first: so a folder with a configuration holds a whole run."""
        moving = self / _MOVING
        moving.mkdir()
        for entry in sorted(self._entries(), key=lambda entry: entry.name != CONFIG):
            entry.rename(moving / entry.name)
        moving.rename(self / _ASIDE)

    def settle(self) -> None:
        """Completes or undoes a replacement that was killed, and warns which of the two runs is left.

        Raises:
            InputError: If another process works on the folder, or it can't be written.
        """
        if any((self / name).is_dir() for name in HIDDEN) and not self.is_being_written():
            self.acquire()
            self.release()

    def _settle(self) -> None:
        moving, aside = self / _MOVING, self / _ASIDE
        if not (moving.is_dir() or aside.is_dir()):
            return
        for place in (self.path, moving, aside):
            _refuse_foreign(place)
        if aside.is_dir():
            if (self / CONFIG).is_file() and (self / MANIFEST).is_file():  # a new run writes its configuration last
                self._remove([aside])
                self._say_replaced("the new one had begun, and is here")
                return
            # Version 0.4.0 moved files straight to ``.replaced``: without a manifest there, the old run may be spread
            # over both folders, and only a file that is in both is the new run's.
            is_all = (aside / MANIFEST).is_file()
            self._remove(entry for entry in self._entries() if is_all or (aside / entry.name).exists())
            aside.rename(moving)
        had_run = (moving / CONFIG).is_file()
        for entry in sorted(moving.iterdir(), key=lambda entry: entry.name == CONFIG):
            entry.rename(self / entry.name)
        moving.rmdir()
        if had_run:
            self._say_replaced("the old one is whole, and is here again")

    def _say_replaced(self, which: str) -> None:
        warnings.warn(f"{self.path}: a run was being replaced; {which}", stacklevel=2)

    def _entries(self) -> Iterator[Path]:
        """All entries but the lock and the folders of a run that is set aside."""
        return (entry for entry in self.path.iterdir() if entry.name not in (_LOCK, *HIDDEN))

    def _remove(self, entries: Iterable[Path]) -> None:
        """Removes files and folders; a symbolic link is removed, not its target."""
        for entry in list(entries):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != _LOCK:
                entry.unlink(missing_ok=True)

    def log(self, line: str) -> None:
        """Adds a line to the log."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        append_bytes(self / LOG, f"{stamp} {line}\n".encode())

    def append(self, name: str, row: Mapping[str, Any]) -> bytes:
        """Adds an object to a JSONL file; returns the line."""
        line = (json.dumps(row, allow_nan=False) + "\n").encode()
        append_bytes(self / name, line)
        return line

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The objects of a JSONL file. A half-written last line, which a killed process leaves, is left out.

        Raises:
            InputError: If a line is damaged.
        """
        rows = []
        lines = (read_bytes(self / name) or b"").splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                if number == len(lines):
                    break
                raise InputError(f"{self / name}, line {number} is damaged: {error}") from error
            if not isinstance(row, dict) or type(row.get("round")) is not int:
                raise InputError(f"{self / name}, line {number} is damaged: it should be an object with a round")
            rows.append(row)
        return rows

    def cut_timings(self, last_round: int) -> None:
        """Removes the timings after a round. Damaged lines are removed, too, and the log says how many."""
        kept, lost = [], 0
        for line in (read_bytes(self / TIMINGS) or b"").splitlines():
            try:
                row = json.loads(line)
                if row["round"] <= last_round:
                    kept.append(json.dumps(row, allow_nan=False) + "\n")
            except (ValueError, TypeError, KeyError, RecursionError):
                lost += 1
        if lost:
            self.log(f"{lost} lines of {TIMINGS} couldn't be read and were left out")
        write_text(self / TIMINGS, "".join(kept))

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Writes a JSON file whole or not at all."""
        write_text(self / name, json.dumps(value, indent=2, allow_nan=False) + "\n")

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The object in a JSON file; None if there is no file.

        Raises:
            InputError: If the file is damaged.
        """
        content = read_bytes(self / name)
        return None if content is None else parse_object(self / name, content)


def parse_object(path: Path, content: bytes) -> dict[str, Any]:
    """The JSON object in a file's content.

    Raises:
        InputError: If the content is damaged, or isn't an object.
    """
    try:
        loaded = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}") from error
    if not isinstance(loaded, dict):
        raise InputError(f"{path} is damaged: it should hold a JSON object")
    return loaded


def _refuse_foreign(place: Path) -> None:
    foreign = sorted(entry.name for entry in place.iterdir() if not is_ours(entry.name)) if place.is_dir() else []
    if foreign:
        raise InputError(f"{place} holds things that aren't a run's ({', '.join(foreign[:3])}); nothing was removed")


def is_ours(name: str) -> bool:
    """Whether a run's folder may hold an entry of this name."""
    return name in _OURS or name in (_WANDB, MLFLOW) or name.startswith(EVENTS) or name.endswith(PARTIAL)
