"""Several algorithms on the same clients, with one seed or several: runs trained together, each in its own folder."""

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

from adabest.errors import InputError
from adabest.registry import options_of
from adabest.runs.execution import check_unchanged, refuse_irreplaceable, run_lanes
from adabest.runs.files.atomic_files import read_bytes, refuse_link, write_bytes
from adabest.runs.files.folder import ENDED, RunFolder
from adabest.runs.files.manifest import sha256
from adabest.runs.run_loop import Planned
from adabest.runs.settings.config import ENVIRONMENT_SETTINGS, LIMIT_SETTINGS, Config
from adabest.runs.settings.object_names import is_plain, named_in
from adabest.runs.settings.placeholders import is_object_name
from adabest.runs.settings.resolution import Components
from adabest.runs.settings.run_plan import Plan
from adabest.runs.settings.toml_file import read_toml, to_toml
from adabest.runs.stored_run import Run, load
from adabest.stop_requests import StopRequests, resume_command

COMPARISON = "comparison.toml"
_SEAL = b"# The lines below, as they were written, have the sha256 "  # a comment: the file is a configuration, too


@dataclass(frozen=True)
class Comparison:
    """Runs that were made to be compared.

    Attributes:
        folder: Where they lie, each in a folder below.
        runs: The runs by label.
        entries: What is compared, by label: a run each, or one for every seed.
    """

    folder: Path
    runs: dict[str, Run]
    entries: dict[str, list[Run]]


def make_room(planned: Plan, folder: Path, *, overwrite: bool | None) -> None:
    """Refuses to mix a comparison with runs that lie in its folder and have other settings.

    Args:
        planned: The runs that there must be room for.
        folder: Where they are to lie.
        overwrite: Whether what lies there will be replaced; None if that can't even be asked for.

    Raises:
        InputError: If there is such a run, or one that can't be replaced.
    """
    for label in planned.runs:
        refuse_link(folder / label)
    if overwrite:
        refuse_irreplaceable([folder / label for label in planned.runs])
        return
    for label, run in planned.runs.items():
        if RunFolder(folder / label).holds_run() and (others := _differing(load(folder / label).config, *run)):
            advice = "choose another folder" + ("" if overwrite is None else ", or --overwrite")
            raise InputError(f"{folder / label} holds a run with other settings ({', '.join(others)}); {advice}")


def compare(
    planned: Plan,
    folder: Path,
    *,
    lanes: int | None = None,
    overwrite: bool = False,
    unverified: bool = False,
    blind: bool = False,
    show: bool = False,
) -> Comparison:
    """Makes the runs of a plan, together. What is finished already is kept, what was begun is resumed.

    Args:
        planned: The runs.
        folder: Where they are to lie.
        lanes: How many runs are trained at the same time at most. By default all.
        overwrite: Whether all are made anew, each in the place of the one that lies there.
        unverified: Whether runs of version 0.4.0, which nothing proves, may be gone on with.
        blind: Whether progress tells nothing of the test set.
        show: Whether to show progress.

    Raises:
        InputError: If a run that lies there was made of other data, though under the same names.
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
            run = Planned(
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
        run_lanes(runs, at_a_time=lanes, show=show)
    made = {label: load(folder / label) for label in planned.runs}
    entries = {label: [made[name] for name in names] for label, names in planned.entries.items()}
    return Comparison(folder, made, entries)


def remember(folder: Path, settings: Mapping[str, Any]) -> None:
    """Writes down what is compared, so that it can be resumed; with Python objects among it that isn't possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if all(value is None or is_plain(value) for value in settings.values()):
            text = to_toml(settings).encode()
            write_bytes(folder / COMPARISON, _SEAL + sha256(text).encode() + b"\n" + text)
        else:
            (folder / COMPARISON).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"can't write to the folder {folder}: {error.strerror or error}") from error


def recall(folder: Path) -> dict[str, Any] | None:
    """What ``remember`` wrote; None if the folder holds no comparison.

    Raises:
        InputError: If the file was changed since.
    """
    path = folder / COMPARISON
    content = read_bytes(path)
    if content is None:
        return None
    settings = read_toml(path)
    first, _, text = content.partition(b"\n")
    if first.startswith(_SEAL) and first.removeprefix(_SEAL) != sha256(text).encode():
        raise InputError(
            f"{path} was changed since the comparison began: undo that, or start another one with these settings, "
            "in another folder"
        )
    algorithms, target = settings.get("algorithms", []), settings.get("target")
    if not (isinstance(algorithms, list) and all(isinstance(name, str) for name in algorithms)):
        raise InputError(f"{path} is damaged: algorithms should be a list of names")
    if target is not None and not (isinstance(target, float) and 0 < target <= 1):
        raise InputError(f"{path} is damaged: target should be an accuracy, above 0 and at most 1")
    return settings


def refuse_unproven(folder: Path) -> None:
    """Refuses to go on with a comparison whose file has no sum to prove it by.

    Raises:
        InputError: If it has none: version 0.4.0 wrote it, or it has lost its first line.
    """
    if not (read_bytes(folder / COMPARISON) or b"").startswith(_SEAL):
        raise InputError(
            f"{folder / COMPARISON} has no sum to prove it by, as those of version 0.4.0; "
            f"`{resume_command(folder)} --unverified` goes on all the same"
        )


def way_to_go_on(folder: Path) -> str:
    """What to say of a comparison, a sweep or a tuning that was stopped or failed."""
    settings = recall(folder)
    if settings is None:  # of Python objects, which aren't written down
        return "the same call goes on"
    return f"resume with: {resume_command(folder, named_in(settings))}"


def _stored(place: Path, config: Config, components: Components) -> Run | None:
    """The run of just this configuration that a folder holds, wherever its data lie and whoever watches it."""
    folder = RunFolder(place)
    folder.settle()
    if not folder.holds_run():
        return None
    stored = load(place)
    return None if _differing(stored.config, config, components) else stored


def _differing(stored: Config, config: Config, components: Components) -> list[str]:
    """The settings in which a run differs from a configuration."""
    # A run of an earlier version lacks hyper-parameters that have come since, at their defaults.
    kind, added = type(components.algorithm), dict[str, Any]()
    if is_dataclass(kind) and not is_object_name(config.algorithm):
        added = {name: option.default for name, option in options_of(kind).items()}
    there, here = {**added, **_compared(stored)}, _compared(config)
    return sorted(name for name in there.keys() | here.keys() if there.get(name) != here.get(name))


def _compared(config: Config) -> dict[str, Any]:
    return {
        name: value for name, value in config.flat().items() if name not in (*ENVIRONMENT_SETTINGS, *LIMIT_SETTINGS)
    }
