"""``adabest partition``."""

from collections.abc import Sequence
from typing import Any

from adabest.cli import parser
from adabest.cli.exit_codes import DONE
from adabest.cli.parser import Action, Field
from adabest.registry import Option
from adabest.runs.settings.config import PARTITION_SETTINGS, SETTINGS


def fields(given: Sequence[str]) -> list[Field]:
    """The settings that a partition depends on, and where its figure goes."""
    out = parser.fields({"out": Option(str, "partition")}, {"out": "Figure to write, without ending."}, group="output")
    return [*parser.fields({name: SETTINGS[name] for name in PARTITION_SETTINGS}), *out]


def action() -> Action:
    """Imports what the command needs; the result shows the partition."""
    from adabest.cli.output import print_tables
    from adabest.experiments.partition import partition

    def act(arguments: dict[str, Any]) -> int:
        settings = parser.given(arguments)
        out = settings.pop("out")
        cut = partition(**settings)
        print_tables([cut.table], [], cut.draw(out))
        return DONE

    return act
