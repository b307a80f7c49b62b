"""Experiments as data: axes whose product are the settings to be compared in, and what is compared in each of them.

A specification is a TOML file beside this module, in ``paper/``:

``title``       what it is
``like``        another specification, of which this one changes parts; tables within ``settings`` and ``axes`` are
                merged, all else is replaced
``shares``      the experiment whose runs it uses
``seeds``       the seeds of each run, unless others are asked for
``cells``       the cells that are made unless others are asked for, as patterns; by default all
``apart``       axes whose values come one after another; what differs in other axes or in seeds is trained
                together
``settings``    settings of all runs
``gpu``         settings of all runs that a GPU's kernels train: their precision, so that seeds made at other times
                belong together
``axes``        for each axis its values, and the settings that each stands for; a cell is named by one value of each
``entries``     what is compared in each cell: a label, and its settings
``fixed``       settings of some entries in some cells
``tuned``       settings of some entries in some cells that are chosen on validation clients: values, and rounds to try,
                or which part of a run's rounds
"""

import fnmatch
import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import resources
from typing import Any

from adabest.errors import InputError, nearest

COSTS = "costs"  # the experiment that has no specification: it measures

_FOLDER = resources.files("adabest.paper") / "specifications"
_MERGED = ("settings", "axes")


@dataclass(frozen=True)
class Rule:
    """Settings of some entries in some cells.

    Attributes:
        cells: Which cells, as a pattern.
        entries: Which entries.
        values: The settings, for a rule that fixes them.
        vary: The values to choose among by setting, for one that has them tuned.
        rounds: For how many rounds each is tried.
        share: In place of that, the part of a run's rounds.
        seeds: With which seeds; those of the runs if there are none.
    """

    cells: str
    entries: Sequence[str]
    values: Mapping[str, Any]
    vary: Mapping[str, Sequence[Any]]
    rounds: int = 0
    share: float = 0.0
    seeds: Sequence[int] = ()

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> "Rule":
        """A rule as it stands in a file."""
        return cls(**{"values": {}, "vary": {}, **table})

    def applies(self, cell: str, entry: str) -> bool:
        """Whether it is about an entry in a cell."""
        return fnmatch.fnmatchcase(cell, self.cells) and entry in self.entries

    def trial_rounds(self, whole: int) -> int:
        """The rounds of a trial for runs of so many rounds."""
        return min(self.rounds, whole) if self.rounds else max(1, round(self.share * whole))

    def points(self) -> list[dict[str, Any]]:
        """Every combination of the values to choose among."""
        return [dict(zip(self.vary, values, strict=True)) for values in itertools.product(*self.vary.values())]


@dataclass(frozen=True)
class Cell:
    """A setting in which entries are compared.

    Attributes:
        name: One value of each axis, as in ``cifar100/10/iid``.
        settings: What that stands for.
        apart: The values of those axes that come one after another.
    """

    name: str
    settings: Mapping[str, Any]
    apart: tuple[str, ...]


@dataclass(frozen=True)
class Specification:
    """An experiment; the module's docstring tells what its parts are."""

    name: str
    title: str
    seeds: Sequence[int]
    axes: Mapping[str, Mapping[str, Mapping[str, Any]]]
    entries: Mapping[str, Mapping[str, Any]]
    settings: Mapping[str, Any]
    shares: str
    gpu: Mapping[str, Any] = field(default_factory=dict)
    cells: Sequence[str] = ("*",)
    apart: Sequence[str] = ()
    fixed: Sequence[Rule] = ()
    tuned: Sequence[Rule] = ()

    def all_cells(self) -> list[Cell]:
        """Every cell, in the order of the axes."""
        cells = []
        for values in itertools.product(*self.axes.values()):
            of_axis = dict(zip(self.axes, values, strict=True))
            settings = dict(self.settings)
            for axis, value in of_axis.items():
                settings |= self.axes[axis][value]
            cells.append(Cell("/".join(values), settings, tuple(of_axis[axis] for axis in self.apart)))
        return cells

    def chosen_cells(self, patterns: Sequence[str] = ()) -> list[Cell]:
        """The cells that patterns such as ``cifar*/10/iid`` name; by default the specification's own.

        Raises:
            InputError: If a pattern names none.
        """
        everything = self.all_cells()
        wanted = patterns or self.cells
        for pattern in wanted:
            if not any(fnmatch.fnmatchcase(cell.name, pattern) for cell in everything):
                axes = "/".join("{" + ",".join(values) + "}" for values in self.axes.values())
                raise InputError(
                    f"{self.name} has no cell {pattern!r}: cells are called {axes}, and * stands for anything"
                )
        return [cell for cell in everything if any(fnmatch.fnmatchcase(cell.name, pattern) for pattern in wanted)]

    def chosen_entries(self, names: Sequence[str] = ()) -> list[str]:
        """The entries that names or patterns stand for; by default all.

        Raises:
            InputError: If there is no such entry.
        """
        for name in names:
            if not fnmatch.filter(self.entries, name):
                raise InputError(f"{self.name} has no entry {name!r}; {nearest(name, self.entries)}")
        wanted = names or ["*"]
        return [entry for entry in self.entries if any(fnmatch.fnmatchcase(entry, name) for name in wanted)]

    def settings_of(self, cell: Cell, entry: str) -> dict[str, Any]:
        """The settings of an entry in a cell, but for those that are tuned."""
        settings = {**cell.settings, **self.entries[entry]}
        for rule in self.fixed:
            if rule.applies(cell.name, entry):
                settings |= rule.values
        return settings

    def tuned_by(self, cell: str, entry: str) -> Rule | None:
        """The rule by which an entry is tuned in a cell, if it is."""
        return next((rule for rule in self.tuned if rule.applies(cell, entry)), None)


def specification_names() -> list[str]:
    """The experiments that have a specification."""
    return sorted(path.name.removesuffix(".toml") for path in _FOLDER.iterdir() if path.name.endswith(".toml"))


def read_specification(name: str) -> Specification:
    """An experiment by its name.

    Raises:
        InputError: If there is none.
    """
    known = specification_names()
    if name not in known:
        raise InputError(f"there is no experiment {name!r}; {nearest(name, known)}")
    tables = _tables(name)
    refused = set(tables) - {part.name for part in fields(Specification)}
    assert not refused, f"{name}.toml has unknown parts: {refused}"
    rules = {key: [Rule.read(table) for table in tables.get(key, [])] for key in ("fixed", "tuned")}
    return Specification(**{"name": name, "shares": name, **tables, **rules})


def _tables(name: str) -> dict[str, Any]:
    own = tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    like = own.pop("like", None)
    if like is None:
        return own
    base = _tables(like)
    merged = {key: {**base[key], **own.pop(key, {})} for key in _MERGED}
    return {**base, **merged, **own}
