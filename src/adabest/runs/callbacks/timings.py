"""The timings of a run. They have a file of their own, so that the metrics of equal runs are equal files."""

import time

from adabest.runs.callbacks.base import Callback, Row, RunView
from adabest.runs.files import folder as files


class Timings(Callback):
    """Writes a row of wall-clock figures for every evaluation. The times of runs trained together overlap."""

    def start(self, run: RunView) -> None:
        """Starts the clock."""
        self._begun = self._row_at = time.monotonic()
        self._row_round = run.first_round

    def after_evaluation(self, run: RunView, metrics: Row) -> None:
        """Writes the figures since the last row."""
        now = time.monotonic()
        row = {
            "round": run.round,
            "seconds": now - self._begun,
            "seconds_per_round": (now - self._row_at) / (run.round - self._row_round),
            "steps_per_second": run.steps_per_second,
        }
        run.files.append(files.TIMINGS, row)
        self._row_at, self._row_round = now, run.round
