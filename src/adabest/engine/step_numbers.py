"""Numbers of local steps that are drawn by client and round: clients that differ in how much they manage to do."""

import re
from dataclasses import dataclass
from typing import Self

import numpy as np

from adabest import random
from adabest.errors import InputError, nearest
from adabest.random import Purpose

_FORM = re.compile(r"uniform:(\d+):(\d+)")
_MOST = 2**31 - 1
_FIXED = ("own", "mean")


def check_local_steps(text: str) -> None:
    """Refuses a value of the setting ``local_steps`` that says no number of steps.

    Raises:
        InputError: With the values there are.
    """
    if text not in _FIXED and UniformSteps.parse(text) is None:
        raise InputError(
            f"local_steps = {text!r} isn't one of its values; {nearest(text, [*_FIXED, 'uniform:1:5'])}. In "
            "uniform:1:5 the numbers may be any from 1"
        )


def most_steps(text: str) -> int | None:
    """The largest number that can be drawn with a value of the setting ``local_steps``; None where none is drawn."""
    drawn = UniformSteps.parse(text)
    return None if drawn is None else drawn.most


@dataclass(frozen=True)
class UniformSteps:
    """Every whole number of a range is as likely as the others.

    Attributes:
        least: The smallest.
        most: The largest.
    """

    least: int
    most: int

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most <= _MOST:
            raise InputError(
                f"uniform:{self.least}:{self.most}: the numbers of local steps begin with 1 at least, and end with "
                "that number or a higher one, as in uniform:1:5"
            )

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The range that a text such as ``uniform:1:5`` says; None if it says none."""
        found = _FORM.fullmatch(text)
        return None if found is None else cls(int(found[1]), int(found[2]))

    def of(self, seed: int, round_number: int, clients: np.ndarray) -> np.ndarray:
        """The numbers of some clients in a round, int64 ``[clients]``, whichever others are asked for.

        Args:
            seed: The run's.
            round_number: t.
            clients: Their numbers, int64.
        """
        bits: np.ndarray = random.bits(seed, Purpose.LOCAL_STEPS, round_number, clients)
        return self.least + random.below(bits, self.most - self.least + 1)
