"""The call ``adabest.round_costs``: what a round of each algorithm computes, stores and sends."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from adabest.algorithms.base import Algorithm
from adabest.costs.count import AlgorithmCosts, count_costs
from adabest.costs.counted_tables import cost_notes, cost_tables, cost_text
from adabest.costs.sizes import Precision, Sizes, find_sizes
from adabest.models.factory import Factory
from adabest.registry import naming
from adabest.report.table import Table
from adabest.runs.files.atomic_files import write_texts


@dataclass(frozen=True)
class RoundCosts:
    """Costs of a round.

    Attributes:
        sizes: The sizes that the formulas were evaluated for.
        algorithms: The counted formulas and the paper's, by label.
        tables: In numbers: ``compute-client``, ``compute-server``, ``storage-client``, ``storage-server``,
            ``communication-down``, ``communication-up``.
        notes: How to read the tables, in sentences.
        files: The tables on disk, if a folder was given.
    """

    sizes: Sizes
    algorithms: dict[str, AlgorithmCosts]
    tables: dict[str, Table]
    notes: list[str]
    files: list[Path]


def round_costs(
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
    precision: Precision = "float32",
    out: str | Path | None = None,
) -> RoundCosts:
    """Works out what a round of each algorithm computes, stores and sends: the paper's formulas, and ours as counted.

    Args:
        model: Model: logistic, mlp, cnn, resnet, or module:function, with options as in mlp,hidden=100x100. By default
            cnn.
        algorithms: What to count: names with options, as in adabest,beta=0.9. By default the paper's and their
            variants.
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
        sizes, named = find_sizes(
            {"model": model, "input_shape": input_shape, "classes": classes, "batch_size": batch_size},
            parameters,
            {"steps": steps, "participants": participants, "population": population, "precision": precision},
        )
        counted = count_costs(algorithms, sizes, named)
    tables = cost_tables(counted)
    files = []
    if out is not None:
        texts = {f"{name}.csv": table.csv() for name, table in tables.items()}
        files = write_texts(Path(out), {"costs.md": cost_text(counted), **texts})
    return RoundCosts(sizes, counted.algorithms, tables, cost_notes(counted), files)
