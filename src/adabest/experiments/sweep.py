"""Sweeps: one algorithm with every combination of some values of its settings, ordered by validation score."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from adabest.data.dataset import Dataset
from adabest.errors import InputError
from adabest.experiments.call import asked_for, refuse_callback_objects
from adabest.experiments.comparison import Comparison, make_and_report
from adabest.experiments.run_group import Asked
from adabest.registry import check_options
from adabest.runs.keywords import Settings
from adabest.runs.settings.algorithm_specification import algorithm_options, refuse_hyperparameters, refuse_unknown
from adabest.runs.settings.config import SETTINGS, Config
from adabest.runs.settings.demand import refuse_many_runs
from adabest.runs.settings.object_names import is_plain
from adabest.runs.settings.run_plan import Plan, label_of, with_seeds

_EXAMPLE = "beta=0.8,0.9"


def plan_sweep(vary: Any, settings: Mapping[str, Any], seeds: Sequence[int] | None = None) -> Plan:
    """Plans the runs of a sweep, and so finds bad settings before any run begins.

    Args:
        vary: Values by setting, as ``read_vary`` takes them.
        settings: The other settings, ``algorithm`` among them.
        seeds: The seeds of each combination's runs. By default there is one, that of the settings.

    Raises:
        InputError: If a setting can't be used.
    """
    return plan_points(grid_points(vary, settings), settings, seeds)


def grid_points(vary: Any, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination of the values to vary, each a dictionary by setting.

    Raises:
        InputError: If a setting is unknown, or can't have one of its values.
    """
    given = read_vary(vary)
    refuse_many_runs(math.prod(map(len, given.values())))
    axes = check_axes(given, algorithm_of(settings))
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def plan_points(
    points: Iterable[Mapping[str, Any]],
    settings: Mapping[str, Any],
    seeds: Sequence[int] | None = None,
    loaded: Dataset | None = None,
) -> Plan:
    """The runs of an algorithm at some points, an entry for each point, in their order.

    Args:
        points: Values by setting.
        settings: The other settings.
        seeds: The seeds of each point's runs. By default there is one, that of the settings.
        loaded: The data set that the settings name, if it has been loaded already.

    Raises:
        InputError: If a setting can't be used.
    """
    algorithm = algorithm_of(settings)
    labelled: dict[str, dict[str, Any]] = {}
    varied: set[str] = set()
    for point in points:
        label = label_of_point(algorithm, point)
        if label in labelled:
            raise InputError(f"two combinations would both be called {label!r}")
        labelled[label] = {**settings, "algorithm": algorithm, **point}
        varied |= point.keys()
    planned = with_seeds(labelled, seeds, loaded)
    for config, _ in planned.runs.values():
        for name in sorted(varied):
            if name not in config.essence():
                raise InputError(f"{name} can't be varied: no result depends on it")
        if config.validation_clients == 0:
            raise InputError("points are ordered by their scores on validation clients, which needs validation_clients")
    return planned


def algorithm_of(settings: Mapping[str, Any]) -> str:
    """The name of the algorithm that settings name.

    Raises:
        InputError: If it is an object.
    """
    algorithm = settings.get("algorithm", Config.algorithm)
    if not isinstance(algorithm, str):
        raise InputError("a sweep or a tuning makes an algorithm for each combination; name it, as in 'adabest'")
    return algorithm


def label_of_point(algorithm: str, point: Mapping[str, Any]) -> str:
    """The label of an algorithm at a point, which is also its folder's name."""
    return label_of(",".join([algorithm, *(f"{name}={value}" for name, value in point.items())]))


def read_vary(vary: Any) -> dict[str, list[Any]]:
    """Values by setting, from ``{"beta": [0.8, 0.9]}`` or texts such as ``beta=0.8,0.9``.

    In a text values are separated by commas, or by semicolons where a value has commas itself.

    Raises:
        InputError: If it has another form, or there is nothing to vary.
    """
    if isinstance(vary, Mapping):
        axes = {name: list(values) if isinstance(values, list | tuple) else [] for name, values in vary.items()}
    else:
        axes = read_texts(vary, "vary", _EXAMPLE)
    if not axes or not all(axes.values()):
        raise InputError(f"there must be settings with the values to try, as in {_EXAMPLE}, not vary = {vary!r}")
    return axes


