"""The runs of a comparison, a sweep or a tuning: their configurations by label, worked out before anything is begun."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adabest.algorithms.base import Algorithm
from adabest.data.dataset import Dataset
from adabest.errors import InputError
from adabest.registry import options_of, split_specification
from adabest.runs.settings.algorithm_specification import algorithm_options, check_algorithms, refuse_unknown
from adabest.runs.settings.config import SETTINGS, Config
from adabest.runs.settings.demand import refuse_many_runs
from adabest.runs.settings.resolution import Components, resolve


@dataclass(frozen=True)
class Plan:
    """The runs that a comparison is made of.

    Attributes:
        runs: Configuration and components of each run, by its label, which is also its folder's name.
        entries: The labels of the runs of each entry: one, or one for every seed.
    """

    runs: dict[str, tuple[Config, Components]]
    entries: dict[str, list[str]]

    def configs(self) -> list[Config]:
        """The configurations of the runs."""
        return [config for config, _ in self.runs.values()]


def plan_algorithms(
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
    known = set(SETTINGS).union(*own) - {"algorithm"}
    refuse_unknown(settings, known)
    points = {}
    for (label, algorithm), names in zip(labelled(algorithms).items(), own, strict=True):
        its_own = split_specification(algorithm)[1] if isinstance(algorithm, str) else {}
        mine = {
            name: value
            for name, value in settings.items()
            if name in SETTINGS or (name in names and name not in its_own)
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
