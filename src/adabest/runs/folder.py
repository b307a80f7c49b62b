"""A run's folder: what lies where, how it is written so that nothing half-written is ever found, and who may write.

=====================  =====================================================================================
``config.toml``        the complete configuration; a run can be repeated from it
``identity.json``      fingerprints of data set, partition and initial model, and the partition's statistics
``environment.json``   versions, machine, threads
``metrics.jsonl``      one object per evaluated round; no wall-clock figure, so equal runs have equal files
``timings.jsonl``      all wall-clock figures
``log.txt``            what happened, in words
``checkpoints/``       the last two checkpoints, until the run is finished
``status.json``        running, interrupted, finished or diverged, the last round, and why if it ended early
``tracking.json``      by what name trackers know the run, if it has any; beside it what they leave in the folder
``model.safetensors``  the scored model, by parameter name; likewise ``aggregate``, ``cloud`` and, if asked for,
                       ``averaged``
=====================  =====================================================================================
"""

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from adabest.errors import InputError, naming

CONFIG = "config.toml"
IDENTITY = "identity.json"
ENVIRONMENT = "environment.json"
METRICS = "metrics.jsonl"
TIMINGS = "timings.jsonl"
LOG = "log.txt"
CHECKPOINTS = "checkpoints"
STATUS = "status.json"
TRACKING = "tracking.json"
EVENTS = "events.out.tfevents."  # how the names of TensorBoard's files begin
MLFLOW = "mlflow"  # the folder of MLflow's store, where there is no other
_WANDB = "wandb"  # the folder that W&B makes
MODELS = {
    "scored": "model.safetensors",
    "aggregate": "aggregate.safetensors",
    "cloud": "cloud.safetensors",
    "averaged": "averaged.safetensors",
}
ENDED = ("finished", "diverged")
_LOCK = ".lock"
_PARTIAL = ".partial"
_ASIDE = ".replaced"
_PATIENCE = 1.0  # seconds; a reader holds the lock for a moment to see whether someone writes
_ATTEMPTS = 20
_OURS = {
    CONFIG,
    IDENTITY,
    ENVIRONMENT,
    METRICS,
    TIMINGS,
    LOG,
    CHECKPOINTS,
    STATUS,
    TRACKING,
    _LOCK,
    _ASIDE,
    *MODELS.values(),
}

T = TypeVar("T")


