"""A run as a lane: everything from its folder's lock to its last file, while someone else does its clients' work.

A lane holds what is its own (folder, checkpoints, trackers) and nothing that a process has only one of: signals,
threads and the progress display belong to whoever advances it, and are shared with the lanes beside it.
"""

import contextlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from safetensors.torch import save

from adabest.engine import Metrics
from adabest.engine.lanes import Lane
from adabest.engine.task import Heartbeat
from adabest.errors import AdabestError, Diverged, InputError, Interrupted, note_how_to_go_on
from adabest.runs import folder as files
from adabest.runs.board import Board
from adabest.runs.build import Federation, build_federation, environment, environment_changes, fingerprints
from adabest.runs.checkpoint import load_checkpoint
from adabest.runs.config import Components, Config, read_toml, resolve_again, to_toml
from adabest.runs.folder import ENDED, RunFolder, write_bytes, write_text
from adabest.runs.interruption import resume_command, saving
from adabest.runs.pace import CheckpointPace, CheckpointTime, Stopwatch
from adabest.runs.progress import Blinded, Reporter
from adabest.runs.stopping import reason_to_stop
from adabest.runs.tracking import tracked

Tell = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Planned:
    """A run that is to be made.

    Attributes:
        folder: Where.
        config: The complete configuration. A run that is resumed goes on with the one in its folder.
        components: The objects that it names.
        resumed: Whether it has begun before, and goes on.
        overwrite: Whether another run that lies there may be replaced.
        data_dir: The folder of the official data files, if they have moved since it began.
        label: What to call it while it shows its progress.
        group: What trackers that haven't heard of it are to group it under.
        blind: Whether its progress tells nothing of the test set, since something is chosen by it.
    """

    folder: RunFolder
    config: Config
    components: Components
    resumed: bool = False
    overwrite: bool = False
    data_dir: str | None = None
    label: str = ""
    group: str = ""
    blind: bool = False


class Company(NamedTuple):
    """What lanes that are advanced together share.

    Attributes:
        heartbeat: What is called between local steps, and raises if someone asked to stop.
        board: What shows their progress.
        checkpoint_time: What their checkpoints cost.
    """

    heartbeat: Heartbeat
    board: Board
    checkpoint_time: CheckpointTime


def lane(run: Planned, company: Company) -> Lane[None]:
    """A run from its first round, or the one after its last checkpoint, to its last. An ended run is left as it is.

    Raises:
        InputError: If something can't be used, before the first round.
        Interrupted: If someone asked to stop; the folder holds all that is needed to resume.
    """
    try:
        yield from _resumed(run, company) if run.resumed else _begun(run, company)
    except AdabestError:
        raise
    except Exception as error:
        note_how_to_go_on(error, _after_a_failure(run))
        raise


def _begun(run: Planned, company: Company) -> Lane[None]:
    folder, config = run.folder, run.config
    refuse_run(folder, run.overwrite)
    federation = build_federation(config, run.components, company.heartbeat, folder.path)
    folder.acquire()
    try:
        refuse_run(folder, run.overwrite)  # again: someone may have been faster
        with folder.replacing() as begun, tracked(folder, config, group=run.group) as tell:
            begun()
            write_text(folder / files.CONFIG, to_toml(config.flat()))
            _begin(folder, config, federation)
            yield from _rounds(run, company, config, federation, tell)
    finally:
        folder.release()


def _resumed(run: Planned, company: Company) -> Lane[None]:
    folder = run.folder
    folder.acquire()
    try:
        if folder.status()["status"] in ENDED:
            return  # someone was faster
        config, components = resolve_again(read_toml(folder / files.CONFIG), vars(run.components), run.data_dir)
        federation = build_federation(config, components, company.heartbeat, folder.path)
        _restore(folder, config, federation)
        if run.data_dir is not None:
            write_text(folder / files.CONFIG, to_toml(config.flat()))
        with tracked(folder, config, group=run.group, resumed=True) as tell:
            yield from _rounds(run, company, config, federation, tell)
    finally:
        folder.release()


def refuse_run(folder: RunFolder, overwrite: bool) -> None:
    """Refuses a folder that holds a run, unless it may be replaced.

    Raises:
        InputError: If it does.
    """
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


