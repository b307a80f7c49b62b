"""Provenance: the commit of the source that makes results."""

import functools
import os
import subprocess
from pathlib import Path

COMMIT = "ADABEST_COMMIT"  # the environment variable with the commit, for a copy of the source without its repository


@functools.cache
def commit() -> str | None:
    """The commit of this package's source, with ``-dirty`` if files differ from it; None for an installed package."""
    told = os.environ.get(COMMIT)
    if told:
        return told
    source = Path(__file__).parent
    if not any((parent / ".git").exists() for parent in source.parents):
        return None
    try:
        head = _git(source, "rev-parse", "--short=10", "HEAD")
        if _git(source, "ls-files", str(Path(__file__).name)) == "":
            return None  # installed into an environment that lies within another repository
        return head + ("-dirty" if _git(source, "status", "--porcelain", "--untracked-files=no", "..") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()
