"""Weights & Biases, online or offline as ``WANDB_MODE`` says."""

import importlib
import os
import shutil
from pathlib import Path
from typing import Any

from adabest.runs.callbacks.base import Callback, Ending, Row, RunView
from adabest.runs.trackers.rows import numbers

_EXIT_CODES = {"finished": 0, "interrupted": 130}
_PATIENCE = 60.0  # seconds that an ended run waits until its last rows are sent; W&B has them on disk, too


class WandB(Callback):
    """Sends rows to a W&B run whose step is the round."""

    requires = "wandb"

    def __init__(self, project: str = "") -> None:
        """Sets the project.

        Args:
            project: The W&B project. By default ``WANDB_PROJECT``, else adabest.
        """
        self._project = project or os.environ.get("WANDB_PROJECT", "adabest")
        self._run: Any = None
        self._next = 0

    def start(self, run: RunView) -> None:
        """Opens the W&B run of this id, and sends what it lacks."""
        wandb: Any = importlib.import_module("wandb")
        self._run = wandb.init(
            project=self._project,
            id=run.id,
            name=run.name,
            group=run.group or None,
            config=dict(run.config),
            allow_val_change=True,  # data_dir may differ when a run is resumed
            dir=os.environ.get("WANDB_DIR") or str(run.folder),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(console="off", quiet=True, finish_timeout=_PATIENCE, finish_timeout_raises=True),
        )
        # Online, ``step`` is one more than the server's last step. Offline it is 0, and the run gets a new folder and
        # all rows, so the folders that it had before are removed.
        self._next = self._run.step
        ours = Path(self._run.dir).parent
        for old in ours.parent.glob(f"offline-run-*-{run.id}"):
            if old != ours:
                shutil.rmtree(old)
        for row in run.rows:
            self.after_evaluation(run, row)

    def after_evaluation(self, run: RunView, metrics: Row) -> None:
        """Sends a row, unless it was sent before the run was resumed."""
        values = numbers(metrics)
        if values and metrics["round"] >= self._next:
            self._run.log(values, step=metrics["round"], commit=True)
            self._next = metrics["round"] + 1

    def end(self, run: RunView, ending: Ending) -> None:
        """Waits until all is sent, and closes the run."""
        self._run.summary.update(ending.facts())
        self._run.finish(exit_code=_EXIT_CODES.get(ending.status, 1))
