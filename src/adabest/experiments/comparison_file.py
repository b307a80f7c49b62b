"""The file of a comparison, a sweep or a tuning: its settings, from which it can be resumed."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adabest.errors import InputError
from adabest.runs.files.atomic_files import read_bytes, write_bytes
from adabest.runs.files.manifest import sha256
from adabest.runs.settings.object_names import is_plain, named_in
from adabest.runs.settings.toml_file import read_toml, to_toml
from adabest.stop_requests import resume_command

COMPARISON = "comparison.toml"
_SEAL = b"# The lines below, as they were written, have the sha256 "  # a comment: the file is a configuration, too


def remember(folder: Path, settings: Mapping[str, Any]) -> None:
    """Writes the settings of a comparison, so that it can be resumed. Settings with Python objects aren't written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if all(value is None or is_plain(value) for value in settings.values()):
            text = to_toml(settings).encode()
            write_bytes(folder / COMPARISON, _SEAL + sha256(text).encode() + b"\n" + text)
        else:
            (folder / COMPARISON).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"can't write to the folder {folder}: {error.strerror or error}") from error


def recall(folder: Path) -> dict[str, Any] | None:
    """The settings that ``remember`` wrote; None if the folder holds no comparison.

    Raises:
        InputError: If the file was changed since.
    """
    path = folder / COMPARISON
    content = read_bytes(path)
    if content is None:
        return None
    settings = read_toml(path)
    first, _, text = content.partition(b"\n")
    if first.startswith(_SEAL) and first.removeprefix(_SEAL) != sha256(text).encode():
        raise InputError(
            f"{path} was changed since the comparison began: undo that, or start another one with these settings, "
            "in another folder"
        )
    algorithms, target = settings.get("algorithms", []), settings.get("target")
    if not (isinstance(algorithms, list) and all(isinstance(name, str) for name in algorithms)):
        raise InputError(f"{path} is damaged: algorithms should be a list of names")
    if target is not None and not (isinstance(target, float) and math.isfinite(target)):
        raise InputError(f"{path} is damaged: target should be a number")
    return settings


def refuse_unproven(folder: Path) -> None:
    """Refuses to resume a comparison whose file has no checksum.

    Raises:
        InputError: If there is none: version 0.4.0 wrote the file, or its first line is lost.
    """
    if not (read_bytes(folder / COMPARISON) or b"").startswith(_SEAL):
        raise InputError(
            f"{folder / COMPARISON} has no checksum to prove it by, as those of version 0.4.0; "
            f"`{resume_command(folder)} --unverified` goes on all the same"
        )


def way_to_go_on(folder: Path) -> str:
    """Advice for a comparison, a sweep or a tuning that was stopped or failed: how to resume it."""
    settings = recall(folder)
    if settings is None:  # settings with Python objects aren't written
        return "the same call goes on"
    return f"resume with: {resume_command(folder, named_in(settings))}"
