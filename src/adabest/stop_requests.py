"""Stop requests: a signal sets a flag, and the engine checks the flag between local steps.

No assignment is interrupted, so the state in memory is always that of a finished round. If the flag isn't checked in
time, a request to terminate ends the process at once. That is safe at any moment: files are written whole or not at
all.
"""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, ClassVar

from adabest.errors import Interrupted, leave_at_once

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]
_TERMINATING = [number for number in _SIGNALS if number != signal.SIGINT]
_PATIENCE = 1.5  # seconds in which a heartbeat must notice a request to terminate
_PATIENCE_WHILE_SAVING = 30.0  # the same while files are being saved
_LOOK_EVERY = 0.05  # seconds
_INTERRUPTED = 130  # the exit code

_being_saved: set[object] = set()

GoOn = Callable[[], str]


def resume_command(folder: Path, allow: Sequence[str] = ()) -> str:
    """The command that resumes a run, quoted for this platform's shell.

    Args:
        folder: The run's folder.
        allow: Names of code that the interrupted call had named, and that ``resume`` must be allowed to import.
    """
    words = ["adabest", "resume", str(folder), *(["--allow", *allow] if allow else [])]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


@contextlib.contextmanager
def saving() -> Iterator[None]:
    """While entered, files are being saved, and a request to terminate waits longer."""
    save = object()
    _being_saved.add(save)
    try:
        yield
    finally:
        _being_saved.discard(save)


class StopRequests:
    """While entered, Ctrl-C and a request to terminate end the round, not the process. A second Ctrl-C ends both.

    They nest. A request that no heartbeat of an inner one noticed is passed to the outer one, and by the outermost one
    to the handler that was installed before, which by default ends the process.
    """

    _entered: ClassVar[list["StopRequests"]] = []
    _watch: ClassVar["_Watch | None"] = None

    def __init__(self, go_on: GoOn | None = None) -> None:
        """``go_on`` says how to go on if the process is ended at once; of nested ones, the outermost's is used."""
        self._go_on = go_on
        self._asked = False
        self._heard = False
        self._unheard: list[int] = []
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopRequests":
        # Only the main thread may install handlers; in other threads, its owner's handlers stay.
        if threading.current_thread() is threading.main_thread():
            if not self._entered and all(signal.getsignal(number) == signal.SIG_DFL for number in _TERMINATING):
                StopRequests._watch = _Watch(self._how_to_go_on)
            self._previous = {number: signal.signal(number, self._ask) for number in _SIGNALS}
            self._entered.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self not in self._entered:
            return
        self._entered.remove(self)
        if self._entered:
            outer = self._entered[-1]
            outer._asked |= self._asked
            outer._heard |= self._heard
            outer._unheard += self._unheard
            return
        if self._watch is not None:
            self._watch.close()
            StopRequests._watch = None
        if self._unheard and not self._heard and kind is None:
            signal.raise_signal(self._unheard[0])

    def heartbeat(self) -> None:
        """Raises ``Interrupted`` if a stop was requested."""
        if self._asked:
            self._heard = True
            if self._watch is not None:
                self._watch.heard()
            raise Interrupted("stopped on request")

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._asked = True
        if number in _TERMINATING:
            self._unheard.append(number)

    def _how_to_go_on(self) -> str:
        known = [requests._go_on for requests in self._entered if requests._go_on is not None]
        return known[0]() if known else "nothing was begun"


def notice_requests() -> None:
    """Stops the countdown of a request to terminate, if there is one: a heartbeat will come, though not yet.

    For waits in which a heartbeat must not raise, as for other processes.
    """
    asked = [requests for requests in StopRequests._entered if requests._asked]
    for requests in asked:
        requests._heard = True
    if asked and StopRequests._watch is not None:
        StopRequests._watch.heard()


class _Watch:
    """A thread that ends the process if no heartbeat notices a request to terminate in time.

    The C part of Python's signal handling wakes it, so it gets requests even while the main thread is in a long call
    and can't run the handler.
    """

    def __init__(self, go_on: GoOn) -> None:
        self._go_on = go_on
        self._heard = threading.Event()
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)
        self._before = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._wait_for_requests, name="adabest-stop-requests", daemon=True)
        self._thread.start()

    def heard(self) -> None:
        """Stops the countdown: a heartbeat has noticed the request, and the stop takes the time it needs."""
        self._heard.set()

    def close(self) -> None:
        """Ends the thread, and restores the former receiver of signals."""
        signal.set_wakeup_fd(self._before)
        self._heard.set()
        self._sender.close()  # ends the thread's ``recv``
        self._thread.join()
        self._receiver.close()

    def _wait_for_requests(self) -> None:
        while signals := self._receiver.recv(64):
            if self._before != -1:
                with contextlib.suppress(OSError):
                    os.write(
                        self._before, signals
                    )  # else an event loop that had set its own wake-up fd would miss them
            if any(number in signals for number in _TERMINATING):
                self._wait_for_a_hearing()

    def _wait_for_a_hearing(self) -> None:
        asked = time.monotonic()
        while not self._heard.wait(_LOOK_EVERY):
            waited = time.monotonic() - asked
            if waited > _PATIENCE_WHILE_SAVING or (waited > _PATIENCE and not _being_saved):
                self._leave()
                return

    def _leave(self) -> None:
        words = "stopped at once"
        with contextlib.suppress(OSError):
            words = f"{words}; {self._go_on()}"
        leave_at_once(words, _INTERRUPTED)
