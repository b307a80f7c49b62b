"""The paper's own costs of a round: appendix "Algorithmic Costs", its two tables and the text around them.

The formulas are written as the paper has them. It counts neither FedProx nor, but for what it sends, the original
SCAFFOLD; and of FedAvg only what it computes.
"""

from dataclasses import dataclass

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Algorithm
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddyn import FedDyn
from adabest.algorithms.scaffold import Scaffold
from adabest.algorithms.scaffold_m import ScaffoldM
from adabest.costs.formula import Formula, symbol

K, P, n, g, s, m = map(symbol, ("K", "|P|", "n", "g", "s", "m"))


@dataclass(frozen=True)
class PaperCosts:
    """The paper's formulas for one algorithm; None where it gives none.

    Attributes:
        client: What a client computes in a round.
        server: What the server computes in a round.
        client_storage: Numbers that a client keeps.
        server_storage: Numbers that the server keeps, the cloud model not counted.
        down: Numbers sent to each client of a round.
        up: Numbers that each of them sends.
    """

    client: Formula | None = None
    server: Formula | None = None
    client_storage: Formula | None = None
    server_storage: Formula | None = None
    down: Formula | None = None
    up: Formula | None = None


_PAPER: dict[type[Algorithm], PaperCosts] = {
    FedAvg: PaperCosts(
        client=K * (g + n * s + n * m),
        server=P * n * s,
    ),
    Scaffold: PaperCosts(down=2 * n, up=2 * n),
    # "1.5 n" in both directions together, in units of AdaBest's: θ and h down, θ_i up.
    ScaffoldM: PaperCosts(
        client=K * (g + n * s + n * m) + 2 * K * n * s + 2 * n * (s + m),
        server=P * n * s + 2 * n * s + 2 * n * m,
        client_storage=n,
        server_storage=n,
        down=2 * n,
        up=n,
    ),
    FedDyn: PaperCosts(
        client=K * (g + n * s + n * m) + 3 * K * n * s + K * n * m + n * (s + m),
        server=P * n * s + 3 * n * s + n * m,
        client_storage=n,
        server_storage=n,
        down=n,
        up=n,
    ),
    AdaBest: PaperCosts(
        client=K * (g + n * s + n * m) + K * n * s + n * (s + m),
        server=P * n * s + 2 * n * s + n * m,
        client_storage=n,
        server_storage=n,
        down=n,
        up=n,
    ),
}


def paper_costs(algorithm: Algorithm) -> PaperCosts:
    """The paper's formulas for an algorithm; for a class derived from one of its algorithms there are none."""
    return _PAPER.get(type(algorithm), PaperCosts())
