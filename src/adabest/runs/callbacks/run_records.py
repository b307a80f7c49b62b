"""The records of a run: its metrics row by row, and at its end its models and the manifest that proves them."""

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

from safetensors.torch import save

from adabest.engine.gate import GateNotes
from adabest.runs.callbacks.base import Callback, Ending, Row, RunView
from adabest.runs.files import folder as files
from adabest.runs.files.atomic_files import write_bytes
from adabest.runs.files.manifest import Ledger, sha256
from adabest.runs.files.metrics_file import REJECTIONS, SKIPS
from adabest.stop_requests import saving

# Of what a line tells of the replies left out: longer lines than a million bytes are refused as damaged.
_MOST_BYTES_OF_REJECTIONS, _MOST_BYTES_OF_SKIPS = 800_000, 100_000


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
        """Adds a row to the metrics, with the replies that were left out since the row before."""
        self.ledger.append_metrics({**metrics, **_lists(run.simulation.told)})

    def end(self, run: RunView, ending: Ending) -> None:
        """Writes the models of a run that is finished or diverged, then the manifest."""
        if ending.status == "killed":
            return
        models = {} if ending.status == "interrupted" else _write_models(run)
        if ending.status == "diverged":
            notes = run.simulation.untold()
            counts = {"rejected": notes.rejected, "unanswered": notes.unanswered}
            lost = {"round": ending.round, "diverged": ending.reason}
            lost |= {name: count for name, count in counts.items() if count}
            self.ledger.append_metrics({**lost, **_lists(notes)})
            run.rows.append(lost)
        self.ledger.save(ending.status, ending.round, ending.reason, models)


def _lists(notes: GateNotes) -> dict[str, Any]:
    """The replies and rounds that a row of metrics tells of, as lists by name; nothing where there are none.

    Of very many, only the first have room. The counts in the row are those of all.
    """
    lists = {
        REJECTIONS: _first(map(list, notes.rejections), _MOST_BYTES_OF_REJECTIONS),
        SKIPS: _first(notes.skips, _MOST_BYTES_OF_SKIPS),
    }
    return {name: told for name, told in lists.items() if told}


def _first(values: Iterable[Any], most_bytes: int) -> list[Any]:
    """The first of some values, as many as JSON has in a number of bytes."""
    kept = list(values)
    ends = itertools.accumulate(len(json.dumps(value)) + 2 for value in kept)
    return kept[: sum(end <= most_bytes for end in ends)]


@saving()
def _write_models(run: RunView) -> dict[str, str]:
    """Writes the models that a run leaves behind, and what clients make of them; returns checksums by file name."""
    checksums = {}
    for which in run.vectors():
        content = save(run.parameters(which))
        write_bytes(run.files / files.MODELS[which], content)
        checksums[files.MODELS[which]] = sha256(content)
    if run.local_test is not None:
        content = json.dumps(run.local_test.table(), allow_nan=False).encode()
        write_bytes(run.files / files.CLIENTS, content)
        checksums[files.CLIENTS] = sha256(content)
    return checksums
