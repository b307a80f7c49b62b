"""Options as tyro can read them, in groups, and what was given of them."""

import dataclasses
import itertools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import docstring_parser
import tyro

from adabest.errors import InputError
from adabest.registry import Option, check_options, convert
from adabest.runs.settings.declaration import GROUPS, Group, Setting
from adabest.runs.settings.toml_file import read_toml

# Does what a command is for, with what was given by name, prints what came of it, and returns the exit code.
Action = Callable[[dict[str, Any]], int]

_METAVARS = {int: "INT", float: "FLOAT"}  # as tyro writes them


@dataclasses.dataclass(frozen=True)
class Field:
    """An option or a word of a command.

    Attributes:
        name: Its name in Python.
        annotation: Its type, with what tyro shows of it.
        default: Its default; ``dataclasses.MISSING`` if it must be given.
        group: The group in which help lists it; None for none.
    """

    name: str
    annotation: Any
    default: Any
    group: Group | None = None


def fields(
    options: Mapping[str, Option],
    help_texts: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    *,
    group: Group | None = None,
) -> list[Field]:
    """Options as fields.

    Args:
        options: The options by name. Settings bring their own help texts and groups.
        help_texts: Help texts by name, in place of the settings' own.
        defaults: Defaults by name, in place of the options' own.
        group: The group of options that aren't settings.
    """
    parsed = []
    for name, option in options.items():
        meaning = option.meaning if isinstance(option, Setting) else None
        text = (help_texts or {}).get(name, meaning.help if meaning else "")
        default = (defaults or {}).get(name, option.default)
        # A default of None means "decided later", which the help text says in words.
        unset: dict[str, Any] = {"help_behavior_hint": "", "metavar": _metavar(option.type)} if default is None else {}
        hint = tyro.conf.arg(help=text, **unset)
        parsed.append(Field(name, _annotated(option.type, hint), default, meaning.group if meaning else group))
    return parsed


def positional(name: str, kind: Any, help_text: str, metavar: str, default: Any = dataclasses.MISSING) -> Field:
    """A word or several words without an option's name."""
    several = get_origin(kind) is tuple
    unset: dict[str, Any] = {"help_behavior_hint": ""} if several or default is None else {}
    hint = tyro.conf.arg(help=help_text, metavar=metavar, **unset)
    return Field(name, _annotated(kind, tyro.conf.Positional, hint), default)


def _annotated(kind: Any, *hints: Any) -> Any:
    """A type that is known only now, with hints for tyro.

    tyro imports typeguard, and with it asyncio, for unions that are written ``X | None``, but not for ``Union``.
    """
    if isinstance(kind, types.UnionType):
        kind = Union.__getitem__(get_args(kind))
    return Annotated[(kind, *hints, *_number_rule(kind))]


def _number_rule(kind: Any) -> list[Any]:
    """How tyro reads a number, or a number or one of some words; nothing for other types, which it reads itself.

    Of a value that can't be used, tyro would tell what Python's functions said.
    """
    if get_origin(kind) is tuple:
        return _numbers_rule(get_args(kind)[0])
    kinds = [one for one in (get_args(kind) if get_origin(kind) is Union else (kind,)) if one is not type(None)]
    if not {int, float} & set(kinds) or not all(one in _METAVARS or get_origin(one) is Literal for one in kinds):
        return []

    def read(words: list[str]) -> Any:
        if words == ["None"] and type(None) in get_args(kind):
            return None
        try:
            return convert("it", words[0], kind)
        except InputError as error:
            raise ValueError(str(error)) from None

    def fits(value: Any) -> bool:
        try:
            convert("it", value, kind, text=False)
        except InputError:
            return False
        return True

    metavar = "|".join(_METAVARS.get(one) or "{" + ",".join(map(str, get_args(one))) + "}" for one in kinds)
    return [tyro.constructors.PrimitiveConstructorSpec(1, metavar, read, fits, lambda value: [str(value)])]


def _numbers_rule(kind: Any) -> list[Any]:
    """How tyro reads several numbers of a type; nothing for other types. By itself it wouldn't tell which is wrong."""
    if kind not in _METAVARS:
        return []

    def read(words: list[str]) -> Any:
        try:
            return tuple(convert("it", word, kind) for word in words)
        except InputError as error:
            raise ValueError(str(error)) from None

    def fits(value: Any) -> bool:
        return isinstance(value, tuple) and all(isinstance(one, kind) for one in value)

    metavar = f"[{_METAVARS[kind]} [{_METAVARS[kind]} ...]]"
    return [tyro.constructors.PrimitiveConstructorSpec("*", metavar, read, fits, lambda value: [*map(str, value)])]


