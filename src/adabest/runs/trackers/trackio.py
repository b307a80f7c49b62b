"""Trackio: a local database, or the Space or server that its environment variables name."""

import contextlib
import contextvars
import importlib
import sys
from typing import Any

from adabest.runs.callbacks.base import Callback, Ending, Row, RunView
from adabest.runs.trackers.rows import numbers


class Trackio(Callback):
    """Sends rows to a Trackio run whose step is the round."""

    requires = "trackio"

    def __init__(self, project: str = "adabest") -> None:
        """Sets the project.

        Args:
            project: The Trackio project.
        """
        self._project = project
        self._run: Any = None
        self._next = 0
        # Trackio keeps its one current run in a context variable, and ends it when another begins. With a context of
        # its own, each run of several trained together stays open.
        self._context = contextvars.Context()

    def start(self, run: RunView) -> None:
        """Opens the Trackio run of this name, and sends what it lacks."""
        trackio: Any = importlib.import_module("trackio")
        with contextlib.redirect_stdout(sys.stderr):  # Trackio prints the address of its dashboard
            self._run = self._context.run(
                trackio.init,
                project=self._project,
                name=f"{run.name}-{run.id[:6]}",  # Trackio finds a run again by its name alone
                group=run.group or None,
                config=dict(run.config),
                resume="allow",
                embed=False,
            )
        self._next = self._run._next_step  # one more than its last step; there is no public name for it
        for row in run.rows:
            self.after_evaluation(run, row)

    def after_evaluation(self, run: RunView, metrics: Row) -> None:
        """Sends a row, unless it was sent before the run was resumed."""
        values = numbers(metrics)
        if values and metrics["round"] >= self._next:
            self._run.log(values, step=metrics["round"])
            self._next = metrics["round"] + 1

    def end(self, run: RunView, ending: Ending) -> None:
        """Waits until all is sent, and closes the run."""
        with contextlib.redirect_stdout(sys.stderr):
            self._context.run(importlib.import_module("trackio").finish)
