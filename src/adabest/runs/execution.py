"""Execution of runs: from configurations to finished folders, alone or together, with interruption and resume."""

import contextlib
import itertools
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from adabest.engine.batched import BatchedEngine
from adabest.engine.lanes import Lane, advance_together
from adabest.errors import InputError
from adabest.registry import look_in, named_now
from adabest.runs.beginning import refuse_change
from adabest.runs.build import build_parts, make_engine
from adabest.runs.callbacks.base import Callback
from adabest.runs.callbacks.board import make_board
from adabest.runs.callbacks.catalog import check_callbacks
from adabest.runs.callbacks.checkpoints import CheckpointTime
from adabest.runs.files import folder as files
from adabest.runs.files.folder import ENDED, RunFolder
from adabest.runs.files.manifest import find_standing, prove_settings, read_manifest, read_proven
from adabest.runs.job import current_job
from adabest.runs.process_settings import ProcessSettings
from adabest.runs.rank_job import RankJob, was_restarted
from adabest.runs.run_loop import LaneContext, PendingRun, drop_checkpoints, lane, refuse_run
from adabest.runs.settings.config import ENVIRONMENT_SETTINGS, LIMIT_SETTINGS, Config
from adabest.runs.settings.resolution import Components, resolve_again
from adabest.runs.settings.toml_file import read_toml
from adabest.runs.trackers.catalog import check_trackers
from adabest.stop_requests import StopRequests, resume_command


def start(
    config: Config,
    components: Components,
    path: Path,
    *,
    callbacks: Sequence[Callback] = (),
    overwrite: bool = False,
    label: str = "",
    show: bool = False,
) -> None:
    """Runs a configuration in a folder, from the first round to the last.

    Where torchrun has restarted this process after a failure, the run that it had begun goes on.

    Args:
        config: The complete configuration.
        components: The objects that the configuration names.
        path: The run's folder.
        callbacks: The user's callbacks.
        overwrite: Whether a run in the folder may be replaced.
        label: The run's name in the progress display.
        show: Whether to show progress.

    Raises:
        InputError: If a setting can't be used, or the folder holds a run already. Nothing was run.
        Interrupted: If a signal asked to stop; the folder holds all that is needed to resume.
    """
    check_runs([config], callbacks)
    folder = RunFolder(path)
    if was_restarted() and _holds(folder, config):
        resume_run(path, vars(components), callbacks=callbacks, label=label, show=show)
        return
    refuse_run(folder, overwrite)
    run_lanes(
        [PendingRun(folder, config, components, callbacks=tuple(callbacks), overwrite=overwrite, label=label)],
        show=show,
    )


def resume_run(
    path: Path,
    objects: Mapping[str, Any] | None = None,
    *,
    callbacks: Sequence[Callback] = (),
    unverified: bool = False,
    data_dir: str | None = None,
    label: str = "",
    show: bool = False,
) -> None:
    """Continues a run from its last checkpoint, or from the start if it has none. A finished run is left as it is.

    Args:
        path: The run's folder.
        objects: The data set, algorithm, model or loss of a run that was given Python objects.
        callbacks: The user's callbacks, if the run was given some.
        unverified: Whether a run of version 0.4.0, or one that lost its manifest, may be resumed without a proof.
        data_dir: The folder of the official data files, if they have moved; the run's configuration keeps it.
        label: The run's name in the progress display.
        show: Whether to show progress.

    Raises:
        InputError: If there is no run, or what it depends on has changed.
        Interrupted: If a signal asked to stop again.
    """
    folder = RunFolder(path)
    folder.settle()
    if not folder.holds_run():
        below = (
            "; there are runs below it, which can be resumed one by one" if any(path.glob(f"*/{files.CONFIG}")) else ""
        )
        raise InputError(f"there is no run in {path} (it has no {files.CONFIG}){below}")
    _find_modules(folder)
    with StopRequests(lambda: _how_to_go_on([folder])) as requests:
        folder.acquire()  # before the lane does: else another process could change the configuration after it was read
        try:
            manifest = read_manifest(folder, may_be_lost=unverified)
            if find_standing(folder, manifest).status in ENDED:
                drop_checkpoints(folder)
                return
            settings = read_toml(folder / files.CONFIG)
            prove_settings(folder, manifest, settings)
            config, components = resolve_again(settings, objects or {}, data_dir)
            check_runs([config], callbacks)
            run = PendingRun(
                folder,
                config,
                components,
                resumed=True,
                callbacks=tuple(callbacks),
                unverified=unverified,
                data_dir=data_dir,
                label=label,
            )
            _run_group([run], ProcessSettings.of(config, components), requests, 1, show=show)
        finally:
            folder.release()


