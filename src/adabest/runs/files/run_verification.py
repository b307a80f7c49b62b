"""Verification of a run's folder: which of its files are as the run wrote them, and whether it can be resumed."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from adabest.errors import InputError
from adabest.runs.files import folder as files
from adabest.runs.files.checkpoint import checkpoints_of, read_claims, refuse_foreign
from adabest.runs.files.folder import RunFolder, is_ours
from adabest.runs.files.manifest import (
    Manifest,
    find_standing,
    prove_metrics,
    prove_settings,
    read_manifest,
    read_proven,
)
from adabest.runs.settings.toml_file import read_toml
from adabest.stop_requests import resume_command

State = Literal["whole", "damaged", "missing", "foreign", "unproven"]


class Finding(NamedTuple):
    """The state of a file or a folder.

    Attributes:
        path: The file or folder.
        state: ``whole``; ``damaged``; ``missing``; ``foreign``: it isn't the run's; or ``unproven``: no checksum.
        words: The details, and what can still be done.
    """

    path: Path
    state: State
    words: str


def verify_run(path: Path) -> list[Finding]:
    """Checks every file of a run's folder that a result or a resume depends on.

    Returns:
        A finding for the folder as a whole, then one for each file that isn't whole.
    """
    folder = RunFolder(path)
    try:
        folder.settle()
    except (InputError, OSError) as error:
        return [Finding(path, "damaged", f"a run was being replaced, and it can't be settled which is here: {error}")]
    try:
        manifest = read_manifest(folder)
    except InputError as error:
        lost = not (folder / files.MANIFEST).exists()
        found = [Finding(folder / files.MANIFEST, "missing" if lost else "damaged", str(error))]
        return [_outlook(folder, None, found), *found]
    if manifest is None:
        words = "a run of version 0.4.0 or before: it can be read, and resumed with --unverified, but nothing proves it"
        return [Finding(path, "unproven", words)]
    found = [finding for finding in itertools.chain(_entries(folder), _files(folder, manifest)) if finding is not None]
    return [_outlook(folder, manifest, found), *found]


def _entries(folder: RunFolder) -> Iterator[Finding]:
    """Findings for entries that shouldn't be in the folder."""
    for entry in sorted(folder.path.iterdir()):
        if entry.is_symlink():
            yield Finding(entry, "foreign", "a symbolic link, through which nothing is written")
        elif not is_ours(entry.name):
            yield Finding(entry, "foreign", "not a file of the run")
        elif entry.is_dir() != (entry.name in files.FOLDERS):
            kind = "folder" if entry.name in files.FOLDERS else "file"
            yield Finding(entry, "damaged", f"it should be a {kind}; remove it")


def _files(folder: RunFolder, manifest: Manifest) -> Iterator[Finding | None]:
    """Findings for the run's own files; None for those that are whole."""
    has_ended = manifest.has_ended()
    yield _checked(folder / files.STATUS, lambda: find_standing(folder, manifest))
    config = folder / files.CONFIG
    yield _checked(config, lambda: prove_settings(folder, manifest, read_toml(config)))
    for name in manifest.files:
        yield _checked(folder / name, partial(read_proven, folder, manifest, name))
    yield _checked(folder / files.METRICS, lambda: prove_metrics(folder, manifest.metrics, exactly=has_ended))
    newest = folder / files.CHECKPOINTS / f"round-{manifest.round:07d}.json"
    if not has_ended and manifest.round > 0 and not newest.is_file():
        yield Finding(newest, "missing", "the last checkpoint; the one before it is taken, or the run begins again")
    for path in checkpoints_of(folder):
        whole = _checked(path, partial(read_claims, path))
        yield whole or _foreign(path, manifest)


def _checked(path: Path, check: Callable[[], object]) -> Finding | None:
    try:
        check()
    except InputError as error:
        return Finding(path, "damaged" if path.is_file() else "missing", str(error))
    return None


def _foreign(path: Path, manifest: Manifest) -> Finding | None:
    try:
        refuse_foreign(path, read_claims(path), manifest)
    except InputError as error:
        return Finding(path, "foreign", str(error))
    return None


def _outlook(folder: RunFolder, manifest: Manifest | None, found: list[Finding]) -> Finding:
    """The finding for the folder as a whole, with advice."""
    again = "bring back a good copy, or make the run anew from its settings"
    bad = [finding for finding in found if finding.path.parent != folder / files.CHECKPOINTS]
    if manifest is None:
        return Finding(folder.path, "damaged", f"nothing proves its files; {again}")
    models = set(files.MODELS.values())
    if not found:
        ended = f"{manifest.status} in round {manifest.round}"
        on = f"{resume_command(folder.path)} goes on after round {manifest.round}"
        return Finding(folder.path, "whole", ended if manifest.has_ended() else on)
    if found == bad and all(finding.state == "foreign" for finding in found):
        return Finding(folder.path, "foreign", "the run's own files are whole, but there are others among them")
    if not bad:
        words = "a checkpoint is lost or another run's; without those that aren't its own, "
        words += f"{resume_command(folder.path)} goes on from the last whole one, or begins again"
        return Finding(folder.path, "damaged", words)
    if all(finding.path.name in models or finding.state == "foreign" for finding in bad):
        return Finding(folder.path, "damaged", f"settings and metrics are whole, a model isn't; {again}")
    return Finding(folder.path, "damaged", f"what is named below can't be believed; {again}")
