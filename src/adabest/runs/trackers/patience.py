"""Trackers whose failures don't stop the run, and which get every row once."""

import warnings
from collections.abc import Callable

from adabest.errors import InputError
from adabest.runs.callbacks.base import Callback, Ending, Row, RunView
from adabest.runs.files import folder as files
from adabest.runs.trackers.catalog import make_tracker


class PatientTracker(Callback):
    """A tracker whose failures are logged. Its rows wait until it is tried again.

    The number of rows until the next attempt doubles with every failure, since an attempt may take minutes.
    """

    def __init__(self, name: str, *, resumed: bool) -> None:
        """Makes a tracker.

        Args:
            name: Its name, with its options.
            resumed: Whether the run is resumed. Only a new run is refused if its tracker can't be reached.
        """
        self._name, self._resumed = name, resumed
        self._tracker = make_tracker(name)
        self._started = False
        self._delivered = self._failures = self._pause = 0

    def start(self, run: RunView) -> None:
        """Opens the tracker.

        Raises:
            InputError: If it can't be reached, and the run is new.
        """
        run.join_group()
        if self._resumed:
            self._try(run, lambda: self._deliver(run))
            return
        try:
            self._deliver(run)
        except Exception as error:
            raise InputError(f"the logger {self._name!r} can't begin: {error}") from error

    def after_evaluation(self, run: RunView, metrics: Row) -> None:
        """Sends the waiting rows, unless it is too early to try again."""
        if self._pause:
            self._pause -= 1
        else:
            self._try(run, lambda: self._deliver(run))

    def end(self, run: RunView, ending: Ending) -> None:
        """Sends the waiting rows, and closes the tracker."""
        self._try(run, lambda: self._deliver(run))
        if self._started:
            self._try(run, lambda: self._tracker.end(run, ending))
        waiting = len(run.rows) - self._delivered
        if waiting:
            run.files.log(f"{self._name} lacks {waiting} rows, which are in {files.METRICS}")

    def _deliver(self, run: RunView) -> None:
        if not self._started:
            self._tracker.start(run)
            self._started, self._delivered = True, len(run.rows)
        while self._delivered < len(run.rows):
            self._tracker.after_evaluation(run, run.rows[self._delivered])
            self._delivered += 1

    def _try(self, run: RunView, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._failures += 1
            self._pause = 2**self._failures - 1
            problem = f"the logger {self._name!r} failed ({error}); the run goes on, and tries it again later"
            run.files.log(f"warning: {problem}")
            if self._failures == 1:
                warnings.warn(problem, stacklevel=2)
