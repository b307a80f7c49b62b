"""The manifest of a run: its id, its status, and the checksums that prove the other files of its folder.

It is written whole with every checkpoint and at the end, and holds a checksum of itself. So every reader finds a
changed digit in any file that a result depends on. Metrics are hashed as they grow: the manifest proves the rows up to
its round. Later rows are read only while the run's own process is at work, since a resumed run makes them again.
Checksums prove that nothing was changed by accident. Whoever can write the folder can write the manifest, too (see
SECURITY.md).
"""

import dataclasses
import hashlib
import json
import os
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from adabest.errors import InputError
from adabest.runs.files import folder as files
from adabest.runs.files.atomic_files import force_to_disk, read_bytes, write_text
from adabest.runs.files.folder import ENDED, RunFolder
from adabest.runs.files.records import check_status, conform
from adabest.runs.settings.config import LIMIT_SETTINGS
from adabest.runs.settings.object_names import named_in

FORMAT = 3  # of the folder; folders of version 0.4.0 and before have no manifest
_READABLE = (2, FORMAT)  # in the second format, of versions 0.5.0 and 0.6.0, a checkpoint has all rows of clients
FORMAT_KEY = "folder_format"  # in the environment file: tells a folder that lost its manifest from one that had none
_MOVABLE = ("data_dir", *LIMIT_SETTINGS)  # no result depends on them, so they may be edited between two parts of a run
_CONSTANT = (files.IDENTITY, files.ENVIRONMENT, files.TRACKING)  # written once, when a run begins
_CHUNK = 16 * 2**20  # bytes that are hashed at a time


class Prefix(NamedTuple):
    """The proven part of a file that grows.

    Attributes:
        length: The number of its bytes.
        sha256: Their checksum.
    """

    length: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The manifest of a run.

    Attributes:
        run: The run's unique id. It is in no metric, model or export, so that equal runs have equal files.
        status: ``running``, ``interrupted``, ``finished`` or ``diverged``.
        round: The last round that counts.
        reason: Why the run diverged or ended early, if it did.
        settings: The checksum of the configuration's settings.
        files: The checksums of files that don't change any more, by name.
        metrics: The proven rows.
    """

    run: str
    status: str
    round: int
    reason: str | None
    settings: str
    files: Mapping[str, str]
    metrics: Prefix

    def has_ended(self) -> bool:
        """Whether the run is finished or diverged."""
        return self.status in ENDED

    def with_metrics(self, metrics: Prefix) -> "Manifest":
        """A copy that proves other rows: those up to the checkpoint from which a run is resumed."""
        return dataclasses.replace(self, metrics=metrics)


class Standing(NamedTuple):
    """The status of a run.

    Attributes:
        status: ``running`` or ``killed``, ``interrupted``, ``finished`` or ``diverged``.
        round: The last round that counts.
        reason: Why it diverged or ended early, if it did.
        is_live: Whether its own process is at work.
    """

    status: str
    round: int
    reason: str | None
    is_live: bool


class Ledger:
    """The writer of a run's metrics and of its manifest."""

    def __init__(self, folder: RunFolder, manifest: Manifest) -> None:
        """Continues the metrics that a manifest proves.

        Raises:
            InputError: If a proven row was changed or lost.
        """
        self._folder, self._manifest = folder, manifest
        self._hash = prove_metrics(folder, manifest.metrics, exactly=False)
        self._length = manifest.metrics.length

    @classmethod
    def of_new_run(cls, folder: RunFolder, config_text: str) -> "Ledger":
        """The ledger of a new run. Its identity, environment and metrics files must exist; metrics may be empty.

        Args:
            folder: The run's folder.
            config_text: The text of its configuration file, which may be written later.
        """
        settings = checksum_of_settings(tomllib.loads(config_text))
        checksums = {name: checksum_of_file(folder / name) for name in _CONSTANT if (folder / name).is_file()}
        path = folder / files.METRICS
        rows = Prefix(path.stat().st_size, checksum_of_file(path))
        return cls(folder, Manifest(secrets.token_hex(16), "running", 0, None, settings, checksums, rows))

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Adds a row to the metrics."""
        line = self._folder.append(files.METRICS, row)
        self._hash.update(line)
        self._length += len(line)

    def claims(self) -> dict[str, Any]:
        """The claims of a checkpoint that is written now: the run's id, settings, identity and metrics."""
        manifest = self._manifest
        return {
            "run": manifest.run,
            "settings": manifest.settings,
            "identity": manifest.files[files.IDENTITY],
            "metrics": self.metrics_so_far()._asdict(),
        }

    def metrics_so_far(self) -> Prefix:
        """All rows that were added."""
        return Prefix(self._length, self._hash.hexdigest())

    def save(
        self,
        status: str,
        round_number: int,
        reason: str | None = None,
        models: Mapping[str, str] | None = None,
        metrics: Prefix | None = None,
    ) -> None:
        """Writes the manifest, then ``status.json``, which repeats a part of it for people.

        Another thread may call it while rows are added, but no two threads at a time.

        Args:
            status: The run's status.
            round_number: The last round that counts.
            reason: Why it diverged or ended early, if it did.
            models: The checksums of the models that it leaves, by file name.
            metrics: The rows that the manifest proves; by default all that were added.
        """
        metrics = metrics or self.metrics_so_far()
        force_to_disk(self._folder / files.METRICS)  # else a power cut could leave a manifest that proves lost rows
        self._manifest = dataclasses.replace(
            self._manifest,
            status=status,
            round=round_number,
            reason=reason,
            files={**self._manifest.files, **(models or {})},
            metrics=metrics,
        )
        content = {"format": FORMAT, **dataclasses.asdict(self._manifest), "metrics": metrics._asdict()}
        sealed = {"content": content, "content_sha256": checksum_of_object(content)}
        write_text(self._folder / files.MANIFEST, json.dumps(sealed, indent=2) + "\n")
        summary = {"status": status, "round": round_number} | ({} if reason is None else {"reason": reason})
        self._folder.write_json(files.STATUS, summary)


