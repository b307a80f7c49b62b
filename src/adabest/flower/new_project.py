"""New projects: a federation to edit, as ``adabest new-flower-app`` writes it."""

import keyword
import re
import string
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from pathlib import Path

from adabest.errors import InputError
from adabest.runs.files.atomic_files import write_text

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_AT_TOP = {name: name for name in ("README.md", "pyproject.toml", "keys.sh", "tests")} | {"gitignore": ".gitignore"}
_ENDING = ".in"


def new_flower_app(name: str) -> Path:
    """Writes a project to edit: settings, data and model, server and client app, keys, and a test.

    Args:
        name: The project's name, and that of its folder, which mustn't exist: lower-case words with dashes.

    Returns:
        The folder.

    Raises:
        InputError: If it can't have that name, or the folder exists.
    """
    folder = Path(name)
    words = folder.name
    package = words.replace("-", "_")
    if not _NAME.fullmatch(words) or keyword.iskeyword(package) or package in ("adabest", "flwr", "test", "tests"):
        raise InputError(
            f"{words!r} can't be a project's name; take lower-case letters, digits and dashes, as in my-federation"
        )
    if folder.exists():
        raise InputError(f"{folder} exists; take another name, or move it away")
    values = {
        "name": words,
        "package": package,
        "place": folder.absolute().as_posix(),
        "version": metadata.version("adabest"),
    }
    for path, source in _files(resources.files("adabest.flower") / "template"):
        top, slash, below = path.removesuffix(_ENDING).partition("/")
        target = folder / (_AT_TOP.get(top, f"{package}/{top}") + slash + below)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, string.Template(source.read_text(encoding="utf-8")).substitute(values))
    return folder


def _files(folder: Traversable, above: str = "") -> list[tuple[str, Traversable]]:
    """The files of a folder and those below it, by their paths."""
    found = list[tuple[str, Traversable]]()
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            found += [] if entry.name == "__pycache__" else _files(entry, f"{above}{entry.name}/")
        else:
            found.append((above + entry.name, entry))
    return found
