"""A part of Table 1 from start to table, tuning included, beside the sum of its kernel times.

python -m benchmarks.whole_table --data-dir DIR --out whole-table.json

The command ``adabest reproduce table1`` is started as a user starts it: a process of its own, with nothing compiled
unless earlier processes left it. Lines of progress say how far it is, so that a stopped call tells that, too.
Afterwards the kernels are timed alone, at each number of clients that trained together, and multiplied by the
client-steps that were made at that width.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from adabest.runs.files.folder import METRICS
from benchmarks import machine
from benchmarks.whole_jobs import Setting, kernels_alone, write

CELLS = ("cifar10/1/*", "cifar10/10/*")
_TRIAL = ("fig-stability-emnist", ("mnist",))  # an experiment with a small model, and its cells
_LOOK_EVERY = 1.0  # seconds
_SAY_EVERY = 15.0


class MadeRun(NamedTuple):
    """A run that was made.

    Attributes:
        rounds: Its rounds.
        clients: Its clients in a round.
        steps: Its client-steps in a round.
    """

    rounds: int
    clients: int
    steps: float


def widths(runs: Sequence[MadeRun]) -> dict[int, float]:
    """The client-steps of runs that are trained together, by how many clients train at a time.

    Runs begin together; after the last round of one, the others go on without its clients.
    """
    steps: dict[int, float] = {}
    done = 0
    for ending in sorted({run.rounds for run in runs}):
        left = [run for run in runs if run.rounds >= ending]
        width = sum(run.clients for run in left)
        steps[width] = steps.get(width, 0.0) + (ending - done) * sum(run.steps for run in left)
        done = ending
    return steps


def made_runs(folder: Path) -> dict[str, list[MadeRun]]:
    """The runs in the folder of an experiment: those by which values were chosen, and all others."""
    found: dict[str, list[MadeRun]] = {"tuning": [], "table": []}
    for path in sorted(folder.rglob(METRICS)):
        lines = path.read_text(encoding="utf-8").splitlines()
        if not lines:
            continue
        last = json.loads(lines[-1])
        group = "tuning" if path.relative_to(folder).parts[0] == "tuning" else "table"
        found[group].append(MadeRun(last["round"], last["cohort"], last["local_steps"] / last["round"]))
    return found


def kernel_seconds(runs: Mapping[str, Sequence[MadeRun]], microseconds: Callable[[int], float]) -> float:
    """The sum of the kernels' times: client-steps by width, times a client-step's time at that width."""
    together = [widths(group) for group in runs.values()]
    return sum(steps * microseconds(width) for group in together for width, steps in group.items()) / 1e6


def progress(folder: Path) -> str:
    """How far the runs in a folder are, in words."""
    runs = made_runs(folder)
    parts = []
    for name, group in runs.items():
        if group:
            steps = sum(run.rounds * run.steps for run in group)
            parts.append(
                f"{name}: {len(group)} runs, round {min(run.rounds for run in group)}, {steps:,.0f} client-steps"
            )
    return "; ".join(parts) or "no run was evaluated yet"


def timed(command: Sequence[str], folder: Path, say: Callable[[str], None]) -> float:
    """The seconds that a command takes, with lines of progress.

    Raises:
        CalledProcessError: If it fails.
    """
    began = time.monotonic()
    told = began
    with subprocess.Popen(command) as process:
        try:
            while process.poll() is None:
                time.sleep(_LOOK_EVERY)
                if time.monotonic() - told >= _SAY_EVERY:
                    told = time.monotonic()
                    say(f"{told - began:.0f} s: {progress(folder)}")
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return time.monotonic() - began


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Makes the cells, and says how long that took and how long the kernels alone take."""
    setting = Setting("cpu" if arguments.trial else "cuda")
    experiment, cells = _TRIAL if arguments.trial else ("table1", arguments.cells)
    options = ["--cells", *cells, "--seeds", "0", "--device", setting.device, "--checkpoint-every", "0"]
    if arguments.rounds is not None:
        options += ["--rounds", str(arguments.rounds)]
    with tempfile.TemporaryDirectory() as place:
        folder = arguments.folder or Path(place) / experiment
        where = ["--data-dir", str(arguments.data_dir)] if arguments.data_dir else []
        command = [sys.executable, "-m", "adabest", "reproduce", experiment, *options]
        seconds = timed([*command, *where, "--out", str(folder)], folder, _say)
        _say(f"{seconds:.1f} s from start to table: {progress(folder)}")
        runs = made_runs(folder)
    alone = {}
    for width in sorted({width for group in runs.values() for width in widths(group)}):
        alone[width] = kernels_alone("cnn", width, setting, offset=True)
        _say(f"kernels alone with {width} clients: {alone[width]} µs a client-step")
    known = {width: value for width, value in alone.items() if value is not None}
    kernels = kernel_seconds(runs, lambda width: known[width]) if len(known) == len(alone) else None
    return {
        "what": f"{experiment}, {' and '.join(cells)}, one seed, tuning included, from start to table",
        "unit": "s",
        "end_to_end": seconds,
        "beside": "sum of kernel times",
        "other": kernels,
        "ratio": None if kernels is None else seconds / kernels,
        "done_at": "",
        "reached": None,
        "client_steps": {
            name: {str(width): steps for width, steps in widths(group).items()} for name, group in runs.items()
        },
        "kernel_microseconds": {str(width): value for width, value in alone.items()},
        "measured": shlex.join(["adabest", *command[3:]]),
    }


def main(words: Sequence[str] | None = None) -> int:
    """Parses, calls, prints."""
    given = sys.argv[1:] if words is None else list(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="the folder of the official data files")
    parser.add_argument("--cells", nargs="+", default=CELLS)
    parser.add_argument("--rounds", type=int, help="fewer rounds, to try it")
    parser.add_argument("--folder", type=Path, help="where the runs are kept; by default they aren't")
    parser.add_argument("--out", type=Path, required=True, help="the file of results")
    parser.add_argument("--commit", help="what is measured, where git can't tell")
    parser.add_argument("--trial", action="store_true", help="one small cell on the CPU, to see that all runs")
    arguments = parser.parse_args(given)
    device = "cpu" if arguments.trial else "cuda"
    machine.check(device)
    run = machine.describe(device, shlex.join(["python", "-m", "benchmarks.whole_table", *given]), arguments.commit)
    row = measure(arguments)
    write(arguments.out, {"run": run, "parts": {"table": row}})
    kernels = "–" if row["other"] is None else f"{row['other']:.1f} s"
    _say(f"{row['end_to_end']:.1f} s; sum of kernel times {kernels}")
    return 0


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
