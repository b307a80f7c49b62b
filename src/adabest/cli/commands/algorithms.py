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
    from adabest.cli.output import console
    from adabest.report.table import algorithms_table

    def act(arguments: dict[str, Any]) -> int:
        console().print(algorithms_table(list_algorithms()).rich())
        console().print("down, up, client, server: numbers sent and kept; a model has n, of which q are private.")
        return DONE

    return act
