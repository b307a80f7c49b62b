"""How commands end that can't do what they should: in one line and with an exit code, unless it is a bug of ours.

Imports nothing heavy, so that Ctrl-C is heard from the first moment on.
"""

import contextlib
import errno
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, NoReturn, TextIO

from adabest.cli.exit_codes import BAD_INPUT, INTERRUPTED, MACHINE_FAILED, OUTPUT_CLOSED
from adabest.errors import InputError, Interrupted, RankLost, how_to_go_on, leave_at_once, naming_file

_INTERRUPTED = "interrupted; a run that was begun can be resumed"
# Reasons for which a file can't be written or read, and which no other input would mend.
_MACHINE = {
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "ENOMEM", "EMFILE", "ENFILE", "ESTALE", "ENODEV", "ENXIO")
    if hasattr(errno, name)
}
_PATIENCE = 1.5  # seconds until Ctrl-C must have ended a command
_OUTPUT = "standard output"
_ALLOCATORS = ("can't allocate memory", "not enough memory", "out of memory")  # in torch's words


def tell_failure(error: BaseException) -> int:
    """Says in one line what ended a command.

    Returns:
        The exit code.

    Raises:
        BaseException: The error itself, if it is a bug of ours or the parser's own way out.
    """
    if isinstance(error, KeyboardInterrupt):
        return _say(_INTERRUPTED, INTERRUPTED)
    if isinstance(error, Interrupted):
        return _say(str(error), INTERRUPTED)
    if isinstance(error, InputError):
        cause = error.__cause__
        by_machine = isinstance(cause, OSError) and cause.errno in _MACHINE
        return _say(str(error), MACHINE_FAILED if by_machine else BAD_INPUT)
    if isinstance(error, RankLost):
        return _say(_with_advice(str(error), error), MACHINE_FAILED)
    if isinstance(error, BrokenPipeError) and error.filename in (None, _OUTPUT):
        return OUTPUT_CLOSED
    if isinstance(error, OSError):
        return _say(_with_advice(_of_file(error), error), MACHINE_FAILED)
    if _is_out_of_memory(error):
        details = str(error).strip().partition("\n")[0]
        words = f"out of memory: {details}" if details else "out of memory"
        return _say(_with_advice(words, error), MACHINE_FAILED)
    raise error


def _of_file(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return reason
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    return f"{' → '.join(names) or error.filename}: {reason}"


def _with_advice(words: str, error: BaseException) -> str:
    advice = how_to_go_on(error)
    return f"{words}. {advice}" if advice else words


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether it is torch that couldn't get memory, for which it has an error of its own on GPUs only."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _ALLOCATORS)


def _say(words: str, code: int) -> int:
    with contextlib.suppress(OSError, ValueError):  # there may be nobody to hear it
        print(f"adabest: {words}", file=sys.stderr, flush=True)
    return code


def leave_interrupted() -> NoReturn:
    """Ends the process because of Ctrl-C, in one line and without waiting for anybody."""
    leave_at_once(_INTERRUPTED, INTERRUPTED)


class Output:
    """Standard output, whose errors say what they are about."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes."""
        with naming_file(_OUTPUT):
            return self._stream.write(text)

    def flush(self) -> None:
        """Sends what was written on its way."""
        with naming_file(_OUTPUT):
            self._stream.flush()


def open_streams() -> None:
    """Opens what was closed of standard input, output and error, to nowhere.

    Else the next file that is opened would take its place, and be given what is printed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if number == 0 else "w", encoding="utf-8"))  # noqa: SIM115


def close_streams() -> None:
    """Gives up what can't be written, or Python would complain of it when it ends, with an exit code of its own."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


class Interrupts:
    """Hears Ctrl-C outside of runs, which have their own way.

    An exception in the middle of an import could become another one, so there the process ends at once: nothing has
    begun. Later the exception gets a moment to arrive, since foreign code may pass over it.
    """

    def __init__(self) -> None:
        self.importing = True
        self._timer: threading.Timer | None = None

    def install(self) -> None:
        """From now on Ctrl-C is heard here, unless it is ignored or someone else's."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._hear)

    def end(self) -> None:
        """From now on Ctrl-C ends the process without a word: all is said, and Python is only tidying up."""
        if self._timer is not None:
            self._timer.cancel()  # the exception has arrived; left alone, it would end whoever called the command
        if signal.getsignal(signal.SIGINT) == self._hear:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    def hear_unraisable(self, unraisable: Any) -> None:
        """Hears a Ctrl-C that came where an exception can't be raised, as in a destructor."""
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            leave_interrupted()
        sys.__unraisablehook__(unraisable)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.importing:
            leave_interrupted()
        self._timer = threading.Timer(_PATIENCE, leave_interrupted)
        self._timer.daemon = True
        self._timer.start()
        raise KeyboardInterrupt
