"""TensorBoard: event files in the run's folder."""

import importlib
from typing import Any

from adabest.runs.callbacks.base import Callback, Ending, Row, RunView
from adabest.runs.files.folder import EVENTS
from adabest.runs.trackers.rows import numbers


class TensorBoard(Callback):
    """Writes event files. They are written anew when a run is resumed, so they have the same rows as the folder."""

    requires = "tensorboard"

    def __init__(self) -> None:
        self._writer: Any = None

    def start(self, run: RunView) -> None:
        """Begins a file with all settings, and all rows so far."""
        tensorboard: Any = importlib.import_module("torch.utils.tensorboard")
        # A running TensorBoard would wait forever for a removed file, so the old ones are only emptied. The new file's
        # purge_step makes it forget the steps that it read from them.
        for old in run.folder.glob(EVENTS + "*"):
            old.write_bytes(b"")
        self._writer = tensorboard.SummaryWriter(str(run.folder), purge_step=0)
        self._writer.add_text("config", "\n".join(f"    {name} = {value}" for name, value in run.config.items()))
        for row in run.rows:
            self._write(row)
        self._writer.flush()

    def after_evaluation(self, run: RunView, metrics: Row) -> None:
        """Writes a row, so that it is on disk when this returns."""
        self._write(metrics)
        self._writer.flush()

    def end(self, run: RunView, ending: Ending) -> None:
        """Writes down how the run ended, and closes the file."""
        self._writer.add_text(
            "status", ", ".join(f"{name} {value}" for name, value in ending.facts().items()), ending.round
        )
        self._writer.close()

    def _write(self, row: Row) -> None:
        for name, value in numbers(row).items():
            self._writer.add_scalar(name, value, row["round"])
