"""Checkpoints: a safetensors file with the state, and a JSON file of claims, without which the state isn't read.

The claims are written last. They hold the checksums of the tensors and of themselves, so a checkpoint is either whole
or passed over in favour of the one before it. They name the run, its settings, its identity and its metrics so far, so
a checkpoint of another run is never taken for one of this.

The rows of clients are written only when they have changed. Rows that haven't are in the files of earlier checkpoints,
which the claims name with their checksums. Of several files with a row, the newest counts.
"""

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np
import safetensors
from safetensors.torch import load_file

from adabest.engine.simulation import Simulation
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
from adabest.tasks.base import Heartbeat, no_heartbeat

_KEPT = 2
_NAME = re.compile(r"round-(\d{1,18})\.json")
_TENSORS_NAME = re.compile(r"round-(\d{1,18})\.safetensors")
_MOST_FILES = 16  # earlier files that a checkpoint may need
_MOST_ROWS = 3  # rows that its files may hold, for each row that counts


class _Claims(TypedDict):
    """The claims of a checkpoint; those of version 0.4.0 don't name the run.

    ``earlier`` has the checksums of the files of earlier checkpoints that hold the other rows, by name. Checkpoints of
    version 0.6.0 and before, and those with all rows, have none.
    """

    numbers: dict[str, float]
    tensors_sha256: str
    earlier: NotRequired[dict[str, str]]
    run: NotRequired[str]
    settings: NotRequired[str]
    identity: NotRequired[str]
    metrics: NotRequired[PrefixRecord]
    callbacks: NotRequired[dict[str, dict[str, Any]]]


class Checkpoint(NamedTuple):
    """A state that a run can go on from.

    Attributes:
        state: The state. Its tensors are memory maps of the files: they take memory once they are read.
        metrics: The proven rows of the metrics up to its round; None in one of version 0.4.0.
        callbacks: The states of callbacks, by name.
    """

    state: Snapshot
    metrics: Prefix | None
    callbacks: Mapping[str, Mapping[str, Any]]


class Draft(NamedTuple):
    """A checkpoint that is to be written.

    Attributes:
        state: The state, with the rows of clients that are to be written.
        earlier: The checksums of earlier files that hold the other rows, by name.
        rows: The numbers of the rows that are to be written.
        writes: ``ClientStore.writes`` of the state.
    """

    state: View
    earlier: Mapping[str, str]
    rows: np.ndarray
    writes: int


class _File(NamedTuple):
    """The tensors of a checkpoint: the file's name, its checksum, and how many rows of clients it has."""

    name: str
    sha256: str
    rows: int


