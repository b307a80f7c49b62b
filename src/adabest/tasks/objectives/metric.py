"""Metrics: what a task's models are judged by, and which way is better."""

import math
import re
from dataclasses import dataclass

from adabest.errors import InputError

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN = ("loss", "norm", "spread", "worst_tenth", "best_tenth")  # what metrics of a round have after the model's name


@dataclass(frozen=True)
class Metric:
    """A number by which models are judged.

    Attributes:
        name: What tables and files call it: small letters, digits and underscores, as in ``mean_iou``.
        higher_is_better: Whether a larger value is better.
        is_share: Whether values lie between 0 and 1 and are shown in per cent.
    """

    name: str
    higher_is_better: bool = True
    is_share: bool = False

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and _NAME.fullmatch(self.name)) or self.name in _TAKEN:
            raise InputError(
                f"a metric can't be called {self.name!r}: a name has small letters, digits and underscores, and isn't "
                f"one of {', '.join(_TAKEN)}"
            )

    @property
    def words(self) -> str:
        """The name as people read it."""
        return self.name.replace("_", " ")

    @property
    def head(self) -> str:
        """The name above a column of values."""
        return f"{self.words} %" if self.is_share else self.words

    @property
    def scale(self) -> float:
        """What a value is multiplied by where it is shown under ``head``."""
        return 100.0 if self.is_share else 1.0

    @property
    def worst(self) -> float:
        """A value that every other one is better than."""
        return -math.inf if self.higher_is_better else math.inf

    @property
    def least(self) -> float:
        """What counts in place of a value that isn't there: the worst a share can be, else ``worst``."""
        if not self.is_share:
            return self.worst
        return 0.0 if self.higher_is_better else 1.0

    def is_better(self, value: float, other: float) -> bool:
        """Whether one value is better than another."""
        return value > other if self.higher_is_better else value < other

    def reaches(self, value: float, target: float) -> bool:
        """Whether a value is as good as a target."""
        return value >= target if self.higher_is_better else value <= target

    def goodness(self, value: float) -> float:
        """A number that grows as values get better, to sort by."""
        return value if self.higher_is_better else -value

    def shown(self, value: float, places: int = 1) -> str:
        """A value in a sentence: a share in per cent, to some decimal places, anything else to four digits."""
        return f"{100 * value:.{places}f} %" if self.is_share else f"{value:.4g}"

    def check_value(self, name: str, value: object) -> None:
        """Refuses what can't be a value, under the name of a setting.

        Raises:
            InputError: If it isn't a finite number, or a share isn't above 0 and at most 1.
        """
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise InputError(f"{name} = {value!r}: it should be a number, a value of {self.words}")
        if self.is_share and not 0 < value <= 1:
            article = "an" if self.name[0] in "aeiou" else "a"
            raise InputError(f"{name} = {value!r}: {article} {self.words} is above 0 and at most 1")


ACCURACY = Metric("accuracy", is_share=True)
