"""The command line: parses, calls, prints."""

import io
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version

import tyro

from adabest.cli.commands import BAD_INPUT, DONE, INTERRUPTED, commands
from adabest.errors import InputError, Interrupted


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: 0 done, 2 bad input, 3 diverged, 130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(f"adabest {version('adabest')}")
        return DONE
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a code page without ‖θ‖ must not end in a traceback
    warnings.formatwarning = lambda message, *_, **__: f"adabest: {message}\n"
    try:
        command: Callable[[], int] = tyro.extras.subcommand_cli_from_dict(
            commands(given),
            prog="adabest",
            description="A federated-learning simulator. Each command has its own --help; --version tells the version.",
            args=given or ["--help"],
        )
        return command()
    except (InputError, Interrupted) as error:
        print(f"adabest: {error}", file=sys.stderr)
        return INTERRUPTED if isinstance(error, Interrupted) else BAD_INPUT
    except KeyboardInterrupt:
        print("adabest: interrupted; a run that was begun can be resumed", file=sys.stderr)
        return INTERRUPTED


__all__ = ["main"]
