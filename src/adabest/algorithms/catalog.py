"""The catalog of algorithms by name.

A new built-in algorithm is a file in this folder, a line below, and a line in ``records``. One of your own is named
``module:Class``, or is an entry point in the group ``adabest.algorithms``.
"""

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.adaptive import FedAdagrad, FedAdam, FedYogi
from adabest.algorithms.aide import Aide
from adabest.algorithms.base import Algorithm
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
from adabest.algorithms.fsvrg import Fsvrg
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
from adabest.registry import Registry

CORE = ("fedavg", "fedprox", "scaffold", "scaffold-m", "scaffold-gradient", "feddyn", "adabest")
"""The algorithms that tables of costs show if none are named: those that the paper compares, and their variants."""

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
        "fedavgm": FedAvgM,
        "slowmo": SlowMo,
        "fedadam": FedAdam,
        "fedyogi": FedYogi,
        "fedadagrad": FedAdagrad,
        "fedexp": FedExP,
        "fednova": FedNova,
        "mifa": Mifa,
        "vrl-sgd": VrlSgd,
        "dane": Dane,
        "aide": Aide,
        "feddane": FedDane,
        "feddc": FedDC,
        "fedpd": FedPD,
        "fedsplit": FedSplit,
        "fedcm": FedCM,
        "mimelite": MimeLite,
        "fedacg": FedACG,
        "local-momentum": LocalMomentum,
        "scaffnew": Scaffnew,
        "fsvrg": Fsvrg,
        "bvr-l-sgd": BvrLSgd,
        "mime": Mime,
        "mimelite-adam": MimeLiteAdam,
        "fedsam": FedSAM,
        "mofedsam": MoFedSAM,
        "fedspeed": FedSpeed,
        "fedlesam": FedLESAM,
        "fedper": FedPer,
        "fedbn": FedBN,
        "ditto": Ditto,
    },
)
