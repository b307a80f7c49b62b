"""The rules of the gate that replies pass."""

import math
from dataclasses import dataclass, field
from typing import Literal

from adabest.errors import InputError


@dataclass(frozen=True)
class NormLimit:
    """The largest norm of a vector in a reply.

    Attributes:
        value: The norm, or a multiple of the running median of accepted norms; infinite for no limit.
        of_median: Which of the two.
    """

    value: float = math.inf
    of_median: bool = False

    @property
    def is_set(self) -> bool:
        """Whether norms are looked at."""
        return self.value != math.inf

    @classmethod
    def parse(cls, text: str) -> "NormLimit":
        """The limit that ``none``, ``25`` or ``10x`` stand for.

        Raises:
            InputError: If it is something else.
        """
        if text == "none":
            return cls()
        try:
            value = float(text.removesuffix("x"))
        except ValueError:
            value = math.nan
        if not 0 < value < math.inf:
            raise InputError(
                f"reply_limit = {text!r} isn't one: it should be none, a norm above 0 such as 25, or a multiple of the "
                "running median such as 10x"
            )
        return cls(value, of_median=text.endswith("x"))


@dataclass(frozen=True)
class Gate:
    """The rules of the gate.

    Attributes:
        policy: Whether a bad reply is left out (``quarantine``), or ends the run (``stop``).
        limit: The largest norm.
        state_commit: Whether a client's new state counts once its reply is ``sent``, or once it is ``confirmed`` that
            the reply was accepted; until then the client keeps its old state, too.
    """

    policy: Literal["quarantine", "stop"] = "quarantine"
    limit: NormLimit = field(default_factory=NormLimit)
    state_commit: Literal["sent", "confirmed"] = "sent"
