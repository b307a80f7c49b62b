"""``adabest list``."""

import sys
from collections.abc import Sequence
from typing import Any

from adabest.cli import parser
from adabest.cli.exit_codes import DONE
from adabest.cli.parser import Action, Field


def fields(given: Sequence[str]) -> list[Field]:
    """The folder."""
    return [parser.positional("folder", str, "The folder.", "[FOLDER]", "runs")]


def action() -> Action:
    """Imports what the command needs; the result lists the runs."""
    from adabest.cli.output import console
    from adabest.experiments.run_list import list_runs

    def act(arguments: dict[str, Any]) -> int:
        found = list_runs(arguments["folder"])
        for path, words in found.unreadable.items():
            print(f"adabest: {path} is left out: {words}", file=sys.stderr)
        console().print(found.table.rich())
        return DONE

    return act
