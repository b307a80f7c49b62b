"""``adabest show``."""

from collections.abc import Sequence
from typing import Any

from adabest.cli.exit_codes import DONE
from adabest.cli.parser import Action, Field
from adabest.cli.run_options import folder_field


def fields(given: Sequence[str]) -> list[Field]:
    """The run's folder."""
    return [folder_field()]


def action() -> Action:
    """Imports what the command needs; the result shows the run."""
    from adabest.cli.output import print_tables
    from adabest.experiments.run_list import show

    def act(arguments: dict[str, Any]) -> int:
        print_tables(show(arguments["folder"]).values(), [], [])
        return DONE

    return act
