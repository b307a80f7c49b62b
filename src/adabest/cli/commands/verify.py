"""``adabest verify``."""

from collections.abc import Sequence
from typing import Any

from adabest.cli import parser
from adabest.cli.exit_codes import DAMAGED, DONE
from adabest.cli.parser import Action, Field
from adabest.cli.source import read_call


def fields(given: Sequence[str]) -> list[Field]:
    """The folders and files to look at."""
    help_text = read_call("adabest.experiments.verification", "verify").help_texts["paths"]
    return [parser.positional("paths", tuple[str, ...], help_text, "RUNS")]


def action() -> Action:
    """Imports what the command needs; the result says what was found."""
    from adabest.cli.output import console
    from adabest.experiments.verification import verify

    def act(arguments: dict[str, Any]) -> int:
        found = verify(arguments["paths"])
        for finding in found:
            console().print(f"{finding.state}: {finding.path}: {finding.words}")
        return DONE if all(finding.state == "whole" for finding in found) else DAMAGED

    return act
