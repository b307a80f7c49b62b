"""What the runs of one algorithm in one setting amount to, over their seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

from adabest.paper.facts import Reported
from adabest.report.entries import Measured
from adabest.report.numbers import MISSING, mean_and_spread

SMOOTHED = 5  # evaluations in a running mean
ENOUGH_SEEDS = 3  # for a standard deviation that is worth its name
_FREE = 0.5  # points that are never held against anyone
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Score:
    """The accuracy of the scored model in the last round, over seeds.

    Attributes:
        values: In per cent, of the runs that count: all that didn't diverge and got equally far.
        round: How far they got.
        lost: The rounds in which runs diverged.
        behind: How many runs got less far than the others; they don't count.
    """

    values: tuple[float, ...]
    round: int
    lost: tuple[int, ...] = ()
    behind: int = 0

    @property
    def mean(self) -> float | None:
        """Their mean; None if there is none."""
        return fmean(self.values) if self.values else None

    @property
    def std(self) -> float:
        """Their standard deviation (n - 1); 0 for fewer than two."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def seeds(self) -> str:
        """How many seeds the mean is of; out of how many, if some diverged."""
        return f"{len(self.values)} of {len(self.values) + len(self.lost)}" if self.lost else str(len(self.values))

    def text(self) -> str:
        """Mean and standard deviation, and what became of those that diverged."""
        lost = f"diverged in round{'s' * (len(self.lost) > 1)} {', '.join(map(str, self.lost))}"
        if not self.values:
            return lost if self.lost else MISSING
        numbers = mean_and_spread(self.values, places=2)
        return f"{numbers} ({len(self.lost)} {lost})" if self.lost else numbers


def score(runs: Sequence[Measured], metric: str = "scored_accuracy") -> Score:
    """The score of runs that differ in their seed."""
    lost = sorted(run.round for run in runs if run.status == "diverged")
    kept = [run for run in runs if run.status != "diverged" and run.final.get(metric) is not None]
    furthest = max((run.final["round"] for run in kept), default=0)
    counted = [run for run in kept if run.final["round"] == furthest]
    return Score(
        values=tuple(100 * run.final[metric] for run in counted),
        round=furthest,
        lost=tuple(lost),
        behind=len(runs) - len(lost) - len(counted),
    )


class Verdict(NamedTuple):
    """Whether a score is what the paper reports.

    Attributes:
        difference: Ours less the paper's, in points; None where all runs diverged.
        allowed: How large it may be: 2·√(σ_ours² + σ_paper²), or half a point if that is more.
        within: Whether it isn't larger, and no run diverged.
        borrowed: Whether the paper's σ stands for ours, for want of seeds.
    """

    difference: float | None
    allowed: float
    within: bool
    borrowed: bool


def judge(ours: Score, paper: Reported) -> Verdict:
    """Holds a score against the paper's."""
    borrowed = len(ours.values) < ENOUGH_SEEDS
    sigma = paper.std if borrowed else ours.std
    allowed = max(2 * math.hypot(sigma, paper.std), _FREE)
    difference = None if ours.mean is None else ours.mean - paper.mean
    within = difference is not None and not ours.lost and abs(difference) <= allowed + _ROUNDING
    return Verdict(difference, allowed, within, borrowed)


def smooth(values: Sequence[float], width: int = SMOOTHED) -> list[float]:
    """A running mean, centred; of fewer values at the ends."""
    half = width // 2
    return [fmean(values[max(0, place - half) : place + half + 1]) for place in range(len(values))]
