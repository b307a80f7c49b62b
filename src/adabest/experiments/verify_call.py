"""What is whole, and what isn't."""

from collections.abc import Sequence
from pathlib import Path

from adabest.errors import InputError
from adabest.experiments.verification import verify as made_verify
from adabest.runs.files.verification import Finding


def verify(paths: str | Path | Sequence[str | Path]) -> list[Finding]:
    """Says which files of runs and of results are whole, damaged, missing, foreign or unproven.

    Args:
        paths: Folders of runs, of comparisons and sweeps, or folders with such below them; or files of results, choices
            or costs.

    Returns:
        What was found of each run's folder and of each other file; after a folder that isn't whole, of those of its
        files that aren't.

    Raises:
        InputError: If there is nothing of the kind.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise InputError("name what is to be verified: folders of runs, or files of results")
    return made_verify(Path(path) for path in given)
