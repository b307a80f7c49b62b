"""Result files: the numbers of many runs and their provenance, in one small file that outlives the runs' folders."""

import contextlib
import itertools
import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from adabest.algorithms.catalog import ALGORITHMS
from adabest.errors import InputError
from adabest.registry import Option, convert, options_of
from adabest.runs.files.metrics_file import Points
from adabest.runs.files.records import Status, check_metrics, check_partition, conform
from adabest.runs.files.sealed_file import read_sealed, write_sealed
from adabest.runs.settings.config import SETTINGS
from adabest.runs.stored_run import Run
from adabest.tasks.objectives.metric import ACCURACY, Metric

CHOICES = "choices.json"  # a choice is kept once made: further seeds or cells don't change it

# The metrics that are drawn as curves. Of the last round, all metrics are kept.
_COLUMNS = (
    "round",
    "scored_accuracy",
    "aggregate_accuracy",
    "cloud_accuracy",
    "averaged_accuracy",
    "scored_loss",
    "cloud_loss",
    "train_accuracy",
    "validation_accuracy",
    "cloud_norm",
    "h_norm",
    "client_h_norm",
    "present",
)
_PROVENANCE = ("commit", "adabest", "python", "torch", "device", "processors")
_PROGRAM = ("adabest", "adabest.exe", "__main__.py")
_PRIVATE = ("--data-dir", "--out")  # options with paths of one machine, which aren't published
_NAMED = ("--choices",)  # of whose paths only the file's name is
_DIGITS = 6  # significant digits of a curve's values
_CELL = re.compile(r"[\w .,=+%-]+(/[\w .,=+%-]+)*")  # a cell becomes part of file names


class PointRow(TypedDict):
    """A point of a search, as a result file holds it."""

    point: dict[str, Any]
    validation_accuracy: list[float | None]
    status: list[str]


@dataclass(frozen=True)
class Result:
    """The result of one run. Tables and figures take it in place of a ``Run``.

    Attributes:
        cell: The setting it belongs to, as in ``cifar100/10/iid``.
        entry: What is compared within the setting, as in ``adabest`` or ``adabest,beta=0.9``.
        seed: Its seed.
        settings: All settings that its result depends on, hyper-parameters among them.
        chosen: The hyper-parameters that were chosen on validation clients.
        status: ``finished``, ``diverged``, or another status of a run.
        round: Its last round, or the one it diverged in.
        reason: Why it diverged or ended early, if it did.
        last: The metrics of the last evaluated round.
        columns: The curves by metric, ``round`` among them.
        partition: The partition's statistics.
        provenance: Command, commit, hardware and versions.
    """

    cell: str
    entry: str
    seed: int
    settings: dict[str, Any]
    chosen: dict[str, Any]
    status: str
    round: int
    reason: str | None
    last: dict[str, Any]
    columns: dict[str, list[float | None]]
    partition: dict[str, Any]
    provenance: dict[str, Any]

    @classmethod
    def of(cls, run: Run, cell: str, entry: str, chosen: Mapping[str, Any]) -> "Result":
        """The result of a run."""
        return cls(
            cell=cell,
            entry=entry,
            seed=run.config.seed,
            settings=run.config.essence(),
            chosen=dict(chosen),
            status=run.status,
            round=run.round,
            reason=run.reason,
            last=run.final,
            columns=_columns(run),
            partition=dict(run.identity.get("partition", {})),
            provenance=provenance(run),
        )

    @property
    def metric(self) -> Metric:
        """What tables speak of: the paper's tasks have accuracy."""
        return ACCURACY

    @property
    def judged_by(self) -> tuple[Metric, ...]:
        """What models are judged by."""
        return (self.metric,)

    @property
    def algorithm(self) -> str:
        """The name of its algorithm, without settings; that of its entry, if it was not kept."""
        return str(self.settings.get("algorithm", self.entry))

    @property
    def score(self) -> str:
        """The model that tables speak of."""
        return str(self.settings.get("score", "scored"))

    @property
    def final(self) -> dict[str, Any]:
        """The last evaluated round's metrics; empty if there is none."""
        return self.last

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """A metric over rounds, where it was measured: rounds and values."""
        values = self.columns.get(name, [])
        points = [
            (int(r), v) for r, v in zip(self.columns.get("round", []), values, strict=False) if r and v is not None
        ]
        return [r for r, _ in points], [v for _, v in points]

    def points(self, name: str) -> Points:
        """A metric over rounds, where it was measured, as arrays."""
        rounds, values = self.curve(name)
        return Points(np.array(rounds, np.int64), np.array(values, np.float64))

    @property
    def key(self) -> tuple[str, str, int]:
        """Cell, entry and seed, which no other result of the file has."""
        return self.cell, self.entry, self.seed


