"""adabest: a federated-learning simulator whose algorithms read like the paper and whose runs resume bit for bit.

Names are imported when they are first asked for: torch takes seconds, which ``adabest --version`` needn't wait for, and
in which the command line must be able to hear Ctrl-C.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
        verify,
        write_report,
    )
    from adabest.data import Dataset, Defaults, from_arrays
    from adabest.errors import AdabestError, InputError, Interrupted
    from adabest.runs import Config, Finding, Run

    __version__: str

# Where the public names live.
_HOMES = {
    "algorithms": ("AdaBest", "Algorithm", "FedAvg", "FedDyn", "FedProx", "Scaffold", "ScaffoldM"),
    "api": (
        "Comparison",
        "Costs",
        "Illustration",
        "Reproduced",
        "Tuning",
        "compare",
        "costs",
        "datasets",
        "illustrate",
        "load",
        "reproduce",
        "resume",
        "run",
        "sweep",
        "tune",
        "verify",
        "write_report",
    ),
    "data": ("Dataset", "Defaults", "from_arrays"),
    "errors": ("AdabestError", "InputError", "Interrupted"),
    "runs": ("Config", "Finding", "Run"),
}
# Rooms that are reached as attributes of the package, too: ``adabest.api``.
_ROOMS = (*_HOMES, "engine", "experiments", "federation", "models", "random", "registry", "report")

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
    "Finding",
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
    "verify",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """A public name or a room, imported now."""
    value: Any
    if name == "__version__":
        value = importlib.import_module("importlib.metadata").version("adabest")
    elif name in _ROOMS:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        home = next((home for home, names in _HOMES.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value  # so that it is looked up once
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