def read_manifest(folder: RunFolder, *, may_be_lost: bool = False) -> Manifest | None:
    """The manifest of a run; None if the run was made by a version that had none.

    Args:
        folder: The run's folder.
        may_be_lost: Whether a run that has lost its manifest counts as one that had none.

    Raises:
        InputError: If the manifest is damaged or lost.
    """
    path = folder / files.MANIFEST
    content = read_bytes(path)
    if content is None:
        if not may_be_lost and FORMAT_KEY in (folder.read_json(files.ENVIRONMENT) or {}):
            raise InputError(
                f"{path} is missing, so nothing proves the other files; bring it back, or go on without a proof: "
                f"adabest resume {folder.path} --unverified"
            )
        return None
    sealed = files.parse_object(path, content)
    inside = sealed.get("content")
    if not isinstance(inside, dict) or sealed.get("content_sha256") != checksum_of_object(inside):
        raise InputError(f"{path} was changed: it doesn't have the checksum that it names; {_advice(folder)}")
    if inside.get("format") not in _READABLE:
        raise InputError(f"{path} has a format that this version of adabest doesn't know; use the one that wrote it")
    record: _Record = conform(str(path), inside, _Record)
    check_status(str(path), {"status": record["status"], "round": record["round"]})
    prefix = check_prefix(str(path), record["metrics"])
    known = {field.name: inside[field.name] for field in dataclasses.fields(Manifest)}
    return Manifest(**{**known, "metrics": prefix})


class PrefixRecord(TypedDict):
    """A ``Prefix`` in a JSON file."""

    length: int
    sha256: str


class _Record(TypedDict):
    """The content of a manifest's file."""

    format: int
    run: str
    status: str
    round: int
    reason: str | None
    settings: str
    files: dict[str, str]
    metrics: PrefixRecord


def check_prefix(where: str, value: Any) -> Prefix:
    """A ``Prefix`` from a JSON file.

    Raises:
        InputError: If the value has another form.
    """
    record: PrefixRecord = conform(f"{where}: metrics", value, PrefixRecord)
    if record["length"] < 0:
        raise InputError(f"{where}: metrics.length should not be below 0")
    return Prefix(**record)


def find_standing(folder: RunFolder, manifest: Manifest | None) -> Standing:
    """The status of a run, from its manifest and its lock.

    Raises:
        InputError: If ``status.json`` says that the run has ended, and the manifest doesn't.
    """
    status = folder.status()
    if manifest is None:
        told = status["status"], status["round"], status.get("reason")
    else:
        told = manifest.status, manifest.round, manifest.reason
        if not (folder / files.STATUS).is_file():
            raise InputError(f"{folder / files.STATUS} is missing; {_advice(folder)}")
        # A kill between the two files leaves an older status. A newer one than the manifest's was changed by hand.
        if status["status"] in ENDED and (status["status"], status["round"], status.get("reason")) != told:
            now = read_manifest(folder)
            if now is not None and now != manifest:  # the run has ended since its manifest was read
                return find_standing(folder, now)
            raise InputError(
                f"{folder / files.STATUS} says that the run is {status['status']} in round {status['round']}, but "
                f"{files.MANIFEST} says {manifest.status} in round {manifest.round}: one of them was changed; "
                f"{_advice(folder)}"
            )
    is_live = told[0] not in ENDED and folder.is_being_written()
    return Standing("killed" if told[0] == "running" and not is_live else told[0], *told[1:], is_live)