def refuse_change(folder: RunFolder, identity: Mapping[str, Any], federation: Federation) -> None:
    """Refuses to go on with another data set, partition or initial model than a run began with.

    Raises:
        InputError: If it is another one.
    """
    for key, before in fingerprints(identity).items():
        if before != fingerprints(federation.identity)[key]:
            raise InputError(
                f"{folder.path}: the {key.replace('_', ' ')} isn't the one that this run began with "
                f"(see {files.IDENTITY}), so the result would be of neither; choose another folder, or --overwrite"
            )


def _begin(folder: RunFolder, config: Config, federation: Federation) -> None:
    folder.write_json(files.IDENTITY, federation.identity)
    folder.write_json(files.ENVIRONMENT, environment(config))
    folder.write_json(files.STATUS, {"status": "running", "round": 0})
    for name in (files.METRICS, files.TIMINGS):
        write_text(folder / name, "")
    folder.log(f"begins: {config.algorithm} on {config.dataset}, {config.rounds} rounds")


def _restore(folder: RunFolder, config: Config, federation: Federation) -> None:
    """Puts the federation where the last checkpoint left it."""
    identity, before = folder.read_json(files.IDENTITY), folder.read_json(files.ENVIRONMENT)
    if identity is None or before is None:
        _begin(folder, config, federation)
        return
    refuse_change(folder, identity, federation)
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


def _rounds(run: Planned, company: Company, config: Config, federation: Federation, tell: Tell) -> Lane[None]:
    """All rounds that are left."""
    folder, simulation = run.folder, federation.simulation
    label, first = run.label or folder.path.name, simulation.state.round
    pace = CheckpointPace(config.checkpoint_every, first, company.checkpoint_time)
    try:
        with company.board.reporter(label, first, config.rounds) as reporter:
            show = Blinded(reporter) if run.blind else reporter
            last, early = yield from _until_the_end(folder, config, federation, pace, show=show, tell=tell)
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
    finally:
        pace.end()
    drop_checkpoints(folder)


def _until_the_end(
    folder: RunFolder, config: Config, federation: Federation, pace: CheckpointPace, *, show: Reporter, tell: Tell
) -> Lane[tuple[int, str | None]]:
    """The rounds themselves; returns the last one, and why it is, if it comes early."""
    simulation = federation.simulation
    stopwatch = Stopwatch(simulation.state.round, simulation.state.local_steps)
    rows, last, early = folder.rows(files.METRICS), config.rounds, None
    while simulation.state.round < last:
        round_number = simulation.state.round + 1
        evaluate = round_number % config.evaluate_every == 0 or round_number == config.rounds
        skipped = simulation.state.skipped_rounds
        try:
            metrics = yield from simulation.round(evaluate=evaluate)
        except (Interrupted, Diverged):
            raise
        except Exception as error:
            _broken_off(folder, federation, pace, error)
            raise
        if simulation.state.skipped_rounds > skipped:
            folder.log(f"round {round_number} is skipped: nobody is present")
        speed = stopwatch.lap(simulation.state.local_steps)
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
    return last, early


def _broken_off(folder: RunFolder, federation: Federation, pace: CheckpointPace, error: Exception) -> None:
    """Saves the last finished round when a round fails, in most cases by what happened in another lane."""
    done = federation.simulation.state.round
    with contextlib.suppress(OSError):  # a full disk, for instance, which is what the error says already
        if done > pace.saved_round:
            pace.save(folder, federation)
        folder.write_json(files.STATUS, {"status": "running", "round": done})
        folder.log(f"broken off after round {done}: {error}")


def _interrupted(folder: RunFolder, config: Config, done: int) -> str:
    """Notes that a run was interrupted, and says how to go on."""
    folder.write_json(files.STATUS, {"status": "interrupted", "round": done})
    how = f"interrupted after round {done}; resume with: {_way_to_resume(folder, config)}"
    folder.log(how)
    return how


def _way_to_resume(folder: RunFolder, config: Config) -> str:
    if config.has_objects():
        return f"adabest.resume({str(folder.path)!r}, ...) and the objects it was given"
    return resume_command(folder.path)


def _after_a_failure(run: Planned) -> str:
    """How to go on with a run once what broke it off is mended."""
    folder = run.folder
    if folder.holds_run():
        return f"mend that, then resume with: {_way_to_resume(folder, run.config)}"
    if not folder.path.is_dir():
        return f"put the folder {folder.path} back, then resume with: {_way_to_resume(folder, run.config)}"
    return "mend that, then begin the run again"


@saving()
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


def drop_checkpoints(folder: RunFolder) -> None:
    """Removes the checkpoints of a run that has ended."""
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
