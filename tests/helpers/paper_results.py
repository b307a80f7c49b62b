"""Results that were never run, for the tests of the paper's tables and figures."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from adabest.runs.results_file import Choice, Result, Results

COMMAND = "adabest reproduce table1"


def made(
    cell: str,
    entry: str,
    accuracy: float | Sequence[float],
    *,
    seed: int = 0,
    rounds: int = 1000,
    status: str = "finished",
    reason: str | None = None,
    **more: Any,
) -> Result:
    """A result: its accuracies in per cent, evenly spread over its rounds; more settings, metrics and provenance.

    ``chosen``, ``command`` and ``settings`` go where they belong; other names are columns, or values of the last row.
    """
    accuracies = [accuracy] if isinstance(accuracy, int | float) else list(accuracy)
    count = len(accuracies)
    columns: dict[str, list[float | None]] = {
        "round": [rounds * (place + 1) // count for place in range(count)],
        "scored_accuracy": [value / 100 for value in accuracies],
    }
    command, chosen, settings = more.pop("command", COMMAND), more.pop("chosen", {}), more.pop("settings", {})
    columns |= {name: list(values) for name, values in more.items() if isinstance(values, list | tuple)}
    last = {name: values[-1] for name, values in columns.items()} if accuracies else {}
    last |= {name: value for name, value in more.items() if not isinstance(value, list | tuple)}
    algorithm = entry.split(",", maxsplit=1)[0]
    return Result(
        cell=cell,
        entry=entry,
        seed=seed,
        settings={"dataset": cell.split("/", maxsplit=1)[0], "algorithm": algorithm, "rounds": rounds, **settings},
        chosen=chosen,
        status=status,
        round=rounds,
        reason=reason,
        last=last,
        columns=columns,
        partition={},
        provenance={"command": command, "commit": "abc1234", "device": "cpu", "torch": "2.11", "adabest": "0.3"},
    )


def of(runs: Iterable[Result], experiment: str = "table1", tuning: Sequence[Choice] = ()) -> Results:
    """Results of an experiment."""
    return Results(experiment, list(runs), list(tuning))


def curves(cell: str, entry: str, seed: int, *, top: float, growth: float = 0.0, rounds: int = 1000) -> Result:
    """A result with all that is drawn: accuracy climbs to ``top`` per cent and declines as ‖θ‖ grows."""
    steps = [place / 40 for place in range(1, 41)]
    wiggle = [math.sin(7 * seed + 3 * place) for place in range(40)]
    accuracy = [
        top * (1 - math.exp(-6 * step)) - 20 * growth * step**3 + 0.6 * shift
        for step, shift in zip(steps, wiggle, strict=True)
    ]
    dataset = cell if cell in {"mnist", "emnist-l"} else "cifar100"
    return made(
        cell,
        entry,
        accuracy,
        seed=seed,
        rounds=rounds,
        scored_loss=[4 * math.exp(-2 * step) + 0.5 + 30 * growth * step**4 for step in steps],
        train_accuracy=[value / 100 + 0.1 + 0.03 * shift for value, shift in zip(accuracy, wiggle[::-1], strict=True)],
        aggregate_accuracy=[value / 100 - 0.03 for value in accuracy],
        cloud_accuracy=[value / 100 - 0.05 for value in accuracy],
        cloud_norm=[
            10 + 8 * step + 90 * growth * step + 0.5 * shift for step, shift in zip(steps, wiggle, strict=True)
        ],
        h_norm=[0.1 + growth * step for step in steps],
        present=[80 + round(10 * shift) for shift in wiggle],
        settings={"dataset": dataset, "clients": 1000, "participation": 0.005, "partition": "dirichlet", "alpha": 0.3},
    )


ENDS = {"fedavg": (30.0, 0.0), "feddyn": (34.0, 1.0), "scaffold": (38.0, 0.4), "adabest": (46.0, 0.0)}


def everyone(
    cells: Sequence[str], seeds: int = 3, entries: Sequence[str] = tuple(ENDS), rounds: int = 1000
) -> list[Result]:
    """The algorithms in some settings, with several seeds."""
    return [
        curves(cell, entry, seed, top=top, growth=growth + 0.1 * number, rounds=rounds)
        for cell in cells
        for number, entry in enumerate(entries)
        for top, growth in [ENDS.get(entry.split(",")[0], (40.0, 0.2))]
        for seed in range(seeds)
    ]
