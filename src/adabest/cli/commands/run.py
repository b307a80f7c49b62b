"""``adabest run``."""

from collections.abc import Sequence
from typing import Any

from adabest.cli import parser
from adabest.cli.parser import Action, Field
from adabest.cli.run_options import fields_with_algorithm, given_by_name


def fields(given: Sequence[str]) -> list[Field]:
    """A run's settings, its algorithm's hyper-parameters, and where it goes."""
    return fields_with_algorithm(given, parser.from_file(given))


def action() -> Action:
    """Imports what the command needs; the result makes the run."""
    from adabest.cli.output import print_run
    from adabest.experiments.call import asked_for
    from adabest.experiments.single_run import make_run

    def act(arguments: dict[str, Any]) -> int:
        with asked_for(None, given_by_name(arguments)) as settings:
            return print_run(make_run(settings, show=True))

    return act
