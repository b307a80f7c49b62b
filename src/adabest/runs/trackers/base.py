"""The idea of a logger: it hears that a run begins, then every metrics row, then how the run ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Tracked:
    """What a logger is told when a run begins, or goes on after it was broken off.

    Attributes:
        id: Names the run among all runs, and stays the same when it is resumed.
        name: What to call it: its folder's name.
        group: The comparison that it belongs to; empty if there is none.
        folder: Its folder.
        config: All its settings by name.
        rows: The metrics rows that there are already; none when a run begins.
    """

    id: str
    name: str
    group: str
    folder: Path
    config: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]


class Logger(Protocol):
    """What takes the metrics of a run somewhere else.

    The run's folder is the truth, and a resumed run makes the rounds after its last checkpoint again, with the same
    numbers. So a logger passes over what it has of the run already, or writes it anew. Whatever it raises in the middle
    of a run is logged, and the rows come again later.
    """

    def begin(self, run: Tracked) -> None:
        """Opens the run, or opens it again; afterwards ``run.rows`` are there, each once."""
        ...

    def log(self, row: Mapping[str, Any]) -> None:
        """Takes the metrics of a round, whose number is ``row["round"]``; a value may be None."""
        ...

    def end(self, status: Mapping[str, Any]) -> None:
        """Closes the run: ``status``, ``round`` and perhaps ``reason``, as in the folder's ``status.json``."""
        ...


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of a row that are numbers, without the round itself."""
    return {name: value for name, value in row.items() if isinstance(value, int | float) and name != "round"}
