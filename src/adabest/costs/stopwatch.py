"""How long something takes, wherever it is computed."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import torch

from adabest.engine.cpu import malloc
from adabest.engine.threads import one_thread

T = TypeVar("T")


class Spent(NamedTuple):
    """Seconds by the clock, and of all cores together."""

    wall: float = 0.0
    cpu: float = 0.0

    def plus(self, other: "Spent", times: float = 1.0) -> "Spent":
        """With so many times what something else took."""
        return Spent(self.wall + times * other.wall, self.cpu + times * other.cpu)


def timed(work: Callable[[], T], device: torch.device) -> tuple[T, Spent]:
    """Does some work, and says what it took until the device was done with it."""
    _wait(device)
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    _wait(device)
    return result, Spent(time.perf_counter() - wall, time.process_time() - cpu)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """While entered, torch has one core, as a client has, and keeps its memory: what takes time then is arithmetic."""
    with one_thread(), malloc.freed_memory_kept():
        yield


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
