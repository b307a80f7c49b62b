"""Running: from a configuration to a finished folder, through interruptions of any kind."""

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from adabest.engine import Metrics
from adabest.errors import Diverged, InputError, Interrupted
from adabest.runs import folder as files
from adabest.runs.build import Federation, build_federation, environment, environment_changes, fingerprints
from adabest.runs.checkpoint import load_checkpoint, save_checkpoint
from adabest.runs.config import Components, Config, read_toml, resolve_again, to_toml
from adabest.runs.folder import ENDED, RunFolder, write_bytes, write_text
from adabest.runs.interruption import StopRequests, resume_command
from adabest.runs.progress import Reporter, reporter
from adabest.runs.stopping import reason_to_stop
from adabest.runs.tracking import tracked

_SHARE_OF_TIME = 0.05
_SECONDS_BETWEEN_CHECKPOINTS = 10.0
_PARAMETERS_FOR_THREADS = 100_000


def start(
    config: Config,
    components: Components,
    path: Path,
    *,
    overwrite: bool = False,
    label: str = "",
    show: bool = False,
    group: str = "",
) -> None:
    """Runs a configuration in a folder, from the first round to the last.

    Args:
        config: The complete configuration.
        components: The objects that it names.
        path: The run's folder.
        overwrite: Whether a run that lies there may be replaced.
        label: What to call the run while it shows its progress.
        show: Whether to show progress.
        group: What trackers are to group the run under.

    Raises:
        InputError: If something can't be used, or the folder holds a run already. Nothing was run.
        Interrupted: If a signal asked to stop; the folder holds all that is needed to resume.
    """
    folder = RunFolder(path)
    _refuse_run(folder, overwrite)
    with StopRequests() as requests:
        federation = build_federation(config, components, requests.heartbeat, path)
        folder.acquire()
        try:
            _refuse_run(folder, overwrite)  # again: someone may have been faster
            with (
                folder.replacing() as begun,
                _arithmetic(config, federation),
                tracked(folder, config, group=group) as tell,
            ):
                begun()
                write_text(folder / files.CONFIG, to_toml(config.flat()))
                _begin(folder, config, federation)
                _continue(folder, config, federation, reporter(label or path.name, 0, config.rounds, show=show), tell)
        finally:
            folder.release()


def resume(
    path: Path,
    objects: Mapping[str, Any] | None = None,
    *,
    data_dir: str | None = None,
    label: str = "",
    show: bool = False,
    group: str = "",
) -> None:
    """Continues a run from its last checkpoint, or from the start if it has none. A finished run is left as it is.

    Args:
        path: The run's folder.
        objects: The data set, algorithm, model or loss of a run that was given Python objects.
        data_dir: The folder of the official data files, if they have moved; the run remembers it.
        label: What to call the run while it shows its progress.
        show: Whether to show progress.
        group: What trackers that haven't heard of the run are to group it under.

    Raises:
        InputError: If there is no run, or what it depends on has changed.
        Interrupted: If a signal asked to stop again.
    """
    folder = RunFolder(path)
    if not folder.holds_run():
        below = (
            "; there are runs below it, which can be resumed one by one" if any(path.glob(f"*/{files.CONFIG}")) else ""
        )
        raise InputError(f"there is no run in {path} (it has no {files.CONFIG}){below}")
    _find_modules(folder)
    with StopRequests() as requests:
        folder.acquire()
        try:
            if folder.status()["status"] in ENDED:
                _drop_checkpoints(folder)
                return
            config, components = resolve_again(read_toml(folder / files.CONFIG), objects or {}, data_dir)
            federation = build_federation(config, components, requests.heartbeat, path)
            with _arithmetic(config, federation):
                first = _restore(folder, config, federation)
                if data_dir is not None:
                    write_text(folder / files.CONFIG, to_toml(config.flat()))
                with tracked(folder, config, group=group, resumed=True) as tell:
                    progress = reporter(label or path.name, first, config.rounds, show=show)
                    _continue(folder, config, federation, progress, tell)
        finally:
            folder.release()


def _find_modules(folder: RunFolder) -> None:
    """Makes importable again what was importable where the run began: ``module:attribute`` of the user's own."""
    began = (folder.read_json(files.ENVIRONMENT) or {}).get("working_directory")
    if began and began not in sys.path:
        sys.path.append(began)


def discard(paths: Iterable[Path]) -> None:
    """Removes the runs that lie in folders, where there are any.

    Raises:
        InputError: If a process is working on one, or a folder holds anything else; nothing was removed.
    """
    folders = [RunFolder(path) for path in paths if path.exists()]
    with contextlib.ExitStack() as stack:
        for folder in folders:
            folder.acquire()
            stack.callback(folder.release)
            folder.refuse_foreign()
        for folder in folders:
            folder.clear()


