"""The clock of a GPU: how much of the time it trains or judges models."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch


class _Event(Protocol):
    """A mark in a GPU's queue; see ``torch.cuda.Event``."""

    def record(self) -> None:
        """Puts the mark at the end of the queue."""

    def query(self) -> bool:
        """Whether the GPU has come to it."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this mark to another one."""


def _mark() -> _Event:
    event: _Event = torch.cuda.Event(enable_timing=True)
    return event


class DeviceClock:
    """Measures how long a GPU works, by marks in its queue around trainings and evaluations; never waits for it.

    Waits within a training, whose steps are in the queue at once, count as work; what the GPU does between trainings,
    such as server steps, doesn't.
    """

    def __init__(self, mark: Callable[[], _Event] = _mark, clock: Callable[[], float] = time.monotonic) -> None:
        """Begins with no time at all.

        Args:
            mark: Makes a mark.
            clock: The seconds on the wall.
        """
        self._mark, self._clock = mark, clock
        self._begun: float | None = None
        self._worked = 0.0
        self._spans: deque[tuple[_Event, _Event]] = deque()

    @contextlib.contextmanager
    def working(self, device: torch.device) -> Iterator[None]:
        """Counts what is put into the queue within. On a CPU there is no queue, and nothing is counted."""
        if device.type != "cuda":
            yield
            return
        if self._begun is None:
            self._begun = self._clock()
        self._count_done()
        begin, end = self._mark(), self._mark()
        begin.record()
        yield
        end.record()
        self._spans.append((begin, end))

    def share(self) -> float | None:
        """The share of the time since the first work in which the GPU worked; None if there was none yet."""
        self._count_done()
        if self._begun is None or self._worked == 0:
            return None
        return min(self._worked / max(self._clock() - self._begun, 1e-9), 1.0)

    def _count_done(self) -> None:
        while self._spans and self._spans[0][1].query():
            begin, end = self._spans.popleft()
            self._worked += begin.elapsed_time(end) / 1e3
