"""A thread that writes files while the run goes on."""

import threading
from collections.abc import Callable

from adabest.errors import Interrupted

Write = Callable[[Callable[[], None]], None]
"""Writes something. It is given a heartbeat, which raises if the write is to be abandoned."""


class BackgroundWriter:
    """A thread that does one write at a time, while its owner goes on. What ends a write is raised in the owner."""

    def __init__(self) -> None:
        self._failure: BaseException | None = None
        self._is_abandoned = False
        # An event, since a Ctrl-C during ``Thread.join`` would make the thread look as if it had ended.
        self._is_idle = threading.Event()
        self._is_idle.set()

    @property
    def is_busy(self) -> bool:
        """Whether a write is under way."""
        return not self._is_idle.is_set()

    def begin(self, write: Write) -> None:
        """Begins a write, once the one before is done.

        Args:
            write: Does the write.

        Raises:
            BaseException: What ended the write before.
        """
        self.finish()
        self._is_abandoned = False
        thread = threading.Thread(target=self._run, args=(write,), name="adabest-writer")
        self._is_idle.clear()
        try:
            thread.start()
        except BaseException:
            self._is_idle.set()
            raise

    def check(self) -> None:
        """Raises what ended the last write, if it has ended; doesn't wait for it."""
        if not self.is_busy:
            self.finish()

    def finish(self) -> None:
        """Waits for the write that is under way.

        Raises:
            BaseException: What ended it.
        """
        self._is_idle.wait()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Ends the write that is under way at its next heartbeat, and waits for that."""
        self._is_abandoned = True
        self.close()

    def close(self) -> None:
        """Waits for the write that is under way; what ends it is told nobody."""
        self._is_idle.wait()
        self._failure = None

    def _run(self, write: Write) -> None:
        try:
            write(self._heartbeat)
        except BaseException as error:
            self._failure = error
        finally:
            self._is_idle.set()

    def _heartbeat(self) -> None:
        if self._is_abandoned:
            raise Interrupted("the write was abandoned")
