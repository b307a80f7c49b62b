"""What can be known without training a network: data sets, costs, and how algorithms steer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from adabest import experiments, report
from adabest.algorithms import Algorithm
from adabest.api.shared import write_texts
from adabest.data import Listing, list_datasets
from adabest.experiments import STEERING_ALGORITHMS, Move
from adabest.models import Factory
from adabest.registry import naming
from adabest.report import Table


def datasets(data_dir: str | None = None, *, fetch: Sequence[str] = ()) -> list[Listing]:
    """All data sets that have a name: what they are, whether they are there, where, and how large.

    Args:
        data_dir: Folder of the official data files. By default $ADABEST_DATA, or the platform's cache folder.
        fetch: Data sets that are downloaded first, if they aren't there. Else nothing is.

    Raises:
        InputError: If there is no such folder, or a data set can't be downloaded.
    """
    return list_datasets(data_dir, fetch)


@dataclass(frozen=True)
class Costs:
    """What a round costs.

    Attributes:
        sizes: What the formulas were evaluated for.
        algorithms: The counted formulas and the paper's, by label.
        tables: In numbers: ``compute-client``, ``compute-server``, ``storage-client``, ``storage-server``,
            ``communication-down``, ``communication-up``.
        notes: What must be known to read the tables.
        files: The tables on disk, if a folder was given.
    """

    sizes: experiments.Sizes
    algorithms: dict[str, experiments.AlgorithmCosts]
    tables: dict[str, Table]
    notes: list[str]
    files: list[Path]


def costs(
    model: str | nn.Module | Factory | None = None,
    *,
    algorithms: Sequence[str | Algorithm] | None = None,
    input_shape: str | Sequence[int] | None = None,
    classes: int | None = None,
    batch_size: int | None = None,
    parameters: int | None = None,
    steps: int = 55,
    participants: int = 10,
    population: int = 100,
    precision: experiments.Precision = "float32",
    out: str | Path | None = None,
) -> Costs:
    """Works out what a round of each algorithm computes, stores and sends: the paper's formulas, and ours as counted.

    Args:
        model: Model: logistic, mlp, cnn, resnet, or module:function, with options as in mlp,hidden=100x100. By default
            cnn.
        algorithms: What to count: names with options, as in adabest,beta=0.9. By default all that come along.
        input_shape: Shape of one input. By default 3x32x32.
        classes: How many classes there are. By default 10.
        batch_size: Samples in a local step. By default 45.
        parameters: Size of the model, in place of model, input shape, classes and batch size; its gradient stays a
            symbol.
        steps: Local steps of a client in a round, K.
        participants: Clients that take part in a round, |P|.
        population: Clients there are, |S|.
        precision: Number format of models and states.
        out: Folder to write the tables to. By default they are only shown.

    Raises:
        InputError: If anything can't be used.
    """
    with naming(model, algorithms):
        sizes = experiments.find_sizes(
            {"model": model, "input_shape": input_shape, "classes": classes, "batch_size": batch_size},
            parameters,
            {"steps": steps, "participants": participants, "population": population, "precision": precision},
        )
        counted = experiments.count_costs(algorithms, sizes)
    tables = report.cost_tables(counted)
    files = []
    if out is not None:
        texts = {f"{name}.csv": table.csv() for name, table in tables.items()}
        files = write_texts(Path(out), {"costs.md": report.cost_text(counted), **texts})
    return Costs(sizes, counted.algorithms, tables, report.cost_notes(counted), files)


@dataclass(frozen=True)
class Illustration:
    """A figure of how algorithms steer.

    Attributes:
        moves: The rounds of each algorithm by its label, point by point.
        files: The figure on disk.
    """

    moves: dict[str, list[Move]]
    files: list[Path]


def illustrate(
    *,
    algorithms: Sequence[str | Algorithm] = STEERING_ALGORITHMS,
    rounds: int = 4,
    participation: float = 0.67,
    seed: int = 0,
    out: str | Path = "steering",
) -> Illustration:
    """Draws how algorithms steer, from runs of two parameters on three clients with quadratic objectives.

    Args:
        algorithms: What to draw: names with options, as in adabest,beta=0.5.
        rounds: How many rounds to draw.
        participation: Share of the three clients that takes part in a round.
        seed: Keys the draw of the cohorts.
        out: Figure to write, without ending.

    Raises:
        InputError: If something can't be used.
    """
    task = experiments.plane()
    with naming(algorithms):
        moves = experiments.illustrate(algorithms, task, rounds=rounds, participation=participation, seed=seed)
    return Illustration(moves, report.save_figure(report.steering_figure(task, moves), out))
