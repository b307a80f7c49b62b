"""Experiments: sets of runs, as specifications; and what a round costs."""

from adabest.experiments.compare import (
    DEFAULT_ALGORITHMS,
    Comparison,
    Plan,
    check_algorithms,
    compare,
    make_room,
    plan,
    recall,
    remember,
)
from adabest.experiments.cost_file import Cost, MeasuredAlgorithm, MeasuredCosts
from adabest.experiments.costs import AlgorithmCosts, Costs, count_costs
from adabest.experiments.formula import Formula, Number
from adabest.experiments.illustrate import STEERING_ALGORITHMS, Leg, Move, illustrate, plane
from adabest.experiments.measured_costs import measure_costs
from adabest.experiments.sizes import Precision, Sizes, find_sizes
from adabest.experiments.sweep import plan_sweep, read_vary, write_vary

__all__ = [
    "DEFAULT_ALGORITHMS",
    "STEERING_ALGORITHMS",
    "AlgorithmCosts",
    "Comparison",
    "Cost",
    "Costs",
    "Formula",
    "Leg",
    "MeasuredAlgorithm",
    "MeasuredCosts",
    "Move",
    "Number",
    "Plan",
    "Precision",
    "Sizes",
    "check_algorithms",
    "compare",
    "count_costs",
    "find_sizes",
    "illustrate",
    "make_room",
    "measure_costs",
    "plan",
    "plan_sweep",
    "plane",
    "read_vary",
    "recall",
    "remember",
    "write_vary",
]