def prove_settings(folder: RunFolder, manifest: Manifest | None, settings: Mapping[str, Any]) -> None:
    """Refuses a configuration that isn't the one that the run began with.

    Raises:
        InputError: If a setting was changed or lost.
    """
    if manifest is not None and checksum_of_settings(settings) != manifest.settings:
        names = named_in(settings)
        # A changed configuration may name code, and a new run with it would import that code: so don't suggest one.
        advice = (
            f"It names {', '.join(names)}, which a new run would import: look at it first"
            if names
            else (f"Or start a new run with them, in another folder: adabest run {folder / files.CONFIG} --out ...")
        )
        raise InputError(
            f"{folder / files.CONFIG} isn't what the run began with: settings were changed or lost. Undo that. {advice}"
        )


def read_proven(folder: RunFolder, manifest: Manifest | None, name: str) -> bytes | None:
    """The content of a file that doesn't change any more; None if the run has none of that name.

    Raises:
        InputError: If the file isn't the one that the run wrote.
    """
    content = read_bytes(folder / name)
    if manifest is None:
        return content
    if name in manifest.files and content is None:
        raise InputError(f"{folder / name} is missing; {_advice(folder)}")
    if content is not None and sha256(content) != manifest.files.get(name):
        raise InputError(
            f"{folder / name} isn't the file that this run wrote: its SHA-256 isn't the one in {files.MANIFEST}; "
            f"{_advice(folder)}"
        )
    return content


def prove_ended(folder: RunFolder, manifest: Manifest) -> None:
    """Makes sure that all files of an ended run are whole, before its checkpoints are removed.

    Raises:
        InputError: If a file is missing or damaged.
    """
    for name in manifest.files:
        read_proven(folder, manifest, name)
    prove_metrics(folder, manifest.metrics, exactly=True)


def prove_metrics(
    folder: RunFolder, prefix: Prefix, *, exactly: bool, claimed_by: str = files.MANIFEST
) -> "hashlib._Hash":
    """Refuses metrics that don't begin with the proven rows; returns the hash of these rows, to be continued.

    Args:
        folder: The run's folder.
        prefix: The proven rows.
        exactly: Whether further rows are refused, too.
        claimed_by: The file that proves them, for the message.

    Raises:
        InputError: If a row was changed or is missing, or there are further ones.
    """
    path = folder / files.METRICS
    size = path.stat().st_size if path.is_file() else -1
    if size < prefix.length:
        lost = "is missing" if size < 0 else f"has {size:,} bytes of {prefix.length:,}"
        raise InputError(f"{path} {lost}: rows that {claimed_by} proves are lost; {_advice(folder)}")
    if exactly and size > prefix.length:
        raise InputError(f"{path} has rows that the run didn't write ({claimed_by} ends before); {_advice(folder)}")
    found = hashlib.sha256()
    with path.open("rb") as file:
        left = prefix.length
        while left > 0 and (block := file.read(min(left, _CHUNK))):
            found.update(block)
            left -= len(block)
    if found.hexdigest() != prefix.sha256:
        raise InputError(f"{path} was changed: its rows aren't those that {claimed_by} proves; {_advice(folder)}")
    return found


def checksum_of_settings(settings: Mapping[str, Any]) -> str:
    """The checksum of settings, without those that may change. The layout of their file doesn't matter."""
    return checksum_of_object({name: value for name, value in settings.items() if name not in _MOVABLE})


def checksum_of_object(content: Mapping[str, Any]) -> str:
    """The checksum of a JSON object. The layout of its file doesn't matter."""
    return sha256(json.dumps(content, sort_keys=True, default=str).encode())


def sha256(content: bytes) -> str:
    """The SHA-256 checksum of bytes."""
    return hashlib.sha256(content).hexdigest()


def checksum_of_file(path: Path) -> str:
    """The SHA-256 checksum of a file."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        # Large blocks: a thread that hashes needs the interpreter's lock once for each.
        block = memoryview(bytearray(min(max(os.fstat(file.fileno()).st_size, 1), _CHUNK)))
        while length := file.readinto(block):
            digest.update(block[:length])
    return digest.hexdigest()


def _advice(folder: RunFolder) -> str:
    return f"bring back a good copy, or make the run anew; `adabest verify {folder.path}` says what is whole"
