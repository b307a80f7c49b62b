"""Partitions: how a data set is dealt to clients, as users ask for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from adabest.federation.partition import Partition
from adabest.registry import naming
from adabest.report.figure import partition_figure, save_figure
from adabest.report.table import Table, facts_table
from adabest.runs.build import cut_partition, partition_statistics
from adabest.runs.keywords import PartitionSettings
from adabest.runs.settings.algorithm_specification import refuse_unknown
from adabest.runs.settings.config import PARTITION_SETTINGS, Config
from adabest.runs.settings.idle_settings import warn_of_idle_settings
from adabest.runs.settings.object_names import named_in
from adabest.runs.settings.resolution import resolve


@dataclass(frozen=True)
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

    def draw(self, out: str | Path) -> list[Path]:
        """Draws a heat map of how many samples of each class each client has.

        Args:
            out: The figure to write, without ending.

        Returns:
            The files.

        Raises:
            InputError: If they can't be written.
        """
        entropy = self.clients.label_entropy
        title = f"{self.config.dataset}, {self.config.partition}, mean label entropy {entropy:.2f}"
        return save_figure(partition_figure(self.clients, title, self.names), out)


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
        clients = cut_partition(config, components)
    names = components.dataset.names
    statistics = partition_statistics(clients) | ({"classes": list(names)} if names else {})
    return CutPartition(config, clients, statistics, facts_table(statistics, "partition"), names)
