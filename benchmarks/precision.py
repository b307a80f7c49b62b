"""What a GPU's precisions cost in accuracy: the same runs in bf16, tf32 and float32, compared pair by pair.

python -m benchmarks.precision measure --data-dir DIR --out precision.json
python -m benchmarks.precision tables precision.json

The runs of a precision are lanes of one program: each algorithm with each seed. Runs of two precisions that share
algorithm and seed are a pair: they have the same partition, initial model, cohorts, batches and augmentation. One
evaluation has the noise of its round, so a run's accuracy is the mean of its last evaluations. The time of a
client-step is end to end: batches, augmentation, training, server and evaluation included, compiling left out.
"""

import argparse
import json
import signal
import statistics
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from adabest.errors import Interrupted
from adabest.experiments.run_group import make_runs
from adabest.runs.files.folder import METRICS, TIMINGS
from adabest.runs.settings.run_plan import plan_algorithms

PRECISIONS = ("bf16", "tf32", "float32")
TRUTH = "float32"
MODELS = ("scored", "aggregate", "averaged")
LAST = 5  # evaluations

Row = dict[str, Any]


class Difference(NamedTuple):
    """The mean of paired differences, in points, with its standard error.

    Attributes:
        mean: The precision's accuracy minus float32's.
        error: The standard error of the mean; nan for one pair.
        pairs: How many pairs there are.
        lower: In how many of them the precision is the lower one.
    """

    mean: float
    error: float
    pairs: int
    lower: int

    @classmethod
    def of(cls, differences: Sequence[float]) -> "Difference":
        """Of the pairs' differences."""
        count = len(differences)
        error = statistics.stdev(differences) / count**0.5 if count > 1 else float("nan")
        return cls(statistics.mean(differences), error, count, sum(value < 0 for value in differences))

    def __str__(self) -> str:
        return f"{self.mean:+.2f} ± {self.error:.2f} (n = {self.pairs}, {self.lower} lower)"


