"""The whole table of a GPU in one call of a few minutes: ``python -m benchmarks.waves measure``.

Arms that compile are started once beforehand, several at a time, so that what they compile lies in caches on disk.
Then come the waves: a task and a number of clients each. All arms of a wave are started together; when all are warm
they are measured in turn, several times over, while nothing else runs. What doesn't fit the time is left out, the least
important first. The results are JSON; ``python -m benchmarks.waves publish`` makes them part of the docs' page.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import math
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from adabest.errors import InputError
from benchmarks import machine, measures
from benchmarks.catalog import ARMS, Arm
from benchmarks.process import ArmFailedError, Process
from benchmarks.tasks import TASKS, Task

Row = dict[str, Any]


class Wave(NamedTuple):
    """What is measured side by side."""

    task: str
    clients: int
    arms: str

    def chosen(self) -> list[Arm]:
        """The arms themselves."""
        return [ARMS["cuda"][name] for name in self.arms.split()]

    def __str__(self) -> str:
        return f"{self.task}, {self.clients} clients"


_FUSED = "adabest vmap-bf16 im2col-bf16 im2col-compiled jax-bf16 jax-im2col-bf16 drjax-im2col-bf16"
_IN_TURN = "eager eager-bf16 graph graph-bf16 pfl pfl-bf16 pfl-5"
_LINEAR = "adabest adabest-tf32 vmap vmap-bf16 im2col-bf16 im2col-compiled jax jax-bf16 drjax-bf16"
# Arms that train one client after another take as long for each at any number of clients: ten are enough. Five hundred
# clients are two waves, as all arms together wouldn't fit the memory.
WAVES = (
    Wave("paper", 50, f"{_FUSED} adabest-tf32 vmap im2col jax jax-im2col drjax-bf16"),
    Wave("paper", 100, _FUSED),
    Wave("paper", 500, "adabest im2col-compiled jax-im2col-bf16 vmap-bf16"),
    Wave("paper", 10, f"{_FUSED} {_IN_TURN}"),
    Wave("mlp", 100, _LINEAR),
    Wave("mlp", 10, f"{_LINEAR} eager graph pfl pfl-5"),
    Wave("pfl-cifar", 50, f"{_FUSED} eager graph pfl pfl-5"),
    Wave("paper", 500, "im2col-bf16 jax-bf16 drjax-im2col-bf16"),
    Wave("cnn", 10, f"{_FUSED} eager graph pfl pfl-5"),
)
TRIAL = (
    Wave("mlp", 5, "vmap im2col im2col-compiled jax-im2col drjax-bf16 eager graph pfl pfl-5"),
    Wave("mlp", 6, "adabest jax"),
)

# Microseconds a client-step that an arm is expected to take, to choose how many rounds make a measurement.
_EXPECTED = {"adabest": 20.0, "eager": 1500.0, "pfl": 1500.0, "graph": 300.0}
_LONG_ENOUGH = 0.4  # seconds for a measurement
_TOO_LONG = 25.0
_PATIENCE = 150.0  # seconds for a start
_LEAST = 45.0  # seconds that a wave needs


@dataclasses.dataclass
class Table:
    """A table in the making.

    Attributes:
        device: Where; anything but ``cuda`` is a trial.
        seconds: How long it may take in all.
        repeats: How often each arm is measured.
        slots: How many arms compile at a time.
        say: Told how it goes.
    """

    device: str = "cuda"
    seconds: float = 460.0
    repeats: int = 3
    slots: int = 5
    say: Callable[[str], None] = lambda line: None

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds
        self._first_starts: dict[tuple[Wave, str], Row] = {}

    def measure(self, waves: Sequence[Wave]) -> Iterator[tuple[dict[str, float], list[Row]]]:
        """Measures waves, the most important first, and gives peaks and all rows so far after each.

        Raises:
            InputError: If there is no GPU.
        """
        machine.check(self.device)
        peaks = self._peaks(waves)
        self.say("peak: " + ", ".join(f"{name} {peak / 1e12:,.2f} TFLOP/s" for name, peak in peaks.items()))
        rows: list[Row] = []
        with tempfile.TemporaryDirectory() as folder:
            os.environ |= {
                "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax",
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
                "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
                "TRITON_CACHE_DIR": f"{folder}/triton",
            }
            self._compile(waves)
            os.environ["BENCHMARKS_LOCK"] = f"{folder}/lock"
            for wave in waves:
                self.say(f"{wave} ({self._left():.0f} s left)")
                if self._left() < _LEAST:
                    self.say("  left out: the time is up")
                    continue
                rows += self._side_by_side(wave, peaks)
                yield peaks, rows

    def _left(self) -> float:
        return self._end - time.monotonic()

    def _peaks(self, waves: Sequence[Wave]) -> dict[str, float]:
        precisions = {arm.precision for wave in waves for arm in wave.chosen()}
        if self.device == "cuda":
            return machine.peaks(self.device, precisions)
        return dict.fromkeys(sorted(precisions), machine.peaks(self.device, ["float32"])["float32"])

    def _compile(self, waves: Sequence[Wave]) -> None:
        """Starts each arm that compiles once, and keeps how long that took, or why it failed."""
        jobs = {_program(wave, arm): (wave, arm) for wave in reversed(waves) for arm in wave.chosen() if _compiles(arm)}
        ordered = list(jobs.values())[::-1]
        many = [job for job in ordered if job[0].clients < 500]
        large = [job for job in ordered if job[0].clients >= 500]  # two of them at a time, for their memory
        # What isn't compiled by then is compiled when its wave starts.
        stop = time.monotonic() + self._left() / 2

        def start_once(job: tuple[Wave, Arm]) -> None:
            wave, arm = job
            if time.monotonic() > stop:
                return
            try:
                process = self._start(wave, arm, 1, min(_PATIENCE, self._left() / 2))
            except ArmFailedError as error:
                self._first_starts[wave, arm.name] = {"error": str(error)}
                self.say(f"  {arm.name}, {wave}: failed: {error}")
                return
            process.end()
            self._first_starts[wave, arm.name] = {"startup_seconds": process.startup_seconds}
            self.say(f"  {arm.name}, {wave}: compiled in {process.startup_seconds:.1f} s")

        self.say(f"compiling {len(jobs)} programs")
        with (
            concurrent.futures.ThreadPoolExecutor(self.slots) as several,
            concurrent.futures.ThreadPoolExecutor(2) as few,
        ):
            both = few.map(start_once, large), several.map(start_once, many)
            for results in both:
                list(results)

    def _start(self, wave: Wave, arm: Arm, rounds: int, patience: float) -> Process:
        placed = dataclasses.replace(arm, device="cuda" if self.device == "cuda" else "cpu")
        return Process(placed, wave.task, wave.clients, rounds, patience)

    def _side_by_side(self, wave: Wave, peaks: dict[str, float]) -> list[Row]:
        """One wave: all start together, and are measured in turn when all are warm."""
        task = TASKS[wave.task].with_cohort(wave.clients)
        rows = {arm.name: self._row(task, arm) | self._first_starts.get((wave, arm.name), {}) for arm in wave.chosen()}
        processes: dict[str, Process] = {}

        def start(arm: Arm) -> None:
            row = rows[arm.name]
            try:
                process = self._start(wave, arm, row["rounds"], min(_PATIENCE, max(10.0, self._left() - 15)))
            except ArmFailedError as error:
                row["error"] = str(error)
                self.say(f"  {arm.name}: failed: {error}")
                return
            processes[arm.name] = process
            row |= {"versions": process.versions, "measurements": []}
            row.setdefault("startup_seconds", process.startup_seconds)

        try:
            _all_at_once(start, [arm for arm in wave.chosen() if "error" not in rows[arm.name]])
            self.say(f"  all warm ({self._left():.0f} s left)")
            for _ in range(self.repeats):
                for name in [name for name in rows if name in processes]:
                    self._measure(rows[name], processes)
        finally:
            _all_at_once(Process.end, list(processes.values()))
        for row in rows.values():
            self._conclude(task, row, peaks)
        return list(rows.values())

    def _measure(self, row: Row, processes: dict[str, Process]) -> None:
        if self._left() < 10:
            return
        try:
            measured = processes[row["arm"]].measure(_TOO_LONG)
        except ArmFailedError as error:
            row["error"] = str(error)
            self.say(f"  {row['arm']}: failed: {error}")
            processes.pop(row["arm"]).end()
            return
        row["measurements"].append(measured.seconds)
        row["peak_memory"] = measured.peak_memory

    def _conclude(self, task: Task, row: Row, peaks: dict[str, float]) -> None:
        taken = row.get("measurements")
        if "error" in row or not taken:
            row.pop("measurements", None)
            return
        row |= measures.figures(task, taken, row["rounds"], peaks[row["precision"]])
        micros = row["microseconds_a_client_step"]
        self.say(
            f"  {row['arm']}: {micros:.2f} µs a client-step, "
            f"{task.flops_a_sample * task.batch_size / micros / 1e6:.1f} TFLOP/s, "
            f"{100 * row['share_of_peak']:.1f} % of peak, {row['peak_memory'] / 2**30:.2f} GiB, "
            f"start-up {row['startup_seconds']:.1f} s; {', '.join(f'{seconds:.3f}' for seconds in taken)} s"
        )

    def _row(self, task: Task, arm: Arm) -> Row:
        return {
            "run": 0,
            "device": self.device,
            "task": task.name,
            "clients": task.cohort,
            "arm": arm.name,
            "label": arm.label,
            "kind": arm.kind,
            "precision": arm.precision,
            "rounds": rounds_of(task, arm) if self.device == "cuda" else 1,
        }


def _compiles(arm: Arm) -> bool:
    return arm.kind == "adabest" or "jax" in arm.module or "--compile" in arm.options


def _program(wave: Wave, arm: Arm) -> tuple[Any, ...]:
    """What needs compiling once; this package's kernels don't depend on the number of clients."""
    return wave.task, arm.name, None if arm.kind == "adabest" else wave.clients


def _all_at_once(work: Callable[[Any], None], items: Sequence[Any]) -> None:
    with concurrent.futures.ThreadPoolExecutor(max(1, len(items))) as pool:
        list(pool.map(work, items))


def rounds_of(task: Task, arm: Arm) -> int:
    """Rounds that should take long enough for a clock."""
    expected = next((value for name, value in _EXPECTED.items() if arm.name.startswith(name)), 100.0)
    if len(task.input_shape) == 1 and expected < 1000:
        expected /= 10
    return math.ceil(_LONG_ENOUGH * 1e6 / (expected * task.cohort * task.steps))


def publish(source: Path, folder: Path) -> list[Path]:
    """Puts results into the docs' page, in the place of earlier ones of the same arms."""
    from benchmarks import files, page

    found = files.read(source, {"runs", "results"})
    if found is None:
        raise InputError(f"there is no file {source}")
    earlier = files.read(folder / page.RESULTS, page.KEYS) or {"runs": [], "results": []}
    return files.write(folder, page.files(measures.merge(earlier, found)))


