"""adabest: a federated-learning simulator whose algorithms read like the paper and whose runs resume bit for bit."""

from importlib.metadata import version

from adabest.algorithms import AdaBest, Algorithm, FedAvg, FedDyn, FedProx, Scaffold, ScaffoldM
from adabest.api import (
    Comparison,
    Costs,
    Illustration,
    Reproduced,
    Tuning,
    compare,
    costs,
    datasets,
    illustrate,
    load,
    reproduce,
    resume,
    run,
    sweep,
    tune,
    write_report,
)
from adabest.data import Dataset, Defaults, from_arrays
from adabest.errors import AdabestError, InputError, Interrupted
from adabest.runs import Config, Run

__version__ = version("adabest")

__all__ = [
    "AdaBest",
    "AdabestError",
    "Algorithm",
    "Comparison",
    "Config",
    "Costs",
    "Dataset",
    "Defaults",
    "FedAvg",
    "FedDyn",
    "FedProx",
    "Illustration",
    "InputError",
    "Interrupted",
    "Reproduced",
    "Run",
    "Scaffold",
    "ScaffoldM",
    "Tuning",
    "__version__",
    "compare",
    "costs",
    "datasets",
    "from_arrays",
    "illustrate",
    "load",
    "reproduce",
    "resume",
    "run",
    "sweep",
    "tune",
    "write_report",
]
