"""Search for stored runs: a run's own folder, or all runs below the folder of a comparison or a sweep."""

from collections.abc import Iterable
from pathlib import Path

from adabest.errors import InputError
from adabest.experiments.comparison_file import recall
from adabest.runs.files.folder import RunFolder
from adabest.runs.settings.run_plan import label_of
from adabest.runs.stored_run import find_runs


def runs_in(folders: Iterable[Path]) -> list[Path]:
    """The folders of all runs in some folders or below them, each once.

    Runs of a comparison come in the order in which it names its algorithms, others in alphabetical order.

    Raises:
        InputError: If there are no runs in one of the folders.
    """
    return list(dict.fromkeys(path.resolve() for folder in folders for path in _runs_in(folder)))


def shared_target(runs: Iterable[Path]) -> float | None:
    """The target accuracy of the comparisons that runs belong to; None if there is none, or they differ in it."""
    targets = {(recall(parent) or {}).get("target") for parent in {run.parent for run in runs}}
    return targets.pop() if len(targets) == 1 else None


def is_of_sweep(run: Path) -> bool:
    """Whether a run belongs to a sweep."""
    return "vary" in (recall(run.parent) or {})


def _runs_in(folder: Path) -> list[Path]:
    if RunFolder(folder).holds_run():
        return [folder]
    found = find_runs(folder)
    if not found:
        there = "" if folder.is_dir() else ": there is no such folder"
        raise InputError(f"there are no runs in {folder} or below it{there}")
    labels = {parent: _labels(parent) for parent in {path.parent for path in found}}

    def place(path: Path) -> tuple[Path, int]:
        names = labels[path.parent]
        own = (n for n, name in enumerate(names) if path.name == name or path.name.startswith(f"{name},seed="))
        return path.parent, next(own, len(names))

    return sorted(found, key=place)


def _labels(folder: Path) -> list[str]:
    """The labels of a comparison's entries; none if the folder holds no comparison."""
    return [label_of(algorithm) for algorithm in (recall(folder) or {}).get("algorithms", [])]
