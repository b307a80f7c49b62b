"""What an engine is: the clients' side of an exchange. The server's side is the same for all engines."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from adabest.algorithms.base import Algorithm, ServerContext, Work
from adabest.engine.local import LocalTraining
from adabest.engine.task import Heartbeat, Task


class Outcome(NamedTuple):
    """What one client's work in one phase of a round came to.

    Attributes:
        client: Who.
        state: What the client keeps.
        reply: What it sends.
        model: Its trained model; None if the phase had no training.
        steps: How many local steps it made.
        loss: Mean training loss over its steps; None if there were none.
        accuracy: Mean training accuracy over its steps; likewise.
    """

    client: int
    state: Any
    reply: Any
    model: Tensor | None
    steps: int
    loss: float | None
    accuracy: float | None


class Engine(Protocol):
    """Executes the work of a cohort."""

    def __init__(self, algorithm: Algorithm, task: Task, training: LocalTraining, heartbeat: Heartbeat) -> None:
        """Is made once a run; ``heartbeat`` is to be called between local steps and may raise."""

    def exchange(
        self, work: Work, clients: Mapping[int, Any], message: Any, server_context: ServerContext
    ) -> list[Outcome]:
        """One phase of a round.

        Args:
            work: What the clients do.
            clients: The cohort, and each client's state.
            message: What the server sent.
            server_context: The round, as the server sees it.

        Raises:
            Diverged: If a training loss isn't finite.
        """

    def estimate_norms(self, clients: Mapping[int, Any], message: Any, server_context: ServerContext) -> list[float]:
        """‖h_i‖ of clients at the scale in which it would act under a message; empty if the algorithm has no h_i.

        Args:
            clients: Clients and their states.
            message: What the server would send them.
            server_context: The round, as the server sees it.
        """