@dataclass(frozen=True)
class Choice:
    """A choice of hyper-parameters, made on validation clients.

    Attributes:
        cells: The settings that the choice is for, as a pattern: ``cifar10/1/iid``, or ``*`` for any.
        algorithm: The algorithm that has these hyper-parameters.
        chosen: The point that was chosen.
        grid: The points that were tried: ``point``, and by seed ``validation_accuracy`` and ``status``.
        rounds: The rounds of each run.
        seeds: The seeds of each point's runs.
        provenance: Command, commit, hardware and versions.
    """

    cells: str
    algorithm: str
    chosen: dict[str, Any]
    grid: list[PointRow]
    rounds: int
    seeds: list[int]
    provenance: dict[str, Any] = field(default_factory=dict)

    def with_seeds_of(self, later: "Choice") -> "Choice":
        """This choice with the seeds of a later one; the later one alone, unless both agree and share no seed."""
        points, others = ([row["point"] for row in choice.grid] for choice in (self, later))
        alike = (self.chosen, self.rounds, points) == (later.chosen, later.rounds, others)
        if not alike or not self.grid or set(self.seeds) & set(later.seeds):
            return later
        grid: list[PointRow] = [
            {
                "point": row["point"],
                "validation_accuracy": [*row["validation_accuracy"], *more["validation_accuracy"]],
                "status": [*row["status"], *more["status"]],
            }
            for row, more in zip(self.grid, later.grid, strict=True)
        ]
        return replace(later, grid=grid, seeds=[*self.seeds, *later.seeds])


@dataclass(frozen=True)
class Results:
    """The results of an experiment.

    Attributes:
        experiment: Its name.
        runs: The results of its runs.
        tuning: The choices of hyper-parameters.
    """

    experiment: str
    runs: list[Result]
    tuning: list[Choice] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "Results":
        """Reads a file that ``write`` wrote.

        Raises:
            InputError: If there is no such file, or it isn't a file of results.
        """
        content = read_sealed(path).content
        _check_keys(path, content, {item.name for item in fields(cls)})
        found: Results = conform(str(path), content, cls)
        for number, run in enumerate(found.runs):
            _check_result(f"{path}: runs[{number}]", run)
        _check_tuning(f"{path}: tuning", found.tuning)
        return found

    def write(self, path: Path) -> None:
        """Writes a file with one line per run, so that differences between versions can be read."""
        parts = {"experiment": json.dumps(self.experiment), "runs": _lines(self.runs), "tuning": _lines(self.tuning)}
        write_sealed(path, parts)

    def merged(self, other: "Results") -> "Results":
        """These results and those of another file, which win where both have one.

        Choices that agree, of the same points with other seeds, become one choice of all seeds.

        Raises:
            InputError: If the other results are of another experiment.
        """
        if other.experiment != self.experiment:
            raise InputError(f"results of {self.experiment} and of {other.experiment} don't belong together")
        runs = {run.key: run for run in [*self.runs, *other.runs]}
        tuning: dict[tuple[str, str], Choice] = {}
        for choice in [*self.tuning, *other.tuning]:
            key = (choice.cells, choice.algorithm)
            tuning[key] = tuning[key].with_seeds_of(choice) if key in tuning else choice
        return Results(self.experiment, list(runs.values()), list(tuning.values()))

    def cells(self) -> list[str]:
        """The settings that have results."""
        return list(dict.fromkeys(run.cell for run in self.runs))

    def of(self, cell: str) -> dict[str, list[Result]]:
        """The results of a setting by entry, one for each seed."""
        entries: dict[str, list[Result]] = {}
        for run in self.runs:
            if run.cell == cell:
                entries.setdefault(run.entry, []).append(run)
        return {entry: sorted(runs, key=lambda run: run.seed) for entry, runs in entries.items()}


def read_choices(path: Path) -> list[Choice]:
    """Reads a file that ``write_choices`` wrote.

    Raises:
        InputError: If there is no such file, or it isn't a file of choices.
    """
    content = read_sealed(path).content
    _check_keys(path, content, {"choices"})
    found: list[Choice] = conform(f"{path}: choices", content["choices"], list[Choice])
    _check_tuning(f"{path}: choices", found)
    return found


def write_choices(path: Path, choices: Sequence[Choice]) -> None:
    """Writes choices to a file that ``adabest reproduce --choices`` takes."""
    write_sealed(path, {"choices": _lines(choices)})


def provenance(run: Run) -> dict[str, Any]:
    """The provenance of a run's numbers: command, commit, hardware and versions."""
    return provenance_of(run.environment)


