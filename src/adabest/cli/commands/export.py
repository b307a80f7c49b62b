"""``adabest export``."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from adabest.cli import parser
from adabest.cli.exit_codes import DONE
from adabest.cli.parser import Action, Field
from adabest.cli.run_options import allowed_fields, folder_field
from adabest.registry import Option
from adabest.runs.files.folder import MODELS

_OPTIONS = {
    "format": Option(Literal["safetensors", "onnx"], dataclasses.MISSING),
    "which": Option(Literal.__getitem__(tuple(MODELS)), "scored"),
    "out": Option(str | None, None),
    "overwrite": Option(bool, False),
}
_HELP = {
    "format": "safetensors: the parameters by name. onnx: a model that takes inputs as they are in the data set.",
    "which": "Which of the run's models.",
    "out": "File to write. By default named after the run.",
    "overwrite": "Replace a file that is there.",
}


def fields(given: Sequence[str]) -> list[Field]:
    """Which model of a run goes where, and in what form."""
    return [folder_field(), *parser.fields(_OPTIONS, _HELP), *allowed_fields()]


def action() -> Action:
    """Imports what the command needs; the result writes the model."""
    from adabest.cli.output import print_files
    from adabest.experiments.single_run import load

    def act(arguments: dict[str, Any]) -> int:
        run = load(arguments["folder"], allow=arguments["allow"], trust=arguments["trust"])
        options = {name: arguments[name] for name in ("out", "overwrite")}
        print_files([run.export(arguments["format"], arguments["which"], **options)])
        return DONE

    return act
