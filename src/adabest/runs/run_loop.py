"""The loop over rounds: one run from its folder's lock to its last file, as a lane.

A lane owns its folder and its callbacks. Signals, threads and the progress display exist once per process: they belong
to the caller that advances the lanes, and are shared by all lanes trained together.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from adabest.engine.lanes import Lane
from adabest.errors import AdabestError, Diverged, InputError, Interrupted, RankFailed, RankLost, note_how_to_go_on
from adabest.runs.beginning import adopt, begin, restore
from adabest.runs.build import Federation, build_federation
from adabest.runs.callbacks.base import Callback, Ending, RunView
from adabest.runs.callbacks.board import Board
from adabest.runs.callbacks.catalog import make_callbacks
from adabest.runs.callbacks.checkpoints import Checkpoints, CheckpointTime
from adabest.runs.callbacks.early_stopping import EarlyStopping
from adabest.runs.callbacks.log import Log
from adabest.runs.callbacks.progress import ShownProgress
from adabest.runs.callbacks.run_records import Records
from adabest.runs.callbacks.timings import Timings
from adabest.runs.files import folder as files
from adabest.runs.files.atomic_files import write_text
from adabest.runs.files.folder import ENDED, RunFolder
from adabest.runs.files.manifest import Ledger, find_standing, prove_ended, prove_settings, read_manifest
from adabest.runs.job import current_job
from adabest.runs.settings.config import Config
from adabest.runs.settings.object_names import named_in
from adabest.runs.settings.placeholders import has_objects
from adabest.runs.settings.resolution import Components, resolve_again
from adabest.runs.settings.toml_file import read_toml, to_toml
from adabest.runs.trackers.patience import PatientTracker
from adabest.stop_requests import resume_command
from adabest.tasks.base import Heartbeat


@dataclass(frozen=True)
class PendingRun:
    """A run that is to be made.

    Attributes:
        folder: The run's folder.
        config: The complete configuration. A resumed run takes the one in its folder.
        components: The objects that the configuration names.
        resumed: Whether the run has begun before, and goes on.
        overwrite: Whether another run in the folder may be replaced.
        unverified: Whether a run of version 0.4.0, or one that lost its manifest, may be resumed without a proof.
        data_dir: The folder of the official data files, if they have moved since the run began.
        label: The run's name in the progress display.
        group: The group under which new trackers list the run.
        blind: Whether progress hides the test accuracy, since the run is used to choose hyper-parameters.
        callbacks: Callbacks that the user gave as objects.
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
    callbacks: tuple[Callback, ...] = ()


class LaneContext(NamedTuple):
    """Resources that lanes trained together share.

    Attributes:
        heartbeat: Called between local steps; raises if a stop was requested.
        board: The progress display.
        checkpoint_time: The seconds that their checkpoints take.
    """

    heartbeat: Heartbeat
    board: Board
    checkpoint_time: CheckpointTime


def lane(run: PendingRun, shared: LaneContext) -> Lane[None]:
    """A lane for one run, from its first round, or the one after its last checkpoint, to its last.

    A run that has ended is left as it is.

    Raises:
        InputError: If a setting or a file can't be used, before the first round.
        Interrupted: If a stop was requested; the folder holds all that is needed to resume.
    """
    try:
        yield from _resumed(run, shared) if run.resumed else _begun(run, shared)
    except (RankLost, RankFailed) as error:
        note_how_to_go_on(error, _after_a_failure(run))
        raise
    except AdabestError:
        raise
    except Exception as error:
        note_how_to_go_on(error, _after_a_failure(run))
        raise


def _begun(run: PendingRun, shared: LaneContext) -> Lane[None]:
    folder, config = run.folder, run.config
    refuse_run(folder, run.overwrite)
    federation = build_federation(config, run.components, shared.heartbeat, folder.path)
    folder.acquire()
    try:
        refuse_run(folder, run.overwrite)  # again: another process may have begun a run here before we had the lock
        with folder.replacing() as drop_the_old:

            def write_first_files() -> Ledger:
                ledger = begin(folder, config, federation)
                drop_the_old()
                return ledger

            view = _view(run, config, federation)
            yield from _rounds(run, shared, config, view, open_ledger=write_first_files)
    finally:
        folder.release()


