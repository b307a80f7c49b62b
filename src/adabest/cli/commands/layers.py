"""``adabest layers``."""

from collections.abc import Sequence
from typing import Any

from adabest.cli import parser
from adabest.cli.exit_codes import DONE
from adabest.cli.parser import Action, Field
from adabest.runs.settings.config import LAYER_SETTINGS, SETTINGS


def fields(given: Sequence[str]) -> list[Field]:
    """The settings on which it depends how layers are computed."""
    return parser.fields({name: SETTINGS[name] for name in LAYER_SETTINGS})


def action() -> Action:
    """Imports what the command needs; the result shows the layers."""
    from adabest.cli.output import print_tables
    from adabest.costs.model_layers import layers

    def act(arguments: dict[str, Any]) -> int:
        found = layers(**parser.given(arguments))
        print_tables([found.table], found.notes, [])
        return DONE

    return act
