"""Sealed JSON files: they carry a checksum of their content, so that every reader finds a changed digit."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from adabest.errors import InputError
from adabest.runs.files.atomic_files import write_text
from adabest.runs.files.manifest import checksum_of_object

_CHECKSUM = "sha256"


class Sealed(NamedTuple):
    """The content of a sealed file.

    Attributes:
        content: The parts, by name.
        is_proven: Whether the file has a checksum; files of version 0.4.0 have none.
    """

    content: dict[str, Any]
    is_proven: bool


def write_sealed(path: Path, parts: Mapping[str, str]) -> None:
    """Writes a sealed file.

    Args:
        path: The file.
        parts: The JSON text of each part, by name, which is written as it is.
    """
    content = {name: json.loads(text) for name, text in parts.items()}
    lines = [f"{json.dumps(name)}: {text}" for name, text in parts.items()]
    write_text(path, "{\n" + ",\n".join([*lines, f'"{_CHECKSUM}": "{checksum_of_object(content)}"']) + "\n}\n")


def read_sealed(path: Path) -> Sealed:
    """Reads a file that ``write_sealed`` wrote, or one like it without a checksum.

    Raises:
        InputError: If there is no such file, it isn't a JSON object, or it was changed.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise InputError(f"can't read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} isn't JSON: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} should hold a JSON object, as files of results, choices and costs do")
    named = content.pop(_CHECKSUM, None)
    if named is not None and named != checksum_of_object(content):
        raise InputError(
            f"{path} was changed since it was written: its content doesn't have the checksum that it names. Bring back "
            f"a good copy; or, if you meant to change it, remove its line {_CHECKSUM!r}: then nothing proves it"
        )
    return Sealed(content, named is not None)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number in JSON")
