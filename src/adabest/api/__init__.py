"""The package from Python: everything that the command line does, under the same names."""

from adabest.api.reporting import write_report
from adabest.api.reproducing import COSTS, Reproduced, reproduce
from adabest.api.resuming import is_comparison, resume, resume_comparison
from adabest.api.several import Comparison, compare, sweep
from adabest.api.single import load, run
from adabest.api.tuning import Tuning, tune
from adabest.api.verifying import verify
from adabest.api.views import Costs, Illustration, costs, datasets, illustrate

__all__ = [
    "COSTS",
    "Comparison",
    "Costs",
    "Illustration",
    "Reproduced",
    "Tuning",
    "compare",
    "costs",
    "datasets",
    "illustrate",
    "is_comparison",
    "load",
    "reproduce",
    "resume",
    "resume_comparison",
    "run",
    "sweep",
    "tune",
    "verify",
    "write_report",
]
