"""Partitioners: functions that deal the training samples to clients.

A partitioner takes a ``Deal`` and returns one sample index for every place, the places of client 0 first. All of these
terminate, use no sample twice, and give each client exactly its size. A partitioner of a user's own may instead return
one list of sample indices for each client, of sizes that it chooses.
"""

import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adabest import random
from adabest.random import Purpose
from adabest.registry import Registry

_BLOCK = 4096  # the most places that are drawn at a time
_HALF, _LAST_BIT = 2**32 - 1, 2.0**-53  # of a random word, and of a uniform number
_NUMBERS = 2**22  # the most numbers in their priors: with many classes, fewer places are drawn at a time


@dataclass(frozen=True)
class Deal:
    """The input of a partitioner.

    Attributes:
        labels: The label of every training sample, int64.
        classes: How many classes there are.
        sizes: How many samples each client gets; their sum is at most the number of samples.
        alpha: Concentration of the Dirichlet priors, for the partitioners that have them.
        seed: The partition's seed.
        shards: How many shards a client gets, for the partitioner ``shards``.
    """

    labels: np.ndarray
    classes: int
    sizes: np.ndarray
    alpha: float
    seed: int
    shards: int = 2

    def shuffled(self, what: int, count: int) -> np.ndarray:
        """A random permutation of ``range(count)``; ``what`` tells one use from another."""
        return random.order(random.bits(self.seed, Purpose.PARTITION, what, np.arange(count)))

    def generator(self) -> np.random.Generator:
        """A generator of its own for a partitioner of a user's own; the same seed gives the same draws."""
        return random.numpy_generator(self.seed, Purpose.PARTITION, _OWN)

    def priors(self) -> np.ndarray:
        """Every client's class prior, a row of Dirichlet(α)."""
        generator = random.numpy_generator(self.seed, Purpose.PARTITION, _PRIORS)
        return generator.dirichlet(np.full(self.classes, self.alpha), size=len(self.sizes))


# The purposes of a partition's draws. They are part of every partition: never renumber, only append.
_SAMPLES, _PLACES, _UNIFORMS, _PRIORS, _LEGACY, SIZES, _SHARDS, NATURAL_CLIENTS, _OWN = range(9)

# An array, or of a user's own also a list for each client, which ``cut`` checks.
Partitioner = Callable[[Deal], Any]


def iid(deal: Deal) -> np.ndarray:
    """One random permutation of the training set, cut into the sizes."""
    return deal.shuffled(_SAMPLES, len(deal.labels))[: deal.sizes.sum()]