class RowFiles:
    """The files that hold the rows of clients as of the last checkpoint of this process, and which row is in which.

    Files with many rows that have been written again since are given up: the others are written again, too. So files
    take at most three times the bytes of all rows.
    """

    def __init__(self) -> None:
        self._files: list[_File] = []
        self._file_of_row = np.zeros(0, dtype=np.int64)
        self._writes = 0

    def draft(self, simulation: Simulation) -> Draft:
        """A checkpoint of the state as it is now, with the rows that aren't on disk as they are.

        Raises:
            Diverged: If one of the last rounds has turned out to have diverged.
        """
        simulation.settle()
        store = simulation.state.clients
        chosen = np.zeros(len(store), dtype=np.bool_)
        chosen[store.changed_since(self._writes)] = True
        new = np.zeros(len(store) - len(self._file_of_row), dtype=np.int64)  # all are chosen, so any file will do
        self._file_of_row = np.concatenate([self._file_of_row, new])
        live = np.bincount(self._file_of_row[~chosen], minlength=len(self._files))
        needed = [number for number in range(len(self._files)) if live[number] > 0]
        for number in self._given_up(needed, live, chosen):
            chosen |= self._file_of_row == number
            needed.remove(number)
        rows = np.flatnonzero(chosen)
        earlier = {self._files[number].name: self._files[number].sha256 for number in needed}
        return Draft(simulation.view(None if chosen.all() else rows), earlier, rows, store.writes)

    def written(self, draft: Draft, name: str, sha256: str) -> None:
        """Notes that a draft is on disk."""
        numbers = np.zeros(len(self._files), dtype=np.int64)
        kept = [number for number, file in enumerate(self._files) if file.name in draft.earlier]
        numbers[kept] = np.arange(len(kept))
        self._file_of_row = numbers[self._file_of_row] if len(numbers) else self._file_of_row
        self._file_of_row[draft.rows] = len(kept)
        self._files = [*(self._files[number] for number in kept), _File(name, sha256, len(draft.rows))]
        self._writes = draft.writes

    def _given_up(self, needed: list[int], live: np.ndarray, chosen: np.ndarray) -> list[int]:
        """The files whose rows are written again: those that hardly count, and small ones where there are too many."""
        by_use = sorted(needed, key=lambda number: live[number] / self._files[number].rows)
        on_disk = int(chosen.sum()) + sum(self._files[number].rows for number in needed)
        given_up = []
        while by_use and on_disk > _MOST_ROWS * len(chosen):
            given_up.append(by_use.pop(0))
            on_disk += int(live[given_up[-1]]) - self._files[given_up[-1]].rows
        if len(by_use) >= _MOST_FILES:
            given_up += sorted(by_use, key=lambda number: int(live[number]))[: len(by_use) // 2]
        return given_up


def save_checkpoint(
    folder: RunFolder,
    state: View,
    claims: Mapping[str, Any],
    callbacks: Mapping[str, Any] | None = None,
    *,
    earlier: Mapping[str, str] | None = None,
    heartbeat: Heartbeat = no_heartbeat,
) -> tuple[str, str]:
    """Writes a checkpoint, piece by piece, and removes all but the last two once it has been read back.

    Args:
        folder: The run's folder.
        state: The state.
        claims: The claims that name the run.
        callbacks: The states of callbacks, by name.
        earlier: The checksums of earlier files that hold rows which the state doesn't have, by name.
        heartbeat: Called between two pieces; what it raises abandons the checkpoint.

    Returns:
        The name of the file with its tensors, and the file's checksum.
    """
    directory = folder / CHECKPOINTS
    directory.mkdir(exist_ok=True)
    stem = directory / f"round-{state.numbers['round']:07d}"
    tensors_path = stem.with_suffix(".safetensors")
    digest = write_atomically(tensors_path, lambda file: write_tensors(file, state.tensors, heartbeat=heartbeat))
    content: dict[str, Any] = {"numbers": state.numbers, "tensors_sha256": digest, **claims}
    if earlier:
        content["earlier"] = dict(earlier)
    if callbacks:
        content["callbacks"] = callbacks
    sealed = {"content": content, "content_sha256": checksum_of_object(content)}
    write_text(stem.with_suffix(".json"), json.dumps(sealed, indent=2) + "\n")
    if checksum_of_file(tensors_path) != digest:
        raise OSError(f"{tensors_path} doesn't hold what was written to it; older checkpoints were kept")
    _remove_old(directory)
    return tensors_path.name, digest


def _remove_old(directory: Path) -> None:
    """Removes all checkpoints but the last two, and files of tensors that neither of these needs."""
    kept, old = _claims(directory)[:_KEPT], _claims(directory)[_KEPT:]
    needed = set[str]()
    for path in kept:
        try:
            needed |= {tensors.name for tensors in _files_of(path, _sealed_claims(path))}
        except InputError:
            return  # a damaged one: nobody knows what it needs, and a resume sets it aside
    for path in old:
        path.unlink()
    for found in directory.glob("round-*.safetensors"):
        if found.name not in needed:
            found.unlink()


def load_checkpoint(folder: RunFolder, manifest: Manifest | None) -> Checkpoint | None:
    """The last whole checkpoint; None if there is none. The log tells which ones were passed over.

    Args:
        folder: The run's folder.
        manifest: The run's manifest; None if it has none yet, so that a checkpoint can't name it.

    Raises:
        InputError: If a checkpoint is another run's, or the metrics aren't those that it was written with.
    """
    known: dict[Path, str] = {}
    for path in _claims(folder / CHECKPOINTS):
        try:
            content = read_claims(path, known)
            tensors, *earlier = (load_file(file) for file in _files_of(path, content))
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
        state = Snapshot(tensors, content["numbers"], tuple(earlier))
        return Checkpoint(state, prefix, content.get("callbacks", {}))
    return None


def read_claims(path: Path, known: dict[Path, str] | None = None) -> dict[str, Any]:
    """The claims of a checkpoint, if it is whole.

    Args:
        path: The file of claims.
        known: The checksums of files of tensors that were computed before, to which others are added.

    Raises:
        InputError: If it isn't whole.
    """
    content = _sealed_claims(path)
    known = {} if known is None else known
    for tensors, checksum in _files_of(path, content).items():
        if tensors.is_file() and tensors not in known:
            known[tensors] = checksum_of_file(tensors)
        if known.get(tensors) != checksum:
            raise InputError(f"{tensors}, which {path.name} needs, is missing or isn't the file that it names")
    return content


def _sealed_claims(path: Path) -> dict[str, Any]:
    """The claims of a checkpoint, whether or not its tensors are there.

    Raises:
        InputError: If they are damaged.
    """
    sealed = parse_object(path, read_bytes(path) or b"")
    content = sealed.get("content")
    if not isinstance(content, dict) or sealed.get("content_sha256") != checksum_of_object(content):
        raise InputError(f"{path} is damaged: it doesn't have the checksum that it names")
    conform(str(path), content, _Claims)
    matched = _NAME.fullmatch(path.name)
    if matched is None or content["numbers"].get("round") != int(matched[1]):
        raise InputError(f"{path} is damaged: it isn't of the round that its name says")
    if not all(_TENSORS_NAME.fullmatch(name) for name in content.get("earlier", {})):
        raise InputError(f"{path} is damaged: it needs files that aren't those of checkpoints")
    return content


def _files_of(path: Path, content: Mapping[str, Any]) -> dict[Path, str]:
    """The files of tensors that a checkpoint needs, with their checksums: its own, then earlier ones, oldest first."""
    earlier = {path.with_name(name): checksum for name, checksum in content.get("earlier", {}).items()}
    by_round = sorted(earlier, key=lambda file: int(file.stem.removeprefix("round-")))
    own = {path.with_suffix(".safetensors"): content["tensors_sha256"]}
    return own | {file: earlier[file] for file in by_round}


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
