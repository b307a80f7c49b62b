"""What the commands write: JSON, Markdown and figures, each file whole or not at all."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from adabest.errors import InputError
from adabest.runs.files.atomic_files import write_atomically, write_text

Content = str | Figure | dict[str, Any]


def write(folder: Path, contents: Mapping[str, Content]) -> list[Path]:
    """Writes files into a folder, by their names in it, and says where they lie.

    Raises:
        InputError: If they can't be written there.
    """
    paths = []
    for name, content in contents.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Figure):
                write_atomically(path, functools.partial(content.savefig, format="png", dpi=110))
            else:
                write_text(path, content if isinstance(content, str) else json.dumps(content, indent=1) + "\n")
        except OSError as error:
            raise InputError(f"can't write {path}: {error.strerror or error}") from error
        paths.append(path)
    return paths


def read(path: Path, keys: set[str]) -> dict[str, Any] | None:
    """Reads a JSON file that holds an object with such keys; None if there is no file.

    Raises:
        InputError: If it holds anything else.
    """
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict) or not found.keys() <= keys:
        raise InputError(f"{path} holds something else than results; --merge can't add to it")
    return found
