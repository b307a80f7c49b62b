"""The clock of a GPU, with made-up marks in a made-up queue."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from adabest.engine.device_clock import DeviceClock

GPU = torch.device("cuda")


@dataclass
class Queue:
    """A queue whose marks lie at moments that a test sets, and that the GPU has reached up to a moment."""

    now: float = 0.0
    end: float = 0.0
    reached: float = 0.0
    marks: list["Mark"] = field(default_factory=list)

    def mark(self) -> "Mark":
        self.marks.append(Mark(self))
        return self.marks[-1]


@dataclass
class Mark:
    queue: Queue
    at: float = -1.0

    def record(self) -> None:
        self.at = self.queue.end

    def query(self) -> bool:
        return self.at <= self.queue.reached

    def elapsed_time(self, end_event: Any) -> float:
        return float(end_event.at - self.at) * 1e3


def test_the_share_is_of_the_time_since_the_first_work() -> None:
    queue = Queue(now=100.0)
    clock = DeviceClock(queue.mark, lambda: queue.now)
    assert clock.share() is None
    with clock.working(GPU):
        queue.end += 3.0
    assert clock.share() is None, "the GPU hasn't come to the end of it, and nobody waits"
    queue.now, queue.reached = 104.0, 3.0
    assert clock.share() == pytest.approx(0.75)
    queue.end = 4.0  # something that isn't counted
    with clock.working(GPU):
        queue.end += 2.0
    queue.now, queue.reached = 108.0, 6.0
    assert clock.share() == pytest.approx(5 / 8)


def test_a_cpu_has_no_share() -> None:
    clock = DeviceClock()
    with clock.working(torch.device("cpu")):
        pass
    assert clock.share() is None