def measure(precision: str, folder: Path, arguments: argparse.Namespace) -> None:
    """Makes the runs of one precision in a folder.

    Raises:
        Interrupted: If the time is up.
    """
    settings: dict[str, Any] = {
        "dataset": arguments.dataset,
        "data_dir": arguments.data_dir,
        "device": arguments.device,
        "engine": "batched",
        "precision": precision,
        "clients": arguments.clients,
        "validation_clients": max(1, arguments.clients // 10),
        "participation": 0.1,
        "partition": arguments.partition,
        "alpha": arguments.alpha,
        "rounds": arguments.rounds,
        "average_from": 0.5,
        "evaluate_every": arguments.evaluate_every,
        "checkpoint_every": 0,
    }
    make_runs(plan_algorithms(arguments.algorithms, settings, arguments.seeds), folder, show=arguments.show)


def rows_of(folder: Path, precision: str, arguments: argparse.Namespace) -> list[Row]:
    """One row a run in a folder, ended or not, with the accuracies of all its evaluations so far."""
    rows = []
    metrics_files = sorted(folder.rglob(METRICS))
    for path in metrics_files:
        metrics = [json.loads(line) for line in path.read_text().splitlines()]
        if not metrics:
            continue
        timings = [json.loads(line) for line in (path.parent / TIMINGS).read_text().splitlines()]
        later = [row["seconds_per_round"] for row in timings if "seconds_per_round" in row][1:]
        steps = metrics[-1]["local_steps"] / metrics[-1]["round"] * len(metrics_files)
        algorithm, _, seed = path.parent.name.partition(",seed=")
        rows.append(
            {
                "dataset": arguments.dataset,
                "partition": arguments.partition,
                "algorithm": algorithm,
                "seed": int(seed),
                "precision": precision,
                "rounds": [row["round"] for row in metrics],
                **{name: [row.get(f"{name}_accuracy") for row in metrics] for name in MODELS},
                "microseconds": statistics.mean(later) / steps * 1e6 if later else None,
            }
        )
    return rows


def accuracy(row: Row, model: str, up_to: int) -> float | None:
    """A run's accuracy in percent: the mean of a model's last evaluations up to a round; None if it has too few."""
    accuracies = [
        value
        for reached, value in zip(row["rounds"], row[model], strict=True)
        if reached <= up_to and value is not None
    ]
    return 100 * statistics.mean(accuracies[-LAST:]) if len(accuracies) >= LAST else None


def reached_by_all(rows: Iterable[Row]) -> int:
    """The last round that all runs of a data set have reached: pairs are compared there."""
    return min(int(row["rounds"][-1]) for row in rows)


def differences(rows: Sequence[Row], precision: str, model: str, up_to: int) -> dict[str, list[float]]:
    """The paired differences to float32 by algorithm, in points."""
    truth = {(row["algorithm"], row["seed"]): row for row in rows if row["precision"] == TRUTH}
    found: dict[str, list[float]] = {}
    for row in rows:
        other = truth.get((row["algorithm"], row["seed"]))
        if row["precision"] != precision or other is None:
            continue
        ours, theirs = accuracy(row, model, up_to), accuracy(other, model, up_to)
        if ours is not None and theirs is not None:
            found.setdefault(row["algorithm"], []).append(ours - theirs)
    return found


def tables(rows: Sequence[Row]) -> str:
    """The tables of each data set, as Markdown."""
    by_dataset: dict[str, list[Row]] = {}
    for row in rows:
        by_dataset.setdefault(row["dataset"], []).append(row)
    parts = []
    for dataset, own in by_dataset.items():
        up_to = reached_by_all(own)
        parts += [f"{dataset}, {own[0]['partition']}: rounds up to {up_to}", _accuracies(own, up_to)]
        parts += [_differences(own, up_to)]
    if len(by_dataset) > 1:
        parts += ["All data sets together", _pooled(by_dataset)]
    return "\n\n".join(parts) + "\n"


def _accuracies(rows: Sequence[Row], up_to: int) -> str:
    seeds = sorted({row["seed"] for row in rows})
    lines = [
        f"| algorithm | precision | {' | '.join(f'seed {seed}' for seed in seeds)} | mean ± std | µs a client-step |",
        f"|---|---|{'---:|' * (len(seeds) + 2)}",
    ]
    for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
        for precision in dict.fromkeys(row["precision"] for row in rows):
            mine = {r["seed"]: r for r in rows if (r["algorithm"], r["precision"]) == (algorithm, precision)}
            values = {seed: accuracy(row, "scored", up_to) for seed, row in mine.items()}
            there = [value for value in values.values() if value is not None]
            if not there:
                continue
            spread = f" ± {statistics.stdev(there):.2f}" if len(there) > 1 else ""
            cells = [f"{value:.2f}" if (value := values.get(seed)) is not None else "" for seed in seeds]
            times = [row["microseconds"] for row in mine.values() if row["microseconds"] is not None]
            time = f"{statistics.mean(times):.0f}" if times else ""
            lines.append(
                f"| {algorithm} | {precision} | {' | '.join(cells)} | {statistics.mean(there):.2f}{spread} | {time} |"
            )
    return "\n".join(lines)


def _differences(rows: Sequence[Row], up_to: int) -> str:
    algorithms = list(dict.fromkeys(row["algorithm"] for row in rows))
    lines = [
        f"| minus {TRUTH} | model | {' | '.join(algorithms)} | all |",
        f"|---|---|{'---:|' * (len(algorithms) + 1)}",
    ]
    for precision in dict.fromkeys(row["precision"] for row in rows if row["precision"] != TRUTH):
        for model in MODELS:
            found = differences(rows, precision, model, up_to)
            if not found:
                continue
            cells = [str(Difference.of(found[name])) if name in found else "" for name in algorithms]
            together = Difference.of([value for values in found.values() for value in values])
            lines.append(f"| {precision} | {model} | {' | '.join(cells)} | {together} |")
    return "\n".join(lines)


def _pooled(by_dataset: Mapping[str, Sequence[Row]]) -> str:
    lines = [f"| minus {TRUTH} | model | all pairs |", "|---|---|---:|"]
    for precision in PRECISIONS:
        for model in MODELS:
            pairs = [
                value
                for rows in by_dataset.values()
                for values in differences(rows, precision, model, reached_by_all(rows)).values()
                for value in values
            ]
            if pairs and precision != TRUTH:
                lines.append(f"| {precision} | {model} | {Difference.of(pairs)} |")
    return "\n".join(lines)


def _write(path: Path, rows: Sequence[Row]) -> None:
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def _read(path: Path) -> list[Row]:
    rows: list[Row] = json.loads(path.read_text())
    return rows


def _stop_after(minutes: float | None) -> None:
    """Asks this process to stop after some minutes, as a user would: the runs end after the step at hand."""
    if minutes is not None:
        timer = threading.Timer(60 * minutes, lambda: signal.raise_signal(signal.SIGINT))
        timer.daemon = True
        timer.start()


def _measure(arguments: argparse.Namespace) -> None:
    earlier = _read(arguments.out) if arguments.out.exists() else []
    _stop_after(arguments.minutes)
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        made: dict[str, list[Row]] = {}
        for precision in arguments.precisions:
            own = folder / f"{arguments.dataset}-{precision}"
            try:
                measure(precision, own, arguments)
            except Interrupted:
                print(f"{precision}: stopped", flush=True)
                return
            finally:
                made[precision] = rows_of(own, precision, arguments)
                kept = [row for row in earlier if (row["dataset"], row["precision"]) not in _keys(made, arguments)]
                _write(arguments.out, [*kept, *(row for rows in made.values() for row in rows)])
            print(tables(_read(arguments.out)), flush=True)


def _keys(made: Iterable[str], arguments: argparse.Namespace) -> set[tuple[str, str]]:
    return {(arguments.dataset, precision) for precision in made}


def main() -> None:
    """Measures and writes JSON, or prints the tables of such a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure", help="makes the runs; results are written after each precision")
    measuring.add_argument("--dataset", default="cifar10")
    measuring.add_argument("--data-dir")
    measuring.add_argument("--device", default="cuda")
    measuring.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    measuring.add_argument("--algorithms", nargs="+", default=["fedavg", "adabest"])
    measuring.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    measuring.add_argument("--rounds", type=int, default=300)
    measuring.add_argument("--evaluate-every", type=int, default=20)
    measuring.add_argument("--clients", type=int, default=100)
    measuring.add_argument("--partition", default="iid")
    measuring.add_argument("--alpha", type=float, default=0.3, help="of a Dirichlet partition")
    measuring.add_argument("--minutes", type=float, help="stop after as many; what was evaluated until then is kept")
    measuring.add_argument("--folder", type=Path, help="where runs are kept; by default they aren't")
    measuring.add_argument("--show", action="store_true", help="show progress")
    measuring.add_argument("--out", type=Path, required=True)
    measuring.set_defaults(call=_measure)
    printing = commands.add_parser("tables", help="prints the tables")
    printing.add_argument("results", type=Path)
    printing.set_defaults(call=lambda arguments: print(tables(_read(arguments.results))))
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
