"""``adabest reproduce``."""

from collections.abc import Sequence
from typing import Any

from adabest.cli import parser
from adabest.cli.exit_codes import DIVERGED, DONE
from adabest.cli.parser import Action, Field
from adabest.cli.source import read_call
from adabest.paper.specification import COSTS, specification_names
from adabest.registry import Option
from adabest.runs.settings.config import BESIDE_SPECIFICATIONS, SETTINGS
from adabest.runs.settings.declaration import Setting

_OPTIONS = {
    "cells": Option(tuple[str, ...], ()),
    "entries": Option(tuple[str, ...], ()),
    "seeds": Option(tuple[int, ...], ()),
    "rounds": Option(int | None, None),
    "choices": Option(str | None, None),
    "results": Option(tuple[str, ...] | None, None),
    "lanes": Option(int | None, None),
    "out": Option(str | None, None),
}


def fields(given: Sequence[str]) -> list[Field]:
    """Which experiment, how much of it, and how it is executed."""
    names = ", ".join([*specification_names(), COSTS])
    # What the specification says counts, unless something else is asked for.
    execution = {
        name: Setting(SETTINGS[name].type | None, None, SETTINGS[name].meaning) for name in BESIDE_SPECIFICATIONS
    }
    return [
        parser.positional("name", str, f"The experiment: {names}.", "NAME"),
        *parser.fields(_OPTIONS, read_call("adabest.paper.reproduce", "reproduce").help_texts, group="experiment"),
        *parser.fields({"plan": Option(bool, False)}, {"plan": _PLAN}, group="experiment"),
        *parser.fields(execution),
    ]


_PLAN = (
    "Tell how many runs, rounds and local steps that is, and how long it takes on this machine by a few timed steps. "
    "Nothing is run or written."
)


def action() -> Action:
    """Imports what the command needs; the result makes the experiment."""
    from adabest.cli.output import print_tables
    from adabest.errors import InputError
    from adabest.paper.forecast import forecast
    from adabest.paper.reproduce import reproduce
    from adabest.runs.results_file import Results

    def act(arguments: dict[str, Any]) -> int:
        given = parser.given(arguments)
        if given.pop("plan", False):
            if given.pop("results", None):
                raise InputError("with --results nothing is run: leave out --plan")
            planned = forecast(**given)
            print_tables([planned.table], planned.notes, [])
            return DONE
        reproduced = reproduce(**given)
        print_tables(reproduced.tables.values(), reproduced.notes, reproduced.files)
        made = reproduced.results.runs if isinstance(reproduced.results, Results) else []
        return DIVERGED if any(run.status == "diverged" for run in made) else DONE

    return act