def provenance_of(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The provenance of numbers: command, commit, hardware and versions, from the environment they were made in."""
    return {
        "command": without_places(str(environment.get("command", ""))),
        **{k: environment.get(k) for k in _PROVENANCE},
    }


def without_places(command: str) -> str:
    """A command without the paths of its program, data and results."""
    if not command:
        return ""
    try:
        program, *words = shlex.split(command)
    except ValueError:  # a quotation mark without its partner: earlier versions didn't quote words
        program, *words = command.split()
    name = Path(program).name
    kept = ["adabest" if name in _PROGRAM else name]  # another name is the script that made the runs
    before = ""
    for word in words:
        option, is_pair, value = word.partition("=")
        if before in _NAMED:
            kept.append(Path(word).name)
        elif is_pair and option in _NAMED:
            kept.append(f"{option}={Path(value).name}")
        elif before not in _PRIVATE and option not in _PRIVATE:
            kept.append(word)
        before = word
    return shlex.join(kept)


def _columns(run: Run) -> dict[str, list[float | None]]:
    """The curves of a run by metric: a value, or None, for each evaluated round."""
    evaluated = run.points("round").rounds
    columns: dict[str, list[float | None]] = {}
    for name in _COLUMNS:
        rounds, values = run.curve(name)
        if rounds:
            columns[name] = [None] * len(evaluated)
            for place, value in zip(np.searchsorted(evaluated, rounds).tolist(), values, strict=True):
                columns[name][place] = _six_digits(value)
    return columns


def _six_digits(value: float) -> float:
    if isinstance(value, int) or not math.isfinite(value):
        return value
    return float(f"{value:.{_DIGITS}g}")


def _lines(items: Iterable[Any]) -> str:
    rows = [json.dumps(asdict(item), ensure_ascii=False) for item in items]
    return "[\n" + ",\n".join(rows) + "\n]" if rows else "[]"


def _check_keys(path: Path, content: Mapping[str, Any], expected: set[str]) -> None:
    if set(content) != expected:
        raise InputError(f"{path} should have {', '.join(sorted(expected))}, as files of results or choices have")


def _check_result(where: str, result: Result) -> None:
    """Checks what tables and figures rely on, beyond the types of a result."""
    if not _CELL.fullmatch(result.cell) or {".", ".."} & set(result.cell.split("/")):
        raise InputError(f"{where}.cell should be names with slashes between them, not {result.cell!r}")
    _check_entry(f"{where}.entry", result.entry)
    conform(f"{where}.status", result.status, Status)
    if result.seed < 0 or result.round < 0:
        raise InputError(f"{where}: seed and round should not be below 0")
    _check_settings(f"{where}.settings", result.settings)
    if result.last:
        check_metrics(f"{where}.last", result.last)
    _check_columns(f"{where}.columns", result.columns)
    if result.partition:
        check_partition(f"{where}.partition", result.partition)


def _check_entry(where: str, entry: str) -> None:
    _, *options = entry.split(",")
    if not all(re.fullmatch(r"[^=]+=.*", option) for option in options):
        raise InputError(f"{where} should be an algorithm with options, as in adabest,beta=0.9, not {entry!r}")


def _check_settings(where: str, settings: Mapping[str, Any]) -> None:
    missing = [name for name in ("dataset", "algorithm") if name not in settings]
    if missing:
        raise InputError(f"{where} lacks {', '.join(missing)}")
    for name in ("dataset", "algorithm"):
        conform(f"{where}.{name}", settings[name], str)
    known: dict[str, Option] = {**SETTINGS}
    if settings["algorithm"] in ALGORITHMS.builtin:  # an algorithm that a file names is never imported
        known |= options_of(ALGORITHMS.builtin[settings["algorithm"]])
    for name in settings.keys() & known:
        convert(f"{where}.{name}", settings[name], known[name].type, text=False)


def _check_columns(where: str, columns: Mapping[str, Sequence[float | None]]) -> None:
    if not columns:
        return
    if len({len(values) for values in columns.values()}) > 1:
        raise InputError(f"{where} should have equally many values each")
    rounds = conform(f"{where}.round", columns.get("round"), list[int])
    if any(later <= earlier for earlier, later in itertools.pairwise([0, *rounds])):
        raise InputError(f"{where}.round should be rounds in their order, each above 0")


def _check_tuning(where: str, tuning: Sequence[Choice]) -> None:
    for number, choice in enumerate(tuning):
        if choice.rounds < 0 or any(seed < 0 for seed in choice.seeds):
            raise InputError(f"{where}[{number}]: rounds and seeds should not be below 0")
        for place, tried in enumerate(choice.grid):
            here = f"{where}[{number}].grid[{place}]"
            conform(f"{here}.status", tried["status"], list[Status])
            if not tried["status"] or len(tried["status"]) != len(tried["validation_accuracy"]):
                raise InputError(f"{here} should have a status and a validation_accuracy for each seed")
            if not all(value is None or 0 <= value <= 1 for value in tried["validation_accuracy"]):
                raise InputError(f"{here}.validation_accuracy should be between 0 and 1")


def experiment_in(folder: Path) -> str | None:
    """The name of the experiment whose file of results a folder holds; None if it holds none."""
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(InputError):  # a file of something else
            content = read_sealed(path).content
            if content.get("experiment") == path.stem and "runs" in content:
                return path.stem
    return None
