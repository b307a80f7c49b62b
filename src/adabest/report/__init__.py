"""Reports: tables, figures and pages out of runs, and tables of costs."""

from adabest.report.costs import cost_notes, cost_tables, cost_text
from adabest.report.entries import by_validation
from adabest.report.figure import comparison_figure, partition_figure, save_figure, scenario_figure, sweep_figure
from adabest.report.measured_costs import measured_cost_notes, measured_cost_tables, measured_cost_text
from adabest.report.page import Shown, entries_of, page_text
from adabest.report.steering import steering_figure
from adabest.report.table import (
    Table,
    common_target,
    comparison_table,
    datasets_table,
    facts_table,
    rounds_to,
    runs_table,
    sweep_table,
)
from adabest.report.tuning import tuning_table

__all__ = [
    "Shown",
    "Table",
    "by_validation",
    "common_target",
    "comparison_figure",
    "comparison_table",
    "cost_notes",
    "cost_tables",
    "cost_text",
    "datasets_table",
    "entries_of",
    "facts_table",
    "measured_cost_notes",
    "measured_cost_tables",
    "measured_cost_text",
    "page_text",
    "partition_figure",
    "rounds_to",
    "runs_table",
    "save_figure",
    "scenario_figure",
    "steering_figure",
    "sweep_figure",
    "sweep_table",
    "tuning_table",
]