def main(words: Sequence[str] | None = None) -> int:
    """Parses, calls, prints."""
    given = sys.argv[1:] if words is None else list(words)
    arguments = _parser().parse_args(given)
    if arguments.command == "publish":
        print("written:", *publish(arguments.results, arguments.out))
        return 0
    waves = TRIAL if arguments.trial else WAVES
    chosen = [waves[number - 1] for number in arguments.waves or range(1, len(waves) + 1)]
    device = "cpu" if arguments.trial else "cuda"
    command = shlex.join(["python", "-m", "benchmarks.waves", *given])
    run = {**machine.describe(device, command, arguments.commit), "repeats": arguments.repeats}
    table = Table(device, arguments.seconds, arguments.repeats, arguments.slots, _say)
    for peaks, rows in table.measure(chosen):
        _write(arguments.out, {"runs": [{**run, "peaks": peaks}], "results": rows})
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.waves", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="measure all waves")
    measuring.add_argument("--out", type=Path, required=True, help="the file of results")
    measuring.add_argument("--seconds", type=float, default=460.0, help="how long it may take in all")
    measuring.add_argument("--repeats", type=int, default=3, help="measurements of each arm")
    measuring.add_argument("--slots", type=int, default=5, help="how many arms compile at a time")
    measuring.add_argument("--waves", type=int, nargs="*", help="only these, counted from 1")
    measuring.add_argument("--commit", help="what is measured, where git can't tell")
    measuring.add_argument("--trial", action="store_true", help="two small waves on the CPU, to see that all runs")
    publishing = commands.add_parser("publish", help="put results into the docs")
    publishing.add_argument("results", type=Path)
    publishing.add_argument("--out", type=Path, default=machine.ROOT / "docs", help="the docs' folder")
    return parser


def _write(path: Path, found: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    draft.replace(path)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
