"""Who of those present takes part in a round.

A sampler is a function of a ``Draw``; it returns positions among the clients present. All take time in proportion to
the cohort, whatever the population, and draw from the seed and the round alone, so every algorithm meets the same
clients.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from adabest import random
from adabest.random import Purpose
from adabest.registry import Registry

# How many proposals for each wanted client `weighted` makes before it looks at everyone's weight.
_PATIENCE = 64


@dataclass(frozen=True)
class Draw:
    """What a sampler may look at.

    Attributes:
        seed: The run's seed.
        round: t.
        present: |S^t|, at least one.
        participation: The share of those present that is wanted.
        samples: Gives n_i of those at some positions.
        largest: An upper bound of n_i.
        turn: How many clients earlier rounds have asked for, by their ``size``.
    """

    seed: int
    round: int
    present: int
    participation: float
    samples: Callable[[np.ndarray], np.ndarray]
    largest: int
    turn: int

    @property
    def size(self) -> int:
        """How many are wanted: k = max(1, round(participation · |S^t|))."""
        return max(1, round(self.participation * self.present))


Sampler = Callable[[Draw], np.ndarray]


def uniform(draw: Draw) -> np.ndarray:
    """Exactly k, every set of k equally likely. Floyd's method: as many draws as there are clients to find."""
    bounds = np.arange(draw.present - draw.size + 1, draw.present + 1)
    draws = random.below(random.bits(draw.seed, Purpose.COHORT, draw.round, np.arange(draw.size)), bounds)
    chosen: set[int] = set()
    for position, bound in zip(draws.tolist(), bounds.tolist(), strict=True):
        chosen.add(bound - 1 if position in chosen else position)
    return np.fromiter(chosen, dtype=np.int64)


def bernoulli(draw: Draw) -> np.ndarray:
    """Everyone by a coin of their own, with the participation as probability. An empty cohort is drawn again."""
    attempt = 0
    while True:
        words = (Purpose.COHORT, draw.round, attempt)
        chosen = independent_positions(draw.seed, *words, probability=draw.participation, count=draw.present)
        if len(chosen) > 0:
            return chosen
        attempt += 1


def weighted(draw: Draw) -> np.ndarray:
    """Exactly k, one after another, each with a probability in proportion to its n_i among those not yet chosen.

    A uniform proposal is accepted with probability n_i / largest, and passed over if it was chosen before. Where the
    weights are so uneven, or k so close to everyone, that this would take long, the rest is found by one exponential
    clock for each client, which rings first with just these probabilities.
    """
    chosen: dict[int, None] = {}
    if 4 * draw.size < draw.present:
        numbers = np.arange(_PATIENCE * draw.size)
        keys = [random.bits(draw.seed, Purpose.COHORT, draw.round, which, numbers) for which in (0, 1)]
        proposals = random.below(keys[0], draw.present)
        accepted = random.uniform(keys[1]) * draw.largest < draw.samples(proposals)
        for position in proposals[accepted].tolist():
            chosen[position] = None
            if len(chosen) == draw.size:
                break
    if len(chosen) < draw.size:
        everyone = np.arange(draw.present)
        uniforms = random.uniform(random.bits(draw.seed, Purpose.COHORT, draw.round, 2, everyone))
        clocks = -np.log1p(-uniforms) / draw.samples(everyone)
        clocks[list(chosen)] = np.inf
        first = np.argpartition(clocks, draw.size - len(chosen) - 1)[: draw.size - len(chosen)]
        chosen |= dict.fromkeys(first.tolist())
    return np.fromiter(chosen, dtype=np.int64)


def round_robin(draw: Draw) -> np.ndarray:
    """Exactly k, in turn."""
    return (draw.turn + np.arange(draw.size)) % draw.present


def independent_positions(seed: int, purpose: Purpose, *words: int, probability: float, count: int) -> np.ndarray:
    """The positions in ``range(count)`` at which independent coins show heads, in time that grows with their number.

    The gap to the next head is geometric, so only heads are drawn.

    Args:
        seed: The run's seed.
        purpose: What the draw is for.
        *words: What else names it.
        probability: That of heads, above 0.
        count: How many coins there are.
    """
    positions = np.empty(0, dtype=np.int64)
    last, block = -1, 0
    while last < count - 1:
        numbers = np.arange(int(count * probability) + 16)
        uniforms = 1.0 - random.uniform(random.bits(seed, purpose, *words, block, numbers))
        with np.errstate(divide="ignore"):
            gaps = np.floor(np.log(uniforms) / np.log1p(-probability))
        # A gap beyond the end is as good as one to the end, and can't overflow.
        heads = last + np.cumsum(np.minimum(gaps, count).astype(np.int64) + 1)
        positions = np.concatenate([positions, heads[heads < count]])
        last, block = int(heads[-1]), block + 1
    return positions


SAMPLERS: Registry[Sampler] = Registry(
    kind="sampler",
    group="adabest.samplers",
    builtin={"uniform": uniform, "bernoulli": bernoulli, "weighted": weighted, "round-robin": round_robin},
)
