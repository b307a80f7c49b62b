"""Experiments: sets of runs, as specifications; and what a round costs."""

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
from adabest.experiments.costs import AlgorithmCosts, Costs, count_costs
from adabest.experiments.formula import Formula, Number
from adabest.experiments.sizes import Precision, Sizes, find_sizes

__all__ = [
    "DEFAULT_ALGORITHMS",
    "AlgorithmCosts",
    "Comparison",
    "Costs",
    "Formula",
    "Number",
    "Precision",
    "Sizes",
    "check_algorithms",
    "compare",
    "count_costs",
    "find_sizes",
    "make_room",
    "plan",
    "recall",
    "remember",
]
