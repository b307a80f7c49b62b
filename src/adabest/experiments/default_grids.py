"""The default grids of ``tune``, which are the paper's: the rounds, and the values of each hyper-parameter.

They are here and not in ``paper``, which this package may not import.
"""

from dataclasses import dataclass

from adabest.errors import InputError

TUNING_ROUNDS = 500


@dataclass(frozen=True)
class Grid:
    """Values to try, up to a share of clients that take part.

    Attributes:
        values: The values by hyper-parameter.
        participation: The largest share of clients that they are meant for.
    """

    values: dict[str, list[float]]
    participation: float = 1.0


# The first grid whose participation is large enough is taken. FedProx isn't in the paper: its values are those of its
# own paper.
GRIDS = {
    "fedprox": [Grid({"mu": [0.001, 0.01, 0.1, 1.0]})],
    "feddyn": [Grid({"mu": [0.002, 0.02, 0.2]})],
    "adabest": [Grid({"beta": [0.2, 0.4, 0.6]}, participation=0.01), Grid({"beta": [0.94, 0.96, 0.98, 1.0]})],
}


def paper_grid(algorithm: str, participation: float) -> dict[str, list[float]]:
    """The values to try for an algorithm.

    Raises:
        InputError: If none are known.
    """
    for grid in GRIDS.get(algorithm, []):
        if participation <= grid.participation:
            return grid.values
    raise InputError(
        f"the paper has no values to try for {algorithm} (it has for {', '.join(GRIDS)}): say what to tune, "
        "as in --vary learning_rate=0.05,0.1 or --space learning_rate=0.01:0.3:log"
    )
