"""Errors that are meant for people: what was wrong, where, and what would be right."""

import contextlib
import difflib
import os
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

_GO_ON = "To go on: "
_SHOW_CURSOR = b"\r\x1b[?25h"  # which progress bars hide

_LETTERS = 300  # of an error's message that help


class AdabestError(Exception):
    """The root of every error this package raises on purpose."""


class InputError(AdabestError):
    """Something the user gave can't be used. The command line prints it and exits with 2."""


class Interrupted(AdabestError):
    """The user asked to stop. The round in progress was abandoned; the state is that of the last finished round."""


class Diverged(AdabestError):
    """A loss or a model stopped being finite. Carries what went non-finite and where."""


@contextlib.contextmanager
def naming_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """While entered, an OSError that names no file is given this one: a failed write or flush knows of none."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


def note_how_to_go_on(error: BaseException, words: str) -> None:
    """Adds to an error how to go on after it. Who knows better, as a comparison does of its runs, replaces the note."""
    error.__notes__ = [*(note for note in getattr(error, "__notes__", []) if not note.startswith(_GO_ON))]
    error.add_note(_GO_ON + words)


def how_to_go_on(error: BaseException) -> str:
    """What ``note_how_to_go_on`` added; nothing if it wasn't called."""
    found = [note for note in getattr(error, "__notes__", []) if note.startswith(_GO_ON)]
    return found[-1] if found else ""


def leave_at_once(words: str, code: int) -> NoReturn:
    """Ends the process with one line, whatever its threads are doing.

    Safe at any moment, as a kill is: files are written whole or not at all.
    """
    with contextlib.suppress(OSError):
        if os.isatty(2):
            os.write(2, _SHOW_CURSOR)
        os.write(2, f"adabest: {words}\n".encode(errors="replace"))
    os._exit(code)


def nearest(name: str, known: Iterable[str]) -> str:
    """Words the end of a message about an unknown name: the nearest known one and the list of all.

    Args:
        name: What the user wrote.
        known: What would have been right.

    Returns:
        A clause such as ``did you mean 'beta'? Known: alpha, beta``.
    """
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known: {', '.join(options) or 'none'}"


def told(error: BaseException) -> str:
    """Words an exception that someone else's code raised: its type, the start of its message, and where it was."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    message = str(error)
    if len(message) > _LETTERS:
        message = f"{message[:_LETTERS]}…"
    return f"{type(error).__name__}{': ' * bool(message)}{message}{place}"
