"""``adabest resume``."""

from collections.abc import Sequence
from typing import Any

from adabest.cli import parser
from adabest.cli.parser import Action, Field
from adabest.cli.run_options import allowed_fields, data_dir_field, folder_field
from adabest.registry import Option

_UNVERIFIED = "Go on with a run of version 0.4.0, or one that lost its manifest, though nothing proves its files."


def fields(given: Sequence[str]) -> list[Field]:
    """The folder, where the data are, if they have moved, and which names in its files may be imported."""
    unverified = parser.fields({"unverified": Option(bool, False)}, {"unverified": _UNVERIFIED})
    return [folder_field(), *data_dir_field(), *allowed_fields(), *unverified]


def action() -> Action:
    """Imports what the command needs; the result continues the run, or the runs."""
    from adabest.cli.output import print_comparison, print_run
    from adabest.experiments.resume import resume
    from adabest.runs.stored_run import Run

    def act(arguments: dict[str, Any]) -> int:
        resumed = resume(**parser.given(arguments))
        return print_run(resumed) if isinstance(resumed, Run) else print_comparison(resumed)

    return act
