"""The partitions of stored runs, cut again.

Partitions aren't stored with runs, so they are cut out of data that must be there: nothing is downloaded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from adabest.data.catalog import OFFICIAL
from adabest.data.dataset import Dataset
from adabest.data.loading import is_file_name
from adabest.data.location import data_folder, find
from adabest.data.spec import Spec
from adabest.errors import InputError
from adabest.federation.partition import Partition
from adabest.registry import split_specification
from adabest.report.page.heat_maps import HeatMap, column_counts
from adabest.report.page.page_runs import PageRun
from adabest.runs.build import cut_partition
from adabest.runs.settings.config import PARTITION_SETTINGS
from adabest.runs.settings.placeholders import is_object_name
from adabest.runs.settings.resolution import resolve

_MOST_CELLS = 400_000  # of all maps of a page together: about a megabyte
_LEFT_OUT = "it was left out, since more maps would make this page too large"


def partition_maps(entries: Mapping[str, Sequence[PageRun]], data_dir: str | None = None) -> list[HeatMap]:
    """A heat map of each distinct partition, or the reason why it can't be cut again.

    Args:
        entries: The runs by label.
        data_dir: The folder of the official data files, if they have moved since the runs were made.
    """
    users: dict[str, list[tuple[str, PageRun]]] = {}
    for label, group in entries.items():
        for run in group:
            if run.partition:
                users.setdefault(run.partition["fingerprint"], []).append((label, run))
    maps: list[HeatMap] = []
    free = _MOST_CELLS
    loaded: dict[tuple[str, str | None], Dataset] = {}
    for fingerprint, those in users.items():
        first = those[0][1]
        known = HeatMap(first.partition, first.settings, list(dict.fromkeys(label for label, _ in those)))
        try:
            if free <= 0:
                raise InputError(_LEFT_OUT)
            partition, names = _cut_again(first, data_dir or first.data_dir, loaded)
            if partition.fingerprint != fingerprint:
                raise InputError("its data set has changed since the run was made, and gives another partition")
            drawn = replace(known, names=names, **column_counts(partition))
            free -= drawn.cells
            if free < 0:
                raise InputError(_LEFT_OUT)
            maps.append(drawn)
        except InputError as error:  # shown in place of the map: the page's other parts don't need it
            maps.append(replace(known, why=str(error)))
    return maps


def _cut_again(
    run: PageRun, data_dir: str | None, loaded: dict[tuple[str, str | None], Dataset]
) -> tuple[Partition, tuple[str, ...]]:
    """The partition of a run, and the names of its classes."""
    name = str(run.settings["dataset"])
    _refuse_absent(name, data_dir)
    settings = {key: run.settings[key] for key in PARTITION_SETTINGS if key in run.settings}
    there = loaded.get((name, data_dir))
    config, components = resolve({**settings, "dataset": name, "data_dir": data_dir}, there)
    loaded[name, data_dir] = components.dataset
    return cut_partition(config, components), components.dataset.names


def _refuse_absent(name: str, data_dir: str | None) -> None:
    """Refuses a data set that isn't on this disk.

    Raises:
        InputError: If it would have to be downloaded, or was a Python object.
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
    except InputError:  # the folder doesn't exist
        return False
