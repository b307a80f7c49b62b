"""Errors that are meant for people: what was wrong, where, and what would be right."""

import contextlib
import difflib
import os
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

_GO_ON = "To go on: "
_SHOW_CURSOR = b"\r\x1b[?25h"  # progress bars hide the cursor

_LETTERS = 300  # the most that are shown of another package's message


class AdabestError(Exception):
    """The root of every error this package raises on purpose."""


class InputError(AdabestError):
    """An input of the user can't be used. The command line prints the message and exits with 2."""


class Interrupted(AdabestError):
    """The user asked to stop. The round in progress was abandoned; the state is that of the last finished round."""


class Diverged(AdabestError):
    """A loss or a model stopped being finite. The message says which, and where."""


class RankFailed(AdabestError):
    """Another process of the job failed. The message has its traceback."""


class RankLost(AdabestError):
    """A process of a torchrun job ended, froze, was cut off or never came. The message says which, and for how long.

    Attributes:
        tells_itself: Whether that process left the job in order, and says why.
    """

    tells_itself = False


@contextlib.contextmanager
def naming_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """While entered, an OSError without a file name gets this one: a failed write or flush has none."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


def note_how_to_go_on(error: BaseException, words: str) -> None:
    """Adds a note to an error: how to go on after it. A later note, as of a comparison about its runs, replaces it."""
    error.__notes__ = [*(note for note in getattr(error, "__notes__", []) if not note.startswith(_GO_ON))]
    error.add_note(_GO_ON + words)


def how_to_go_on(error: BaseException) -> str:
    """The note that ``note_how_to_go_on`` added; empty if there is none."""
    found = [note for note in getattr(error, "__notes__", []) if note.startswith(_GO_ON)]
    return found[-1] if found else ""


def leave_at_once(words: str, code: int) -> NoReturn:
    """Prints one line and ends the process, without waiting for its threads.

    Like a kill, this is safe at any moment: files are written whole or not at all.
    """
    with contextlib.suppress(OSError):
        if os.isatty(2):
            os.write(2, _SHOW_CURSOR)
        os.write(2, f"adabest: {words}\n".encode(errors="replace"))
    os._exit(code)


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known name and the list of all.

    Args:
        name: The name that the user wrote.
        known: The valid names.

    Returns:
        A clause such as ``did you mean 'beta'? Known: alpha, beta``.
    """
    options = sorted(known)
    folded = {option.casefold(): option for option in options}  # papers write FedSAM, where fedsam is meant
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    hint = f"did you mean {folded[close[0]]!r}? " if close else ""
    return f"{hint}Known: {', '.join(options) or 'none'}"


def told(error: BaseException) -> str:
    """An exception of another package's or a user's code in words: type, start of the message, file and line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    message = str(error)
    if len(message) > _LETTERS:
        message = f"{message[:_LETTERS]}…"
    return f"{type(error).__name__}{': ' * bool(message)}{message}{place}"
