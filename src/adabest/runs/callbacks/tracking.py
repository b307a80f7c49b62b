"""Telling trackers of a run: every row, once, and without ever standing in the run's way."""

import contextlib
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from adabest.errors import InputError
from adabest.runs.files import folder as files
from adabest.runs.files.folder import RunFolder
from adabest.runs.settings.config import Config
from adabest.runs.trackers.base import Tracked
from adabest.runs.trackers.catalog import make_logger

Row = Mapping[str, Any]


@contextlib.contextmanager
def tracked(
    folder: RunFolder, config: Config, *, group: str = "", resumed: bool = False
) -> Iterator[Callable[[Row], None]]:
    """While entered, a run's trackers are told of it; gives what passes a metrics row on to them.

    Args:
        folder: The run's folder, which holds the rows of all rounds so far.
        config: The run's configuration.
        group: The comparison that the run belongs to, if it belongs to one.
        resumed: Whether the run has begun before. Then a tracker that can't be reached doesn't stop it.

    Raises:
        InputError: If a tracker can't be reached when a run begins.
    """
    trackers: list[_Tracker] = []

    def tell(row: Row) -> None:
        for tracker in trackers:
            tracker.log(row)

    def end() -> None:
        status = folder.status()
        if status["status"] == "running":  # it was broken off by something that nobody foresaw
            status["status"] = "killed"
        for tracker in trackers:
            tracker.end(status)

    try:
        for name in config.trackers():
            tracker = _Tracker(name, _describe(folder, config, group), folder)
            tracker.begin(strict=not resumed)
            trackers.append(tracker)
        yield tell
    except (Exception, KeyboardInterrupt):
        end()
        raise
    end()


def _describe(folder: RunFolder, config: Config, group: str) -> Tracked:
    """What trackers are told. The run's id is on disk before any of them hears of it, so none will see it twice."""
    kept = folder.read_json(files.TRACKING)
    if kept is None:
        kept = {"id": uuid.uuid4().hex[:12], "group": group}
        folder.write_json(files.TRACKING, kept)
    if not all(isinstance(kept.get(name), str) for name in ("id", "group")):
        raise InputError(f"{folder / files.TRACKING} is damaged: it should have an id and a group")
    return Tracked(
        id=kept["id"],
        name=folder.path.resolve().name,
        group=kept["group"],
        folder=folder.path,
        config=config.flat(),
        rows=folder.rows(files.METRICS),
    )


class _Tracker:
    """A logger whose failures are noted, and make its rows wait.

    How many rows pass until it is tried again doubles with every failure, since an attempt may take minutes.
    """

    def __init__(self, name: str, run: Tracked, folder: RunFolder) -> None:
        self._name, self._run, self._folder = name, run, folder
        self._logger = make_logger(name)
        self._waiting: list[Row] = list(run.rows)
        self._begun = False
        self._failures = self._pause = 0

    def begin(self, *, strict: bool) -> None:
        if strict:
            try:
                self._deliver()
            except Exception as error:
                raise InputError(f"the logger {self._name!r} can't begin: {error}") from error
        else:
            self._try(self._deliver)

    def log(self, row: Row) -> None:
        self._waiting.append(row)
        if self._pause:
            self._pause -= 1
        else:
            self._try(self._deliver)

    def end(self, status: Row) -> None:
        self._try(self._deliver)
        if self._begun:
            self._try(lambda: self._logger.end(status))
        if self._waiting:
            self._folder.log(f"{self._name} lacks {len(self._waiting)} rows, which are in {files.METRICS}")

    def _deliver(self) -> None:
        """Passes on what is waiting."""
        if not self._begun:
            self._logger.begin(replace(self._run, rows=tuple(self._waiting)))
            self._begun = True
            self._waiting.clear()
        while self._waiting:
            self._logger.log(self._waiting[0])
            del self._waiting[0]

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._failures += 1
            self._pause = 2**self._failures - 1
            problem = f"the logger {self._name!r} failed ({error}); the run goes on, and tries it again later"
            self._folder.log(f"warning: {problem}")
            if self._failures == 1:
                warnings.warn(problem, stacklevel=2)
