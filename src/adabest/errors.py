"""Errors that are meant for people: what was wrong, where, and what would be right."""

import difflib
import traceback
from collections.abc import Iterable
from pathlib import Path

_LETTERS = 300  # of an error's message that help


class AdabestError(Exception):
    """The root of every error this package raises on purpose."""


class InputError(AdabestError):
    """Something the user gave can't be used. The command line prints it and exits with 2."""


class Interrupted(AdabestError):
    """The user asked to stop. The round in progress was abandoned; the state is that of the last finished round."""


class Diverged(AdabestError):
    """A loss or a model stopped being finite. Carries what went non-finite and where."""


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
