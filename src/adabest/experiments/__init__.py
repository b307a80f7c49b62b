"""Experiments: sets of runs, as specifications."""

from adabest.experiments.compare import (
    DEFAULT_ALGORITHMS,
    Comparison,
    check_algorithms,
    compare,
    make_room,
    plan,
    recall,
    remember,
)

__all__ = [
    "DEFAULT_ALGORITHMS",
    "Comparison",
    "check_algorithms",
    "compare",
    "make_room",
    "plan",
    "recall",
    "remember",
]
