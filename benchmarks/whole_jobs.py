"""Whole jobs on a GPU, each beside its kernels alone in the same call: ``python -m benchmarks.whole_jobs measure``.

=============  =========================================================================================
lanes-10       Table 1 at 10 %, one seed: 4 algorithms in 3 partitions, 12 lanes of 10 clients
lanes-1        Table 1 at 1 %, one seed: 12 lanes of 1 client
wide           one run with 100 clients a round
mlp            one run of MLP 784-100-100-10 with 100 clients a round, beside JAX
checkpoints    4 lanes of 10 clients with a checkpoint every 5 rounds, beside the same without
=============  =========================================================================================

A job is what a user runs: data, batches, augmentation, training, server steps, metrics, files and an evaluation every
20 rounds. Its time is that between evaluations, the first of which is warm-up. Its client-steps are counted by the run.
The kernels alone are one local step of as many clients as train at a time, replayed as a CUDA graph. Data are random
images of CIFAR's shapes whose labels can be learnt, so no data set is needed.

``python -m benchmarks.whole_jobs publish FILE...`` puts results into the docs; those of ``whole_table``, too.
"""

import argparse
import functools
import json
import shlex
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import adabest
from adabest.data.dataset import Dataset
from adabest.errors import InputError, Interrupted
from adabest.experiments.run_group import make_runs
from adabest.runs.files.folder import METRICS, TIMINGS
from adabest.runs.settings.resolution import resolve
from adabest.runs.settings.run_plan import Plan
from benchmarks import machine
from benchmarks.arms.adabest import settings as task_settings
from benchmarks.catalog import ARMS
from benchmarks.process import ArmFailedError, Process
from benchmarks.tasks import TASKS

Row = dict[str, Any]

EVALUATE_EVERY = 20
_SEED = 0
_ALGORITHMS: tuple[dict[str, Any], ...] = (
    {"algorithm": "fedavg"},
    {"algorithm": "feddyn", "mu": 0.02},
    {"algorithm": "scaffold"},
    {"algorithm": "adabest", "mu": 0.02},
)
_PARTITIONS: tuple[dict[str, Any], ...] = (
    {"partition": "dirichlet-legacy", "alpha": 0.03},
    {"partition": "dirichlet-legacy", "alpha": 0.3},
    {"partition": "iid"},
)
_PAPER: dict[str, Any] = {
    "batch_size": 45,
    "weight_decay": 1e-3,
    "augmentation": "flip-crop",
    "clients": 100,
    "validation_clients": 10,
    "average_from": 0.5,
}


