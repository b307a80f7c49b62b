"""What the paper says in numbers, and the order and names in which it says them."""

import csv
import functools
import math
from collections.abc import Iterable
from importlib import resources
from typing import NamedTuple

# The order of Table 1's columns and rows.
ALGORITHMS = {"fedavg": "FedAvg", "feddyn": "FedDyn", "scaffold": "SCAFFOLD", "adabest": "AdaBest"}
DATASETS = {"emnist-l": "EMNIST-L", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "mnist": "MNIST"}
PARTICIPATIONS = ("1", "10", "100")
HETEROGENEITIES = {"0.03": "α = 0.03", "0.3": "α = 0.3", "iid": "IID"}

# How long Table 1's runs are, by participation in per cent.
ROUNDS = {"1": 1000, "10": 1200, "100": 2000}

# Accuracies, in per cent, whose first round is looked for. The paper names none.
TARGETS = {
    "emnist-l": (90, 92, 94),
    "mnist": (95, 97, 98),
    "cifar10": (70, 75, 80, 84),
    "cifar100": (35, 40, 45, 50),
}

_SYMBOLS = {"beta": "β", "mu": "μ", "clip": "clipping norm"}


class Reported(NamedTuple):
    """An accuracy of Table 1, in per cent: the mean of five seeds, and the standard deviation."""

    mean: float
    std: float


class TableCell(NamedTuple):
    """A setting of Table 1: data set, participation in per cent, and α or ``iid``."""

    dataset: str
    participation: str
    heterogeneity: str


def as_table_cell(name: str) -> TableCell | None:
    """A setting of Table 1 by its name, as in ``cifar100/10/iid``; None if it is none."""
    parts = name.split("/")
    cell = TableCell(*parts) if len(parts) == len(TableCell._fields) else None
    if cell is None or cell.participation not in ROUNDS or cell.heterogeneity not in HETEROGENEITIES:
        return None
    return cell


def all_cells(heterogeneities: Iterable[str] = HETEROGENEITIES) -> list[str]:
    """The settings of Table 1, in its order, by name."""
    wanted = [heterogeneity for heterogeneity in HETEROGENEITIES if heterogeneity in heterogeneities]
    datasets = dict.fromkeys(dataset for dataset, _, _, _ in _table())
    return [f"{d}/{p}/{h}" for p in PARTICIPATIONS for d in DATASETS if d in datasets for h in wanted]


def reported(cell: str, algorithm: str) -> Reported | None:
    """What the paper reports of an algorithm in a setting; None if it doesn't."""
    return _table().get((*cell.split("/"), algorithm))


@functools.cache
def _table() -> dict[tuple[str, ...], Reported]:
    """Table 1, by data set, participation, heterogeneity and algorithm."""
    text = resources.files(__package__).joinpath("table1.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {
        (row["dataset"], row["participation_percent"], row["alpha"], row["algorithm"]): Reported(
            float(row["accuracy_mean"]), float(row["accuracy_std"])
        )
        for row in rows
    }


# --- Names ------------------------------------------------------------------------------------------------------------


def entry_algorithm(entry: str) -> str:
    """The algorithm of what is compared: ``adabest`` of ``adabest,beta=0.9``."""
    return entry.split(",", maxsplit=1)[0]


def entry_options(entry: str) -> dict[str, str]:
    """What sets an entry apart from others of its algorithm, by name."""
    return dict(option.split("=", 1) for option in entry.split(",")[1:])


def label(entry: str) -> str:
    """An entry as figures call it: ``AdaBest, β = 0.9``."""
    name = ALGORITHMS.get(entry_algorithm(entry), entry_algorithm(entry))
    return ", ".join([name, *(f"{_SYMBOLS.get(key, key)} = {value}" for key, value in entry_options(entry).items())])


def in_order(entries: Iterable[str]) -> list[str]:
    """Entries in the order of Table 1, and those of one algorithm by the values of their options."""
    known = list(ALGORITHMS)

    def place(entry: str) -> tuple[int, str, list[tuple[str, float, str]]]:
        algorithm = entry_algorithm(entry)
        rank = known.index(algorithm) if algorithm in known else len(known)
        return rank, algorithm, [(key, _number(value), value) for key, value in entry_options(entry).items()]

    return sorted(entries, key=place)


def cells_in_order(cells: Iterable[str]) -> list[str]:
    """Settings in the order of Table 1; others follow, those that are numbers by their size, the rest as they came."""
    known = all_cells()
    places = {cell: known.index(cell) if cell in known else len(known) for cell in cells}
    return sorted(places, key=lambda cell: (places[cell], _number(cell)))


def is_number(text: str) -> bool:
    """Whether a text is a finite number."""
    return math.isfinite(_number(text))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("inf")
