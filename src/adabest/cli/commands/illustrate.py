"""``adabest illustrate``."""

from collections.abc import Sequence
from typing import Any

from adabest.cli import parser
from adabest.cli.exit_codes import DONE
from adabest.cli.parser import Action, Field
from adabest.cli.source import read_call
from adabest.registry import Option
from adabest.runs.settings.call_arguments import STEERING_ALGORITHMS

_TYPES = {"rounds": int, "participation": float, "seed": int, "out": str}


def fields(given: Sequence[str]) -> list[Field]:
    """What is drawn, and where the figure goes."""
    call = read_call("adabest.experiments.steering_figure", "illustrate")
    options = {name: Option(kind, call.defaults[name]) for name, kind in _TYPES.items()}
    algorithms = {"algorithms": Option(tuple[str, ...], STEERING_ALGORITHMS)}
    return parser.fields(algorithms | options, call.help_texts)


def action() -> Action:
    """Imports what the command needs; the result draws."""
    from adabest.cli.output import print_files
    from adabest.experiments.steering_figure import illustrate

    def act(arguments: dict[str, Any]) -> int:
        print_files(illustrate(**parser.given(arguments)).files)
        return DONE

    return act
