"""Options as tyro can read them, and what was given of them."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import docstring_parser
import tyro

from adabest.errors import InputError
from adabest.registry import Option, check_options
from adabest.runs.settings.algorithm_specification import refuse_unknown
from adabest.runs.settings.toml_file import read_toml

Field = tuple[str, Any, Any]


def fields(options: Mapping[str, Option], help_texts: Mapping[str, str], defaults: Mapping[str, Any]) -> list[Field]:
    """Options, each with its help text, and with its default unless there is another one."""
    parsed = []
    for name, option in options.items():
        default = defaults.get(name, option.default)
        # A default of None means "decided later", which the help text says in words.
        unset: dict[str, Any] = {"help_behavior_hint": "", "metavar": _metavar(option.type)} if default is None else {}
        parsed.append((name, Annotated[option.type, tyro.conf.arg(help=help_texts.get(name, ""), **unset)], default))
    return parsed


def _metavar(annotation: Any) -> str | None:
    """How the value of an option that may be left open is shown: its type, without the None."""
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    if len(kinds) == 1 and get_origin(kinds[0]) is Literal:
        return "{" + ",".join(map(str, get_args(kinds[0]))) + "}"
    return kinds[0].__name__.upper() if len(kinds) == 1 and isinstance(kinds[0], type) else None


def command(action: Callable[[Any], int], description: str, fields: Iterable[Field]) -> Callable[..., Any]:
    """A function of one dataclass, which tyro reads as the options of a subcommand."""
    kind = dataclasses.make_dataclass(
        "Arguments",
        [
            (name, annotation)
            if default is dataclasses.MISSING
            else (name, annotation, dataclasses.field(default=default))
            for name, annotation, default in fields
        ],
        kw_only=True,
    )

    def parsed(arguments: Any) -> Callable[[], int]:
        return lambda: action(arguments)

    parsed.__doc__ = description
    parsed.__annotations__ = {"arguments": Annotated[kind, tyro.conf.arg(name="")]}
    return parsed


def help_texts(kind: Callable[..., Any]) -> dict[str, str]:
    """What a docstring says about a class's attributes or a function's arguments."""
    return {
        parameter.arg_name: " ".join((parameter.description or "").split())
        for parameter in docstring_parser.parse(kind.__doc__ or "", docstring_parser.DocstringStyle.GOOGLE).params
    }


def given(arguments: Any) -> dict[str, Any]:
    """The arguments that have a value; the others are left to their defaults."""
    values = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(arguments)}
    return {name: value for name, value in values.items() if value is not None and name != "config"}


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
