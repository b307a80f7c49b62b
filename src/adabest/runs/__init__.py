"""Runs: what survives. Configuration, metrics, checkpoints, resuming, and reading it all back."""

from adabest.runs.build import build_federation, cut_partition, partition_statistics
from adabest.runs.config import Components, Config, merge, read_toml, resolve, to_toml
from adabest.runs.execute import check_unchanged, refuse_irreplaceable, resume, run_lanes, start
from adabest.runs.folder import MODELS
from adabest.runs.lane import Planned
from adabest.runs.metrics_file import MetricsFile, Points
from adabest.runs.results import Run, find_runs, load
from adabest.runs.verification import Finding, verify_run

__all__ = [
    "MODELS",
    "Components",
    "Config",
    "Finding",
    "MetricsFile",
    "Planned",
    "Points",
    "Run",
    "build_federation",
    "check_unchanged",
    "cut_partition",
    "find_runs",
    "load",
    "merge",
    "partition_statistics",
    "read_toml",
    "refuse_irreplaceable",
    "resolve",
    "resume",
    "run_lanes",
    "start",
    "to_toml",
    "verify_run",
]
