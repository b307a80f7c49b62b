"""Names in settings: those of objects, and those of the user's own modules, which are imported."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from adabest.algorithms.base import Algorithm
from adabest.algorithms.catalog import ALGORITHMS
from adabest.data.dataset import Dataset
from adabest.data.loading import is_file_name
from adabest.registry import own_names
from adabest.runs.settings.call_arguments import CALL_ARGUMENTS_WITH_NAMES
from adabest.runs.settings.config import SETTINGS
from adabest.runs.settings.declaration import names_where
from adabest.runs.settings.placeholders import OBJECT, is_object_name

_WITH_NAMES = (*names_where(SETTINGS, lambda meaning: meaning.names), *CALL_ARGUMENTS_WITH_NAMES)


def named_in(settings: Mapping[str, Any]) -> list[str]:
    """The names of the user's own modules in the settings of a run or of several, as in ``my_module:MyAlgorithm``."""
    values = {key: settings[key] for key in _WITH_NAMES if key in settings}
    if isinstance(values.get("dataset"), str) and is_file_name(values["dataset"]):
        del values["dataset"]
    return [name for name in own_names(values) if not is_object_name(name)]


def names_of(objects: Mapping[str, Any], dataset: Dataset) -> dict[str, str]:
    """Placeholders for objects, by setting; an algorithm that is found again by its own name has that name."""
    names = {key: OBJECT + name_of(thing) for key, thing in objects.items()}
    if "dataset" in objects:
        names["dataset"] = OBJECT + dataset.name
    if "algorithm" in objects:
        names["algorithm"] = name_of_algorithm(objects["algorithm"])
    return names


def name_of_algorithm(algorithm: Algorithm) -> str:
    """The name under which an algorithm is found again; a placeholder if its name wouldn't give it back."""
    kind = type(algorithm)
    path = f"{kind.__module__}:{kind.__qualname__}"
    if kind.__module__ == "__main__" or "<locals>" in path or not _can_be_rebuilt(algorithm):
        return OBJECT + kind.__name__
    return next((name for name, builtin in ALGORITHMS.builtin.items() if kind is builtin), path)


def _can_be_rebuilt(algorithm: Algorithm) -> bool:
    """Whether an algorithm is nothing but its hyper-parameters, all of which can be written to a file."""
    values = hyperparameters_of(algorithm)
    return values.keys() == vars(algorithm).keys() and all(map(is_plain, values.values()))


def name_of(thing: Any) -> str:
    """The name of a class or function, or of the class of an object."""
    return str(getattr(thing, "__name__", type(thing).__name__))


def hyperparameters_of(algorithm: Algorithm) -> dict[str, Any]:
    """The hyper-parameters of an algorithm by name, NumPy's numbers as Python's."""
    values: dict[str, Any] = dataclasses.asdict(algorithm) if dataclasses.is_dataclass(algorithm) else {}
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}


def is_plain(value: Any) -> bool:
    """Whether a value survives a TOML file."""
    return isinstance(value, bool | int | float | str) or (
        isinstance(value, list | tuple) and all(map(is_plain, value))
    )


def is_object(settings: Mapping[str, Any], key: str) -> bool:
    """Whether a setting has an object in place of a name."""
    return settings.get(key) is not None and not isinstance(settings[key], str)
