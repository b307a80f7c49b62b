"""``adabest algorithms``."""

from collections.abc import Sequence
from typing import Any

from adabest.cli.exit_codes import DONE
from adabest.cli.parser import Action, Field


def fields(given: Sequence[str]) -> list[Field]:
    """Nothing."""
    return []


def action() -> Action:
    """Imports what the command needs; the result lists the algorithms."""
    from adabest.algorithms.listing import list_algorithms
    from adabest.cli.output import print_tables
    from adabest.report.table import algorithms_tables

    def act(arguments: dict[str, Any]) -> int:
        note = "down, up, client, server: numbers sent and kept; a model has n, of which q are private."
        print_tables(algorithms_tables(list_algorithms()), [note], [])
        return DONE

    return act
