"""The command line: parses, calls, prints.

What is heavy is imported when a command needs it, and only the command that was asked for is built.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO, cast

from adabest.cli import failures
from adabest.cli.exit_codes import DONE
from adabest.errors import InputError

_HELP = ("-h", "--help", "-H", "--help-verbose")
_OF_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE")  # torchrun sets them for the processes that it starts
_COMPLETION = "--tyro-"  # begins the parser's own options, which write completion scripts of all commands


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
            code = _answer(given, interrupts)
        except SystemExit:  # the parser's own way out, as after --help
            sys.stdout.flush()
            raise
        sys.stdout.flush()  # here, where it can be said that it fails
    except SystemExit:
        raise
    except BaseException as error:
        interrupts.end()
        code = failures.tell_failure(error)
    finally:
        interrupts.end()
        failures.close_streams()
        sys.stdout = before
    return code


def _answer(given: list[str], interrupts: failures.Interrupts) -> int:
    """Does what the words of a command line ask for."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a code page without ‖θ‖ must not end in a traceback
    if given == ["--version"]:
        return _version()
    if not given or given[0] in _HELP:
        return _help()
    if any(name in os.environ for name in _OF_TORCHRUN):
        from adabest.cli.rank_command import answer_in_job

        return answer_in_job(given, lambda: _command(given, interrupts))
    return _command(given, interrupts)


def _version() -> int:
    from importlib.metadata import version

    print(f"adabest {version('adabest')}")
    return DONE


def _help() -> int:
    """Lists the commands, none of which is imported."""
    import shutil
    import textwrap

    from adabest.cli.catalog import COMMANDS
    from adabest.cli.exit_codes import MEANINGS

    width = min(shutil.get_terminal_size().columns, 120)
    codes = ", ".join(f"{code} {meaning}" for code, meaning in MEANINGS.items())
    about = f"Each command has its own --help; --version tells the version. Exit codes: {codes}."
    print("usage: adabest [-h] [--version] COMMAND ...\n\nA federated-learning simulator.\n")
    print(textwrap.fill(about, width))
    print("\ncommands:")
    longest = max(map(len, COMMANDS))
    for name, entry in COMMANDS.items():
        head = f"  • {name:{longest}}  "
        print(textwrap.fill(entry.description, width, initial_indent=head, subsequent_indent=" " * len(head)))
    return DONE


def _command(given: list[str], interrupts: failures.Interrupts) -> int:
    """Imports, builds and runs the command that was asked for.

    Raises:
        InputError: If there is no such command, or something it was given can't be used.
    """
    import warnings

    from adabest.cli.catalog import COMMANDS
    from adabest.errors import nearest

    name = given[0]
    if name not in COMMANDS and not name.startswith(_COMPLETION):
        raise InputError(f"unknown command {name!r}; {nearest(name, COMMANDS)}")
    import tyro

    from adabest.cli.parser import reader

    warnings.formatwarning = lambda message, *_, **__: f"adabest: {message}\n"
    if name.startswith(_COMPLETION):
        interrupts.importing = False
        readers = {key: reader(entry.load().fields([key]), entry.description) for key, entry in COMMANDS.items()}
        tyro.extras.subcommand_cli_from_dict(readers, prog="adabest", args=given)
        return DONE
    entry = COMMANDS[name]
    command = entry.load()
    arguments: dict[str, Any] = tyro.cli(
        reader(command.fields(given), entry.description),
        prog=f"adabest {name}",
        description=entry.description,
        args=given[1:],
    )
    act = command.action()
    interrupts.importing = False
    return act(arguments)


__all__ = ["main"]
