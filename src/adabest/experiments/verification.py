"""Verification of runs, and of the other files of experiments: results, choices, costs and comparisons."""

from collections.abc import Callable, Sequence
from pathlib import Path

from adabest.costs.cost_file import EXPERIMENT, MeasuredCosts
from adabest.errors import InputError
from adabest.experiments.comparison_file import COMPARISON, recall, refuse_unproven
from adabest.runs.files.run_verification import Finding, verify_run
from adabest.runs.files.sealed_file import read_sealed
from adabest.runs.results_file import Results, read_choices
from adabest.runs.stored_run import find_runs


def verify(paths: str | Path | Sequence[str | Path]) -> list[Finding]:
    """Says which files of runs and of results are whole, damaged, missing, foreign or unproven.

    Args:
        paths: Folders of runs, of comparisons or of sweeps, folders above them, or files of results, choices or costs.

    Returns:
        A finding for each run's folder and each other file. After a folder that isn't whole come findings for those
        of its files that aren't.

    Raises:
        InputError: If a path holds neither runs nor such a file.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise InputError("name what is to be verified: folders of runs, or files of results")
    places = [Path(path) for path in given]
    return [found for path in places for found in (_verify_file(path) if path.is_file() else _verify_folder(path))]


def _verify_folder(folder: Path) -> list[Finding]:
    runs = find_runs(folder)
    comparisons = sorted({place for run in runs for place in (run.parent, folder) if (place / COMPARISON).is_file()})
    if not runs and not (folder / COMPARISON).is_file():
        raise InputError(f"there is nothing to verify in {folder}: no run, no comparison, and it is no file of results")
    found = [_verify_comparison(place) for place in comparisons or [folder] if (place / COMPARISON).is_file()]
    return [*found, *(finding for run in runs for finding in verify_run(run))]


def _verify_comparison(folder: Path) -> Finding:
    path = folder / COMPARISON
    try:
        recall(folder)
    except InputError as error:
        return Finding(path, "damaged", str(error))
    try:
        refuse_unproven(folder)
    except InputError as error:
        return Finding(path, "unproven", str(error))
    return Finding(path, "whole", "what is compared")


def _verify_file(path: Path) -> list[Finding]:
    try:
        sealed = read_sealed(path)
        kind, read = _reader(sealed.content)
        read(path)
    except InputError as error:
        return [Finding(path, "damaged", str(error))]
    if not sealed.is_proven:
        return [Finding(path, "unproven", f"{kind} without a checksum, as version 0.4.0 wrote them; they can be read")]
    return [Finding(path, "whole", kind)]


def _reader(content: dict[str, object]) -> tuple[str, Callable[[Path], object]]:
    """A file's kind in words, and the function that reads it."""
    if set(content) == {"choices"}:
        return "choices", read_choices
    if content.get("experiment") == EXPERIMENT:
        return "measured costs", MeasuredCosts.read
    return "results", Results.read
