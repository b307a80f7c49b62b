"""Trackio: a local database, or a Space or server as its environment variables say."""

import contextlib
import contextvars
import importlib
import sys
from collections.abc import Mapping
from typing import Any

from adabest.runs.trackers.base import Tracked, numbers


class Trackio:
    """Sends rows to a Trackio run whose step is the round."""

    requires = "trackio"

    def __init__(self, project: str = "adabest") -> None:
        """Chooses where to.

        Args:
            project: The Trackio project.
        """
        self._project = project
        self._run: Any = None
        self._next = 0
        # Trackio has one current run, which ends when another begins, and keeps it in a context variable.
        self._context = contextvars.Context()

    def begin(self, run: Tracked) -> None:
        """Opens the Trackio run of this name, and sends what it lacks."""
        trackio: Any = importlib.import_module("trackio")
        with contextlib.redirect_stdout(sys.stderr):  # it prints where to look
            self._run = self._context.run(
                trackio.init,
                project=self._project,
                name=f"{run.name}-{run.id[:6]}",  # Trackio finds a run again by its name alone
                group=run.group or None,
                config=dict(run.config),
                resume="allow",
                embed=False,
            )
        self._next = self._run._next_step  # one more than the last step that it has; there is no public word for it
        for row in run.rows:
            self.log(row)

    def log(self, row: Mapping[str, Any]) -> None:
        """Sends a row, unless it is there from before the run was resumed."""
        values = numbers(row)
        if values and row["round"] >= self._next:
            self._run.log(values, step=row["round"])
            self._next = row["round"] + 1

    def end(self, status: Mapping[str, Any]) -> None:
        """Waits until all is sent, and closes the run."""
        with contextlib.redirect_stdout(sys.stderr):
            self._context.run(importlib.import_module("trackio").finish)
