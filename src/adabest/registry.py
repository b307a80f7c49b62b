"""How a name becomes an object: built in, installed by another package, or the user's own.

Algorithms, models, data sets, losses and partitioners are all found the same way, so that one's own needs no change
here. A name is looked up among the built-in ones, then among the entry points of installed packages, and a name of
the form ``module:attribute`` is imported. A *specification* is a name with options: ``adabest,beta=0.9``.

Importing a module runs it, so a name that was read from a run's folder or a file of results must not be enough: then
whoever wrote that file could run anything. A ``module:attribute`` is imported only if the person who makes a call named
it in that call (``naming``). This module alone decides that, and imports; nothing is allowed by default.
"""

import contextlib
import dataclasses
import functools
import importlib
import inspect
import math
import os
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from adabest.errors import AdabestError, InputError, nearest, told

T = TypeVar("T")

_OWN_NAME = re.compile(r"[^\W\d][\w-]*(\.[^\W\d][\w-]*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_SETTING = re.compile(r"\s*[\w-]+\s*")
_OPTIONS_WITH_NAMES = ("tokenizer",)  # of data sets


@dataclasses.dataclass(frozen=True)
class Named:
    """The names of the form ``module:attribute`` that may be imported, because a call named them.

    Attributes:
        names: The names.
        everything: Whether the call trusts every name, whoever wrote it down.
    """

    names: frozenset[str] = frozenset()
    everything: bool = False

    def __contains__(self, name: str) -> bool:
        return self.everything or name in self.names


_NAMED: ContextVar[Named | None] = ContextVar("named", default=None)


def named_now() -> Named:
    """What the call that is under way has named; nothing outside of any."""
    return _NAMED.get() or Named()


@contextlib.contextmanager
def naming(*values: Any, trust: bool = False) -> Iterator[None]:
    """While entered, what some values name may be imported: the words of whoever makes a call, never those of a file.

    Args:
        *values: Specifications, lists and mappings of them, and texts such as ``model=my_module:small,my_module:big``.
            Anything else, such as an object, names nothing.
        trust: Whether every name may be imported, whoever wrote it down.
    """
    before = named_now()
    token = _NAMED.set(Named(before.names.union(own_names(values)), before.everything or trust))
    try:
        yield
    finally:
        _NAMED.reset(token)


@contextlib.contextmanager
def allowing(allow: str | Sequence[str], *, trust: bool) -> Iterator[None]:
    """While entered, names that a call allows beside what it does may be imported, as with ``--allow`` and ``--trust``.

    Raises:
        InputError: If one isn't of the form ``module:attribute``.
    """
    names = [allow] if isinstance(allow, str) else list(allow)
    for name in names:
        if not (isinstance(name, str) and _OWN_NAME.fullmatch(name)):
            raise InputError(f"allow = {name!r}: what can be allowed has the form module:attribute")
    with naming(names, trust=trust):
        yield


def also_named(name: str) -> None:
    """Adds a name that code of a named module gave: what has been run already needs no second permission.

    It counts until the ``naming`` that is entered ends; outside of any, nothing is added.
    """
    before = _NAMED.get()
    if before is not None:
        _NAMED.set(Named(before.names.union(own_names(name)), before.everything))


def own_names(values: Any) -> list[str]:
    """The names of the form ``module:attribute`` in specifications, each once, in their order."""
    return list(dict.fromkeys(_walk(values)))


def _walk(values: Any) -> Iterator[str]:
    if isinstance(values, str):
        setting, equals, words = values.partition("=")
        texts = [values]
        if equals and _SETTING.fullmatch(setting):  # values to vary a setting by, and not a name with options
            texts = words.split(";" if ";" in words else ",")
        names = (name for text in texts for name in _of_specification(text))
        yield from (name for name in names if _OWN_NAME.fullmatch(name))
    elif isinstance(values, Mapping):
        yield from _walk(list(values.values()))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _walk(value)


def _of_specification(text: str) -> Iterator[str]:
    """The name in a specification, and those that its options may have."""
    for number, part in enumerate(text.split(",")):
        option, equals, value = part.partition("=")
        if equals and option.strip() in _OPTIONS_WITH_NAMES:
            yield value.strip()
        elif number == 0:
            yield part.strip()


def is_own_name(name: str) -> bool:
    """Whether a specification names something to be imported."""
    return bool(_OWN_NAME.fullmatch(name.partition(",")[0].strip()))


def stands_for(name: str, thing: Any) -> bool:
    """Whether ``module:attribute`` is the name of a thing, found out without importing anything.

    A module may compute its attributes when asked for them. It is asked only if the call named them.
    """
    if name == f"{getattr(thing, '__module__', None)}:{getattr(thing, '__qualname__', None)}":
        return True
    module_name, _, attribute = name.partition(":")
    found: Any = sys.modules.get(module_name)
    look_up: Callable[..., Any] = getattr if name in named_now() else inspect.getattr_static
    for part in attribute.split("."):
        found = look_up(found, part, None)
    return found is not None and found is thing


def look_in(folder: str) -> None:
    """Has modules looked for in a folder, too, after all other places."""
    if folder not in sys.path:
        sys.path.append(folder)


@contextlib.contextmanager
def blaming(kind: str, name: str) -> Iterator[None]:
    """While entered, code of the user's own is run: whatever it raises is told with its name and where it happened.

    Args:
        kind: What it is, in words.
        name: What it was named; nothing is changed for what isn't ``module:attribute``.

    Raises:
        InputError: If it raises anything that isn't this package's.
    """
    try:
        yield
    except AdabestError:
        raise
    except (Exception, SystemExit) as error:
        if not is_own_name(name):
            raise
        raise InputError(f"{kind} {name!r} raised {told(error)}") from error


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
        return sorted({*self.builtin, *(point.name for point in _entry_points(group=self.group))})

    def find(self, name: str) -> T:
        """Finds the object a name stands for.

        Args:
            name: A built-in name, the name of an entry point, or ``module:attribute``.

        Returns:
            The object itself, not yet called.

        Raises:
            InputError: If there is no such thing; the message has the nearest name. If the call that is under way
                didn't name a ``module:attribute`` itself.
        """
        if name in self.builtin:
            return self.builtin[name]
        if ":" in name:
            found: T = self._import(name)
            return found
        for point in _entry_points(group=self.group, name=name):
            try:
                loaded: T = point.load()
            except (ImportError, AttributeError) as error:
                raise InputError(f"{self.kind} {name!r} of the entry point {point.value}: {error}") from error
            return loaded
        raise InputError(
            f"unknown {self.kind} {name!r}; {nearest(name, self.names())}. Your own is named as module:attribute"
        )

    def _import(self, path: str) -> Any:
        if not _OWN_NAME.fullmatch(path):
            raise InputError(f"{self.kind} {path!r} should have the form module:attribute")
        _refuse_unnamed(self.kind, path)
        module_name, _, attribute = path.partition(":")
        try:
            target: Any = _load(module_name)
        except ImportError as error:
            raise InputError(f"{self.kind} {path!r}: can't import module {module_name!r}: {error}") from error
        try:
            for part in attribute.split("."):
                target = getattr(target, part)
        except AttributeError as error:
            raise InputError(f"{self.kind} {path!r}: module {module_name!r} has no {attribute!r}") from error
        return target


def _entry_points(**chosen: str) -> Any:
    """The entry points of installed packages, by group and name."""
    from importlib import metadata  # takes a while, and only names that aren't built in need it

    return metadata.entry_points(**chosen)


def _refuse_unnamed(kind: str, name: str) -> None:
    """The rule: what this call didn't name isn't imported.

    Raises:
        InputError: If it didn't.
    """
    if name not in named_now():
        raise InputError(
            f"{kind} {name!r} isn't imported: it was named by a file, not by this call, and a file must not run code. "
            f"If you know what it does, pass --allow {name}, or --trust if you know where all the files come from "
            f"(in Python allow=[{name!r}] or trust=True)"
        )


def _load(module_name: str) -> types.ModuleType:
    """Imports a module that was named.

    Only if it is nowhere else is it looked for in the working directory, which may be a folder that somebody sent: were
    it always searched, a file in it could stand in for any package that isn't installed.
    """
    package = module_name.partition(".")[0]
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        here = _working_directory()
        if error.name != package or here is None or here in sys.path:
            raise
    look_in(here)
    importlib.invalidate_caches()  # a file that was written a moment ago counts, too
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name == package:
            sys.path.remove(here)
        raise


def _working_directory() -> str | None:
    """The working directory; None if it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return None


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
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}
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
        if len(kinds) == 1:
            return convert(name, value, kinds[0], text=text)
        for kind in kinds:
            with contextlib.suppress(InputError):
                return convert(name, value, kind, text=text)
        raise InputError(f"{name} should be {' or '.join(map(_words, kinds))}, not {shown(value)}")
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
        wanted = _words(annotation)
        if annotation is int and (type(value) is int or (isinstance(value, str) and value.strip("+-").isdecimal())):
            wanted += " from -2⁶³ to below 2⁶³"
        way_out = (
            f"; code of yours is named, as in {_own_name(value)!r}" if annotation is str and callable(value) else ""
        )
        raise InputError(f"{name} should be {wanted}, not {shown(value)}{way_out}")
    return converted


def _own_name(thing: Any) -> str:
    """The name by which a function or a class is found again; an example of one, if it has none."""
    name = str(getattr(thing, "__qualname__", ""))
    return f"{thing.__module__}:{name}" if name.isidentifier() else "my_module:my_function"


def _words(annotation: Any) -> str:
    """What a value of a type is, for messages."""
    if get_origin(annotation) is Literal:
        return " or ".join(map(repr, get_args(annotation)))
    return _WORDS.get(annotation, "a list" if get_origin(annotation) is tuple else "valid")


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
