"""The command line: parses, calls, prints.

What is heavy is imported when a command needs it.
"""

import sys
from collections.abc import Callable, Sequence
from typing import TextIO, cast

from adabest.cli import failures
from adabest.cli.exit_codes import DONE
from adabest.errors import InputError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code; ``adabest.cli.exit_codes`` says what each means.

    Args:
        arguments: The words after ``adabest``. By default those that the process was started with; then it also takes
            care of Ctrl-C.
    """
    interrupts = failures.Interrupts()
    if arguments is None:
        try:
            interrupts.install()
        except KeyboardInterrupt:  # in the moment before it is installed
            failures.leave_interrupted()
        sys.unraisablehook = interrupts.hear_unraisable
    given = list(sys.argv[1:] if arguments is None else arguments)
    failures.open_streams()
    before, sys.stdout = sys.stdout, cast(TextIO, failures.Output(sys.stdout))
    try:
        try:
            code = _version() if given == ["--version"] else _command(given, interrupts)
        except SystemExit:  # the parser's own way out, as after --help
            sys.stdout.flush()
            raise
        sys.stdout.flush()  # here, where it can be said that it fails
    except SystemExit:
        raise
    except BaseException as error:
        interrupts.end()
        code = failures.told(error)
    finally:
        interrupts.end()
        failures.close_streams()
        sys.stdout = before
    return code


def _version() -> int:
    from importlib.metadata import version

    print(f"adabest {version('adabest')}")
    return DONE


def _command(given: list[str], interrupts: failures.Interrupts) -> int:
    import warnings

    import tyro

    from adabest.cli.commands import commands
    from adabest.cli.exit_codes import MEANINGS

    interrupts.importing = False
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a code page without ‖θ‖ must not end in a traceback
    warnings.formatwarning = lambda message, *_, **__: f"adabest: {message}\n"
    codes = ", ".join(f"{code} {meaning}" for code, meaning in MEANINGS.items())
    try:
        command: Callable[[], int] = tyro.extras.subcommand_cli_from_dict(
            commands(given),
            prog="adabest",
            description="A federated-learning simulator. Each command has its own --help; --version tells the version. "
            f"Exit codes: {codes}.",
            args=given or ["--help"],
        )
    except RecursionError:  # the parser calls itself for each word
        raise InputError(f"the command line has {len(given):,} words, too many to be read; use a TOML file") from None
    return command()


__all__ = ["main"]
