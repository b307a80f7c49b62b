"""Checkpoints on a clock that a test turns: copies and writes of them take the seconds that the test says."""

import types
from collections.abc import Callable
from typing import Any

import pytest

from adabest.engine.simulation import Simulation
from adabest.engine.state import View
from adabest.runs.callbacks import checkpoints
from adabest.runs.files.background_writer import BackgroundWriter
from adabest.runs.files.folder import RunFolder
from adabest.tasks.base import Heartbeat, no_heartbeat


class SlowCheckpoints:
    """A clock, and the checkpoints that were written by it. Nothing is written to disk but manifests.

    Attributes:
        now: The time in seconds.
        saved: The name of the run's folder and the round of each checkpoint.
    """

    def __init__(self, patch: pytest.MonkeyPatch, *, copying: float = 0.0, writing: float = 0.0) -> None:
        """Sets the clock to 0.

        Args:
            patch: Puts everything back in the end.
            copying: The seconds that a run is held up by the copy of its state.
            writing: The seconds that another thread then writes.
        """
        self.now = 0.0
        self.saved: list[tuple[str, int]] = []
        written_at: dict[BackgroundWriter, float] = {}

        def held(simulation: Simulation, view: View) -> View:
            self.now += copying
            return view

        def save(folder: RunFolder, state: View, *given: Any, **options: Any) -> tuple[str, str]:
            self.now += writing
            self.saved.append((folder.path.name, int(state.numbers["round"])))
            return f"round-{state.numbers['round']}.safetensors", "0" * 64

        def begin(writer: BackgroundWriter, write: Callable[[Heartbeat], None]) -> None:
            before = self.now
            write(no_heartbeat)
            written_at[writer], self.now = self.now, before

        def finish(writer: BackgroundWriter) -> None:
            self.now = max(self.now, written_at.get(writer, 0.0))

        patch.setattr(checkpoints, "time", types.SimpleNamespace(monotonic=lambda: self.now))
        patch.setattr(Simulation, "held", held)
        patch.setattr(checkpoints, "save_checkpoint", save)
        patch.setattr(BackgroundWriter, "begin", begin)
        patch.setattr(BackgroundWriter, "finish", finish)
        is_busy = property(lambda writer: self.now < written_at.get(writer, 0.0))
        patch.setattr(BackgroundWriter, "is_busy", is_busy)