@dataclass(frozen=True)
class Setting:
    """Where and how large.

    Attributes:
        device: The device.
        samples: How many training samples there are.
        model: The model in place of the paper's CNN.
        shorter: By how many times runs are shorter than usual, for a trial.
    """

    device: str = "cuda"
    samples: int = 50_000
    model: str = "cnn"
    shorter: int = 1

    def rounds(self, usual: int) -> int:
        """The rounds of a run: at least two evaluations."""
        return max(usual // self.shorter, 2 * self.evaluate_every)

    def paper(self) -> dict[str, Any]:
        """The settings of Table 1, on random images."""
        return {**_PAPER, "dataset": images(self.samples), "model": self.model}

    @property
    def evaluate_every(self) -> int:
        """Rounds between evaluations."""
        return max(EVALUATE_EVERY // self.shorter, 1)


@dataclass(frozen=True)
class Timed:
    """The times of a job.

    Attributes:
        microseconds: A client-step, end to end.
        steps_a_round: The client-steps of all lanes in a round.
        seconds_a_round: The time of such a round.
        started: Seconds from the call to the first evaluation, compiling included.
    """

    microseconds: float
    steps_a_round: float
    seconds_a_round: float
    started: float


@functools.cache
def images(samples: int) -> Dataset:
    """Random images of CIFAR's shapes, with a pattern for each class that makes labels learnable."""
    generator = np.random.default_rng(_SEED)
    patterns = generator.normal(0, 30, (10, 3, 32, 32))

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = generator.integers(0, 10, count)
        noise = generator.normal(128, 45, (count, 3, 32, 32)).astype(np.float32)
        return np.clip(noise + patterns[labels], 0, 255).astype(np.uint8), labels

    return adabest.from_arrays(*draw(samples), *draw(samples // 5), name="random-images")


def timed(lanes: Sequence[Mapping[str, Any]], rounds: int, setting: Setting) -> Timed:
    """Trains lanes together and times the rounds between evaluations.

    Raises:
        InputError: If there are too few evaluations.
    """
    shared = {
        "device": setting.device,
        "rounds": rounds,
        "evaluate_every": setting.evaluate_every,
        "checkpoint_every": 0,
    }
    planned = {f"{number}": resolve({**shared, **own}) for number, own in enumerate(lanes)}
    with tempfile.TemporaryDirectory() as folder:
        make_runs(Plan(planned, {label: [label] for label in planned}), Path(folder))
        metrics, timings = (
            [[json.loads(line) for line in (Path(folder) / label / file).read_text().splitlines()] for label in planned]
            for file in (METRICS, TIMINGS)
        )
    rows = [[row["seconds_per_round"] for row in own if "seconds_per_round" in row] for own in timings]
    if min(map(len, rows)) < 2:
        raise InputError("the first evaluation is warm-up, so there must be a second one: take more rounds")
    steps = sum(own[-1]["local_steps"] / own[-1]["round"] for own in metrics)
    seconds = statistics.mean(statistics.mean(own[1:]) for own in rows)
    return Timed(seconds / steps * 1e6, steps, seconds, rows[0][0] * setting.evaluate_every)


def kernels_alone(model: str, clients: int, setting: Setting, *, offset: bool) -> float | None:
    """Microseconds of a client-step by the kernels alone; None where there is no GPU."""
    if setting.device != "cuda":
        return None
    from benchmarks import kernels

    return kernels.microseconds(next(case for case in kernels.TIMED if case[0] == model), clients, offset=offset)


def _beside_kernels(what: str, found: Timed, kernels: float | None, most: float) -> Row:
    ratio = None if kernels is None else found.microseconds / kernels
    return {
        "what": what,
        "unit": "µs a client-step",
        "end_to_end": found.microseconds,
        "beside": "kernels alone",
        "other": kernels,
        "ratio": ratio,
        "done_at": f"≤ {most:g} × kernels",
        "reached": None if ratio is None else ratio <= most,
        "steps_a_second": 1e6 / found.microseconds,
        "seconds_a_round": found.seconds_a_round,
        "seconds_to_first_evaluation": found.started,
    }


def _table_lanes(participation: float, setting: Setting) -> list[dict[str, Any]]:
    shared = {**setting.paper(), "participation": participation}
    return [{**shared, **cut, **algorithm} for cut in _PARTITIONS for algorithm in _ALGORITHMS]


def lanes_10(setting: Setting) -> Row:
    """12 lanes of 10 clients."""
    found = timed(_table_lanes(0.1, setting), setting.rounds(80), setting)
    kernels = kernels_alone("cnn", 120, setting, offset=True)
    return _beside_kernels("12 lanes × 10 clients (Table 1 at 10 %, one seed)", found, kernels, 1.2)


def lanes_1(setting: Setting) -> Row:
    """12 lanes of 1 client."""
    found = timed(_table_lanes(0.01, setting), setting.rounds(240), setting)
    kernels = kernels_alone("cnn", 12, setting, offset=True)
    return _beside_kernels("12 lanes × 1 client (Table 1 at 1 %, one seed)", found, kernels, 2.0)


def wide(setting: Setting) -> Row:
    """One run with all of 100 clients in a round."""
    one = {**setting.paper(), "participation": 1.0, "partition": "iid", "algorithm": "adabest"}
    found = timed([one], setting.rounds(80), setting)
    return _beside_kernels("one run of 100 clients", found, kernels_alone("cnn", 100, setting, offset=True), 1.1)


def mlp(setting: Setting) -> Row:
    """MLP with 100 clients, beside its kernels and JAX."""
    cohort = 100 if setting.shorter == 1 else 10
    task = TASKS["mlp"].with_cohort(cohort)
    found = timed([task_settings(task)], setting.rounds(400), setting)
    kernels = kernels_alone("mlp,hidden=100x100", cohort, setting, offset=False)
    theirs = _arm_microseconds("jax-bf16" if setting.device == "cuda" else "jax", cohort, setting)
    return _beside_kernels(f"MLP 784-100-100-10, {cohort} clients", found, kernels, 1.2) | {
        "kernels": kernels,
        "beside": "JAX, bf16",
        "other": theirs,
        "ratio": None if theirs is None else found.microseconds / theirs,
        "done_at": "≤ 1.2 × JAX",
        "reached": None if theirs is None else found.microseconds <= 1.2 * theirs,
    }


def _arm_microseconds(name: str, clients: int, setting: Setting) -> float | None:
    """The best of three measurements of another way to train the MLP; None if it isn't installed or fails."""
    task = TASKS["mlp"].with_cohort(clients)
    rounds = 10 if setting.shorter == 1 else 1
    try:
        process = Process(ARMS[setting.device][name], task.name, clients, rounds, 150.0)
    except (ArmFailedError, OSError) as error:
        print(f"{name}: {error}", flush=True)
        return None
    try:
        best = min(process.measure(60.0).seconds for _ in range(3))
    finally:
        process.end()
    return best / (rounds * clients * task.steps) * 1e6


def checkpoints(setting: Setting) -> Row:
    """4 lanes with a checkpoint every 5 rounds, and without."""
    shared = {**setting.paper(), "participation": 0.1, "partition": "iid"}
    lanes = [{**shared, **algorithm} for algorithm in _ALGORITHMS]
    every = [{**lane, "checkpoint_every": 5} for lane in lanes]
    without, having = (timed(runs, setting.rounds(120), setting) for runs in (lanes, every))
    ratio = having.microseconds / without.microseconds
    kernels = kernels_alone("cnn", 40, setting, offset=True)
    return _beside_kernels("checkpoints every 5 rounds (4 lanes × 10 clients)", having, kernels, 1.1) | {
        "kernels": kernels,
        "beside": "without checkpoints",
        "other": without.microseconds,
        "ratio": ratio,
        "done_at": "≤ 1.1 × without",
        "reached": ratio <= 1.1,
    }


PARTS: Mapping[str, Callable[[Setting], Row]] = {
    "lanes-10": lanes_10,
    "lanes-1": lanes_1,
    "wide": wide,
    "mlp": mlp,
    "checkpoints": checkpoints,
}


def measure(parts: Sequence[str], setting: Setting, run: Mapping[str, Any], out: Path) -> dict[str, Any]:
    """Measures parts one after another, and writes what there is after each; one that fails says why."""
    found: dict[str, Any] = {"run": dict(run), "parts": {}}
    for name in parts:
        began = time.monotonic()
        try:
            row = PARTS[name](setting)
        except Interrupted:
            raise
        except Exception as error:  # whatever it is, the other parts go on
            traceback.print_exc()
            row = {"what": name, "error": f"{type(error).__name__}: {error}"}
        row["took"] = time.monotonic() - began
        found["parts"][name] = row
        write(out, found)
        print(_line(row), flush=True)
    return found


def _line(row: Row) -> str:
    if "error" in row:
        return f"{row['what']}: failed after {row['took']:.0f} s: {row['error']}"
    other = "–" if row["other"] is None else f"{row['other']:.2f}"
    ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}"
    return (
        f"{row['what']}: {row['end_to_end']:.2f} {row['unit']}; {row['beside']} {other}; ratio {ratio} "
        f"(done at {row['done_at']}); took {row['took']:.0f} s"
    )


def write(path: Path, found: Mapping[str, Any]) -> None:
    """Writes results, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    draft.replace(path)


def publish(sources: Sequence[Path], folder: Path) -> list[Path]:
    """Puts results into the docs' page of speed, in the place of earlier ones of the same parts.

    Raises:
        InputError: If a file isn't there or holds something else.
    """
    from benchmarks import files, page

    results = files.read(folder / page.RESULTS, page.KEYS) or {"runs": [], "results": []}
    jobs = dict(results.get("whole_jobs", {}))
    for source in sources:
        found = files.read(source, {"run", "parts"})
        if found is None:
            raise InputError(f"there is no file {source}")
        jobs |= {name: {**row, "run": found["run"]} for name, row in found["parts"].items() if "error" not in row}
    return files.write(folder, page.files({**results, "whole_jobs": jobs}))


def main(words: Sequence[str] | None = None) -> int:
    """Parses, calls, prints."""
    given = sys.argv[1:] if words is None else list(words)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.whole_jobs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="measure on a GPU")
    measuring.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    measuring.add_argument("--out", type=Path, required=True, help="the file of results")
    measuring.add_argument("--commit", help="what is measured, where git can't tell")
    measuring.add_argument("--trial", action="store_true", help="tiny sizes on the CPU, to see that all runs")
    publishing = commands.add_parser("publish", help="put results into the docs")
    publishing.add_argument("results", type=Path, nargs="+")
    publishing.add_argument("--out", type=Path, default=machine.ROOT / "docs", help="the docs' folder")
    arguments = parser.parse_args(given)
    if arguments.command == "publish":
        print("written:", *publish(arguments.results, arguments.out))
        return 0
    setting = Setting("cpu", samples=1_100, model="mlp,hidden=10", shorter=20) if arguments.trial else Setting()
    machine.check(setting.device)
    command = shlex.join(["python", "-m", "benchmarks.whole_jobs", *given])
    found = measure(
        arguments.parts, setting, machine.describe(setting.device, command, arguments.commit), arguments.out
    )
    return int(any("error" in row for row in found["parts"].values()))


if __name__ == "__main__":
    sys.exit(main())
