"""``adabest costs``."""

from collections.abc import Sequence
from typing import Any, Literal

from adabest.cli import parser
from adabest.cli.exit_codes import DONE
from adabest.cli.parser import Action, Field
from adabest.cli.source import read_call
from adabest.registry import Option

# As Python's call takes them, but for objects.
_TYPES = {
    "model": str | None,
    "algorithms": tuple[str, ...] | None,
    "input_shape": str | None,
    "classes": int | None,
    "batch_size": int | None,
    "parameters": int | None,
    "steps": int,
    "participants": int,
    "population": int,
    "precision": Literal["float32", "float64"],
    "out": str | None,
}


def fields(given: Sequence[str]) -> list[Field]:
    """The sizes that the costs of a round depend on."""
    call = read_call("adabest.costs.round_costs", "round_costs")
    return parser.fields({name: Option(kind, call.defaults[name]) for name, kind in _TYPES.items()}, call.help_texts)


def action() -> Action:
    """Imports what the command needs; the result counts."""
    from adabest.cli.output import print_tables
    from adabest.costs.round_costs import round_costs

    def act(arguments: dict[str, Any]) -> int:
        counted = round_costs(**parser.given(arguments))
        print_tables(counted.tables.values(), counted.notes, counted.files)
        return DONE

    return act