def run_lanes(
    runs: Sequence[PendingRun],
    *,
    at_a_time: int | None = None,
    ended: Callable[[PendingRun], None] = lambda run: None,
    show: bool = False,
) -> None:
    """Makes several runs, trained together as lanes of one program where possible.

    Runs that differ in device, precision or threads come one group after the other. A run that diverges or ends early
    leaves the others unaffected. Any other error ends all of them, each with its last round saved.

    Args:
        runs: The runs. One that has ended already is left as it is.
        at_a_time: The most runs that are trained together; when one ends, the next begins. By default all.
        ended: Called with each run as it ends, when its folder is complete.
        show: Whether to show progress.

    Raises:
        InputError: If a setting can't be used, or another process works on one of the folders.
        Interrupted: If a signal asked to stop; the folders hold all that is needed to resume.
    """
    for run in runs:
        check_runs([run.config], run.callbacks)
    with StopRequests(lambda: _how_to_go_on([run.folder for run in runs])) as requests:
        left = [run for run in runs if _is_left(run)]
        if can_be_made_apart(left):
            make_apart(left, at_a_time, ended=ended, show=show)
            return
        asked = [(ProcessSettings.of(run.config, run.components), run) for run in left]
        for number, process_settings in enumerate(dict.fromkeys(process_settings for process_settings, _ in asked)):
            if number > 0:
                requests.heartbeat()  # else a stop requested while a group ended would begin the next one
            group = [run for its_own, run in asked if its_own == process_settings]
            _run_group(group, process_settings, requests, at_a_time or len(group), ended=ended, show=show)


def can_be_made_apart(runs: Sequence[PendingRun]) -> bool:
    """Whether there are ranks, and so many runs that each rank can make whole ones by itself.

    Then nothing needs to be exchanged between ranks, and none waits for another before the end.
    """
    job = current_job()
    if not isinstance(job, RankJob) or not 1 < job.ranks.size <= len(runs):
        return False
    return not any(run.callbacks for run in runs) and len({run.config.device for run in runs}) == 1


def make_apart(
    runs: Sequence[PendingRun], at_a_time: int | None, *, ended: Callable[[PendingRun], None], show: bool
) -> None:
    """Makes runs at all ranks, each of which gets every so-many-th of them and writes their folders.

    Args:
        runs: The runs.
        at_a_time: The most runs that a rank trains together. By default all of its own.
        ended: Called with each run, rank 0's as it ends, the others at the end.
        show: Whether to show the progress of rank 0's runs.

    Raises:
        InputError: If a rank doesn't see the folders.
    """
    job = current_job()
    assert isinstance(job, RankJob), "only ranks make whole runs"
    size = job.ranks.size
    folder = runs[0].folder.path.absolute().parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".ranks-") as mark:
        orders = [[_order(run, mark.name) for run in runs[rank::size]] for rank in range(size)]
        job.make_apart(
            orders,
            at_a_time,
            lambda: run_lanes(runs[0::size], at_a_time=at_a_time, ended=ended, show=show),
            device=runs[0].config.device,
        )
    for rank in range(1, size):
        for run in runs[rank::size]:
            ended(run)


def _order(run: PendingRun, mark: str) -> dict[str, Any]:
    """A run as another rank takes it."""
    plain = {
        name: getattr(run, name)
        for name in ("resumed", "overwrite", "unverified", "data_dir", "label", "group", "blind")
    }
    return {"folder": str(run.folder.path.absolute()), "mark": mark, "settings": run.config.flat(), **plain}


def check_runs(configs: Iterable[Config], callbacks: Sequence[Callback] = ()) -> None:
    """Makes sure that the trackers and callbacks of runs can be used, before anything is begun.

    Args:
        configs: The configurations of the runs.
        callbacks: The objects whose placeholders are among the names of callbacks.

    Raises:
        InputError: If a tracker or a callback doesn't exist, or the package of a tracker isn't installed.
    """
    for config in configs:
        check_trackers(config.trackers())
        check_callbacks(config.callbacks, callbacks)


