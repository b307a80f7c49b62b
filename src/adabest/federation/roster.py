"""Rosters of populations that change: the clients present in a round, and those of them that take part.

A roster holds one permutation of the training clients, of which the first |S^t| entries are present. A client that
joins or leaves costs one swap, so the time of a round grows only with the clients that change or take part. The roster
is part of a checkpoint, although it follows from the seed and the round: in a long run with a large population,
replaying all changes would take longer than reading the result.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from adabest import random
from adabest.errors import AdabestError, InputError, told
from adabest.federation.sampling import SAMPLERS, Draw, independent_positions, round_robin
from adabest.federation.weights import WeightTree
from adabest.random import Purpose

_NUMBER = r"\d{1,18}"  # below 2⁶³
_EVENT = re.compile(rf"({_NUMBER}):(join|leave):({_NUMBER}(?:-{_NUMBER})?(?:,{_NUMBER}(?:-{_NUMBER})?)*)")
_LEAVING, _JOINING = 0, 1


@dataclass(frozen=True)
class Attendance:
    """The settings by which clients are present and take part.

    Attributes:
        participation: The share of the clients present that takes part in a round.
        sampler: The name of the sampler that draws them.
        churn: The probability with which, before each round but the first, a present client leaves and an absent one
            comes back.
        schedule: Clients that come or go at given rounds, as ``100:leave:0-49``: the round, what happens before its
            cohort is drawn, and clients by their rank among the training clients, from 0.
        seed: The run's seed.
    """

    participation: float = 0.1
    sampler: str = "uniform"
    churn: float = 0.0
    schedule: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.participation <= 1:
            raise InputError(f"participation = {self.participation}: it must be above 0 and at most 1")
        if not 0 <= self.churn <= 1:
            raise InputError(f"churn = {self.churn}: a probability is at least 0 and at most 1")
        SAMPLERS.find(self.sampler)
        for event in self.schedule:
            _parse(event)

    @property
    def changes(self) -> bool:
        """Whether clients come and go."""
        return self.churn > 0 or bool(self.schedule)


class Roster:
    """The clients present, round by round. A roster only moves forward.

    Attributes:
        round: The current round; 0 before the first.
        size: |S^t|.
        turn: The rank of the client whose turn it is, for the sampler ``round-robin``.
    """

    def __init__(self, clients: np.ndarray, samples: np.ndarray, attendance: Attendance) -> None:
        """Starts with all clients present.

        Args:
            clients: The training clients, ascending.
            samples: n_i of each of them.
            attendance: The settings.

        Raises:
            InputError: If the schedule names a client that doesn't exist.
        """
        self._clients, self._samples, self._attendance = clients, samples, attendance
        self._sampler = SAMPLERS.find(attendance.sampler)
        self._schedule = _schedule(attendance.schedule, len(clients))
        self._order = np.arange(len(clients))
        self._place = np.arange(len(clients))
        self._samples_present = int(samples.sum())
        self._weights: WeightTree | None = None
        self.round, self.size, self.turn = 0, len(clients), 0

    @property
    def mean_samples(self) -> float:
        """n̄, the mean of n_i over the clients present."""
        return self._samples_present / self.size

    def present(self) -> np.ndarray:
        """The clients present, ascending."""
        return np.sort(self._clients[self._order[: self.size]])

    def advance(self, round_number: int) -> None:
        """Applies all changes up to a round. Called again for the same round, it does nothing."""
        while self.round < round_number:
            if self.round > 0 and self.size > 0 and self._sampler is round_robin:
                self.turn = int(self._ranks_in_turn(self._draw().size)[-1] + 1) % len(self._order)
            self.round += 1
            if self.round > 1 and self._attendance.churn > 0:
                self._churn()
            for joins, ranges in self._schedule.get(self.round, ()):
                for row in itertools.chain(*ranges):
                    present = self._place[row] < self.size
                    if joins and not present:
                        self._join(int(self._place[row]))
                    elif present and not joins:
                        self._leave(int(self._place[row]))

    def cohort(self) -> np.ndarray:
        """The clients that take part in this round, ascending; empty if none is present."""
        if self.size == 0:
            return np.empty(0, dtype=np.int64)
        try:
            positions = self._sampler(self._draw())
        except AdabestError:
            raise
        except (Exception, SystemExit) as error:
            if self._attendance.sampler in SAMPLERS.builtin:
                raise
            raise InputError(
                f"the sampler {self._attendance.sampler!r} raised {told(error)} in round {self.round}; a sampler takes "
                "a Draw and returns positions among the clients present"
            ) from error
        self._check(positions)
        return np.sort(self._clients[self._order[positions]])

    def _check(self, positions: Any) -> None:
        """Refuses wrong positions of a user's sampler; else an absent client might be trained."""
        try:
            found = np.asarray(positions)
        except (TypeError, ValueError):  # a ragged list
            found = np.empty(0)
        whole = found.ndim == 1 and len(found) > 0 and found.dtype.kind in "iu"
        if not (whole and found.min() >= 0 and found.max() < self.size and len(np.unique(found)) == len(found)):
            raise InputError(
                f"the sampler {self._attendance.sampler!r} gave {positions!r} in round {self.round}; it should give "
                f"one or more positions from 0 to {self.size - 1}, each once"
            )

    def _draw(self) -> Draw:
        return Draw(
            seed=self._attendance.seed,
            round=self.round,
            present=self.size,
            participation=self._attendance.participation,
            samples=lambda positions: self._samples[self._order[positions]],
            by_samples=self._by_samples,
            in_turn=lambda count: self._place[self._ranks_in_turn(count)],
        )

    def _by_samples(self, random_bits: np.ndarray) -> np.ndarray:
        if self._weights is None:
            present = np.zeros_like(self._samples)
            present[self._order[: self.size]] = self._samples[self._order[: self.size]]
            self._weights = WeightTree(present)
        tree, chosen = self._weights, []
        for word in random_bits.tolist():
            chosen.append(tree.find(random.below_any(word, tree.total)))
            tree.add(chosen[-1], -int(self._samples[chosen[-1]]))
        for row in chosen:
            tree.add(row, int(self._samples[row]))
        return self._place[chosen]

    def _ranks_in_turn(self, count: int) -> np.ndarray:
        found = np.empty(0, dtype=np.int64)
        first, width = self.turn, count
        while len(found) < count:  # with many absent clients, more ranks must be searched
            ranks = (first + np.arange(width)) % len(self._order)
            found = np.concatenate([found, ranks[self._place[ranks] < self.size]])
            first, width = first + width, min(2 * width, len(self._order))
        return found[:count]

    def _churn(self) -> None:
        leaving = self._coins(_LEAVING, self.size)
        joining = self.size + self._coins(_JOINING, len(self._order) - self.size)
        # In this order, no swap moves a client that is still to leave or join.
        for position in leaving[::-1].tolist():
            self._leave(position)
        for position in joining.tolist():
            self._join(position)

    def _coins(self, which: int, count: int) -> np.ndarray:
        words = (Purpose.POPULATION, self.round, which)
        return independent_positions(self._attendance.seed, *words, probability=self._attendance.churn, count=count)

    def _leave(self, position: int) -> None:
        self._count(position, -1)
        self.size -= 1
        self._swap(position, self.size)

    def _join(self, position: int) -> None:
        self._count(position, 1)
        self._swap(position, self.size)
        self.size += 1

    def _count(self, position: int, sign: int) -> None:
        row = int(self._order[position])
        change = sign * int(self._samples[row])
        self._samples_present += change
        if self._weights is not None:
            self._weights.add(row, change)

    def _swap(self, a: int, b: int) -> None:
        self._order[[a, b]] = self._order[[b, a]]
        self._place[self._order[[a, b]]] = [a, b]

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        """Arrays and numbers that a later round depends on; none for a population that never changes."""
        if not self._attendance.changes:
            return {}, {}
        return {"order": self._order.copy()}, {"round": self.round, "size": self.size, "turn": self.turn}

    def restore(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, int]) -> None:
        """Restores what ``state`` returned."""
        if not self._attendance.changes:
            return
        self._order = np.array(arrays["order"])
        self._place = np.argsort(self._order)
        self._weights = None
        self.round, self.size, self.turn = numbers["round"], numbers["size"], numbers["turn"]
        self._samples_present = int(self._samples[self._order[: self.size]].sum())


def _schedule(texts: Sequence[str], clients: int) -> dict[int, list[tuple[bool, list[range]]]]:
    """The events of each round: whether clients join, and their ranks."""
    schedule: dict[int, list[tuple[bool, list[range]]]] = {}
    for text in texts:
        round_number, joins, ranges = _parse(text)
        last = max(ranks[-1] for ranks in ranges)
        if last >= clients:
            raise InputError(
                f"schedule: {text!r} names client {last}, but the training clients count from 0 to {clients - 1}"
            )
        schedule.setdefault(round_number, []).append((joins, ranges))
    return schedule


def _parse(text: str) -> tuple[int, bool, list[range]]:
    match = _EVENT.fullmatch(text.replace(" ", ""))
    if match is None or int(match[1]) < 1:
        raise InputError(f"schedule: {text!r} should look like 100:leave:0-49 or 200:join:3,7,20-29, rounds from 1")
    ranges = []
    for part in match[3].split(","):
        first, _, last = part.partition("-")
        ranges.append(range(int(first), int(last or first) + 1))
        if not ranges[-1]:
            raise InputError(f"schedule: {text!r} has the range {part}, which ends before it starts")
    return int(match[1]), match[2] == "join", ranges
