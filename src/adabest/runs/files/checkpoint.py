"""Checkpoints: a safetensors file with the state, and a JSON file of claims, without which the state isn't read.

The claims are written last. They hold the checksums of the tensors and of themselves, so a checkpoint is either whole
or passed over in favour of the one before it. They name the run, its settings, its identity and its metrics so far, so
a checkpoint of another run is never taken for one of this.
"""

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

import safetensors
from safetensors.torch import load_file

from adabest.engine.state import Snapshot, View
from adabest.errors import InputError
from adabest.runs.files.atomic_files import read_bytes, write_atomically, write_text
from adabest.runs.files.folder import CHECKPOINTS, RunFolder, parse_object
from adabest.runs.files.manifest import (
    Manifest,
    Prefix,
    PrefixRecord,
    check_prefix,
    checksum_of_file,
    checksum_of_object,
    prove_metrics,
)
from adabest.runs.files.records import conform
from adabest.runs.files.tensor_file import write_tensors

_KEPT = 2
_NAME = re.compile(r"round-(\d{1,18})\.json")


class _Claims(TypedDict):
    """The claims of a checkpoint; those of version 0.4.0 don't name the run."""

    numbers: dict[str, float]
    tensors_sha256: str
    run: NotRequired[str]
    settings: NotRequired[str]
    identity: NotRequired[str]
    metrics: NotRequired[PrefixRecord]
    callbacks: NotRequired[dict[str, dict[str, Any]]]


class Checkpoint(NamedTuple):
    """A state that a run can go on from.

    Attributes:
        state: The state. Its tensors are memory maps of the file: they take memory once they are read.
        metrics: The proven rows of the metrics up to its round; None in one of version 0.4.0.
        callbacks: The states of callbacks, by name.
    """

    state: Snapshot
    metrics: Prefix | None
    callbacks: Mapping[str, Mapping[str, Any]]


def save_checkpoint(
    folder: RunFolder, state: View, claims: Mapping[str, Any], callbacks: Mapping[str, Any] | None = None
) -> None:
    """Writes a checkpoint, piece by piece, and removes all but the last two once it has been read back.

    Args:
        folder: The run's folder.
        state: The state.
        claims: The claims that name the run.
        callbacks: The states of callbacks, by name.
    """
    directory = folder / CHECKPOINTS
    directory.mkdir(exist_ok=True)
    stem = directory / f"round-{state.numbers['round']:07d}"
    tensors_path = stem.with_suffix(".safetensors")
    digest = write_atomically(tensors_path, lambda file: write_tensors(file, state.tensors))
    content = {"numbers": state.numbers, "tensors_sha256": digest, **claims}
    if callbacks:
        content["callbacks"] = callbacks
    sealed = {"content": content, "content_sha256": checksum_of_object(content)}
    write_text(stem.with_suffix(".json"), json.dumps(sealed, indent=2) + "\n")
    if checksum_of_file(tensors_path) != digest:
        raise OSError(f"{tensors_path} doesn't hold what was written to it; older checkpoints were kept")
    for old in _claims(directory)[_KEPT:]:
        old.unlink()
    for found in directory.glob("round-*.safetensors"):
        if not found.with_suffix(".json").is_file():
            found.unlink()


def load_checkpoint(folder: RunFolder, manifest: Manifest | None) -> Checkpoint | None:
    """The last whole checkpoint; None if there is none. The log tells which ones were passed over.

    Args:
        folder: The run's folder.
        manifest: The run's manifest; None if it has none yet, so that a checkpoint can't name it.

    Raises:
        InputError: If a checkpoint is another run's, or the metrics aren't those that it was written with.
    """
    for path in _claims(folder / CHECKPOINTS):
        try:
            content = read_claims(path)
            tensors = load_file(path.with_suffix(".safetensors"))
        except (InputError, OSError, safetensors.SafetensorError) as error:
            warning = f"{path} is passed over, and the one before taken, if there is one: {error}"
            folder.log(f"warning: {warning}")
            warnings.warn(warning, stacklevel=2)
            for damaged in (path, path.with_suffix(".safetensors")):
                if damaged.is_file():  # renamed: else it would count as one of the last two, and a whole one be removed
                    damaged.replace(damaged.with_name(f"damaged-{damaged.name}"))
            continue
        prefix = None
        if manifest is not None:
            refuse_foreign(path, content, manifest)
            prefix = check_prefix(str(path), content.get("metrics"))
            prove_metrics(folder, prefix, exactly=False, claimed_by=f"{CHECKPOINTS}/{path.name}")
        return Checkpoint(Snapshot(tensors, content["numbers"]), prefix, content.get("callbacks", {}))
    return None


def read_claims(path: Path) -> dict[str, Any]:
    """The claims of a checkpoint, if it is whole.

    Raises:
        InputError: If it isn't whole.
    """
    sealed = parse_object(path, read_bytes(path) or b"")
    content, tensors = sealed.get("content"), path.with_suffix(".safetensors")
    if not isinstance(content, dict) or sealed.get("content_sha256") != checksum_of_object(content):
        raise InputError(f"{path} is damaged: it doesn't have the checksum that it names")
    conform(str(path), content, _Claims)
    matched = _NAME.fullmatch(path.name)
    if matched is None or content["numbers"].get("round") != int(matched[1]):
        raise InputError(f"{path} is damaged: it isn't of the round that its name says")
    if not tensors.is_file() or checksum_of_file(tensors) != content.get("tensors_sha256"):
        raise InputError(f"the tensors of {path} are missing, or aren't those that it names")
    return content


def refuse_foreign(path: Path, content: Mapping[str, Any], manifest: Manifest) -> None:
    """Refuses a checkpoint of another run.

    Raises:
        InputError: If it belongs to another run.
    """
    mine = {"run": manifest.run, "settings": manifest.settings, "identity": manifest.files.get("identity.json")}
    other = [name for name, value in mine.items() if content.get(name) != value]
    if other:
        raise InputError(
            f"{path} isn't a checkpoint of this run: its {' and '.join(other)} differ; remove it and its tensors, or "
            "bring back those that belong here"
        )


def checkpoints_of(folder: RunFolder) -> list[Path]:
    """The claims of all checkpoints, the newest first."""
    return _claims(folder / CHECKPOINTS)


def _claims(directory: Path) -> list[Path]:
    return [path for _, path in sorted(_numbered(directory), reverse=True)]


def _numbered(directory: Path) -> Iterator[tuple[int, Path]]:
    """Claims with their rounds as numbers: as text, round 10,000,000 would come before round 9,999,999."""
    for path in directory.glob("round-*.json"):
        matched = _NAME.fullmatch(path.name)
        if matched and path.is_file():
            yield int(matched[1]), path
