"""Algorithms in settings: a name with options, as in ``adabest,beta=0.9``, or an object."""

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from adabest.algorithms.base import Algorithm
from adabest.algorithms.catalog import ALGORITHMS
from adabest.errors import InputError, nearest
from adabest.registry import Option, blaming, check_options, options_of, split_specification
from adabest.runs.settings.call_arguments import RESERVED
from adabest.runs.settings.config import SETTINGS, Config
from adabest.runs.settings.placeholders import refuse_placeholder


def algorithm_options(name: str) -> dict[str, Option]:
    """The hyper-parameters of an algorithm given by name.

    Raises:
        InputError: If there is no such algorithm, or it claims a name that every run has.
    """
    kind = ALGORITHMS.find(name)
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        found = f"the class {kind.__name__}" if isinstance(kind, type) else f"a {type(kind).__name__}"
        raise InputError(f"algorithm {name!r} should be a subclass of adabest.Algorithm, not {found}")
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise InputError(f"algorithm {name!r} lacks functions that every algorithm has: {missing}")
    options: dict[str, Option] = options_of(kind) if dataclasses.is_dataclass(kind) else {}
    refuse_clash(name, options)
    return options


def refuse_clash(algorithm: str, names: Iterable[str]) -> None:
    """Refuses hyper-parameters that are called like a setting of every run, or like an argument of a call.

    Raises:
        InputError: With the name that is taken.
    """
    taken = sorted((SETTINGS.keys() | set(RESERVED)) & set(names))
    if taken:
        raise InputError(
            f"algorithm {algorithm!r} names a hyper-parameter {taken[0]!r}, which is a setting of every run"
        )


def make_algorithm(algorithm: str | Algorithm) -> Algorithm:
    """The algorithm that a specification names, such as ``adabest,beta=0.9``; an object is what it is.

    Raises:
        InputError: If there is no such algorithm, or its hyper-parameters can't be used.
    """
    return build_algorithm({"algorithm": algorithm})[0] if isinstance(algorithm, str) else check_algorithm(algorithm)


def build_algorithm(settings: Mapping[str, Any]) -> tuple[Algorithm, dict[str, Any]]:
    """The algorithm that settings name, with its hyper-parameters, and the other settings in their right types."""
    name, options = specified(settings.get("algorithm", Config.algorithm))
    own = algorithm_options(name)
    checked = check_settings({**options, **settings, "algorithm": name}, SETTINGS | own)
    hyperparameters = {key: checked.pop(key) for key in list(checked) if key in own}
    missing = [key for key, o in own.items() if o.default is dataclasses.MISSING and key not in hyperparameters]
    if missing:
        raise InputError(f"algorithm {name!r} needs a value for {', '.join(missing)}")
    with blaming("algorithm", name):
        return ALGORITHMS.find(name)(**hyperparameters), checked


def specified(algorithm: str) -> tuple[str, dict[str, Any]]:
    """The name of an algorithm, and the hyper-parameters that stand behind it, as in ``adabest,beta=0.9``.

    Raises:
        InputError: If there is no such algorithm, or it has no such hyper-parameter.
    """
    if not isinstance(algorithm, str):
        raise InputError(f"algorithm should be a name or an Algorithm, not {algorithm!r}")
    name, options = split_specification(algorithm)
    own = algorithm_options(refuse_placeholder("algorithm", name))
    refuse_unknown(options, own)
    return name, check_options(f"algorithm {name!r}", options, own)


def check_algorithm(algorithm: Any) -> Algorithm:
    """Refuses an object that isn't an algorithm.

    Raises:
        InputError: If it isn't, or if one of its hyper-parameters is called like a setting.
    """
    if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
        raise InputError(
            f"algorithm should be a name or an Algorithm: {algorithm.__name__}(), not {algorithm.__name__}"
        )
    if not isinstance(algorithm, Algorithm):
        raise InputError(f"algorithm should be a name or an Algorithm, not a {type(algorithm).__name__}")
    refuse_clash(type(algorithm).__name__, vars(algorithm))
    return algorithm


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


def check_settings(settings: Mapping[str, Any], known: Mapping[str, Option]) -> dict[str, Any]:
    """Settings in their right types.

    Raises:
        InputError: For an unknown name or a value of the wrong type.
    """
    refuse_unknown(settings, known)
    return check_options("a run", settings, known, text=False)


def refuse_unknown(names: Iterable[str], known: Iterable[str]) -> None:
    """Refuses names that aren't settings.

    Raises:
        InputError: With the nearest setting, or the algorithms that do have one of that name.
    """
    choices = set(known)
    for name in names:
        if name not in choices:
            owners = [other for other in ALGORITHMS.builtin if name in algorithm_options(other)]
            whose = f"it belongs to {', '.join(owners)}. " if owners else ""
            raise InputError(f"unknown setting {name!r}; {whose}{nearest(name, choices)}")


def refuse_hyperparameters(keywords: Mapping[str, Any], algorithms: Iterable[Any]) -> None:
    """Refuses hyper-parameters among the keywords of a Python call: they travel with the algorithm.

    Args:
        keywords: The keywords, which should be settings.
        algorithms: The algorithms of the call, by name or as objects.

    Raises:
        InputError: With the algorithm as it should be given.
    """
    for name, value in keywords.items():
        if name in SETTINGS or name in RESERVED:
            continue
        for algorithm in algorithms:
            if isinstance(algorithm, str):
                owner, _ = split_specification(algorithm)
                own, right = algorithm_options(owner), f'"{owner},{name}={value}"'
            else:
                kind = type(algorithm)
                own = options_of(kind) if dataclasses.is_dataclass(kind) else {}
                right = f"{kind.__name__}({name}={value!r})"
            if name in own:
                raise InputError(
                    f"{name} is a hyper-parameter, which is given with its algorithm and not as a keyword: {right}"
                )


def merge(file: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a run from a file and from a call, each of which may have an algorithm with options in its name.

    The call wins over the file. Within the file the algorithm's options win over other settings; within the call it is
    the other way round, so that an option of its own always counts.
    """
    file_name, file_options = _split_algorithm(file)
    call_name, call_options = _split_algorithm(call)
    algorithm = file_name if call_name is None else call_name
    merged = dict(file)
    if algorithm == file_name:
        merged |= file_options
    merged |= {**call_options, **call}
    if algorithm is not None:
        merged["algorithm"] = algorithm
    return merged


def _split_algorithm(settings: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The algorithm's name, or the object or None in its place, and the options behind the name."""
    algorithm = settings.get("algorithm")
    return specified(algorithm) if isinstance(algorithm, str) else (algorithm, {})
