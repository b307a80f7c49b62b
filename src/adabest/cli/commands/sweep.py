"""``adabest sweep``."""

from collections.abc import Sequence
from typing import Any

from adabest.cli import parser
from adabest.cli.parser import Action, Field
from adabest.cli.run_options import fields_with_algorithm, given_by_name


def fields(given: Sequence[str]) -> list[Field]:
    """A run's settings, which of them are varied, and where the runs go."""
    from_file = parser.from_file(given)
    if "vary" in from_file:
        from adabest.experiments.sweep import read_vary, write_vary

        from_file["vary"] = write_vary(read_vary(from_file["vary"]))
    return fields_with_algorithm(given, from_file, ("vary", "seeds", "target", "lanes"))


def action() -> Action:
    """Imports what the command needs; the result makes the runs."""
    from adabest.cli.output import print_comparison
    from adabest.experiments.call import asked_for
    from adabest.experiments.sweep import make_sweep

    def act(arguments: dict[str, Any]) -> int:
        with asked_for(None, given_by_name(arguments)) as settings:
            return print_comparison(make_sweep(settings, show=True))

    return act