def shards(deal: Deal) -> np.ndarray:
    """McMahan's label skew: the samples are sorted by label and cut into shards, of which each client gets a few.

    A client's shards differ in length by at most one. The shards of all clients cover the sorted samples in random
    order. Sizes are rounded down; the samples that are left over are chosen at random.
    """
    used = deal.shuffled(_SAMPLES, len(deal.labels))[: deal.sizes.sum()]
    by_label = used[np.argsort(deal.labels[used], kind="stable")]
    whole, rest = deal.sizes[:, None] // deal.shards, deal.sizes[:, None] % deal.shards
    lengths = (whole + (np.arange(deal.shards) < rest)).reshape(-1)
    laid = deal.shuffled(_SHARDS, len(lengths))
    starts = np.empty_like(lengths)
    starts[laid] = np.cumsum(lengths[laid]) - lengths[laid]
    within = np.arange(len(by_label)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    dealt: np.ndarray = by_label[np.repeat(starts, lengths) + within]
    return dealt


def dirichlet(deal: Deal) -> np.ndarray:
    """Exact label skew: in random order, each place draws a class from its client's prior.

    The prior is restricted to the classes that still have samples, and renormalised; if it has no mass on them, the
    draw is uniform over those classes. Until a class is exhausted, draws don't depend on each other, so they are made
    block by block, with the same result as one by one.
    """
    priors = deal.priors()
    places = deal.shuffled(_PLACES, deal.sizes.sum())
    client_of_place = np.repeat(np.arange(len(deal.sizes)), deal.sizes)
    served = client_of_place[places]
    uniforms = random.uniform(random.bits(deal.seed, Purpose.PARTITION, _UNIFORMS, np.arange(len(places))))

    remaining = np.bincount(deal.labels, minlength=deal.classes)
    drawn = np.empty(len(places), dtype=np.int64)
    start, most = 0, max(1, min(_BLOCK, _NUMBERS // deal.classes))
    while start < len(places):
        stop = min(start + most, len(places))
        block = _draw_classes(priors[served[start:stop]], remaining > 0, uniforms[start:stop])
        accepted = _until_exhaustion(block, remaining)
        drawn[start : start + accepted] = block[:accepted]
        remaining -= np.bincount(block[:accepted], minlength=deal.classes)
        start += accepted
    return _hand_out(deal, drawn, places)


def _draw_classes(priors: np.ndarray, available: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """One class per row, by inverting the cumulated prior over the available classes."""
    restricted = priors * available
    restricted[restricted.sum(axis=1) == 0] = available
    cumulated = np.cumsum(restricted, axis=1)
    total = cumulated[:, -1]
    target = np.minimum(uniforms * total, np.nextafter(total, 0.0))
    classes: np.ndarray = np.argmax(cumulated > target[:, None], axis=1)
    return classes


def _until_exhaustion(drawn: np.ndarray, remaining: np.ndarray) -> int:
    """The number of draws up to the one that takes the last sample of a class."""
    counts = np.bincount(drawn, minlength=len(remaining))
    accepted = len(drawn)
    for label in np.flatnonzero((counts >= remaining) & (counts > 0)):
        accepted = min(accepted, int(np.flatnonzero(drawn == label)[remaining[label] - 1]) + 1)
    return accepted


def _hand_out(deal: Deal, drawn: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Gives each place the next sample of the class it drew, from a shuffled pool per class."""
    shuffled = deal.shuffled(_SAMPLES, len(deal.labels))
    pools = shuffled[np.argsort(deal.labels[shuffled], kind="stable")]
    pool_sizes = np.bincount(deal.labels, minlength=deal.classes)
    pool_starts = np.cumsum(pool_sizes) - pool_sizes
    by_class = np.argsort(drawn, kind="stable")
    drawn_sizes = np.bincount(drawn, minlength=deal.classes)
    rank = np.empty(len(drawn), dtype=np.int64)
    rank[by_class] = np.arange(len(drawn)) - np.repeat(np.cumsum(drawn_sizes) - drawn_sizes, drawn_sizes)
    samples = np.empty(len(drawn), dtype=np.int64)
    samples[places] = pools[pool_starts[drawn] + rank]
    return samples


def dirichlet_legacy(deal: Deal) -> np.ndarray:
    """Label skew as the authors' simulator deals it, which is milder than α says; Table 1 of the paper fits it.

    Each client has a row of *cumulated* prior, which is restricted and renormalised in place at every draw as if it
    were the prior itself. Every draw depends on the one before, so the loop can't be batched.
    """
    draws = _Draws(random.numpy_generator(deal.seed, Purpose.PARTITION, _LEGACY))
    rows = [_LegacyRow(row) for row in np.cumsum(deal.priors(), axis=1)]
    remaining = np.bincount(deal.labels, minlength=deal.classes).tolist()
    ends = np.cumsum(deal.sizes).tolist()
    next_places = (np.cumsum(deal.sizes) - deal.sizes).tolist()
    open_clients = np.flatnonzero(deal.sizes > 0).tolist()
    exhausted = remaining.count(0)
    drawn: list[int] = []
    places: list[int] = []
    while open_clients:
        position = draws.integer_below(len(open_clients))
        client = open_clients[position]
        label = rows[client].draw_class(remaining, exhausted, draws)
        remaining[label] -= 1
        exhausted += not remaining[label]
        drawn.append(label)
        places.append(next_places[client])
        next_places[client] += 1
        if next_places[client] == ends[client]:
            open_clients[position] = open_clients[-1]
            open_clients.pop()
    return _hand_out(deal, np.array(drawn), np.array(places))


class _Draws:
    """The draws of a NumPy generator, one at a time: ``integers`` and ``random``, bit for bit.

    They are made here out of many of its words at a time, since each call of NumPy takes longer than a draw.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._words = _words_of(generator)
        self._half: int | None = None  # of a word, for the next integer

    def integer_below(self, count: int) -> int:
        """A uniform integer, by Lemire's method with 32 bits."""
        if count == 1:
            return 0
        while True:
            if self._half is None:
                word = next(self._words)
                half, self._half = word & _HALF, word >> 32
            else:
                half, self._half = self._half, None
            product = half * count
            rest = product & _HALF
            if rest >= count or rest >= (_HALF + 1 - count) % count:
                return product >> 32

    def uniform(self) -> float:
        """A uniform number in [0, 1), of 53 bits."""
        return (next(self._words) >> 11) * _LAST_BIT


def _words_of(generator: np.random.Generator) -> Iterator[int]:
    while True:
        words: Any = generator.bit_generator.random_raw(_BLOCK)
        yield from words.tolist()


class _LegacyRow:
    """A client's cumulated prior in ``dirichlet_legacy``, of the classes in which it is positive.

    At every draw it is divided by its sum, which soon changes nothing any more, or leads to and fro between two rows:
    then nothing is computed.
    """

    __slots__ = ("_before", "_classes", "_exhausted", "_other", "_settled", "_values")

    def __init__(self, cumulated: np.ndarray) -> None:
        self._exhausted = 0  # classes, when they were last looked at
        self._begin(np.flatnonzero(cumulated > 0).tolist(), cumulated[cumulated > 0].tolist())

    def _begin(self, classes: list[int], values: list[float]) -> None:
        self._classes, self._values = classes, values
        self._before: list[float] = []
        self._other: list[float] = []
        self._settled = False

    def draw_class(self, remaining: Sequence[int], exhausted: int, draws: _Draws) -> int:
        """A class that has samples left.

        Args:
            remaining: How many samples of each class are left.
            exhausted: How many classes have none left.
            draws: The draws.
        """
        if exhausted != self._exhausted:
            self._exhausted = exhausted
            if not all(map(remaining.__getitem__, self._classes)):
                there = [place for place, label in enumerate(self._classes) if remaining[label]]
                self._begin([self._classes[place] for place in there], [self._values[place] for place in there])
        if not self._classes:
            labels = [label for label, count in enumerate(remaining) if count]
            return labels[draws.integer_below(len(labels))]
        if len(self._classes) == 1:
            return self._classes[0]
        self._divide()
        draw = draws.uniform()
        if draw == 0.0:
            return next(label for label, count in enumerate(remaining) if count)  # classes with a prior of 0, too
        if not remaining[0]:
            draw *= self._values[-1]  # the authors' code redraws until an entry reaches the draw; this is one draw
        place = bisect.bisect_left(self._values, draw)
        return self._classes[place] if place < len(self._classes) else 0  # 0 where no entry reaches the draw

    def _divide(self) -> None:
        """Divides the row by its sum, in NumPy's order of summation."""
        if self._settled:
            self._values, self._other = self._other, self._values
            return
        if self._values[0] == 0.0:  # too small for a number since the last division
            zeros = bisect.bisect_right(self._values, 0.0)
            self._begin(self._classes[zeros:], self._values[zeros:])
        values = np.array(self._values)
        divided = (values / np.add.reduce(values)).tolist()
        if divided in (self._values, self._before):
            self._settled, self._other = True, self._values
        self._before, self._values = self._values, divided


PARTITIONERS: Registry[Partitioner] = Registry(
    kind="partition",
    group="adabest.partitioners",
    builtin={"iid": iid, "dirichlet": dirichlet, "dirichlet-legacy": dirichlet_legacy, "shards": shards},
)