def _holds(folder: RunFolder, config: Config) -> bool:
    """Whether a folder holds a run with a configuration."""
    folder.settle()
    return folder.holds_run() and not changed_settings(folder, config)


def changed_settings(folder: RunFolder, config: Config) -> list[str]:
    """The settings in which a configuration differs from that of the run in a folder, but for what may change."""
    beside = (*ENVIRONMENT_SETTINGS, *LIMIT_SETTINGS)
    stored, here = read_toml(folder / files.CONFIG), config.flat()
    return [name for name in sorted((stored.keys() | here.keys()) - {*beside}) if stored.get(name) != here.get(name)]


def _how_to_go_on(folders: Sequence[RunFolder]) -> str:
    """The message of a process that ends at once: how to resume its runs."""
    begun = [folder for folder in folders if folder.holds_run()]
    if not begun:
        return "nothing was begun"
    many = f" (the first of {len(begun)} runs)" if len(begun) > 1 else ""
    return f"resume with: {resume_command(begun[0].path)}{many}"


def _run_group(
    runs: Sequence[PendingRun],
    process_settings: ProcessSettings,
    requests: StopRequests,
    at_a_time: int,
    *,
    ended: Callable[[PendingRun], None] = lambda run: None,
    show: bool,
) -> None:
    """Makes runs that have the same process settings."""
    waiting = deque(runs)
    lanes = min(at_a_time, len(runs))
    board = make_board([run.config.rounds for run in runs], lanes, show=show)
    job = current_job()
    shared_out = contextlib.nullcontext() if job is None else job.group(runs[0].config, process_settings.threads)
    with process_settings.entered(), board, shared_out:
        shared = LaneContext(requests.heartbeat, board, CheckpointTime())
        make = make_engine(runs[0].config)
        engine = make(requests.heartbeat) if job is None else job.engine(make, requests.heartbeat)
        if isinstance(engine, BatchedEngine):
            board.device_share = engine.device_share
        advance_together([_one_after_another(waiting, shared, ended) for _ in range(lanes)], engine)


def _one_after_another(
    waiting: deque[PendingRun], shared: LaneContext, ended: Callable[[PendingRun], None]
) -> Lane[None]:
    """A lane that makes one run after another, until none is waiting."""
    for number in itertools.count():
        if not waiting:
            return
        if number > 0:
            shared.heartbeat()  # else a stop requested while a run ended would begin the next one
        run = waiting.popleft()
        yield from lane(run, shared)
        ended(run)


def _is_left(run: PendingRun) -> bool:
    """Whether a run hasn't ended yet.

    Raises:
        InputError: If another process works on its folder.
    """
    if not run.folder.path.exists():
        return True
    run.folder.acquire()
    try:
        manifest = read_manifest(run.folder, may_be_lost=run.unverified) if run.resumed else None
        ended = run.resumed and find_standing(run.folder, manifest).status in ENDED
        if ended:
            drop_checkpoints(run.folder)
        return not ended
    finally:
        run.folder.release()


def _find_modules(folder: RunFolder) -> None:
    """Adds the directory in which the run began to the module search path, if the call trusts the run's files."""
    began = (folder.read_json(files.ENVIRONMENT) or {}).get("working_directory")
    if isinstance(began, str) and named_now().everything:
        look_in(began)


def refuse_irreplaceable(paths: Iterable[Path]) -> None:
    """Makes sure that the runs in some folders can all be replaced, before any of them is.

    Raises:
        InputError: If a process works on one of them, or a folder holds files that aren't a run's.
    """
    folders = [RunFolder(path) for path in paths if path.exists()]
    with contextlib.ExitStack() as stack:
        for folder in folders:
            folder.acquire()
            stack.callback(folder.release)
            folder.refuse_foreign()


def check_unchanged(path: Path, config: Config, components: Components) -> None:
    """Makes sure that a stored run has the same data, partition and initial model, by their fingerprints.

    Raises:
        InputError: If one of them differs.
    """
    folder = RunFolder(path)
    identity = read_proven(folder, read_manifest(folder), files.IDENTITY)
    if identity is not None:
        found = files.parse_object(folder / files.IDENTITY, identity)
        refuse_change(folder, found, build_parts(config, components).identity)
