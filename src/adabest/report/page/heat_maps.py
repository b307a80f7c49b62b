"""Heat maps of partitions: how many samples of each class each client has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adabest.federation.partition import Partition

_MOST_COLUMNS = 600  # of a map: neighbours among more clients share one


@dataclass(frozen=True)
class HeatMap:
    """A partition, as far as it can be shown.

    Attributes:
        statistics: Its statistics, its fingerprint among them.
        settings: The settings of the first run that was made on it.
        labels: The entries whose runs were made on it.
        counts: Samples by class and column; a column is a client, or the mean of several. None if unknown.
        held_out: Which share of each column's clients validates.
        clients: How many clients a column stands for; the last one may have fewer.
        why: Why the counts are unknown.
        names: The names of the classes, where they have some.
    """

    statistics: Mapping[str, Any]
    settings: Mapping[str, Any]
    labels: list[str] = field(default_factory=list)
    counts: list[list[float]] | None = None
    held_out: list[float] = field(default_factory=list)
    clients: int = 1
    why: str = ""
    names: Sequence[str] = ()

    @property
    def cells(self) -> int:
        """How many numbers it has to draw."""
        return sum(map(len, self.counts or []))


def column_counts(partition: Partition) -> dict[str, Any]:
    """Counts, held-out shares and clients of a map's columns, in which clients are sorted by their largest class."""
    order = np.argsort(partition.label_counts.argmax(axis=1), kind="stable")
    held_out = np.isin(order, partition.validation).astype(float)
    width = -(-len(order) // _MOST_COLUMNS)
    starts = np.arange(0, len(order), width)
    clients = np.diff([*starts, len(order)])
    counts = np.add.reduceat(partition.label_counts[order], starts, axis=0).T / clients
    shares = np.add.reduceat(held_out, starts) / clients
    return {"counts": _two_places(counts), "held_out": _two_places(shares), "clients": width}


def _two_places(values: np.ndarray) -> Any:
    """An array as lists of whole numbers, and of others to two decimal places."""
    return np.vectorize(lambda x: int(x) if x == int(x) else round(x, 2), otypes=[object])(values).tolist()
