"""How a name becomes an object: built in, installed by another package, or the user's own.

Algorithms, models, data sets, losses and partitioners are all found the same way, so that one's own needs no change
here. A name is looked up among the built-in ones, then among the entry points of installed packages, and a name of
the form ``module:attribute`` is imported. A *specification* is a name with options: ``adabest,beta=0.9``.
"""

import contextlib
import dataclasses
import functools
import importlib
import inspect
import math
import types
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from adabest.errors import InputError, nearest, told

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Registry(Generic[T]):
    """The known things of one kind.

    Attributes:
        kind: What they are, in words, for messages.
        group: The entry-point group in which other packages may offer more of them.
        builtin: The ones that come with this package.
    """

    kind: str
    group: str
    builtin: Mapping[str, T]

    def names(self) -> list[str]:
        """All names that can be used without a colon."""
        return sorted({*self.builtin, *(point.name for point in metadata.entry_points(group=self.group))})

    def find(self, name: str) -> T:
        """Finds the object a name stands for.

        Args:
            name: A built-in name, the name of an entry point, or ``module:attribute``.

        Returns:
            The object itself, not yet called.

        Raises:
            InputError: If there is no such thing; the message has the nearest name.
        """
        if name in self.builtin:
            return self.builtin[name]
        for point in metadata.entry_points(group=self.group, name=name):
            try:
                loaded: T = point.load()
            except (ImportError, AttributeError) as error:
                raise InputError(f"{self.kind} {name!r} of the entry point {point.value}: {error}") from error
            return loaded
        if ":" in name:
            found: T = self._import(name)
            return found
        raise InputError(
            f"unknown {self.kind} {name!r}; {nearest(name, self.names())}. Your own is named as module:attribute"
        )

    def _import(self, path: str) -> Any:
        module_name, _, attribute = path.partition(":")
        if not module_name or module_name.startswith("."):
            raise InputError(f"{self.kind} {path!r} should have the form module:attribute")
        try:
            target: Any = importlib.import_module(module_name)
        except ImportError as error:
            raise InputError(f"{self.kind} {path!r}: can't import module {module_name!r}: {error}") from error
        try:
            for part in attribute.split("."):
                target = getattr(target, part)
        except AttributeError as error:
            raise InputError(f"{self.kind} {path!r}: module {module_name!r} has no {attribute!r}") from error
        return target


def split_specification(text: str) -> tuple[str, dict[str, str]]:
    """Takes ``name,key=value,key=value`` apart.

    Raises:
        InputError: If a part behind the name isn't of the form ``key=value``.
    """
    name, *parts = text.split(",")
    options = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not (key.strip() and equals):
            raise InputError(f"{text!r}: {part!r} should be an option of the form key=value")
        options[key.strip()] = value.strip()
    return name.strip(), options


@dataclasses.dataclass(frozen=True)
class Option:
    """One thing that can be set: its type, and its default (``dataclasses.MISSING`` if it must be given)."""

    type: Any
    default: Any


def options_of(target: Callable[..., Any], skip: int = 0) -> dict[str, Option]:
    """What can be set on a callable, read off its signature.

    Args:
        target: A class or function.
        skip: How many leading parameters the package fills in itself.

    Raises:
        InputError: If it has no signature that can be read.
    """
    function: Any = target.func if isinstance(target, functools.partial) else target
    try:
        hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
        parameters = list(inspect.signature(target).parameters.values())[skip:]
    except Exception as error:  # annotations are code of whoever wrote them, and functions in C may have no signature
        raise InputError(
            f"the options of {getattr(target, '__name__', target)!r} can't be read off its signature: {told(error)}"
        ) from error
    return {
        p.name: Option(hints.get(p.name, Any), dataclasses.MISSING if p.default is p.empty else p.default)
        for p in parameters
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }


def check_options(
    owner: str, values: Mapping[str, Any], options: Mapping[str, Option], *, text: bool = True
) -> dict[str, Any]:
    """Checks names and types of values against the options of their owner.

    Args:
        owner: Who has the options, for messages.
        values: What was given.
        options: What there is to be set.
        text: Whether a value may be the text of what is wanted, as on a command line.

    Returns:
        The values in their right types.

    Raises:
        InputError: For an unknown name or a value of the wrong type.
    """
    for name in values:
        if name not in options:
            known = nearest(name, options) if options else "it has none"
            raise InputError(f"{owner} has no option {name!r}; {known}")
    return {name: convert(name, value, options[name].type, text=text) for name, value in values.items()}


_LARGEST = 2**63  # whole numbers are below it, so that tensors and TOML files can hold them
_LETTERS = 200  # of a value, in a message
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def convert(name: str, value: Any, annotation: Any, *, text: bool = True) -> Any:
    """Converts a value from TOML, Python or text to an annotated type.

    Args:
        name: What the value is called, for messages.
        value: The value.
        annotation: One of bool, int, float, str, Path, Literal, a tuple of one of them, or a union of those with None.
        text: Whether the value may be the text of what is wanted, as on a command line.

    Raises:
        InputError: If the value doesn't fit.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        kinds = [kind for kind in arguments if kind is not type(None)]
        for kind in kinds[:-1]:
            with contextlib.suppress(InputError):
                return convert(name, value, kind, text=text)
        return convert(name, value, kinds[-1], text=text)
    if origin is Literal:
        for choice in arguments:
            if value == choice or (text and value == str(choice)):
                return choice
        known = nearest(value if isinstance(value, str) else "", map(str, arguments))
        raise InputError(f"{name} = {shown(value)} isn't one of its values; {known}")
    if origin is tuple:
        if not isinstance(value, list | tuple) and not (text and isinstance(value, str)):
            raise InputError(f"{name} should be a list, not {shown(value)}")
        items = [part for part in value.split("x") if part] if isinstance(value, str) else value
        kinds = [arguments[0]] * len(items) if arguments[-1] is Ellipsis else list(arguments)
        if len(items) != len(kinds):
            raise InputError(f"{name} should have {len(kinds)} values, not {len(items)}")
        return tuple(convert(name, item, kind, text=text) for item, kind in zip(items, kinds, strict=True))
    converted = None
    if text or annotation in (str, Path) or not isinstance(value, str):
        converted = _convert_plain(value, annotation)
    if converted is None:
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}
        wanted = words.get(annotation, "valid")
        if annotation is int and (type(value) is int or (isinstance(value, str) and value.strip("+-").isdecimal())):
            wanted += " from -2⁶³ to below 2⁶³"
        raise InputError(f"{name} should be {wanted}, not {shown(value)}")
    return converted


def shown(value: Any) -> str:
    """A value as a message shows it: not too long, and whatever it is, since Python refuses to write some numbers."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return "a number or list too long to be shown"
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS]}…"


def _convert_plain(value: Any, annotation: Any) -> Any:
    """The value as a bool, int, float, str or path; None if it isn't one."""
    if annotation is bool:
        return (
            value if isinstance(value, bool) else _BOOLEANS.get(str(value).lower()) if isinstance(value, str) else None
        )
    if isinstance(value, bool):
        return None
    try:
        if annotation is float:
            return float(value)
        if annotation is int:
            if isinstance(value, float) and not (math.isfinite(value) and value == int(value)):
                return None
            whole = int(value)
            return whole if -_LARGEST <= whole < _LARGEST else None
        if annotation is Path and value and isinstance(value, str | Path) and "\0" not in str(value):
            return Path(value).expanduser()
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last one where ~ is the home of nobody known
        return None
    return value if annotation is str and isinstance(value, str) else None
