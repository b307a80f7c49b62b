"""The peers' environments: one folder each, made from the pins in ``benchmarks/peers`` and ignored by git."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from adabest.errors import InputError, nearest

PINS = Path(__file__).parent / "peers"
FOLDER = Path(__file__).parent.parent / ".peers"
_FINISHED = "finished"
# fedsim still asks for scikit-learn by a name that has been retired, which this lets pass.
_VARIABLES = {"SKLEARN_ALLOW_DEPRECATED_SKLEARN_PACKAGE_INSTALL": "True"}


def names() -> list[str]:
    """All environments that there are pins for."""
    return sorted(path.stem for path in PINS.glob("*.txt"))


def interpreter(environment: str | None) -> str:
    """The Python of an environment; None is the one that runs this."""
    return sys.executable if environment is None else str(FOLDER / environment / "bin" / "python")


def is_there(environment: str | None) -> bool:
    """Whether an environment was made, to the end."""
    return environment is None or (FOLDER / environment / _FINISHED).is_file()


def how_to_make(environment: str | None) -> str:
    """The command that makes an environment."""
    return f"python -m benchmarks install-peers {environment}"


def make(chosen: Sequence[str] = (), say: Callable[[str], None] = lambda line: None) -> dict[str, str | None]:
    """Makes environments anew; by default all.

    Args:
        chosen: Their names.
        say: Told which one comes next.

    Returns:
        By name why one couldn't be made; None for those that could.

    Raises:
        InputError: If there are no pins for a name.
    """
    unknown = sorted(set(chosen) - set(names()))
    if unknown:
        raise InputError(f"there is no peer {unknown[0]!r}; {nearest(unknown[0], names())}")
    problems = {}
    for name in chosen or names():
        say(f"making {FOLDER.name}/{name}")
        problems[name] = _make(name)
    return problems


def _make(name: str) -> str | None:
    folder = FOLDER / name
    (folder / _FINISHED).unlink(missing_ok=True)
    commands: list[list[str]] = [
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [interpreter(name), "-m", "pip", "install", "--quiet", "--requirement", str(PINS / f"{name}.txt")],
    ]
    for command in commands:
        made = subprocess.run(command, env={**os.environ, **_VARIABLES}, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            lines = [line for line in made.stderr.splitlines() if line.strip()]
            return lines[-1] if lines else f"exit code {made.returncode}"
    (folder / _FINISHED).touch()
    return None
