"""The runs of a page, and its entries: runs that differ in nothing but their seeds."""

import itertools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from adabest.report.entries import Measured
from adabest.report.numbers import as_text
from adabest.runs.files.folder import ENDED
from adabest.runs.results_file import Results, without_places
from adabest.runs.settings.config import SETTINGS
from adabest.runs.stored_run import Run

Ending = Literal["finished", "early", "diverged", "unfinished"]
SEEDS = ("seed", "partition_seed")


@dataclass(frozen=True)
class PageRun:
    """A run as a page shows it.

    Attributes:
        run: What was measured.
        place: Where it was found.
        settings: The settings that its result depends on.
        execution: Its other settings.
        environment: Versions, hardware, the commit and the command.
        partition: The statistics of its partition.
        data_dir: Where its data were looked for, if that was said.
        label: The name of its entry, if its settings don't make one.
        cell: The setting in which its entry is compared, if that was said.
    """

    run: Measured
    place: str
    settings: Mapping[str, Any]
    execution: Mapping[str, Any]
    environment: Mapping[str, Any]
    partition: Mapping[str, Any]
    data_dir: str | None = None
    label: str | None = None
    cell: str | None = None

    @classmethod
    def of(cls, run: Run) -> "PageRun":
        """A stored run, without the places where files lay on somebody's disk."""
        settings = run.config.essence()
        others = {name: value for name, value in run.config.flat().items() if name not in settings}
        known = {name: value for name, value in run.environment.items() if value is not None}
        if "command" in known:
            known["command"] = without_places(known["command"])
        return cls(
            run=run,
            place=str(run.folder),
            settings=settings,
            execution={name: value for name, value in others.items() if name != "data_dir"},
            environment={name: value for name, value in known.items() if name != "working_directory"},
            partition=run.identity.get("partition", {}),
            data_dir=run.config.data_dir,
        )

    @classmethod
    def of_results(cls, results: Results, place: str) -> list["PageRun"]:
        """The runs of an experiment whose results lie in a file of some name."""
        several = len(results.cells()) > 1
        return [
            cls(
                run=result,
                place=place,
                settings={**result.settings, SEEDS[0]: result.seed},
                execution={},
                environment={name: value for name, value in result.provenance.items() if value is not None},
                partition=result.partition,
                label=f"{result.cell}: {result.entry}" if several else result.entry,
                cell=result.cell if several else None,
            )
            for result in results.runs
        ]

    @property
    def ending(self) -> Ending:
        """How it ended."""
        if self.run.status == "diverged":
            return "diverged"
        if self.run.status not in ENDED:
            return "unfinished"
        return "finished" if self.run.reason is None else "early"

    def ending_in_words(self) -> str:
        """How it ended, when, and why."""
        reason = "" if self.run.reason is None else f": {self.run.reason}"
        return {
            "finished": f"finished, {self.run.round} rounds",
            "early": f"ended early, in round {self.run.round}{reason}",
            "diverged": f"diverged in round {self.run.round}{reason}",
            "unfinished": f"unfinished ({self.run.status}), round {self.run.round}",
        }[self.ending]


def page_entries(shown: Sequence[PageRun]) -> dict[str, list[PageRun]]:
    """Runs by what tells them apart, those of several seeds together.

    A label is the algorithm and as many settings as it takes to tell all entries apart. Of runs that are the same in
    every setting, the second is an entry of its own: a run that was repeated is no other seed.
    """
    groups: dict[str, list[list[PageRun]]] = {}
    for one in shown:
        for group in (repeats := groups.setdefault(_entry_key(one), [])):
            if all(_seeds(one) != _seeds(other) for other in group):
                group.append(one)
                break
        else:
            repeats.append([one])
    firsts = [repeats[0][0] for repeats in groups.values()]
    names = _distinguishing_settings([one.settings for one in firsts if one.label is None])
    entries: dict[str, list[PageRun]] = {}
    for first, repeats in zip(firsts, groups.values(), strict=True):
        label = _label(first.settings, names) if first.label is None else first.label
        for group in repeats:
            entries[_unique_label(label, entries)] = sorted(group, key=_seeds)
    return entries


def entry_cells(entries: Mapping[str, Sequence[PageRun]]) -> list[str]:
    """The cell of each entry: the setting in which it is compared with others; no cells if there is nothing to choose.

    Results say theirs. For other runs a cell is what tells their entries apart beside the algorithm and its own
    settings, such as ``alpha=0.3``. Where no cell has two entries, as in a sweep over α, cells would be the entries.
    """
    firsts = [group[0] for group in entries.values()]
    names = _distinguishing_settings([one.settings for one in firsts if one.cell is None])
    own = [name for name in names if name != "algorithm" and name in SETTINGS]
    cells = [
        one.cell or ", ".join(f"{name}={as_text(one.settings[name])}" for name in own if name in one.settings)
        for one in firsts
    ]
    return cells if 1 < len(set(cells)) < len(cells) else []


def _unique_label(label: str, taken: Collection[str]) -> str:
    """A label that nothing else has."""
    numbered = (f"{label} ({number})" for number in itertools.count(2))
    return label if label not in taken else next(other for other in numbered if other not in taken)


def _entry_key(one: PageRun) -> str:
    """What runs of one entry have in common."""
    if one.label is not None:
        return one.label
    return json.dumps({name: one.settings[name] for name in sorted(one.settings) if name not in SEEDS}, default=str)


def _seeds(one: PageRun) -> tuple[int, ...]:
    return tuple(one.settings.get(name, 0) for name in SEEDS)


def _distinguishing_settings(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Settings that tell entries apart, none of which could be left out for those before it."""
    names = ["algorithm"]
    told = len({_label(one, names) for one in settings})
    for name in dict.fromkeys(name for one in settings for name in one if name not in SEEDS):
        more = len({_label(one, [*names, name]) for one in settings})
        if more > told:
            names.append(name)
            told = more
    return names


def _label(settings: Mapping[str, Any], names: Iterable[str]) -> str:
    own = [f"{name}={as_text(settings[name])}" for name in names if name != "algorithm" and name in settings]
    return ",".join([str(settings["algorithm"]), *own])


def common_and_other(facts: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """What is the same for all, and the names of what isn't, or is missing from some."""
    names = list(dict.fromkeys(name for one in facts for name in one))
    other = [name for name in names if any(name not in one or one[name] != facts[0].get(name) for one in facts)]
    return {name: facts[0][name] for name in names if name not in other}, other