def _metavar(annotation: Any) -> str | None:
    """How the value of an option that may be left open is shown: its type, without the None."""
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if len(kinds) == 1 and get_origin(kinds[0]) is Literal:
        return "{" + ",".join(map(str, get_args(kinds[0]))) + "}"
    return kinds[0].__name__.upper() if len(kinds) == 1 and isinstance(kinds[0], type) else None


def reader(fields: Sequence[Field], description: str) -> Callable[..., Any]:
    """A function that tyro reads as a command, and that returns what was given by name.

    tyro lists the fields of a nested dataclass under its name, so each group becomes one; the names of options don't
    show it.
    """
    parts: list[Any] = [_part(field) for field in fields if field.group is None]
    for group in GROUPS:
        members = [field for field in fields if field.group == group]
        if members:
            kind = _dataclass(group, map(_part, members))
            hint = _annotated(kind, tyro.conf.OmitArgPrefixes, tyro.conf.arg(name=group, help=""))
            parts.append((_nested(group), hint, dataclasses.field(default_factory=kind)))
    kind = _dataclass("Arguments", parts)

    def read(arguments: Any) -> dict[str, Any]:
        values = dict(vars(arguments))
        for group in GROUPS:
            values |= vars(values.pop(_nested(group), None) or _Empty())
        return values

    read.__doc__ = description
    read.__annotations__ = {"arguments": _annotated(kind, tyro.conf.arg(name=""))}
    return read


class _Empty:
    """Has no attributes."""


def _nested(group: str) -> str:
    """The attribute of a group; ``clients`` alone would be that of a setting."""
    return f"{group}_options"


def _part(field: Field) -> tuple[Any, ...]:
    head = (field.name, field.annotation)
    return head if field.default is dataclasses.MISSING else (*head, dataclasses.field(default=field.default))


def _dataclass(name: str, parts: Iterable[Any]) -> Any:
    return dataclasses.make_dataclass(name, parts, kw_only=True)


def help_texts(text: str | None) -> dict[str, str]:
    """What a docstring says about a class's attributes or a function's arguments."""
    parsed = docstring_parser.parse(text or "", docstring_parser.DocstringStyle.GOOGLE)
    return {one.arg_name: " ".join((one.description or "").split()) for one in parsed.params}


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that have a value; the others are left to their defaults."""
    return {name: value for name, value in arguments.items() if value is not None and name != "config"}


def from_file(given: Sequence[str]) -> dict[str, Any]:
    """The settings of the configuration file, if the first argument of the command is one.

    Raises:
        InputError: If the file can't be read, or stands elsewhere, where its settings would come too late to count.
    """
    late = [
        argument
        for before, argument in itertools.pairwise(given[1:])
        if argument.endswith(".toml") and not (before.startswith("--") and "=" not in before) and "=" not in argument
    ]
    if late:
        raise InputError(f"the configuration file {late[0]} must come first: adabest {given[0]} {late[0]} ...")
    if len(given) < 2 or given[1].startswith("-"):
        return {}
    return read_toml(Path(given[1]))


def check_file(settings: Mapping[str, Any], known: Mapping[str, Option]) -> dict[str, Any]:
    """The settings of a configuration file in their right types.

    Raises:
        InputError: If one is unknown, or can't be used.
    """
    from adabest.runs.settings.algorithm_specification import refuse_unknown

    refuse_unknown(settings, known)
    return check_options("the configuration", settings, known, text=False)


def value_of(option: str, given: Sequence[str]) -> str | None:
    """The value of an option that must be known before the parser is built."""
    values = values_of(option, given)
    return values[0] if values else None


def values_of(option: str, given: Sequence[str]) -> list[str]:
    """The values of an option that takes several; none if it wasn't given."""
    values: list[str] = []
    for position, argument in enumerate(given):
        if argument.startswith(option + "="):
            values = [argument.partition("=")[2]]
        elif argument == option:
            values = []
            for value in given[position + 1 :]:
                if value.startswith("--"):
                    break
                values.append(value)
    return values