def _resumed(run: PendingRun, shared: LaneContext) -> Lane[None]:
    folder = run.folder
    folder.acquire()
    try:
        manifest = read_manifest(folder, may_be_lost=run.unverified)
        if find_standing(folder, manifest).status in ENDED:
            return  # another process has finished the run since it was listed
        settings = read_toml(folder / files.CONFIG)
        prove_settings(folder, manifest, settings)
        config, components = resolve_again(settings, vars(run.components), run.data_dir)
        if manifest is None and not run.unverified:
            raise InputError(
                f"{folder.path} is a run of version 0.4.0 or before, which left nothing to prove its files by; "
                f"`{resume_command(folder.path)} --unverified` goes on all the same"
            )
        federation = build_federation(config, components, shared.heartbeat, folder.path)
        taken_up = (
            adopt(folder, config, federation) if manifest is None else restore(folder, config, federation, manifest)
        )
        if run.data_dir is not None:
            write_text(folder / files.CONFIG, to_toml(config.flat()))
        view = _view(run, config, federation)
        yield from _rounds(
            run, shared, config, view, open_ledger=lambda: taken_up.ledger, resumed=True, states=taken_up.callbacks
        )
    finally:
        folder.release()


def _view(run: PendingRun, config: Config, federation: Federation) -> RunView:
    simulation, model = federation.simulation, federation.task.model
    return RunView(run.folder, config.flat(), simulation, model, group=run.group, local_test=federation.local_tests)


def refuse_run(folder: RunFolder, overwrite: bool) -> None:
    """Refuses a folder that holds a run, unless the run may be replaced.

    Raises:
        InputError: If the folder holds one that may not.
    """
    folder.settle()
    if folder.holds_run() and not overwrite:
        status = find_standing(folder, read_manifest(folder)).status
        if status in ENDED:
            raise InputError(f"{folder.path} holds a {status} run; choose another folder, or pass --overwrite")
        allowed = named_in(read_toml(folder / files.CONFIG))
        raise InputError(
            f"{folder.path} holds an unfinished run; continue it with `{resume_command(folder.path, allowed)}`, "
            "choose another folder, or pass --overwrite"
        )


def _rounds(
    run: PendingRun,
    shared: LaneContext,
    config: Config,
    view: RunView,
    *,
    open_ledger: Callable[[], Ledger],
    resumed: bool = False,
    states: Mapping[str, Mapping[str, Any]] | None = None,
) -> Lane[None]:
    """All remaining rounds, with the callbacks around them."""
    own = make_callbacks(config.callbacks, run.callbacks)
    callbacks = _callbacks(run, shared, config, own, open_ledger, resumed=resumed)
    _restore(own, states or {})
    started: list[Callback] = []
    try:
        for callback in callbacks:
            callback.start(view)
            started.append(callback)
        _states(own)  # one that can't be saved is found now, and not when the first checkpoint is due
        yield from _make_rounds(config, view, callbacks, settled=bool(own) or current_job() is not None)
        ending = Ending("finished", view.rounds, view.stop_reason)
    except Diverged as error:
        ending = Ending("diverged", view.round + 1, str(error))
    except Interrupted:
        _end(started, view, Ending("interrupted", view.round))
        how = f"interrupted after round {view.round}; resume with: {_way_to_resume(run.folder, config)}"
        raise Interrupted(how) from None
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        _end(started, view, _broken_off(view, error), error)
        raise
    try:
        _end(started, view, ending)
    finally:
        drop_checkpoints(run.folder)


def _make_rounds(config: Config, view: RunView, callbacks: Sequence[Callback], *, settled: bool) -> Lane[None]:
    """Makes all remaining rounds; calls the callbacks after each.

    Args:
        config: The configuration.
        view: The run.
        callbacks: The callbacks.
        settled: Whether every round is settled before the callbacks see it, and not only those that are evaluated.
    """
    try:
        while view.round < view.rounds:
            number = view.round + 1
            evaluate = number % config.evaluate_every == 0 or number == view.rounds
            metrics = yield from view.simulation.round(evaluate=evaluate, settled=settled)
            view.round_done()
            if metrics is not None:
                if view.local_test is not None:
                    metrics |= view.local_test.metrics()
                view.rows.append(metrics)
                for callback in callbacks:
                    callback.after_evaluation(view, metrics)
            for callback in callbacks:
                callback.after_round(view)
    except (Exception, KeyboardInterrupt, SystemExit):
        view.simulation.settle()  # a round that has to be made again mustn't be saved
        raise


