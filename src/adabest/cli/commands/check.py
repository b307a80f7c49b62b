"""``adabest check``."""

from collections.abc import Sequence
from typing import Any

from adabest.cli import parser
from adabest.cli.exit_codes import DONE, FAULTY
from adabest.cli.parser import Action, Field
from adabest.cli.source import read_call


def fields(given: Sequence[str]) -> list[Field]:
    """The algorithm."""
    help_text = read_call("adabest.experiments.algorithm_check", "check").help_texts["algorithm"]
    return [parser.positional("algorithm", str, help_text, "ALGORITHM")]


def action() -> Action:
    """Imports what the command needs; the result says what was found."""
    from adabest.cli.output import console
    from adabest.experiments.algorithm_check import check

    def act(arguments: dict[str, Any]) -> int:
        found = check(arguments["algorithm"])
        for one in found:
            console().print(f"{one.state}: {one.name}: {one.words}")
        return FAULTY if any(one.state == "failed" for one in found) else DONE

    return act
