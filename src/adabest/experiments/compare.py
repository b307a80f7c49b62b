"""Several algorithms on the same clients, with one seed or several: runs trained together, each in its own folder."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adabest.algorithms import Algorithm
from adabest.data import Dataset
from adabest.errors import InputError
from adabest.registry import options_of, split_specification
from adabest.runs import Config, Planned, Run, check_unchanged, discard, load, read_toml, resolve, run_lanes, to_toml
from adabest.runs.config import (
    BOUNDS,
    CONFIG_OPTIONS,
    SURROUNDINGS,
    Components,
    algorithm_options,
    is_object_name,
    is_plain,
    refuse_unknown,
)
from adabest.runs.demand import refuse_many_runs
from adabest.runs.folder import ENDED, RunFolder, write_text
from adabest.runs.interruption import StopRequests

COMPARISON = "comparison.toml"
DEFAULT_ALGORITHMS = ("fedavg", "fedprox", "scaffold", "feddyn", "adabest")


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


@dataclass(frozen=True)
class Plan:
    """The runs that a comparison is made of.

    Attributes:
        runs: Configuration and components of each run, by its label, which is also its folder's name.
        entries: The labels of the runs of each entry: one, or one for every seed.
    """

    runs: dict[str, tuple[Config, Components]]
    entries: dict[str, list[str]]


def plan(
    algorithms: Sequence[str | Algorithm], settings: Mapping[str, Any], seeds: Sequence[int] | None = None
) -> Plan:
    """Works out the runs of a comparison, and so finds out about bad settings before anything is begun.

    Args:
        algorithms: Specifications such as ``adabest,beta=0.9``, or Algorithm objects.
        settings: The settings of all runs. A hyper-parameter goes to every algorithm that has it.
        seeds: The seeds of each algorithm's runs. By default there is one, that of the settings.

    Raises:
        InputError: If anything can't be used.
    """
    if "algorithm" in settings:
        raise InputError("a comparison takes `algorithms`, not `algorithm`")
    check_algorithms(algorithms)
    own = [set(algorithm_options(split_specification(a)[0])) if isinstance(a, str) else set() for a in algorithms]
    known = set(CONFIG_OPTIONS).union(*own) - {"algorithm"}
    refuse_unknown(settings, known)
    points = {}
    for (label, algorithm), names in zip(labelled(algorithms).items(), own, strict=True):
        its_own = split_specification(algorithm)[1] if isinstance(algorithm, str) else {}
        mine = {
            name: value
            for name, value in settings.items()
            if name in CONFIG_OPTIONS or (name in names and name not in its_own)
        }
        points[label] = {**mine, "algorithm": algorithm}
    return with_seeds(points, seeds)


def with_seeds(
    points: Mapping[str, Mapping[str, Any]], seeds: Sequence[int] | None, loaded: Dataset | None = None
) -> Plan:
    """The runs of settings by label, each with every seed.

    All share one data set, which is read once, unless it has been loaded already.

    Raises:
        InputError: If the settings or seeds can't be used.
    """
    if seeds is not None:
        check_seeds(seeds)
    refuse_many_runs(len(points), len(seeds or [0]))
    runs: dict[str, tuple[Config, Components]] = {}
    entries: dict[str, list[str]] = {}
    for label, settings in points.items():
        keyed = {label: settings}
        if seeds:
            keyed = {f"{label},seed={seed}": {**settings, "seed": seed} for seed in seeds}
        for name, its_own in keyed.items():
            runs[name] = resolve(its_own, loaded)
            loaded = runs[name][1].dataset
        entries[label] = list(keyed)
    return Plan(runs, entries)


def check_seeds(seeds: Any) -> None:
    """Refuses what isn't a list of seeds.

    Raises:
        InputError: If it isn't.
    """
    if not (
        isinstance(seeds, list | tuple) and all(type(seed) is int for seed in seeds) and len(set(seeds)) == len(seeds)
    ):
        raise InputError(f"seeds should be whole numbers, each once, as in [0, 1, 2], not {seeds!r}")


def check_algorithms(algorithms: Any) -> None:
    """Refuses what isn't a list of algorithms.

    Raises:
        InputError: If it isn't.
    """
    if not isinstance(algorithms, list | tuple) or not algorithms:
        raise InputError(f"algorithms should be a list of names, with at least one, not {algorithms!r}")
    for algorithm in algorithms:
        if not isinstance(algorithm, str | Algorithm):
            raise InputError(
                f"algorithms: an algorithm should be a name or an Algorithm, not a {type(algorithm).__name__}"
            )


def make_room(planned: Plan, folder: Path, *, overwrite: bool | None) -> None:
    """Refuses to mix a comparison with runs that lie in its folder and have other settings, or removes all its runs.

    Args:
        planned: The runs that there must be room for.
        folder: Where they are to lie.
        overwrite: Whether to remove what lies there; None if that can't even be asked for.

    Raises:
        InputError: If there is such a run, or one can't be removed; then none was.
    """
    if overwrite:
        discard([folder / label for label in planned.runs])
        return
    for label, (config, _) in planned.runs.items():
        if RunFolder(folder / label).holds_run() and (others := _differing(folder / label, config)):
            advice = "choose another folder" + ("" if overwrite is None else ", or --overwrite")
            raise InputError(f"{folder / label} holds a run with other settings ({', '.join(others)}); {advice}")


def compare(
    planned: Plan, folder: Path, *, lanes: int | None = None, blind: bool = False, show: bool = False
) -> Comparison:
    """Makes the runs of a plan, together. What is finished already is kept, what was begun is resumed.

    Args:
        planned: The runs.
        folder: Where they are to lie.
        lanes: How many runs are trained at the same time at most. By default all.
        blind: Whether progress tells nothing of the test set.
        show: Whether to show progress.

    Raises:
        InputError: If a run that lies there was made of other data, though under the same names.
        Interrupted: If a signal asked to stop.
    """
    group = folder.resolve().name
    runs = []
    with StopRequests() as requests:
        for number, (label, (config, components)) in enumerate(planned.runs.items(), start=1):
            requests.heartbeat()
            place, line = RunFolder(folder / label), f"{label} ({number}/{len(planned.runs)})"
            there = _holds(place.path, config)
            if there and place.status()["status"] in ENDED:
                check_unchanged(place.path, config, components)
            data_dir = config.data_dir if there else None
            how = Planned(place, config, components, there, data_dir=data_dir, label=line, group=group, blind=blind)
            runs.append(how)
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
            write_text(folder / COMPARISON, to_toml(settings))
        else:
            (folder / COMPARISON).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"can't write to the folder {folder}: {error.strerror or error}") from error


def recall(folder: Path) -> dict[str, Any] | None:
    """What ``remember`` wrote; None if the folder holds no comparison."""
    path = folder / COMPARISON
    return read_toml(path) if path.is_file() else None


def labelled(algorithms: Sequence[str | Algorithm]) -> dict[str, str | Algorithm]:
    """Algorithms by what their runs are called.

    Raises:
        InputError: If two are called the same.
    """
    found: dict[str, str | Algorithm] = {}
    for algorithm in algorithms:
        label = label_of(algorithm)
        if label in found:
            raise InputError(f"the algorithm {label!r} is named twice; tell them apart, as in {label},mu=0.1")
        found[label] = algorithm
    return found


def label_of(algorithm: str | Algorithm) -> str:
    """What a run is called, which is also its folder's name."""
    if isinstance(algorithm, str):
        text = algorithm
    else:
        text = ",".join([type(algorithm).__name__.lower(), *(f"{k}={v}" for k, v in _changed(algorithm).items())])
    return re.sub(r"[^\w.,=+-]+", ".", text.replace(" ", ""))


def _changed(algorithm: Algorithm) -> dict[str, Any]:
    """The hyper-parameters of an algorithm that aren't at their defaults."""
    defaults = {name: option.default for name, option in options_of(type(algorithm)).items()}
    return {name: value for name, value in vars(algorithm).items() if value != defaults.get(name)}


def _holds(place: Path, config: Config) -> bool:
    """Whether a folder holds a run of just this configuration, wherever its data lie and whoever watches it."""
    return RunFolder(place).holds_run() and not _differing(place, config)


def _differing(place: Path, config: Config) -> list[str]:
    """The settings in which a run differs from a configuration."""
    stored = load(place).config
    # A run of an earlier version lacks hyper-parameters that have come since, at their defaults.
    since = {} if is_object_name(config.algorithm) else algorithm_options(config.algorithm)
    added = {name: option.default for name, option in since.items()}
    there, here = {**added, **_compared(stored)}, _compared(config)
    return sorted(name for name in there.keys() | here.keys() if there.get(name) != here.get(name))


def _compared(config: Config) -> dict[str, Any]:
    return {name: value for name, value in config.flat().items() if name not in (*SURROUNDINGS, *BOUNDS)}
