"""A run as a lane: everything from its folder's lock to its last file, while someone else does its clients' work.

A lane holds what is its own (folder, checkpoints, trackers) and nothing that a process has only one of: signals,
threads and the progress display belong to whoever advances it, and are shared with the lanes beside it.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from safetensors.torch import save

from adabest.engine.lanes import Lane
from adabest.engine.metrics import Metrics
from adabest.errors import AdabestError, Diverged, InputError, Interrupted, note_how_to_go_on
from adabest.runs.beginning import adopt, begin, restore
from adabest.runs.build import Federation, build_federation
from adabest.runs.callbacks.board import Board
from adabest.runs.callbacks.checkpoints import CheckpointPace, CheckpointTime, Stopwatch
from adabest.runs.callbacks.early_stopping import reason_to_stop
from adabest.runs.callbacks.progress import Blinded, Reporter
from adabest.runs.callbacks.tracking import tracked
from adabest.runs.files import folder as files
from adabest.runs.files.atomic_files import write_bytes, write_text
from adabest.runs.files.folder import ENDED, RunFolder
from adabest.runs.files.manifest import Ledger, find_standing, prove_ended, prove_settings, read_manifest, sha256
from adabest.runs.settings.config import Config
from adabest.runs.settings.object_names import named_in
from adabest.runs.settings.placeholders import has_objects
from adabest.runs.settings.resolution import Components, resolve_again
from adabest.runs.settings.toml_file import read_toml, to_toml
from adabest.stop_requests import resume_command, saving
from adabest.tasks.base import Heartbeat

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
        unverified: Whether a run of version 0.4.0, or one that lost its manifest, may be gone on with unproven.
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
    unverified: bool = False
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
        with folder.replacing() as drop_the_old, tracked(folder, config, group=run.group) as tell:
            ledger = begin(folder, config, federation)
            drop_the_old()
            yield from _rounds(run, company, config, federation, ledger=ledger, tell=tell)
    finally:
        folder.release()


def _resumed(run: Planned, company: Company) -> Lane[None]:
    folder = run.folder
    folder.acquire()
    try:
        manifest = read_manifest(folder, may_be_lost=run.unverified)
        if find_standing(folder, manifest).status in ENDED:
            return  # someone was faster
        settings = read_toml(folder / files.CONFIG)
        prove_settings(folder, manifest, settings)
        config, components = resolve_again(settings, vars(run.components), run.data_dir)
        if manifest is None and not run.unverified:
            raise InputError(
                f"{folder.path} is a run of version 0.4.0 or before, which left nothing to prove its files by; "
                f"`{resume_command(folder.path)} --unverified` goes on all the same"
            )
        federation = build_federation(config, components, company.heartbeat, folder.path)
        if manifest is None:
            ledger = adopt(folder, config, federation)
        else:
            ledger = restore(folder, config, federation, manifest)
        if run.data_dir is not None:
            write_text(folder / files.CONFIG, to_toml(config.flat()))
        with tracked(folder, config, group=run.group, resumed=True) as tell:
            yield from _rounds(run, company, config, federation, ledger=ledger, tell=tell)
    finally:
        folder.release()


def refuse_run(folder: RunFolder, overwrite: bool) -> None:
    """Refuses a folder that holds a run, unless it may be replaced.

    Raises:
        InputError: If it does.
    """
    folder.settle()
    if folder.holds_run() and not overwrite:
        status = find_standing(folder, read_manifest(folder)).status
        if status in ENDED:
            raise InputError(f"{folder.path} holds a {status} run; choose another folder, or pass --overwrite")
        raise InputError(
            f"{folder.path} holds an unfinished run; continue it with `{resume_command(folder.path)}`, "
            "choose another folder, or pass --overwrite"
        )


def _rounds(
    run: Planned, company: Company, config: Config, federation: Federation, *, ledger: Ledger, tell: Tell
) -> Lane[None]:
    """All rounds that are left."""
    folder, simulation = run.folder, federation.simulation
    label, first = run.label or folder.path.name, simulation.state.round
    pace = CheckpointPace(config.checkpoint_every, first, company.checkpoint_time)
    try:
        with company.board.reporter(label, first, config.rounds) as reporter:
            show = Blinded(reporter) if run.blind else reporter
            last, early = yield from _until_the_end(folder, config, federation, pace, ledger, show=show, tell=tell)
    except Interrupted:
        if simulation.state.round > pace.saved_round:
            pace.save(folder, federation, ledger)
        ledger.save("interrupted", simulation.state.round)
        raise Interrupted(_interrupted(folder, config, simulation.state.round)) from None
    except Diverged as error:
        models = _finish(folder, federation)
        round_number = simulation.state.round + 1
        lost = {"round": round_number, "diverged": str(error)}
        ledger.append_metrics(lost)
        tell(lost)
        ledger.save("diverged", round_number, str(error), models)
        folder.log(f"diverged in round {round_number}: {error}")
    else:
        ledger.save("finished", last, early, _finish(folder, federation))
        folder.log(": ".join([f"finished after round {last}", *([] if early is None else [early])]))
    finally:
        pace.end()
    drop_checkpoints(folder)


def _until_the_end(
    folder: RunFolder,
    config: Config,
    federation: Federation,
    pace: CheckpointPace,
    ledger: Ledger,
    *,
    show: Reporter,
    tell: Tell,
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
            _broken_off(folder, federation, pace, ledger, error)
            raise
        if simulation.state.skipped_rounds > skipped:
            folder.log(f"round {round_number} is skipped: nobody is present")
        speed = stopwatch.lap(simulation.state.local_steps)
        if metrics is not None:
            ledger.append_metrics(metrics)
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
            seconds = pace.save(folder, federation, ledger)
            folder.append(files.TIMINGS, {"round": round_number, "checkpoint_seconds": seconds})
        show.show(round_number, metrics, speed)
    return last, early


def _broken_off(
    folder: RunFolder, federation: Federation, pace: CheckpointPace, ledger: Ledger, error: Exception
) -> None:
    """Saves the last finished round when a round fails, in most cases by what happened in another lane."""
    done = federation.simulation.state.round
    with contextlib.suppress(OSError):  # a full disk, for instance, which is what the error says already
        if done > pace.saved_round:
            pace.save(folder, federation, ledger)
        folder.log(f"broken off after round {done}: {error}")


def _interrupted(folder: RunFolder, config: Config, done: int) -> str:
    """Notes that a run was interrupted, and says how to go on."""
    how = f"interrupted after round {done}; resume with: {_way_to_resume(folder, config)}"
    folder.log(how)
    return how


def _way_to_resume(folder: RunFolder, config: Config) -> str:
    if has_objects(config):
        return f"adabest.resume({str(folder.path)!r}, ...) and the objects it was given"
    return resume_command(folder.path, named_in(config.flat()))


def _after_a_failure(run: Planned) -> str:
    """How to go on with a run once what broke it off is mended."""
    folder = run.folder
    if folder.holds_run():
        return f"mend that, then resume with: {_way_to_resume(folder, run.config)}"
    if not folder.path.is_dir():
        return f"put the folder {folder.path} back, then resume with: {_way_to_resume(folder, run.config)}"
    return "mend that, then begin the run again"


@saving()
def _finish(folder: RunFolder, federation: Federation) -> dict[str, str]:
    """Writes the models that a run leaves behind; returns their sums, by file name."""
    simulation, model = federation.simulation, federation.task.model
    vectors = {
        "scored": simulation.scored_model(),
        "aggregate": simulation.state.aggregate,
        "cloud": simulation.state.cloud,
    }
    averaged = simulation.averaged_model()
    if averaged is not None:
        vectors["averaged"] = averaged
    sums = {}
    for name, vector in vectors.items():
        model.load(vector)
        # Clones, because tied parameters share memory, which safetensors refuses.
        content = save({key: value.detach().cpu().clone() for key, value in model.module.state_dict().items()})
        write_bytes(folder / files.MODELS[name], content)
        sums[files.MODELS[name]] = sha256(content)
    return sums


def drop_checkpoints(folder: RunFolder) -> None:
    """Removes the checkpoints of a run that has ended, once all that it leaves has been proven to be there.

    Raises:
        InputError: If it isn't.
    """
    directory, manifest = folder / files.CHECKPOINTS, read_manifest(folder, may_be_lost=True)
    if not directory.is_dir() or manifest is None or not manifest.has_ended():
        return
    prove_ended(folder, manifest)
    for entry in directory.glob("*"):
        entry.unlink()
    directory.rmdir()


def _words(metrics: Metrics, speed: float) -> str:
    return (
        f"round {metrics['round']}: scored accuracy {metrics['scored_accuracy']:.4f}, "
        f"loss {metrics['scored_loss']:.4f}, {speed:,.0f} steps/s"
    )
