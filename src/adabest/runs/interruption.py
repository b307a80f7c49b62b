"""Stopping in an orderly way: a signal raises a flag, and the engine looks at the flag between local steps.

Nothing is interrupted in the middle of an assignment, so the state in memory is always that of a finished round.
"""

import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, ClassVar

from adabest.errors import Interrupted

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]


def resume_command(folder: Path, allow: Sequence[str] = ()) -> str:
    """What to type to continue, quoted as the shell of this platform wants it.

    Args:
        folder: The run's folder.
        allow: Names that the call which was interrupted had named, and that ``resume`` must be told again.
    """
    words = ["adabest", "resume", str(folder), *(["--allow", *allow] if allow else [])]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


class StopRequests:
    """While entered, Ctrl-C and a request to terminate end the round, not the process. A second Ctrl-C ends both.

    They nest: a request that an inner one got and no round was left to hear is passed on to the outer one.
    """

    _entered: ClassVar[list["StopRequests"]] = []

    def __init__(self) -> None:
        self._asked = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopRequests":
        # Only the main thread may install handlers; elsewhere whoever owns the main thread decides.
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._ask) for number in _SIGNALS}
            self._entered.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self in self._entered:
            self._entered.remove(self)
            if self._asked and self._entered:
                self._entered[-1]._asked = True

    def heartbeat(self) -> None:
        """Raises ``Interrupted`` if someone asked to stop."""
        if self._asked:
            raise Interrupted("stopped on request")

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._asked = True
