"""Who takes part in a round."""

import numpy as np

from adabest import random
from adabest.random import Purpose


def cohort_size(participation: float, present: int) -> int:
    """How many clients take part: k = max(1, round(participation · |S^t|))."""
    return max(1, round(participation * present))


def draw_cohort(seed: int, round_number: int, present: np.ndarray, size: int) -> np.ndarray:
    """Draws exactly ``size`` of the present clients, uniformly, from the seed and the round alone.

    Floyd's method: as many draws as there are clients to find, whatever the population.

    Args:
        seed: The run's seed.
        round_number: t.
        present: The clients there are, ascending.
        size: How many to draw, at most all.

    Returns:
        The cohort, ascending.
    """
    bounds = np.arange(len(present) - size + 1, len(present) + 1)
    draws = random.below(random.bits(seed, Purpose.COHORT, round_number, np.arange(size)), bounds)
    chosen: set[int] = set()
    for draw, bound in zip(draws.tolist(), bounds.tolist(), strict=True):
        chosen.add(bound - 1 if draw in chosen else draw)
    return np.sort(present[np.fromiter(chosen, dtype=np.int64)])
