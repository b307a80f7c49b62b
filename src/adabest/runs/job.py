"""Jobs: the clients of this process's runs live elsewhere, at the ranks of a torchrun job or in a real federation.

Runs find their job here, as they find the machine's devices: it is a fact about the process, not a setting of a run.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from adabest.algorithms.base import Algorithm
from adabest.engine.client_side import ClientSide
from adabest.engine.interface import Engine
from adabest.engine.local_test import LocalTests
from adabest.engine.memory_tiers import Memory
from adabest.engine.simulation import Simulation
from adabest.federation.partition import Partition
from adabest.runs.settings.config import Config
from adabest.tasks.base import Heartbeat, Task

if TYPE_CHECKING:
    from adabest.runs.build import BuiltParts


class Job(Protocol):
    """What reaches the clients of runs that live elsewhere.

    Attributes:
        has_group: Whether runs can be built on it now.
        is_lasting: Whether its clients outlast this process, so that no round may begin before the last one is on disk.
        resumed_by: The command that goes on with its runs; empty for this package's own.
    """

    has_group: bool
    is_lasting: bool
    resumed_by: str

    def group(self, config: Config, threads: int) -> AbstractContextManager[None]:
        """While entered, runs with the process settings of a configuration can be built."""

    def partition(self) -> Partition | None:
        """Who has how many samples; None if the samples of all clients are here, to be dealt as settings say."""

    def share_out(self, config: Config, built: "BuiltParts") -> Callable[[Algorithm, Task, Tensor, Memory], ClientSide]:
        """What makes the client side of a run."""

    def engine(self, inner: Callable[[Heartbeat], Engine], heartbeat: Heartbeat) -> Engine:
        """The engine of runs; ``inner`` makes the one that would train here."""

    def local_tests(self, built: "BuiltParts", simulation: Simulation, score: str) -> LocalTests | None:
        """What judges models client by client; None where clients hold nothing out."""


_CURRENT: ContextVar[Job | None] = ContextVar("job", default=None)


def current_job() -> Job | None:
    """The job that has the clients of runs; None if they live in this process."""
    return _CURRENT.get()


@contextlib.contextmanager
def entered(job: Job | None) -> Iterator[None]:
    """While entered, runs have their clients at a job; with None, in this process."""
    token = _CURRENT.set(job)
    try:
        yield
    finally:
        _CURRENT.reset(token)