def _callbacks(
    run: PendingRun,
    shared: LaneContext,
    config: Config,
    own: Sequence[Callback],
    open_ledger: Callable[[], Ledger],
    *,
    resumed: bool,
) -> list[Callback]:
    """All callbacks of a run, in the order that ``callbacks.base`` promises."""
    records, job = Records(open_ledger), current_job()
    label = run.label or run.folder.path.name
    metric = run.components.task.metrics[0]
    return [
        *(PatientTracker(name, resumed=resumed) for name in config.trackers()),
        *own,
        Log(lambda: _way_to_resume(run.folder, config), config.score, metric),
        records,
        Timings(),
        EarlyStopping(config.stop_at, config.stop_after, config.score, metric),
        Checkpoints(
            config.checkpoint_every,
            shared.checkpoint_time,
            records,
            lambda: _states(own),
            lasting=job is not None and job.is_lasting,
        ),
        ShownProgress(
            lambda first: shared.board.reporter(label, first, config.rounds),
            blind=run.blind,
            score=config.score,
            metric=metric,
        ),
    ]


def _end(started: Sequence[Callback], view: RunView, ending: Ending, cause: BaseException | None = None) -> None:
    """Ends callbacks in reverse order, also those that come after one that fails.

    Raises:
        Exception: The first exception of a callback, unless ``cause`` had ended the run already.
    """
    failure: BaseException | None = None
    for callback in reversed(started):
        try:
            callback.end(view, ending)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            failure = failure or error
            # The run isn't on disk as it ended, or a second Ctrl-C was heard: the others mustn't say that it ended so.
            if isinstance(callback, Records | Checkpoints) or isinstance(error, KeyboardInterrupt):
                ending = _broken_off(view, error)
    if failure is not None and cause is None:
        raise failure


def _broken_off(view: RunView, error: BaseException) -> Ending:
    return Ending("killed", view.round, str(error) or None, at_once=isinstance(error, KeyboardInterrupt))


def named(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    """Callbacks by the names that their states have in checkpoints."""
    return {f"{number} {type(callback).__qualname__}": callback for number, callback in enumerate(callbacks)}


def _restore(callbacks: Sequence[Callback], states: Mapping[str, Mapping[str, Any]]) -> None:
    """Restores callbacks from their saved states.

    Raises:
        InputError: If a saved state belongs to a callback that wasn't given, and would be lost.
    """
    given = named(callbacks)
    lacking = [name.partition(" ")[2] for name in states if name not in given]
    if lacking:
        raise InputError(
            f"the checkpoint holds the state of callback {lacking[0]}, which isn't among those that were given; give "
            "the run the callbacks that it began with, in their order, as in adabest.resume(folder, callbacks=[...])"
        )
    for name, state in states.items():
        given[name].restore(state)


def _states(callbacks: Sequence[Callback]) -> dict[str, Any]:
    """The states of the user's callbacks by name, without empty ones.

    Raises:
        InputError: If a state can't be written as JSON.
    """
    states = {name: dict(callback.state()) for name, callback in named(callbacks).items()}
    for name, state in states.items():
        try:
            json.dumps(state, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"the state of callback {name.partition(' ')[2]} can't be saved ({error}); it should be made of "
                "numbers, words, lists and dictionaries"
            ) from error
    return {name: state for name, state in states.items() if state}


def _way_to_resume(folder: RunFolder, config: Config) -> str:
    job = current_job()
    if job is not None and job.resumed_by:
        return job.resumed_by
    if has_objects(config):
        return f"adabest.resume({str(folder.path)!r}, ...) and the objects it was given"
    return resume_command(folder.path, named_in(config.flat()))


def _after_a_failure(run: PendingRun) -> str:
    """Advice for a run that an error ended: how to resume it."""
    folder = run.folder
    if folder.holds_run():
        return f"mend that, then resume with: {_way_to_resume(folder, run.config)}"
    if not folder.path.is_dir():
        return f"put the folder {folder.path} back, then resume with: {_way_to_resume(folder, run.config)}"
    return "mend that, then begin the run again"


def drop_checkpoints(folder: RunFolder) -> None:
    """Removes the checkpoints of a run that has ended, once its other files are proven whole.

    Raises:
        InputError: If one of them is missing or damaged.
    """
    directory, manifest = folder / files.CHECKPOINTS, read_manifest(folder, may_be_lost=True)
    if not directory.is_dir() or manifest is None or not manifest.has_ended():
        return
    prove_ended(folder, manifest)
    for entry in directory.glob("*"):
        entry.unlink()
    directory.rmdir()
