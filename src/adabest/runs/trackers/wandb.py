"""Weights & Biases, online or offline as ``WANDB_MODE`` says."""

import importlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adabest.runs.trackers.base import Tracked, numbers

_EXIT_CODES = {"finished": 0, "interrupted": 130}
_PATIENCE = 60.0  # seconds that a run which is over waits for its last rows to be sent; W&B keeps them on disk, too


class WandB:
    """Sends rows to a W&B run whose step is the round."""

    requires = "wandb"

    def __init__(self, project: str = "") -> None:
        """Chooses where to.

        Args:
            project: The W&B project. By default ``WANDB_PROJECT``, else adabest.
        """
        self._project = project or os.environ.get("WANDB_PROJECT", "adabest")
        self._run: Any = None
        self._next = 0

    def begin(self, run: Tracked) -> None:
        """Opens the W&B run of this id, and sends what it lacks."""
        wandb: Any = importlib.import_module("wandb")
        self._run = wandb.init(
            project=self._project,
            id=run.id,
            name=run.name,
            group=run.group or None,
            config=dict(run.config),
            allow_val_change=True,  # data may lie elsewhere when a run is resumed
            dir=os.environ.get("WANDB_DIR") or str(run.folder),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(console="off", quiet=True, finish_timeout=_PATIENCE, finish_timeout_raises=True),
        )
        # Online this is one more than the last step that the server has. An offline run can't know, and starts from
        # nothing in a folder of its own; it gets all rows, so the folders that it had before can go.
        self._next = self._run.step
        ours = Path(self._run.dir).parent
        for old in ours.parent.glob(f"offline-run-*-{run.id}"):
            if old != ours:
                shutil.rmtree(old)
        for row in run.rows:
            self.log(row)

    def log(self, row: Mapping[str, Any]) -> None:
        """Sends a row, unless it is there from before the run was resumed."""
        values = numbers(row)
        if values and row["round"] >= self._next:
            self._run.log(values, step=row["round"], commit=True)
            self._next = row["round"] + 1

    def end(self, status: Mapping[str, Any]) -> None:
        """Waits until all is sent, and closes the run."""
        self._run.summary.update(dict(status))
        self._run.finish(exit_code=_EXIT_CODES.get(status["status"], 1))