class RunFolder:
    """A folder that one process writes and anyone may read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / _LOCK)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def holds_run(self) -> bool:
        """Whether a run was ever begun here. A configuration alone may be anybody's."""
        return (self / CONFIG).is_file() and ((self / STATUS).is_file() or (self / _LOCK).is_file())

    def status(self) -> dict[str, Any]:
        """How the run stands: ``status``, ``round`` and, if it diverged or ended early, ``reason``.

        A run whose process is gone without a word still says that it is running.
        """
        if not (self / STATUS).is_file():
            return {"status": "running", "round": 0}
        try:
            loaded: dict[str, Any] = json.loads((self / STATUS).read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{self / STATUS} is damaged: {error}") from error
        return loaded

    def acquire(self) -> None:
        """Makes this process the only writer.

        Raises:
            InputError: If the folder can't be made or written, or another process writes it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
            self._lock.acquire(timeout=_PATIENCE)
        except Timeout:
            raise InputError(
                f"another process is working on {self.path}; wait for it, or choose another folder"
            ) from None
        except OSError as error:
            raise InputError(f"can't write to the folder {self.path}: {error.strerror or error}") from error

    def is_being_written(self) -> bool:
        """Whether a process is working on the run."""
        try:
            with FileLock(self / _LOCK, timeout=0):
                return False
        except Timeout:
            return True
        except OSError:
            return False

    def release(self) -> None:
        """Lets others write."""
        self._lock.release()

    def refuse_foreign(self) -> None:
        """Makes sure that what can be removed is ours.

        Raises:
            InputError: If the folder holds anything else.
        """
        foreign = sorted(entry.name for entry in self.path.iterdir() if not is_ours(entry.name))
        if foreign:
            raise InputError(
                f"{self.path} holds things that aren't a run's ({', '.join(foreign[:3])}); nothing was removed"
            )

    def clear(self) -> None:
        """Removes the run.

        Raises:
            InputError: If the folder holds anything else; then nothing was removed.
        """
        self.refuse_foreign()
        (self / CONFIG).unlink(missing_ok=True)  # first: without it the rest is no run, whatever it may claim
        self._remove(self.path.iterdir())

    @contextlib.contextmanager
    def replacing(self) -> Iterator[Callable[[], None]]:
        """While entered, the run that lies here is set aside, to come back if an exception ends it too soon.

        Gives what removes it for good, to be called when its successor has begun.

        Raises:
            InputError: If the folder holds anything else; then nothing was changed.
        """
        self.refuse_foreign()
        aside = self / _ASIDE
        self._remove([aside])  # what a killed process left
        aside.mkdir()
        for entry in list(self._entries()):
            entry.rename(aside / entry.name)
        try:
            yield lambda: self._remove([aside])
        except BaseException:
            if aside.is_dir():
                self._remove(self._entries())
                for entry in list(aside.iterdir()):
                    entry.rename(self / entry.name)
                aside.rmdir()
            raise

    def _entries(self) -> Iterator[Path]:
        """Everything but the lock and what is set aside."""
        return (entry for entry in self.path.iterdir() if entry.name not in (_LOCK, _ASIDE))

    def _remove(self, entries: Iterable[Path]) -> None:
        for entry in list(entries):
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != _LOCK:
                entry.unlink(missing_ok=True)

    def log(self, line: str) -> None:
        """Adds a line to the log."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        with naming(self / LOG), (self / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{stamp} {line}\n")

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        """Adds an object to a JSONL file; it is in the operating system's hands when this returns."""
        with naming(self / name), (self / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The objects of a JSONL file; a last line that was being written when its writer died is left out."""
        path = self / name
        if not path.is_file():
            return []
        rows = []
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                if number == len(lines):
                    break
                raise InputError(f"{path}, line {number} is damaged: {error}") from error
        return rows

    def cut(self, name: str, last_round: int) -> None:
        """Takes back the rows of a JSONL file that come after a round."""
        kept = [row for row in self.rows(name) if row["round"] <= last_round]
        write_text(self / name, "".join(json.dumps(row, allow_nan=False) + "\n" for row in kept))

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Writes a JSON file whole or not at all."""
        write_text(self / name, json.dumps(value, indent=2, allow_nan=False) + "\n")

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Reads a JSON file; None if there is none."""
        if not (self / name).is_file():
            return None
        loaded: dict[str, Any] = json.loads((self / name).read_text(encoding="utf-8"))
        return loaded


def is_ours(name: str) -> bool:
    """Whether a run's folder may hold something of this name."""
    return name in _OURS or name in (_WANDB, MLFLOW) or name.startswith(EVENTS) or name.endswith(_PARTIAL)


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    write_atomically(path, lambda partial: partial.write_bytes(content))


def write_atomically(path: Path, write: Callable[[Path], T]) -> T:
    """Lets ``write`` fill a file beside the wanted one, forces it to disk, and puts it in place.

    Returns:
        What ``write`` did.
    """
    partial = path.with_name(path.name + _PARTIAL)
    try:
        with naming(path):
            result = write(partial)
            force_to_disk(partial)
    except OSError:  # a full disk, for instance, on which what was written would only be in the way
        partial.unlink(missing_ok=True)
        raise
    for attempt in range(_ATTEMPTS):
        try:
            partial.replace(path)
            break
        except PermissionError:  # on Windows, as long as someone reads the file
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(_PATIENCE / _ATTEMPTS)
    return result


def force_to_disk(path: Path) -> None:
    """Waits until a file is on the disk, not only in the operating system's hands."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
