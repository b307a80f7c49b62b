"""Run groups: the runs of a comparison, a sweep or a tuning, each in a subfolder of one folder."""

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, Literal

from adabest.errors import AdabestError, InputError, Interrupted, note_how_to_go_on
from adabest.experiments.call import ROOT, data_locations, digest
from adabest.experiments.comparison_file import recall, remember, way_to_go_on
from adabest.experiments.held_run import Run, read_run
from adabest.registry import options_of
from adabest.report.table import data_words
from adabest.runs.execution import check_runs, check_unchanged, refuse_irreplaceable, run_lanes
from adabest.runs.files.atomic_files import refuse_link
from adabest.runs.files.folder import ENDED, RunFolder
from adabest.runs.run_loop import PendingRun
from adabest.runs.settings.config import ENVIRONMENT_SETTINGS, LIMIT_SETTINGS, Config
from adabest.runs.settings.object_names import named_in
from adabest.runs.settings.placeholders import is_object_name
from adabest.runs.settings.resolution import Components
from adabest.runs.settings.run_plan import Plan
from adabest.runs.stored_run import Run as StoredRun
from adabest.stop_requests import StopRequests, resume_command


@dataclass(frozen=True)
class RunGroup:
    """Runs that were made to be compared.

    Attributes:
        folder: The folder above those of the runs.
        runs: The runs by label.
        entries: The compared entries by label: a run each, or one for every seed.
    """

    folder: Path
    runs: dict[str, Run]
    entries: dict[str, list[Run]]


def refuse_other_runs(planned: Plan, folder: Path, *, overwrite: bool | None) -> None:
    """Refuses a folder in which a planned run's place is taken by a run with other settings.

    Args:
        planned: The planned runs.
        folder: The folder above theirs.
        overwrite: Whether runs in their places will be replaced; None if the caller has no such option.

    Raises:
        InputError: If there is a run with other settings, or one that can't be replaced.
    """
    for label in planned.runs:
        refuse_link(folder / label)
    if overwrite:
        refuse_irreplaceable([folder / label for label in planned.runs])
        return
    for label, run in planned.runs.items():
        if RunFolder(folder / label).holds_run() and (others := _differing(read_run(folder / label).config, *run)):
            advice = "choose another folder" + ("" if overwrite is None else ", or --overwrite")
            raise InputError(f"{folder / label} holds a run with other settings ({', '.join(others)}); {advice}")


def make_runs(
    planned: Plan,
    folder: Path,
    *,
    lanes: int | None = None,
    overwrite: bool = False,
    unverified: bool = False,
    blind: bool = False,
    ended: Callable[[str, Run], None] = lambda label, run: None,
    show: bool = False,
) -> RunGroup:
    """Makes the runs of a plan, trained together. Finished runs in the folder are kept, begun ones are resumed.

    Args:
        planned: The runs.
        folder: The folder above theirs.
        lanes: The most runs that are trained together. By default all.
        overwrite: Whether all runs are made anew, in place of those in the folder.
        unverified: Whether runs of version 0.4.0, which nothing proves, may be resumed.
        blind: Whether progress hides the test accuracy.
        ended: Called with the label of each run, and the run itself, as it ends.
        show: Whether to show progress.

    Raises:
        InputError: If a run in the folder was made of other data that have the same name.
        Interrupted: If a signal asked to stop.
    """
    group = folder.resolve().name
    runs = []
    with StopRequests(lambda: way_to_go_on(folder)) as requests:
        for number, (label, (config, components)) in enumerate(planned.runs.items(), start=1):
            requests.heartbeat()
            place, line = RunFolder(folder / label), f"{label} ({number}/{len(planned.runs)})"
            stored = None if overwrite else _stored(place.path, config, components)
            if stored is not None and stored.status in ENDED:
                check_unchanged(place.path, config, components)
            run = PendingRun(
                place,
                config,
                components,
                resumed=stored is not None,
                overwrite=overwrite,
                unverified=unverified,
                data_dir=None if stored is None else config.data_dir,
                label=line,
                group=group,
                blind=blind,
            )
            runs.append(run)
        requests.heartbeat()
        labels = {run.folder.path: label for run, label in zip(runs, planned.runs, strict=True)}
        run_lanes(
            runs,
            at_a_time=lanes,
            ended=lambda run: ended(labels[run.folder.path], read_run(run.folder.path)),
            show=show,
        )
    made = {label: read_run(folder / label, components) for label, (_, components) in planned.runs.items()}
    entries = {label: [made[name] for name in names] for label, names in planned.entries.items()}
    return RunGroup(folder, made, entries)


def _stored(place: Path, config: Config, components: Components) -> Run | None:
    """The run of this configuration that a folder holds, if any. Its data folder and trackers may differ."""
    folder = RunFolder(place)
    folder.settle()
    if not folder.holds_run():
        return None
    stored = read_run(place)
    return None if _differing(stored.config, config, components) else stored


def _differing(stored: Config, config: Config, components: Components) -> list[str]:
    """The names of the settings in which a stored run differs from a configuration."""
    # A run of an earlier version lacks hyper-parameters that were added since: it counts as made with their defaults.
    kind, added = type(components.algorithm), dict[str, Any]()
    if is_dataclass(kind) and not is_object_name(config.algorithm):
        added = {name: option.default for name, option in options_of(kind).items()}
    there, here = {**added, **_compared(stored)}, _compared(config)
    return sorted(name for name in there.keys() | here.keys() if there.get(name) != here.get(name))


