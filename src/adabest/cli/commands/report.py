"""``adabest report``."""

from collections.abc import Sequence
from typing import Any

from adabest.cli import parser
from adabest.cli.exit_codes import DONE
from adabest.cli.parser import Action, Field
from adabest.cli.source import read_call
from adabest.registry import Option

_TYPES = {
    "html": str,
    "target": float | None,
    "data_dir": str | None,
    "allow": tuple[str, ...],
    "trust": bool,
}


def fields(given: Sequence[str]) -> list[Field]:
    """Which runs are shown, and where the page goes."""
    call = read_call("adabest.experiments.report_page", "write_report")
    runs = parser.positional("runs", tuple[str, ...], call.help_texts["folders"], "RUNS")
    options = {name: Option(kind, call.defaults[name]) for name, kind in _TYPES.items()}
    return [runs, *parser.fields(options, call.help_texts)]


def action() -> Action:
    """Imports what the command needs; the result writes the page."""
    from adabest.cli.output import print_files
    from adabest.experiments.report_page import write_report

    def act(arguments: dict[str, Any]) -> int:
        settings = parser.given(arguments)
        print_files([write_report(settings.pop("runs"), **settings)])
        return DONE

    return act
