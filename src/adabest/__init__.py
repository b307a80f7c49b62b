"""adabest: a federated-learning simulator whose algorithms read like the paper and whose runs resume bit for bit.

Names are imported when they are first asked for: torch takes seconds, which ``adabest --version`` needn't wait for, and
in which the command line must be able to hear Ctrl-C.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adabest.algorithms.adabest import AdaBest
    from adabest.algorithms.adaptive import FedAdagrad, FedAdam, FedYogi
    from adabest.algorithms.aide import Aide
    from adabest.algorithms.base import (
        Algorithm,
        ClientContext,
        Correction,
        Nothing,
        Population,
        Replies,
        ServerContext,
        Update,
        Work,
        check_range,
    )
    from adabest.algorithms.bvr_l_sgd import BvrLSgd
    from adabest.algorithms.dane import Dane
    from adabest.algorithms.ditto import Ditto
    from adabest.algorithms.fedacg import FedACG
    from adabest.algorithms.fedavg import FedAvg
    from adabest.algorithms.fedavgm import FedAvgM
    from adabest.algorithms.fedbn import FedBN
    from adabest.algorithms.fedcm import FedCM
    from adabest.algorithms.feddane import FedDane
    from adabest.algorithms.feddc import FedDC
    from adabest.algorithms.feddyn import FedDyn
    from adabest.algorithms.fedexp import FedExP
    from adabest.algorithms.fedlesam import FedLESAM
    from adabest.algorithms.fednova import FedNova
    from adabest.algorithms.fedpd import FedPD
    from adabest.algorithms.fedper import FedPer
    from adabest.algorithms.fedprox import FedProx
    from adabest.algorithms.fedsam import FedSAM
    from adabest.algorithms.fedspeed import FedSpeed
    from adabest.algorithms.fedsplit import FedSplit
    from adabest.algorithms.forms import Count, Model, Number, Total, Vector
    from adabest.algorithms.fsvrg import Fsvrg
    from adabest.algorithms.listing import AlgorithmListing, list_algorithms
    from adabest.algorithms.local_momentum import LocalMomentum
    from adabest.algorithms.mifa import Mifa
    from adabest.algorithms.mime import Mime
    from adabest.algorithms.mimelite import MimeLite
    from adabest.algorithms.mimelite_adam import MimeLiteAdam
    from adabest.algorithms.mofedsam import MoFedSAM
    from adabest.algorithms.scaffnew import Scaffnew
    from adabest.algorithms.scaffold import Scaffold
    from adabest.algorithms.scaffold_gradient import ScaffoldGradient
    from adabest.algorithms.scaffold_m import ScaffoldM
    from adabest.algorithms.slowmo import SlowMo
    from adabest.algorithms.vrl_sgd import VrlSgd
    from adabest.costs.model_layers import LayerWay, ModelLayers, layers
    from adabest.costs.round_costs import RoundCosts, round_costs
    from adabest.data.dataset import Dataset, Defaults, from_arrays
    from adabest.data.frame import from_frame
    from adabest.data.huggingface import from_huggingface
    from adabest.data.listing import datasets
    from adabest.errors import AdabestError, InputError, Interrupted
    from adabest.experiments.algorithm_check import AlgorithmCheck, check
    from adabest.experiments.comparison import Comparison, compare
    from adabest.experiments.held_run import Run
    from adabest.experiments.partition import CutPartition, partition
    from adabest.experiments.report_page import write_report
    from adabest.experiments.resume import resume
    from adabest.experiments.run_list import RunList, list_runs, show
    from adabest.experiments.single_run import load, run
    from adabest.experiments.steering_figure import Illustration, illustrate
    from adabest.experiments.sweep import sweep
    from adabest.experiments.tuning import Tuning, tune
    from adabest.experiments.verification import verify
    from adabest.model_part import Part
    from adabest.paper.forecast import Forecast, forecast
    from adabest.paper.reproduce import Reproduced, reproduce
    from adabest.runs.callbacks.base import Callback, Ending, RunView
    from adabest.runs.files.run_verification import Finding
    from adabest.runs.settings.config import Config
    from adabest.tasks.objectives.base import Objective
    from adabest.tasks.objectives.metric import Metric
    from adabest.tasks.one_client import one_client_task

    __version__: str

# Where the public names live.
_HOMES = {
    "algorithms.adabest": ("AdaBest",),
    "algorithms.adaptive": (
        "FedAdagrad",
        "FedAdam",
        "FedYogi",
    ),
    "algorithms.aide": ("Aide",),
    "algorithms.dane": ("Dane",),
    "algorithms.ditto": ("Ditto",),
    "algorithms.fedacg": ("FedACG",),
    "algorithms.fedavgm": ("FedAvgM",),
    "algorithms.fedbn": ("FedBN",),
    "algorithms.fedcm": ("FedCM",),
    "algorithms.feddane": ("FedDane",),
    "algorithms.feddc": ("FedDC",),
    "algorithms.fedexp": ("FedExP",),
    "algorithms.fednova": ("FedNova",),
    "algorithms.fedpd": ("FedPD",),
    "algorithms.fedper": ("FedPer",),
    "algorithms.fedsplit": ("FedSplit",),
    "algorithms.listing": (
        "AlgorithmListing",
        "list_algorithms",
    ),
    "algorithms.mifa": ("Mifa",),
    "algorithms.mimelite": ("MimeLite",),
    "algorithms.mimelite_adam": ("MimeLiteAdam",),
    "algorithms.bvr_l_sgd": ("BvrLSgd",),
    "algorithms.fedlesam": ("FedLESAM",),
    "algorithms.fedsam": ("FedSAM",),
    "algorithms.fedspeed": ("FedSpeed",),
    "algorithms.fsvrg": ("Fsvrg",),
    "algorithms.local_momentum": ("LocalMomentum",),
    "algorithms.mime": ("Mime",),
    "algorithms.mofedsam": ("MoFedSAM",),
    "algorithms.scaffnew": ("Scaffnew",),
    "algorithms.slowmo": ("SlowMo",),
    "algorithms.vrl_sgd": ("VrlSgd",),
    "model_part": ("Part",),
    "algorithms.base": (
        "Algorithm",
        "ClientContext",
        "Correction",
        "Nothing",
        "Population",
        "Replies",
        "ServerContext",
        "Update",
        "Work",
        "check_range",
    ),
    "algorithms.fedavg": ("FedAvg",),
    "algorithms.feddyn": ("FedDyn",),
    "algorithms.fedprox": ("FedProx",),
    "algorithms.forms": ("Count", "Model", "Number", "Total", "Vector"),
    "algorithms.scaffold": ("Scaffold",),
    "algorithms.scaffold_gradient": ("ScaffoldGradient",),
    "algorithms.scaffold_m": ("ScaffoldM",),
    "data.dataset": ("Dataset", "Defaults", "from_arrays"),
    "errors": ("AdabestError", "InputError", "Interrupted"),
    "experiments.algorithm_check": ("AlgorithmCheck", "check"),
    "experiments.comparison": ("Comparison", "compare"),
    "experiments.sweep": ("sweep",),
    "experiments.held_run": ("Run",),
    "experiments.partition": ("CutPartition", "partition"),
    "experiments.report_page": ("write_report",),
    "experiments.resume": ("resume",),
    "experiments.run_list": ("RunList", "list_runs", "show"),
    "experiments.single_run": ("load", "run"),
    "experiments.tuning": ("Tuning", "tune"),
    "experiments.verification": ("verify",),
    "costs.model_layers": ("LayerWay", "ModelLayers", "layers"),
    "costs.round_costs": ("RoundCosts", "round_costs"),
    "data.frame": ("from_frame",),
    "data.huggingface": ("from_huggingface",),
    "data.listing": ("datasets",),
    "experiments.steering_figure": ("Illustration", "illustrate"),
    "paper.forecast": ("Forecast", "forecast"),
    "paper.reproduce": ("Reproduced", "reproduce"),
    "runs.callbacks.base": ("Callback", "Ending", "RunView"),
    "runs.files.run_verification": ("Finding",),
    "runs.settings.config": ("Config",),
    "tasks.objectives.metric": ("Metric",),
    "tasks.objectives.base": ("Objective",),
    "tasks.one_client": ("one_client_task",),
}

__all__ = [
    "AdaBest",
    "AdabestError",
    "Aide",
    "Algorithm",
    "AlgorithmCheck",
    "AlgorithmListing",
    "BvrLSgd",
    "Callback",
    "ClientContext",
    "Comparison",
    "Config",
    "Correction",
    "Count",
    "CutPartition",
    "Dane",
    "Dataset",
    "Defaults",
    "Ditto",
    "Ending",
    "FedACG",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedBN",
    "FedCM",
    "FedDC",
    "FedDane",
    "FedDyn",
    "FedExP",
    "FedLESAM",
    "FedNova",
    "FedPD",
    "FedPer",
    "FedProx",
    "FedSAM",
    "FedSpeed",
    "FedSplit",
    "FedYogi",
    "Finding",
    "Forecast",
    "Fsvrg",
    "Illustration",
    "InputError",
    "Interrupted",
    "LayerWay",
    "LocalMomentum",
    "Metric",
    "Mifa",
    "Mime",
    "MimeLite",
    "MimeLiteAdam",
    "MoFedSAM",
    "Model",
    "ModelLayers",
    "Nothing",
    "Number",
    "Objective",
    "Part",
    "Population",
    "Replies",
    "Reproduced",
    "RoundCosts",
    "Run",
    "RunList",
    "RunView",
    "Scaffnew",
    "Scaffold",
    "ScaffoldGradient",
    "ScaffoldM",
    "ServerContext",
    "SlowMo",
    "Total",
    "Tuning",
    "Update",
    "Vector",
    "VrlSgd",
    "Work",
    "__version__",
    "check",
    "check_range",
    "compare",
    "datasets",
    "forecast",
    "from_arrays",
    "from_frame",
    "from_huggingface",
    "illustrate",
    "layers",
    "list_algorithms",
    "list_runs",
    "load",
    "one_client_task",
    "partition",
    "reproduce",
    "resume",
    "round_costs",
    "run",
    "show",
    "sweep",
    "tune",
    "verify",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """A public name, imported now."""
    value: Any
    if name == "__version__":
        value = importlib.import_module("importlib.metadata").version("adabest")
    else:
        home = next((home for home, names in _HOMES.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value  # so that it is looked up once
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
