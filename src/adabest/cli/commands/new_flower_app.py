"""``adabest new-flower-app``."""

from collections.abc import Sequence
from typing import Any

from adabest.cli import parser
from adabest.cli.exit_codes import DONE
from adabest.cli.parser import Action, Field
from adabest.cli.source import read_call


def fields(given: Sequence[str]) -> list[Field]:
    """The project's name."""
    help_text = read_call("adabest.flower.new_project", "new_flower_app").help_texts["name"]
    return [parser.positional("name", str, help_text, "NAME")]


def action() -> Action:
    """Imports what the command needs; the result writes the project."""
    from adabest.cli.output import console
    from adabest.flower.new_project import new_flower_app

    def act(arguments: dict[str, Any]) -> int:
        folder = new_flower_app(arguments["name"])
        console().print(f"{folder} is a project to edit; {folder}/README.md says how to try it and how to start it")
        return DONE

    return act
