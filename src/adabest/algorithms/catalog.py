"""The catalog of algorithms by name.

A new built-in algorithm is a file in this folder and a line below. One of your own is named ``module:Class``, or is an
entry point in the group ``adabest.algorithms``.
"""

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Algorithm
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddyn import FedDyn
from adabest.algorithms.fedprox import FedProx
from adabest.algorithms.scaffold import Scaffold
from adabest.algorithms.scaffold_gradient import ScaffoldGradient
from adabest.algorithms.scaffold_m import ScaffoldM
from adabest.registry import Registry

ALGORITHMS: Registry[type[Algorithm]] = Registry(
    kind="algorithm",
    group="adabest.algorithms",
    builtin={
        "fedavg": FedAvg,
        "fedprox": FedProx,
        "scaffold": Scaffold,
        "scaffold-m": ScaffoldM,
        "scaffold-gradient": ScaffoldGradient,
        "feddyn": FedDyn,
        "adabest": AdaBest,
    },
)
