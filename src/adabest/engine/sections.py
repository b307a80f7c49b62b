"""Sections of a round: whose work is being computed.

The simulation and the reference engine enter a section for each piece of work that belongs to someone, so that an
observer can count or time it. What is computed between sections is the simulator's own: checks, bookkeeping, metrics.
"""

import contextlib
from collections.abc import Callable
from typing import Any, Literal

# A client: its start, its local steps and its reply. The server: the message, the means of the replies, its step. And
# the scored model, which no algorithm needs.
Section = Literal["client", "server", "scored"]

# Gives what is entered while a section is computed.
Observer = Callable[[Section], contextlib.AbstractContextManager[Any]]


def unobserved(section: Section) -> contextlib.AbstractContextManager[Any]:
    """The observer of a run that nobody counts or times."""
    return contextlib.nullcontext()
