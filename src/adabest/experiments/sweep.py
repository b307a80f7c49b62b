"""Sweeps: one algorithm, every combination of some values of its settings, to be chosen from by validation accuracy."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from adabest.errors import InputError
from adabest.experiments.compare import Plan, label_of, with_seeds
from adabest.registry import check_options
from adabest.runs.config import CONFIG_OPTIONS, Config, algorithm_options, is_plain, refuse_unknown

_INSTEAD = {
    "seed": "pass `seeds`",
    "algorithm": "`adabest compare` takes several",
    "dataset": "all runs of a sweep share their data",
    "engine": "all runs of a sweep share it",
    "precision": "all runs of a sweep share it",
}


def plan_sweep(vary: Any, settings: Mapping[str, Any], seeds: Sequence[int] | None = None) -> Plan:
    """Works out the runs of a sweep, and so finds out about bad settings before anything is begun.

    Args:
        vary: Values by setting, as ``read_vary`` takes them.
        settings: The other settings, ``algorithm`` among them.
        seeds: The seeds of each combination's runs. By default there is one, that of the settings.

    Raises:
        InputError: If anything can't be used.
    """
    algorithm = settings.get("algorithm", Config.algorithm)
    if not isinstance(algorithm, str):
        raise InputError("a sweep takes its algorithm by name, so that it can make one for every combination")
    axes = _checked(read_vary(vary), algorithm)
    points = {}
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        label = label_of(",".join([algorithm, *(f"{name}={value}" for name, value in point.items())]))
        if label in points:
            raise InputError(f"two combinations would both be called {label!r}")
        points[label] = {**settings, "algorithm": algorithm, **point}
    planned = with_seeds(points, seeds)
    for config, _ in planned.runs.values():
        for name in axes:
            if name not in config.essence():
                raise InputError(f"{name} can't be varied: no result depends on it")
        if config.validation_clients == 0:
            raise InputError("a sweep orders its runs by validation accuracy, so it needs validation_clients")
    return planned


def read_vary(vary: Any) -> dict[str, list[Any]]:
    """Values by setting, from ``{"beta": [0.8, 0.9]}`` or texts such as ``beta=0.8,0.9``.

    In a text values are separated by commas, or by semicolons where a value has commas itself.

    Raises:
        InputError: If it is neither, or there is nothing to vary.
    """
    if isinstance(vary, Mapping):
        axes = {name: list(values) if isinstance(values, list | tuple) else [] for name, values in vary.items()}
    else:
        axes = dict(map(_read_text, vary if isinstance(vary, list | tuple) else ()))
        if vary and len(axes) < len(vary):
            raise InputError(f"vary names a setting twice: {', '.join(vary)}")
    if not axes or not all(axes.values()):
        raise InputError(f"a sweep needs settings with the values to try, as in beta=0.8,0.9, not vary = {vary!r}")
    return axes


def write_vary(axes: Mapping[str, Sequence[Any]]) -> list[str]:
    """Values by setting as texts."""
    texts = []
    for name, values in axes.items():
        words = [str(value) for value in values]
        texts.append(f"{name}={';'.join([*words, '']) if any(',' in word for word in words) else ','.join(words)}")
    return texts


def _read_text(text: Any) -> tuple[str, list[str]]:
    name, equals, values = str(text).partition("=")
    if not (name and equals):
        raise InputError(f"vary: {text!r} should be a setting and the values to try, as in beta=0.8,0.9")
    words = values.split(";" if ";" in values else ",")
    return name.strip().replace("-", "_"), [word.strip() for word in words if word.strip()]


def _checked(axes: Mapping[str, Sequence[Any]], algorithm: str) -> dict[str, list[Any]]:
    """Values in their right types, each once."""
    known = CONFIG_OPTIONS | algorithm_options(algorithm)
    refuse_unknown(axes, known)
    checked = {}
    for name, values in axes.items():
        if name in _INSTEAD:
            raise InputError(f"{name} can't be varied: {_INSTEAD[name]}")
        if not all(map(is_plain, values)):
            raise InputError(f"vary: the values of {name} should be numbers or words")
        checked[name] = [check_options("a run", {name: value}, known)[name] for value in values]
        if any(checked[name].count(value) > 1 for value in checked[name]):
            raise InputError(f"vary: a value of {name} is named twice")
    return checked
