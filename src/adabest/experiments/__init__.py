"""Experiments: sets of runs, as specifications; and what a round costs."""

from adabest.experiments.choice import Point
from adabest.experiments.compare import (
    DEFAULT_ALGORITHMS,
    Comparison,
    Plan,
    check_algorithms,
    check_seeds,
    compare,
    make_room,
    plan,
    recall,
    refuse_unproven,
    remember,
)
from adabest.experiments.cost_file import Cost, MeasuredAlgorithm, MeasuredCosts
from adabest.experiments.costs import AlgorithmCosts, Costs, count_costs
from adabest.experiments.formula import Formula, Number
from adabest.experiments.found import is_of_sweep, runs_in, shared_target
from adabest.experiments.grids import TUNING_ROUNDS
from adabest.experiments.illustrate import STEERING_ALGORITHMS, Leg, Move, illustrate, plane
from adabest.experiments.measured_costs import measure_costs
from adabest.experiments.reproduce import CHOICES, EXECUTION, Reproduction, Request
from adabest.experiments.results import Result, Results, Tuning, read_choices, write_choices
from adabest.experiments.sizes import Precision, Sizes, find_sizes
from adabest.experiments.space import read_space, write_space
from adabest.experiments.specification import Specification, read_specification, specification_names
from adabest.experiments.sweep import plan_sweep, read_vary, write_vary
from adabest.experiments.tune import Tried, as_choice, plan_search, tune
from adabest.experiments.verification import verify

__all__ = [
    "CHOICES",
    "DEFAULT_ALGORITHMS",
    "EXECUTION",
    "STEERING_ALGORITHMS",
    "TUNING_ROUNDS",
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
    "Point",
    "Precision",
    "Reproduction",
    "Request",
    "Result",
    "Results",
    "Sizes",
    "Specification",
    "Tried",
    "Tuning",
    "as_choice",
    "check_algorithms",
    "check_seeds",
    "compare",
    "count_costs",
    "find_sizes",
    "illustrate",
    "is_of_sweep",
    "make_room",
    "measure_costs",
    "plan",
    "plan_search",
    "plan_sweep",
    "plane",
    "read_choices",
    "read_space",
    "read_specification",
    "read_vary",
    "recall",
    "refuse_unproven",
    "remember",
    "runs_in",
    "shared_target",
    "specification_names",
    "tune",
    "verify",
    "write_choices",
    "write_space",
    "write_vary",
]
