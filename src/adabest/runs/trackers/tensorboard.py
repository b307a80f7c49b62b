"""TensorBoard: event files in the run's folder."""

import importlib
from collections.abc import Mapping
from typing import Any

from adabest.runs.files.folder import EVENTS
from adabest.runs.trackers.base import Tracked, numbers


class TensorBoard:
    """Writes event files. They are written anew when a run is resumed, so they hold what the folder holds."""

    requires = "tensorboard"

    def __init__(self) -> None:
        self._writer: Any = None

    def begin(self, run: Tracked) -> None:
        """Begins a file with all settings and rows that there are."""
        tensorboard: Any = importlib.import_module("torch.utils.tensorboard")
        # A TensorBoard that watches the folder would wait for a file that is gone, so the old ones are only emptied,
        # and the first thing that it reads in the new one makes it forget what it read before.
        for old in run.folder.glob(EVENTS + "*"):
            old.write_bytes(b"")
        self._writer = tensorboard.SummaryWriter(str(run.folder), purge_step=0)
        self._writer.add_text("config", "\n".join(f"    {name} = {value}" for name, value in run.config.items()))
        for row in run.rows:
            self._write(row)
        self._writer.flush()

    def log(self, row: Mapping[str, Any]) -> None:
        """Writes a row, so that it is on disk when this returns."""
        self._write(row)
        self._writer.flush()

    def end(self, status: Mapping[str, Any]) -> None:
        """Writes down how the run ended, and closes the file."""
        self._writer.add_text("status", ", ".join(f"{name} {value}" for name, value in status.items()), status["round"])
        self._writer.close()

    def _write(self, row: Mapping[str, Any]) -> None:
        for name, value in numbers(row).items():
            self._writer.add_scalar(name, value, row["round"])
