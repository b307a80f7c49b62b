"""The records of a run: its metrics row by row, and at its end its models and the manifest that proves them."""

from collections.abc import Callable

from safetensors.torch import save

from adabest.runs.callbacks.base import Callback, Ending, Row, RunView
from adabest.runs.files import folder as files
from adabest.runs.files.atomic_files import write_bytes
from adabest.runs.files.manifest import Ledger, sha256
from adabest.stop_requests import saving


class Records(Callback):
    """Writes a run's metrics, models and manifest.

    Attributes:
        ledger: The writer of the manifest, once the run has started.
    """

    ledger: Ledger

    def __init__(self, open_ledger: Callable[[], Ledger]) -> None:
        """Makes the callback.

        Args:
            open_ledger: Writes the first files of a new run, or opens those of a resumed one.
        """
        self._open_ledger = open_ledger

    def start(self, run: RunView) -> None:
        """Opens the run's files."""
        self.ledger = self._open_ledger()

    def after_evaluation(self, run: RunView, metrics: Row) -> None:
        """Adds a row to the metrics."""
        self.ledger.append_metrics(metrics)

    def end(self, run: RunView, ending: Ending) -> None:
        """Writes the models of a run that is finished or diverged, then the manifest."""
        if ending.status == "killed":
            return
        models = {} if ending.status == "interrupted" else _write_models(run)
        if ending.status == "diverged":
            lost = {"round": ending.round, "diverged": ending.reason}
            self.ledger.append_metrics(lost)
            run.rows.append(lost)
        self.ledger.save(ending.status, ending.round, ending.reason, models)


@saving()
def _write_models(run: RunView) -> dict[str, str]:
    """Writes the models that a run leaves behind; returns their checksums by file name."""
    checksums = {}
    for which in run.vectors():
        content = save(run.parameters(which))
        write_bytes(run.files / files.MODELS[which], content)
        checksums[files.MODELS[which]] = sha256(content)
    return checksums
