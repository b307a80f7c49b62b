"""How a setting is declared: its type, default, group, help text, and what it means for all that reads settings.

A setting is one field of a dataclass, whose type is ``Annotated[type, Meaning(...)]``. The command line, TOML files,
Python's keywords, checks, help and docs are derived from what ``declared`` reads off the dataclass. Nothing heavy is
imported here: help must be fast.
"""

import dataclasses
import enum
from collections.abc import Callable
from typing import Literal, get_args, get_type_hints

from adabest.errors import InputError
from adabest.registry import Option

Group = Literal["experiment", "data", "clients", "algorithm", "training", "evaluation", "machine", "output"]
GROUPS: tuple[Group, ...] = get_args(Group)


class Identity(enum.Enum):
    """What a setting means for the question whether two runs are the same."""

    RESULT = "part of what a run is: another value gives another run"
    EXECUTION = "how a run is executed: no result depends on it"
    LIMIT = "how much there may be of something at a time: it may be changed between two parts of a run"
    ENVIRONMENT = "where data lie and who watches: it may differ from machine to machine"


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers that a setting may have; None where there is no such bound.

    Attributes:
        least: The smallest one.
        above: A number below all of them.
        most: The largest one.
        below: A number above all of them.
        subject: How a message about them begins.
    """

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    subject: str = "it must be"

    def __contains__(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    def in_words(self) -> str:
        """The bounds, as in ``at least 0 and below 1``."""
        bounds = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return " and ".join(
            f"{words} {'2⁶³' if bound == 2**63 else bound}" for words, bound in bounds.items() if bound is not None
        )

    def check(self, name: str, value: float) -> None:
        """Refuses a number out of range.

        Raises:
            InputError: With the name, the number and what would be right.
        """
        if value not in self:
            raise InputError(f"{name} = {value}: {self.subject} {self.in_words()}")


@dataclasses.dataclass(frozen=True)
class Meaning:
    """What a setting means.

    Attributes:
        group: Where help and docs list it.
        help: One or two sentences for help and docs.
        identity: What it means for the question whether two runs are the same.
        instead: What to do instead of varying it in a sweep; empty if a sweep may vary it.
        task: Whether it says what is learnt, from whom, for how long or who judges it. Tuning never varies it, since
            points of different tasks can't be compared.
        partition: Whether the partition of the data depends on it.
        layers: Whether it depends on it how a model's layers are computed.
        beside_specification: Whether it may be given beside a specification of the paper, which fixes all others.
        names: Whether it may hold names of the form ``module:attribute``, which are imported.
        objects: The classes whose objects Python may give in place of a name, as ``module:attribute``.
        elements: The classes whose objects Python may give among the names of a list, as ``module:attribute``.
        added_later: Whether it came after digests of settings were first written. It is left out of them while it is
            empty, so that older runs keep theirs.
        size: Whether it is a size in bytes, as in 6GiB.
        range: The numbers it may have. None if they are checked where they are used, or it is no number.
    """

    group: Group
    help: str
    _: dataclasses.KW_ONLY
    identity: Identity = Identity.RESULT
    instead: str = ""
    task: bool = False
    partition: bool = False
    layers: bool = False
    beside_specification: bool = False
    names: bool = False
    objects: tuple[str, ...] = ()
    elements: tuple[str, ...] = ()
    added_later: bool = False
    size: bool = False
    range: Range | None = None


@dataclasses.dataclass(frozen=True)
class Setting(Option):
    """A declared setting: type, default and meaning."""

    meaning: Meaning


def declared(kind: type) -> dict[str, Setting]:
    """The settings of a dataclass by name, in the order of its fields.

    A setting is a field whose type is ``Annotated[type, Meaning(...)]``.
    """
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        for meaning in getattr(hint, "__metadata__", ()):
            if isinstance(meaning, Meaning):
                found[name] = Setting(hint.__origin__, getattr(kind, name), meaning)
    return found


def names_where(settings: dict[str, Setting], holds: Callable[[Meaning], object]) -> tuple[str, ...]:
    """The names of the settings whose meaning has a property, in their order."""
    return tuple(name for name, one in settings.items() if holds(one.meaning))