@contextlib.contextmanager
def _arithmetic(config: Config, federation: Federation) -> Iterator[None]:
    """CPU threads as configured, and on a GPU convolutions that give the same bits every time, in full precision.

    By default there is one thread where the model is so small that several would only wait for each other.
    """
    before = torch.get_num_threads()
    small = federation.identity["parameters"] < _PARAMETERS_FOR_THREADS
    torch.set_num_threads(config.threads or (1 if small else before))
    exact: Any = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
    try:
        with exact if config.device.startswith("cuda") else contextlib.nullcontext():
            yield
    finally:
        torch.set_num_threads(before)


def _refuse_run(folder: RunFolder, overwrite: bool) -> None:
    """Refuses a folder that holds a run, unless it may be replaced."""
    if folder.holds_run() and not overwrite:
        status = folder.status()
        if status["status"] in ENDED:
            raise InputError(
                f"{folder.path} holds a {status['status']} run; choose another folder, or pass --overwrite"
            )
        raise InputError(
            f"{folder.path} holds an unfinished run; continue it with `{resume_command(folder.path)}`, "
            "choose another folder, or pass --overwrite"
        )


def _begin(folder: RunFolder, config: Config, federation: Federation) -> None:
    folder.write_json(files.IDENTITY, federation.identity)
    folder.write_json(files.ENVIRONMENT, environment(config))
    folder.write_json(files.STATUS, {"status": "running", "round": 0})
    for name in (files.METRICS, files.TIMINGS):
        write_text(folder / name, "")
    folder.log(f"begins: {config.algorithm} on {config.dataset}, {config.rounds} rounds")


def _restore(folder: RunFolder, config: Config, federation: Federation) -> int:
    """Puts the federation where the last checkpoint left it; returns that round."""
    identity, before = folder.read_json(files.IDENTITY), folder.read_json(files.ENVIRONMENT)
    if identity is None or before is None:
        _begin(folder, config, federation)
        return 0
    _refuse_change(folder, identity, federation)
    for change in environment_changes(before, environment(config)):
        warning = f"{change}; the last bits of the result may differ from an uninterrupted run"
        folder.log(f"warning: {warning}")
        warnings.warn(warning, stacklevel=2)
    snapshot = load_checkpoint(folder)
    if snapshot is not None:
        try:
            federation.simulation.restore(snapshot)
        except KeyError as error:
            version = before.get("adabest", "another version")
            raise InputError(
                f"{folder.path}: its checkpoint, written by adabest {version}, lacks {error}, so this version can't go "
                "on from it; finish the run with that version, or begin it anew with --overwrite"
            ) from error
    last_round = federation.simulation.state.round
    for name in (files.METRICS, files.TIMINGS):
        folder.cut(name, last_round)
    folder.write_json(files.STATUS, {"status": "running", "round": last_round})
    folder.log(f"resumes after round {last_round}")
    return last_round


def _refuse_change(folder: RunFolder, identity: Mapping[str, Any], federation: Federation) -> None:
    """Refuses to go on with another data set, partition or initial model than a run began with."""
    for key, before in fingerprints(identity).items():
        if before != fingerprints(federation.identity)[key]:
            raise InputError(
                f"{folder.path}: the {key.replace('_', ' ')} isn't the one that this run began with "
                f"(see {files.IDENTITY}), so the result would be of neither; choose another folder, or --overwrite"
            )


def check_unchanged(path: Path, config: Config, components: Components) -> None:
    """Makes sure that a run is one of just these data, partition and initial model, whatever their names are.

    Raises:
        InputError: If it isn't.
    """
    folder = RunFolder(path)
    identity = folder.read_json(files.IDENTITY)
    if identity is not None:
        _refuse_change(folder, identity, build_federation(config, components))


