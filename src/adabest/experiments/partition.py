"""Partitions: how a data set is dealt to clients, as users ask for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from matplotlib.figure import Figure

from adabest.federation.partition import Partition
from adabest.registry import naming
from adabest.report.figure import partition_figure, save_figure
from adabest.report.frame import as_frame
from adabest.report.table import Table, data_words, facts_table
from adabest.runs.build import cut_partition, partition_statistics
from adabest.runs.keywords import PartitionSettings
from adabest.runs.settings.algorithm_specification import refuse_unknown
from adabest.runs.settings.config import PARTITION_SETTINGS, Config
from adabest.runs.settings.idle_settings import warn_of_idle_settings
from adabest.runs.settings.object_names import named_in
from adabest.runs.settings.resolution import Components, resolve


@dataclass(frozen=True, repr=False)
class CutPartition:
    """A data set that was dealt to clients.

    Attributes:
        config: The settings, complete.
        clients: Which samples each client has, and which clients train.
        statistics: Its numbers by name.
        table: The statistics as a table.
        names: The names of the classes, where they have some.
    """

    config: Config
    clients: Partition
    statistics: Mapping[str, Any]
    table: Table
    names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"CutPartition({data_words(self.config.dataset)}, {self.config.partition}: {self.clients!r})"

    def _repr_html_(self) -> str:
        """For notebooks: the statistics."""
        return self.table.html()

    def to_pandas(self) -> Any:
        """Who has which samples: a ``pandas.DataFrame`` of ``client``, ``role`` and ``sample``, one row per sample.

        ``sample`` counts the data set's training samples from 0; ``role`` is ``training`` or ``validation``.

        Raises:
            InputError: If pandas isn't installed.
        """
        client = np.repeat(np.arange(len(self.clients.samples)), self.clients.samples)
        role = np.where(np.isin(client, self.clients.validation), "validation", "training")
        return as_frame({"client": client, "role": role, "sample": self.clients.indices})

    def plot(self, title: str | None = None) -> Figure:
        """A heat map of how many samples of each class each client has, which notebooks show.

        Args:
            title: The title. By default the data set, the partition and, with labels, its mean label entropy.
        """
        usual = f"{data_words(self.config.dataset)}, {self.config.partition}"
        if self.clients.knows_labels:
            usual += f", mean label entropy {self.clients.label_entropy:.2f}"
        return partition_figure(self.clients, usual if title is None else title, self.names)

    def draw(self, out: str | Path) -> list[Path]:
        """Draws a heat map of how many samples of each class each client has.

        Args:
            out: The figure to write, without ending.

        Returns:
            The files.

        Raises:
            InputError: If they can't be written.
        """
        return save_figure(self.plot(), out)


def partition(**settings: Unpack[PartitionSettings]) -> CutPartition:
    """Deals a data set to clients, as a run with the same settings does.

    Args:
        **settings: The settings that a partition depends on, such as ``dataset``, ``clients`` and ``alpha``.

    Raises:
        InputError: If something can't be used.
    """
    refuse_unknown(settings, PARTITION_SETTINGS)
    with naming(named_in(settings)):
        config, components = resolve(settings)
        warn_of_idle_settings(settings, [config])
        return deal(config, components)


def deal(config: Config, components: Components) -> CutPartition:
    """The partition of complete settings."""
    clients = cut_partition(config, components)
    names = components.dataset.names
    statistics = partition_statistics(clients) | ({"classes": list(names)} if names else {})
    return CutPartition(config, clients, statistics, facts_table(statistics, "partition"), names)
