"""Placement: the rank at which each client of a round trains, and the part of every vector that each rank adds up."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_ALIGNED = 64  # elements: parts begin where vector instructions like them to


def share_out(steps: Sequence[int], homes: Sequence[int | None], ranks: int) -> list[int]:
    """The rank at which each client trains, so that all ranks are ready at about the same time.

    The clients with the most steps are placed first, each at home as long as no rank would then have more than its
    share, else at the rank with the fewest steps so far. So a state travels only where the balance needs it.

    Args:
        steps: K_i of each client.
        homes: The rank at which each client's state lies; None for one that has none yet.
        ranks: How many there are.
    """
    share = max(math.ceil(sum(steps) / ranks), *steps) if steps else 0
    loads, chosen = [0] * ranks, [0] * len(steps)
    for place in sorted(range(len(steps)), key=lambda place: -steps[place]):
        home = homes[place]
        at_home = home is not None and loads[home] + steps[place] <= share
        rank = home if home is not None and at_home else min(range(ranks), key=lambda rank: loads[rank])
        chosen[place] = rank
        loads[rank] += steps[place]
    return chosen


@dataclass(frozen=True)
class Slices:
    """The parts of a vector, one for each rank.

    A rank gets its part of all vectors of a round, and adds them up in the order of the clients. So the bits of a sum
    don't depend on the number of ranks.

    Attributes:
        length: The length of the vector.
        ranks: How many parts there are; the last may be shorter, or empty.
    """

    length: int
    ranks: int

    def part(self, rank: int) -> slice:
        """The part of a rank."""
        width = math.ceil(self.length / self.ranks / _ALIGNED) * _ALIGNED
        return slice(min(rank * width, self.length), min((rank + 1) * width, self.length))

    def width(self, rank: int) -> int:
        """The length of the part of a rank."""
        part = self.part(rank)
        return int(part.stop - part.start)

    def widths(self) -> list[int]:
        """The lengths of all parts."""
        return [self.width(rank) for rank in range(self.ranks)]