def _compared(config: Config) -> dict[str, Any]:
    return {
        name: value for name, value in config.flat().items() if name not in (*ENVIRONMENT_SETTINGS, *LIMIT_SETTINGS)
    }


Kind = Literal["compare", "sweep", "tune"]


@dataclass(frozen=True)
class Asked:
    """The arguments of a comparison, a sweep or a tuning that aren't settings of its runs."""

    kind: Kind
    seeds: Sequence[int] | None
    target: float | None
    lanes: int | None
    out: str | Path | None
    overwrite: bool

    @classmethod
    def taken_from(cls, settings: dict[str, Any], kind: Kind) -> "Asked":
        """Takes the arguments out of settings, and refuses invalid ones."""
        target, lanes = settings.pop("target", None), settings.pop("lanes", None)
        check_target(target)
        check_lanes(lanes)
        seeds, out = settings.pop("seeds", None) or None, settings.pop("out", None)
        return cls(kind, seeds, target, lanes, out, settings.pop("overwrite", False))


def check_target(target: Any) -> None:
    """Refuses a target that no metric has as a value.

    Raises:
        InputError: If it isn't a finite number.
    """
    is_number = isinstance(target, int | float) and not isinstance(target, bool) and math.isfinite(target)
    if target is not None and not is_number:
        raise InputError(f"target = {target!r}: it should be a number, such as an accuracy above 0 and at most 1")


def check_lanes(lanes: Any) -> None:
    """Refuses a number of lanes below 1.

    Raises:
        InputError: If it isn't a whole number from 1.
    """
    if lanes is not None and not (type(lanes) is int and lanes >= 1):
        raise InputError(f"lanes = {lanes!r}: at least 1 run is trained at a time")


@contextlib.contextmanager
def begun(asked: Asked, planned: Plan, what: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[Path]:
    """The folder of a group of runs, locked while entered. Its name is a digest of the settings, which it stores.

    Args:
        asked: The arguments of the group.
        planned: The runs.
        what: The settings in which the runs differ, as the call takes them.
        settings: The settings of all runs.

    Raises:
        InputError: If the folder can't be used.
        Interrupted: If the work was interrupted; the message says how to resume it.
    """
    essence = {name: value for name, value in settings.items() if name not in ENVIRONMENT_SETTINGS}
    if asked.seeds:
        essence["seeds"] = list(asked.seeds)
    folder = Path(asked.out) if asked.out else ROOT / f"{asked.kind}-{digest(*what.values(), essence)}"
    found = data_locations(settings, next(iter(planned.runs.values()))[0])
    extra = {"target": asked.target, "lanes": asked.lanes, "seeds": asked.seeds}
    check_runs(config for config, _ in planned.runs.values())
    if asked.target is not None:
        next(iter(planned.runs.values()))[1].task.metrics[0].check_value("target", asked.target)
    lock = RunFolder(folder)
    lock.acquire()
    try:
        refuse_other_runs(planned, folder, overwrite=asked.overwrite)
        remember(folder, {**what, **settings, **found, **extra})
        yield folder
    except Interrupted:
        raise Interrupted(f"interrupted; resume with: {_way_to_resume(folder, asked.kind)}") from None
    except AdabestError:
        raise
    except Exception as error:
        note_how_to_go_on(error, f"mend that, then resume with: {_way_to_resume(folder, asked.kind)}")
        raise
    finally:
        lock.release()


def _way_to_resume(folder: Path, kind: Kind) -> str:
    settings = recall(folder)
    return f"the same call of adabest.{kind}" if settings is None else resume_command(folder, named_in(settings))


def title_of(compared: Sequence[StoredRun]) -> str:
    """A title: the settings that all runs share, and their seeds; how many there are, where entries have others."""
    parts = [_parts(run.config) for run in compared]
    shared = [part for number, part in enumerate(parts[0]) if all(other[number] == part for other in parts)]
    return ", ".join([*shared, _seeds_in_words(compared)])


def _seeds_in_words(compared: Sequence[StoredRun]) -> str:
    """The seeds of all entries if they are the same; otherwise from how many to how many an entry has."""
    by_entry: dict[str, list[int]] = {}
    for run in compared:
        settings = {
            name: value for name, value in run.config.essence().items() if name not in ("seed", "partition_seed")
        }
        by_entry.setdefault(json.dumps(settings, sort_keys=True, default=str), []).append(run.config.seed)
    seeds = sorted({run.config.seed for run in compared})
    counts = sorted({len(set(own)) for own in by_entry.values()})
    if len(counts) > 1:
        return f"{counts[0]} to {counts[-1]} seeds"
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _parts(config: Config) -> list[str]:
    details = {"shards": f", {config.shards} each"} | dict.fromkeys(
        ("dirichlet", "dirichlet-legacy"), f" α = {config.alpha:g}"
    )
    skew = f"{config.partition}{details.get(str(config.partition), '')}"
    return [data_words(config.dataset), f"{config.clients} clients", f"{100 * config.participation:g} % a round", skew]
