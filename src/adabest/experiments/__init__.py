"""Experiments: sets of runs, as specifications."""

from adabest.experiments.compare import (
    DEFAULT_ALGORITHMS,
    Comparison,
    check_algorithms,
    check_places,
    compare,
    plan,
    recall,
    remember,
)

__all__ = [
    "DEFAULT_ALGORITHMS",
    "Comparison",
    "check_algorithms",
    "check_places",
    "compare",
    "plan",
    "recall",
    "remember",
]
