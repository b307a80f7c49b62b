"""The beginning of a run in its folder: a new run, one resumed from a checkpoint, or one of an earlier version."""

import json
import os
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from adabest.engine.state import Snapshot
from adabest.errors import InputError
from adabest.runs.build import Federation, environment, environment_changes, fingerprints
from adabest.runs.files import folder as files
from adabest.runs.files.atomic_files import write_text
from adabest.runs.files.checkpoint import checkpoints_of, load_checkpoint, save_checkpoint
from adabest.runs.files.folder import RunFolder
from adabest.runs.files.manifest import FORMAT, FORMAT_KEY, Ledger, Manifest, Prefix, read_proven, sha256
from adabest.runs.settings.config import Config
from adabest.runs.settings.toml_file import to_toml


class TakenUp(NamedTuple):
    """A resumed run.

    Attributes:
        ledger: The writer of its manifest.
        callbacks: The states of its callbacks by name, from its checkpoint.
    """

    ledger: Ledger
    callbacks: Mapping[str, Mapping[str, Any]]


def begin(folder: RunFolder, config: Config, federation: Federation) -> Ledger:
    """Writes the first files of a run, the configuration last: a folder without one holds no run."""
    folder.write_json(files.IDENTITY, federation.identity)
    folder.write_json(files.ENVIRONMENT, {FORMAT_KEY: FORMAT, **environment(config)})
    for name in (files.METRICS, files.TIMINGS):
        write_text(folder / name, "")
    text = to_toml(config.flat())
    ledger = Ledger.of_new_run(folder, text)
    ledger.save("running", 0)
    folder.log(f"begins: {config.algorithm} on {config.dataset}, {config.rounds} rounds")
    write_text(folder / files.CONFIG, text)
    return ledger


def restore(folder: RunFolder, config: Config, federation: Federation, manifest: Manifest) -> TakenUp:
    """Restores the federation from the last whole checkpoint.

    Raises:
        InputError: If a file that the run depends on was changed or lost.
    """
    proven = {name: read_proven(folder, manifest, name) for name in manifest.files}
    identity, before = (
        files.parse_object(folder / name, proven[name] or b"") for name in (files.IDENTITY, files.ENVIRONMENT)
    )
    refuse_change(folder, identity, federation.identity)
    _warn_of_changes(folder, config, before)
    checkpoint = load_checkpoint(folder, manifest)
    metrics, callbacks = Prefix(0, sha256(b"")), dict[str, Mapping[str, Any]]()
    if checkpoint is not None and checkpoint.metrics is not None:
        _put_back(folder, federation, checkpoint.state, before)
        metrics, callbacks = checkpoint.metrics, dict(checkpoint.callbacks)
    elif manifest.round > 0:
        warning = f"{folder.path} has no whole checkpoint left, so it begins again with round 1"
        folder.log(f"warning: {warning}")
        warnings.warn(warning, stacklevel=2)
    ledger = Ledger(folder, manifest.with_metrics(metrics))
    _go_on(folder, federation, ledger)
    os.truncate(
        folder / files.METRICS, metrics.length
    )  # after the manifest, or a kill leaves one that proves lost rows
    return TakenUp(ledger, callbacks)


def adopt(folder: RunFolder, config: Config, federation: Federation) -> TakenUp:
    """Resumes a run of version 0.4.0, which has no manifest, and gives it one.

    Raises:
        InputError: If a file that it began with was changed or lost.
    """
    identity, before = folder.read_json(files.IDENTITY), folder.read_json(files.ENVIRONMENT)
    if identity is None or before is None:
        if checkpoints_of(folder) or folder.rows(files.METRICS):
            lost = files.IDENTITY if identity is None else files.ENVIRONMENT
            raise InputError(f"{folder / lost} is missing; bring it back, or make the run anew")
        return TakenUp(begin(folder, config, federation), {})
    refuse_change(folder, identity, federation.identity)
    _warn_of_changes(folder, config, before)
    checkpoint = load_checkpoint(folder, None)
    if checkpoint is not None:
        _put_back(folder, federation, checkpoint.state, before)
    last_round = federation.simulation.state.round
    kept = [row for row in folder.rows(files.METRICS) if row["round"] <= last_round]
    write_text(folder / files.METRICS, "".join(json.dumps(row, allow_nan=False) + "\n" for row in kept))
    ledger = Ledger.of_new_run(folder, (folder / files.CONFIG).read_text(encoding="utf-8"))
    if checkpoint is not None:
        save_checkpoint(folder, federation.simulation.view(), ledger.claims())
        for older in checkpoints_of(folder)[1:]:  # they don't name their run, and would be refused as another run's
            older.unlink()
    _go_on(folder, federation, ledger)
    return TakenUp(ledger, {})


def refuse_change(folder: RunFolder, identity: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuses to resume a run with another data set, partition or initial model than it began with.

    Raises:
        InputError: If one of them differs.
    """
    for key, before in fingerprints(identity).items():
        if before != fingerprints(now)[key]:
            raise InputError(
                f"{folder.path}: the {key.replace('_', ' ')} isn't the one that this run began with "
                f"(see {files.IDENTITY}), so the result would be of neither; choose another folder, or --overwrite"
            )


def _warn_of_changes(folder: RunFolder, config: Config, before: Mapping[str, Any]) -> None:
    for change in environment_changes(before, environment(config)):
        warning = f"{change}; the last bits of the result may differ from an uninterrupted run"
        folder.log(f"warning: {warning}")
        warnings.warn(warning, stacklevel=2)


def _put_back(folder: RunFolder, federation: Federation, state: Snapshot, before: Mapping[str, Any]) -> None:
    try:
        federation.simulation.restore(state)
    except KeyError as error:
        version = before.get("adabest", "another version")
        raise InputError(
            f"{folder.path}: its checkpoint, written by adabest {version}, lacks {error}, so this version can't go "
            "on from it; finish the run with that version, or begin it anew with --overwrite"
        ) from error
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"{folder.path}: its checkpoint doesn't fit the run ({error}); begin it anew with --overwrite"
        ) from error


def _go_on(folder: RunFolder, federation: Federation, ledger: Ledger) -> None:
    last_round = federation.simulation.state.round
    folder.cut_timings(last_round)
    ledger.save("running", last_round)
    folder.log(f"resumes after round {last_round}")