def _continue(
    folder: RunFolder, config: Config, federation: Federation, show: Reporter, tell: Callable[[Mapping[str, Any]], None]
) -> None:
    """All rounds that are left."""
    simulation = federation.simulation
    pace = _CheckpointPace(config.checkpoint_every, saved_round=simulation.state.round)
    stopwatch = _Stopwatch(simulation.state.round, simulation.state.local_steps)
    rows, last, early = folder.rows(files.METRICS), config.rounds, None
    try:
        with show:
            while simulation.state.round < last:
                round_number = simulation.state.round + 1
                evaluate = round_number % config.evaluate_every == 0 or round_number == config.rounds
                skipped = simulation.state.skipped_rounds
                metrics = simulation.step(evaluate=evaluate)
                if simulation.state.skipped_rounds > skipped:
                    folder.log(f"round {round_number} is skipped: nobody is present")
                speed = stopwatch.lap(round_number, simulation.state.local_steps)
                if metrics is not None:
                    folder.append(files.METRICS, metrics)
                    folder.append(files.TIMINGS, stopwatch.row(round_number))
                    folder.log(_words(metrics, speed))
                    rows.append(metrics)
                    tell(metrics)
                    if round_number < last:
                        early = reason_to_stop(rows, stop_at=config.stop_at, stop_after=config.stop_after)
                    if early is not None:
                        last = round_number
                        show.ends_at(last)
                if round_number < last and pace.is_due(round_number):
                    seconds = pace.save(folder, federation)
                    folder.append(files.TIMINGS, {"round": round_number, "checkpoint_seconds": seconds})
                    folder.write_json(files.STATUS, {"status": "running", "round": round_number})
                show.show(round_number, metrics, speed)
    except Interrupted:
        if simulation.state.round > pace.saved_round:
            pace.save(folder, federation)
        raise Interrupted(_interrupted(folder, config, simulation.state.round)) from None
    except Diverged as error:
        _finish(folder, federation)
        round_number = simulation.state.round + 1
        lost = {"round": round_number, "diverged": str(error)}
        folder.append(files.METRICS, lost)
        tell(lost)
        folder.write_json(files.STATUS, {"status": "diverged", "round": round_number, "reason": str(error)})
        folder.log(f"diverged in round {round_number}: {error}")
    else:
        _finish(folder, federation)
        reason = {} if early is None else {"reason": early}
        folder.write_json(files.STATUS, {"status": "finished", "round": last, **reason})
        folder.log(": ".join([f"finished after round {last}", *reason.values()]))
    _drop_checkpoints(folder)


def _interrupted(folder: RunFolder, config: Config, done: int) -> str:
    """Notes that a run was interrupted, and says how to go on."""
    folder.write_json(files.STATUS, {"status": "interrupted", "round": done})
    command = resume_command(folder.path)
    if config.has_objects():
        command = f"adabest.resume({str(folder.path)!r}, ...) and the objects it was given"
    how = f"interrupted after round {done}; resume with: {command}"
    folder.log(how)
    return how


def _finish(folder: RunFolder, federation: Federation) -> None:
    """Writes the models that a run leaves behind."""
    simulation, model = federation.simulation, federation.task.model
    vectors = {
        "scored": simulation.scored_model(),
        "aggregate": simulation.state.aggregate,
        "cloud": simulation.state.cloud,
    }
    averaged = simulation.averaged_model()
    if averaged is not None:
        vectors["averaged"] = averaged
    for name, vector in vectors.items():
        model.load(vector)
        # Clones, because tied parameters share memory, which safetensors refuses.
        content = save({key: value.detach().cpu().clone() for key, value in model.module.state_dict().items()})
        write_bytes(folder / files.MODELS[name], content)


def _drop_checkpoints(folder: RunFolder) -> None:
    directory = folder / files.CHECKPOINTS
    for entry in directory.glob("*"):
        entry.unlink()
    if directory.is_dir():
        directory.rmdir()


def _words(metrics: Metrics, speed: float) -> str:
    return (
        f"round {metrics['round']}: scored accuracy {metrics['scored_accuracy']:.4f}, "
        f"loss {metrics['scored_loss']:.4f}, {speed:,.0f} steps/s"
    )


@dataclass
class _CheckpointPace:
    """When the next checkpoint is due: every so many rounds, or as often as costs at most 5 % of the time."""

    every: int | None
    saved_round: int
    saved_at: float = 0.0
    cost: float = 0.0

    def __post_init__(self) -> None:
        self.saved_at = time.monotonic()

    def is_due(self, round_number: int) -> bool:
        if self.every is not None:
            return self.every > 0 and round_number % self.every == 0
        wait = max(_SECONDS_BETWEEN_CHECKPOINTS, self.cost * (1 / _SHARE_OF_TIME - 1))
        return time.monotonic() - self.saved_at >= wait

    def save(self, folder: RunFolder, federation: Federation) -> float:
        begun = time.monotonic()
        save_checkpoint(folder, federation.simulation.view())
        self.saved_at = time.monotonic()
        self.saved_round = federation.simulation.state.round
        self.cost = self.saved_at - begun
        return self.cost


class _Stopwatch:
    """Wall-clock figures of this process's rounds."""

    def __init__(self, first_round: int, first_steps: int) -> None:
        self._begun = self._row_at = time.monotonic()
        self._row_round, self._first_steps, self._steps = first_round, first_steps, first_steps

    def lap(self, round_number: int, steps: int) -> float:
        """Local steps a second since the process began."""
        self._steps = steps
        return (steps - self._first_steps) / max(time.monotonic() - self._begun, 1e-9)

    def row(self, round_number: int) -> dict[str, Any]:
        """The figures since the last row."""
        now = time.monotonic()
        row = {
            "round": round_number,
            "seconds": now - self._begun,
            "seconds_per_round": (now - self._row_at) / (round_number - self._row_round),
            "steps_per_second": (self._steps - self._first_steps) / max(now - self._begun, 1e-9),
        }
        self._row_at, self._row_round = now, round_number
        return row
