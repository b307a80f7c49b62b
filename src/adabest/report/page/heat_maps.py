"""The heat maps of a page: how many samples of each class each client has, in each partition of the runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adabest.data.catalog import OFFICIAL
from adabest.data.dataset import Dataset
from adabest.data.loading import is_file_name
from adabest.data.location import data_folder, find
from adabest.data.spec import Spec
from adabest.errors import InputError
from adabest.federation.partition import Partition
from adabest.registry import split_specification
from adabest.report.page.run_facts import Shown
from adabest.runs.build import cut_partition
from adabest.runs.settings.config import PARTITION_SETTINGS
from adabest.runs.settings.placeholders import is_object_name
from adabest.runs.settings.resolution import resolve

_MOST_COLUMNS = 600  # of a map: neighbours among more clients share one
_MOST_CELLS = 400_000  # of all maps: a megabyte or so
_LEFT_OUT = "it was left out, since so many maps would make this page too large"


@dataclass(frozen=True)
class HeatMap:
    """A partition, as far as it can be shown.

    Attributes:
        statistics: What it came to.
        settings: The settings of the first run that was made on it.
        labels: The entries whose runs were made on it.
        counts: Samples by class and column; a column is a client, or the mean of several. None if unknown.
        held_out: Which share of each column's clients validates.
        clients: How many clients a column stands for; the last one may have fewer.
        why: Why the counts are unknown.
    """

    statistics: Mapping[str, Any]
    settings: Mapping[str, Any]
    labels: list[str] = field(default_factory=list)
    counts: list[list[float]] | None = None
    held_out: list[float] = field(default_factory=list)
    clients: int = 1
    why: str = ""


def heat_maps(entries: Mapping[str, Sequence[Shown]], data_dir: str | None = None) -> list[HeatMap]:
    """A map of each partition that differs from the others.

    Partitions aren't stored with runs, so they are drawn again, out of data that must be there: nothing is downloaded.

    Args:
        entries: The runs.
        data_dir: Where the official data files lie, if not where the runs found them.
    """
    users: dict[str, list[tuple[str, Shown]]] = {}
    for label, group in entries.items():
        for one in group:
            if one.partition:
                users.setdefault(one.partition["fingerprint"], []).append((label, one))
    maps: list[HeatMap] = []
    room = _MOST_CELLS
    loaded: dict[tuple[str, str | None], Dataset] = {}
    for fingerprint, those in users.items():
        first = those[0][1]
        known: dict[str, Any] = {
            "statistics": first.partition,
            "settings": first.settings,
            "labels": list(dict.fromkeys(label for label, _ in those)),
        }
        try:
            if room <= 0:
                raise InputError(_LEFT_OUT)
            partition = _draw_again(first, data_dir or first.data_dir, loaded)
            if partition.fingerprint != fingerprint:
                raise InputError("what is found under the name of its data set today makes another one")
            drawn = _cells(partition)
            room -= drawn["counts"].size
            if room < 0:
                raise InputError(_LEFT_OUT)
            maps.append(HeatMap(**known, **{name: _plain(value) for name, value in drawn.items()}))
        except InputError as error:  # the rest is worth showing
            maps.append(HeatMap(**known, why=str(error)))
    return maps


def _draw_again(one: Shown, data_dir: str | None, loaded: dict[tuple[str, str | None], Dataset]) -> Partition:
    name = str(one.settings["dataset"])
    _refuse_absent(name, data_dir)
    settings = {key: one.settings[key] for key in PARTITION_SETTINGS if key in one.settings}
    there = loaded.get((name, data_dir))
    config, components = resolve({**settings, "dataset": name, "data_dir": data_dir}, there)
    loaded[name, data_dir] = components.dataset
    return cut_partition(config, components)


def _refuse_absent(name: str, data_dir: str | None) -> None:
    """Refuses a data set that would have to be fetched.

    Raises:
        InputError: If it would.
    """
    if is_object_name(name):
        raise InputError("its data set was a Python object, which can't be found again")
    if is_file_name(name):
        return
    title, options = split_specification(name)
    if title == "huggingface" and "name" in options:
        raise InputError("its data set is one of the hub, and nothing is downloaded for a page")
    if title in OFFICIAL and not _is_there(OFFICIAL[title], data_dir):
        raise InputError(f"the data set {title} isn’t on this disk, or has moved; --data-dir says where it is")


def _is_there(spec: Spec, data_dir: str | None) -> bool:
    try:
        return find(spec, data_folder(data_dir)) is not None
    except InputError:  # there isn't even the folder
        return False


def _cells(partition: Partition) -> dict[str, Any]:
    """Counts by class and column, clients sorted by their largest class."""
    order = np.argsort(partition.label_counts.argmax(axis=1), kind="stable")
    held_out = np.isin(order, partition.validation).astype(float)
    width = -(-len(order) // _MOST_COLUMNS)
    starts = np.arange(0, len(order), width)
    clients = np.diff([*starts, len(order)])
    counts = np.add.reduceat(partition.label_counts[order], starts, axis=0).T / clients
    return {"counts": counts, "held_out": np.add.reduceat(held_out, starts) / clients, "clients": width}


def _plain(value: Any) -> Any:
    """Arrays as lists, whole numbers as such."""
    if not isinstance(value, np.ndarray):
        return value
    return np.vectorize(lambda x: int(x) if x == int(x) else round(x, 2), otypes=[object])(value).tolist()