def write_vary(axes: Mapping[str, Sequence[Any]]) -> list[str]:
    """Values by setting as texts."""
    texts = []
    for name, values in axes.items():
        words = [str(value) for value in values]
        texts.append(f"{name}={';'.join([*words, '']) if any(',' in word for word in words) else ','.join(words)}")
    return texts


def read_texts(texts: Any, what: str, example: str) -> dict[str, list[Any]]:
    """Words by setting, from texts such as ``beta=0.8,0.9``; none from anything else.

    Args:
        texts: The texts.
        what: The name of the argument, for messages.
        example: An example of such a text, for messages.

    Raises:
        InputError: If a text has another form, or names a setting a second time.
    """
    read: dict[str, list[Any]] = {}
    for text in texts if isinstance(texts, list | tuple) else ():
        key, equals, values = str(text).partition("=")
        if not (key and equals):
            raise InputError(f"{what}: {text!r} should be a setting and the values to try, as in {example}")
        name = key.strip().replace("-", "_")
        if name in read:
            raise InputError(f"{what} names a setting twice: {', '.join(map(str, texts))}")
        words = values.split(";" if ";" in values else ",")
        read[name] = [word.strip() for word in words if word.strip()]
    return read


def check_axes(axes: Mapping[str, Sequence[Any]], algorithm: str, what: str = "vary") -> dict[str, list[Any]]:
    """Values by setting in their right types, each once.

    Raises:
        InputError: If a setting is unknown, can't be varied, or can't have such a value.
    """
    known = SETTINGS | algorithm_options(algorithm)
    refuse_unknown(axes, known)
    checked = {}
    for name, values in axes.items():
        refuse_many_runs(len(values))
        if name in SETTINGS and SETTINGS[name].meaning.instead:
            raise InputError(f"{name} can't be varied: {SETTINGS[name].meaning.instead}")
        if not all(map(is_plain, values)):
            raise InputError(f"{what}: the values of {name} should be numbers or words")
        checked[name] = [check_options("a run", {name: value}, known)[name] for value in values]
        if any(checked[name].count(value) > 1 for value in checked[name]):
            raise InputError(f"{what}: a value of {name} is named twice")
    return checked


def sweep(
    config: str | Path | None = None,
    *,
    vary: Mapping[str, Sequence[Any]] | Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    target: float | None = None,
    lanes: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    show: bool = True,
    **settings: Unpack[Settings],
) -> Comparison:
    """Runs one algorithm with every combination of some values of its settings, then writes a table and a figure.

    The table is in the order of the score on validation clients, the best first. Finished runs in the folder are
    kept, begun ones are resumed.

    Args:
        config: A TOML file with settings.
        vary: The values to try by setting, as in ``{"beta": [0.8, 0.9], "mu": [0.02, 0.05]}``, or as texts such as
            ``beta=0.8,0.9``.
        seeds: Seeds to run each combination with, in place of ``seed``; the table has means and standard deviations.
        target: The accuracy, or value of the task's first metric, of which the table tells the first round that
            reaches it. By default one that all reach.
        lanes: The most runs that are trained together, as lanes of one program; 1 for one after another. By default
            all.
        out: The sweep's folder. By default ``runs/`` and a name that the settings determine.
        overwrite: Whether to make all runs anew, in place of those in the folder.
        show: Whether to show progress.
        **settings: The other settings of all runs.
    """
    given = {"vary": vary, "seeds": seeds, "target": target, "lanes": lanes}
    refuse_callback_objects(settings)
    with asked_for(config, settings, **given, out=out, overwrite=overwrite) as merged:
        refuse_hyperparameters(settings, [merged.get("algorithm", Config.algorithm)])
        return make_sweep(merged, show=show)


def make_sweep(settings: dict[str, Any], *, unverified: bool = False, show: bool) -> Comparison:
    """Makes a sweep from complete settings. Unlike ``sweep``, it allows none of their names to be imported."""
    asked = Asked.taken_from(settings, "sweep")
    axes = read_vary(settings.pop("vary", None))
    planned = plan_sweep(axes, settings, asked.seeds)
    return make_and_report(asked, planned, {"vary": write_vary(axes)}, settings, unverified=unverified, show=show)
