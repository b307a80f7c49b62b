"""Samplers: functions that draw the cohort of a round from the clients present.

A sampler takes a ``Draw`` and returns positions among the clients present. The time of all of them grows with the
cohort (that of ``weighted`` also with the logarithm of the population). They draw from the seed and the round alone, so
every algorithm gets the same cohorts.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adabest import random
from adabest.random import Purpose
from adabest.registry import Registry


@dataclass(frozen=True)
class Draw:
    """The input of a sampler. Clients are named by their positions, from 0, among those present.

    Attributes:
        seed: The run's seed.
        round: t.
        present: |S^t|, at least one.
        participation: The share of the clients present that is wanted.
        samples: Gives n_i of the clients at some positions.
        by_samples: Turns random bits into clients, one after another, each with a probability in proportion to its n_i
            among those not yet chosen.
        in_turn: Gives the next clients in turn, as many as its argument says; absent ones are skipped.
    """

    seed: int
    round: int
    present: int
    participation: float
    samples: Callable[[np.ndarray], np.ndarray]
    by_samples: Callable[[np.ndarray], np.ndarray]
    in_turn: Callable[[int], np.ndarray]

    @property
    def size(self) -> int:
        """The wanted number of clients: k = max(1, round(participation · |S^t|))."""
        return max(1, round(self.participation * self.present))


Sampler = Callable[[Draw], np.ndarray]


def uniform(draw: Draw) -> np.ndarray:
    """Exactly k, every set of k equally likely. Floyd's method: k draws, whatever the population."""
    bounds = np.arange(draw.present - draw.size + 1, draw.present + 1)
    draws = random.below(random.bits(draw.seed, Purpose.COHORT, draw.round, np.arange(draw.size)), bounds)
    chosen: set[int] = set()
    for position, bound in zip(draws.tolist(), bounds.tolist(), strict=True):
        chosen.add(bound - 1 if position in chosen else position)
    return np.fromiter(chosen, dtype=np.int64)


def bernoulli(draw: Draw) -> np.ndarray:
    """Each client independently, with the participation as probability; drawn again if none is chosen."""
    return independent_positions(
        draw.seed, Purpose.COHORT, draw.round, probability=draw.participation, count=draw.present, nonempty=True
    )


def weighted(draw: Draw) -> np.ndarray:
    """Exactly k, one after another, each with a probability in proportion to its n_i among those not yet chosen."""
    return draw.by_samples(random.bits(draw.seed, Purpose.COHORT, draw.round, np.arange(draw.size)))


def round_robin(draw: Draw) -> np.ndarray:
    """Exactly k clients, in turn."""
    return draw.in_turn(draw.size)


def independent_positions(
    seed: int, purpose: Purpose, *words: int, probability: float, count: int, nonempty: bool = False
) -> np.ndarray:
    """The positions in ``range(count)`` at which independent coins show heads, in time that grows with their number.

    The gap to the next head is geometric, so only heads are drawn.

    Args:
        seed: The run's seed.
        purpose: The purpose of the draw.
        *words: The other words of its name.
        probability: The probability of heads, above 0.
        count: The number of coins.
        nonempty: Whether all coins are thrown again until there is a head. The first gap is then geometric, given that
            it is below ``count``, and is drawn so.
    """
    positions = np.empty(0, dtype=np.int64)
    last, block = -1, 0
    with np.errstate(divide="ignore"):
        tails = np.log1p(-probability)
    while last < count - 1:
        numbers = np.arange(int(count * probability) + 16)
        uniforms = random.uniform(random.bits(seed, purpose, *words, block, numbers))
        if nonempty and block == 0:
            uniforms[0] *= -np.expm1(count * tails)  # the probability that there is a head
        with np.errstate(over="ignore"):  # a probability of almost 0 has gaps that no float64 can hold
            gaps = np.floor(np.log1p(-uniforms) / tails)
        # A gap beyond the end is cut to the end: as an int64 it could overflow.
        heads = last + np.cumsum(np.minimum(gaps, count).astype(np.int64) + 1)
        if nonempty and block == 0:
            heads -= max(int(heads[0]) - (count - 1), 0)  # rounding may put the first one just beyond the end
        positions = np.concatenate([positions, heads[heads < count]])
        last, block = int(heads[-1]), block + 1
    return positions


SAMPLERS: Registry[Sampler] = Registry(
    kind="sampler",
    group="adabest.samplers",
    builtin={"uniform": uniform, "bernoulli": bernoulli, "weighted": weighted, "round-robin": round_robin},
)
