"""Times of work on any device: by the clock, and of all cores together."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import torch

from adabest.engine.cpu import malloc
from adabest.engine.sections import Section
from adabest.engine.threads import one_thread


class Spent(NamedTuple):
    """Seconds by the clock, and of all cores together."""

    wall: float = 0.0
    cpu: float = 0.0

    def plus(self, other: "Spent") -> "Spent":
        """The sum."""
        return Spent(self.wall + other.wall, self.cpu + other.cpu)

    def minus(self, other: "Spent") -> "Spent":
        """The difference."""
        return Spent(self.wall - other.wall, self.cpu - other.cpu)


def read_clocks(device: torch.device) -> Spent:
    """Both clocks, once a device has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return Spent(time.perf_counter(), time.process_time())


class SectionTimer:
    """An observer that adds up what each section takes, with the machine to itself.

    Attributes:
        spent: By section.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.spent: defaultdict[Section, Spent] = defaultdict(Spent)

    @contextlib.contextmanager
    def __call__(self, section: Section) -> Iterator[None]:
        """Times a section on one core, as a client has, with freed memory kept: what takes time then is arithmetic."""
        with one_thread(), malloc.freed_memory_kept():
            begin = read_clocks(self._device)
            yield
            self.spent[section] = self.spent[section].plus(read_clocks(self._device).minus(begin))
