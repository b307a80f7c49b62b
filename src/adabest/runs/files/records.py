"""Checks of JSON files before their contents are used.

``conform`` compares a value with a type, as deep as the type goes, and names the place that doesn't fit. The other
functions check the files of a run's folder.
"""

import dataclasses
import functools
import reprlib
import types
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Any, Literal, NotRequired, TypedDict, Union, get_args, get_origin, get_type_hints, is_typeddict

from adabest.errors import InputError
from adabest.tasks.objectives.metric import ACCURACY, Metric

Status = Literal["running", "interrupted", "killed", "finished", "diverged"]

# What has a metric of the task in a row: models, and groups of clients.
_JUDGED = ("scored", "aggregate", "cloud", "averaged", "train", "validation", "local_global", "local_own")
_LARGEST_WHOLE = 2**63
LARGEST = 1e200  # means and spreads of such numbers can still be computed; a model that gets there has diverged
_DEEPEST = 4  # levels of lists in lists, where a type is Any
_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


class StatusRecord(TypedDict):
    """The content of ``status.json``."""

    status: Status
    round: int
    reason: NotRequired[str | None]


def conform(where: str, value: Any, kind: Any) -> Any:
    """Checks that a value of a JSON file has a type.

    Args:
        where: The file and the place in it, for the message.
        value: The value.
        kind: bool, int, float, str, Literal, a list, a dict with text as keys, a dataclass, a TypedDict, one of them or
            None; or Any, for plain values: text, numbers, true, false, null, and lists of plain values.

    Returns:
        The value; an object if the type is a dataclass.

    Raises:
        InputError: If the value has another type.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        _check_plain(where, value, _DEEPEST)
    elif origin in (Union, types.UnionType):
        return _one_of(where, value, arguments)
    elif origin is Literal:
        if not isinstance(value, str) or value not in arguments:
            raise InputError(f"{where} should be one of {', '.join(arguments)}, not {_shown(value)}")
    elif origin is list:
        if not isinstance(value, list):
            raise InputError(f"{where} should be a list, not {_shown(value)}")
        return [conform(f"{where}[{number}]", item, arguments[0]) for number, item in enumerate(value)]
    elif origin is dict:
        return {name: conform(f"{where}.{name}", item, arguments[1]) for name, item in _table(where, value).items()}
    elif dataclasses.is_dataclass(kind):
        return _record(where, value, kind)
    elif is_typeddict(kind):
        content = _table(where, value)
        _check_names(where, content, kind.__required_keys__, _hints(kind))
        return {name: conform(f"{where}.{name}", item, _hints(kind)[name]) for name, item in content.items()}
    elif not _is_a(value, kind):
        raise InputError(f"{where} should be {_WORDS[kind]}, not {_shown(value)}")
    return value


def check_status(where: str, value: Any) -> StatusRecord:
    """Checks ``status.json``: ``status``, ``round``, and perhaps ``reason``. Other names are left out.

    Raises:
        InputError: If a name is missing, or a value has another type.
    """
    known = {name: item for name, item in _table(where, value).items() if name in StatusRecord.__annotations__}
    found: StatusRecord = conform(where, known, StatusRecord)
    _check_count(f"{where}.round", found["round"])
    return found


def check_identity(where: str, value: Any) -> dict[str, Any]:
    """Checks ``identity.json``: data, partition and initial model. Other names may have any value.

    Raises:
        InputError: If a name is missing, or a value has another type.
    """
    content = _table(where, value)
    _require(where, content, tuple(_IDENTITY))
    for name, kind in _IDENTITY.items():
        conform(f"{where}.{name}", content[name], kind)
    ids = content.get("ids")
    if ids is not None and not (len(conform(f"{where}.ids", ids, list[int])) == 2 and ids[0] <= ids[1]):
        raise InputError(f"{where}.ids should be the lowest and the highest id, not {_shown(ids)}")
    if content["classes"] < 1 or any(size < 1 for size in content["input_shape"]):
        raise InputError(f"{where}: classes and the sizes of input_shape should be above 0")
    check_partition(f"{where}.partition", content["partition"])
    if "metrics" in content and not conform(f"{where}.metrics", content["metrics"], list[Metric]):
        raise InputError(f"{where}.metrics should name at least one")
    return content


def check_clients(where: str, value: Any) -> dict[str, list[Any]]:
    """Checks ``clients.json``: columns of equally many numbers, or nulls.

    Raises:
        InputError: If a column has another length, or a value another type.
    """
    content: dict[str, list[Any]] = conform(where, value, dict[str, list[float | None]])
    _require(where, content, ("client", "samples", "held_out"))
    if len({len(column) for column in content.values()}) > 1:
        raise InputError(f"{where}: columns should have equally many values")
    return content


def check_partition(where: str, value: Any) -> dict[str, Any]:
    """Checks the statistics of a partition, its fingerprint among them.

    Raises:
        InputError: If the fingerprint is missing, or a value isn't plain.
    """
    content: dict[str, Any] = conform(where, value, dict[str, Any])
    _require(where, content, ("fingerprint",))
    conform(f"{where}.fingerprint", content["fingerprint"], str)
    return content


def check_environment(where: str, value: Any) -> dict[str, Any]:
    """Checks ``environment.json``: plain values by name.

    Raises:
        InputError: If a value isn't plain.
    """
    content: dict[str, Any] = conform(where, value, dict[str, Any])
    for name in ("command", "working_directory"):
        if name in content:
            conform(f"{where}.{name}", content[name], str)
    return content


def check_metrics(where: str, row: Any, judged_by: Collection[Metric] = (ACCURACY,)) -> dict[str, Any]:
    """Checks the metrics of a round: ``round``, and a number or null under each other name.

    Args:
        where: The file and the place in it, for the message.
        row: The metrics.
        judged_by: What models are judged by. Only if this is accuracy, it is known to lie between 0 and 1: functions of
            the user's own may have names that end like it.

    Raises:
        InputError: If a value has another type, or an accuracy isn't between 0 and 1.
    """
    content: dict[str, Any] = conform(where, row, dict[str, float | None])
    _require(where, content, ("round",))
    _check_count(f"{where}.round", content["round"])
    for name in (f"{model}_{ACCURACY.name}" for model in _JUDGED) if ACCURACY in judged_by else ():
        metric = content.get(name)
        if metric is not None and not 0 <= metric <= 1:
            raise InputError(f"{where}.{name} should be between 0 and 1, not {_shown(metric)}")
    return content


_IDENTITY: dict[str, Any] = {
    "dataset": str,
    "classes": int,
    "mean": Any,
    "std": Any,
    "input_shape": list[int],
    "initial_model": str,
    "parameters": int,
    "partition": dict[str, Any],
}


def _require(where: str, content: Mapping[str, Any], names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in content]
    if missing:
        raise InputError(f"{where} lacks {', '.join(missing)}")


def _check_count(where: str, value: Any) -> None:
    if conform(where, value, int) < 0:
        raise InputError(f"{where} should not be below 0, as {value} is")


def _one_of(where: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    if value is None and type(None) in kinds:
        return None
    (kind,) = (kind for kind in kinds if kind is not type(None))  # our unions are of one type and None
    return conform(where, value, kind)


def _table(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where} should be an object with names and values, not {_shown(value)}")
    for name in value:
        if not _is_a(name, str):
            raise InputError(f"{where} has a name that isn't text: {_shown(name)}")
    return value


def _record(where: str, value: Any, kind: Any) -> Any:
    content, hints = _table(where, value), _hints(kind)
    required = [
        part.name
        for part in dataclasses.fields(kind)
        if part.default is dataclasses.MISSING and part.default_factory is dataclasses.MISSING
    ]
    _check_names(f"{where}: this is no {kind.__name__.lower()}: it", content, required, hints)
    return kind(**{name: conform(f"{where}.{name}", item, hints[name]) for name, item in content.items()})


def _check_names(who: str, content: Mapping[str, Any], required: Iterable[str], known: Container[str]) -> None:
    _require(who, content, tuple(required))
    unknown = [name for name in content if name not in known]
    if unknown:
        raise InputError(f"{who} has {_shown(unknown[0])}, which doesn't belong there")


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _is_a(value: Any, kind: Any) -> bool:
    """Whether a value is of a plain type; a number must also be finite and within the limits above."""
    if kind is float:
        return type(value) in (int, float) and abs(value) <= LARGEST
    if kind is int:
        return type(value) is int and abs(value) <= _LARGEST_WHOLE
    if kind is str:
        return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)
    return type(value) is kind


def _check_plain(where: str, value: Any, depth: int) -> None:
    if isinstance(value, list) and depth > 0:
        for number, item in enumerate(value):
            _check_plain(f"{where}[{number}]", item, depth - 1)
    elif not any(_is_a(value, kind) for kind in (str, float, bool, type(None))):
        raise InputError(f"{where} should be text, a finite number, true, false, null or a list, not {_shown(value)}")


def _shown(value: Any) -> str:
    return reprlib.repr(value).encode(errors="replace").decode()
