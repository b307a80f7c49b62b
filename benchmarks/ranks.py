"""Runs on several ranks: ``python -m benchmarks.ranks measure``, then ``arithmetic``.

==============  ======================================================================================================
measure         starts 1, 2 and 4 ranks over gloo on this machine, beside one process without ranks, in turn; and two
                rules of placement on 2 ranks
rates           microseconds a client-step by the kernels alone, for the shares of clients that a GPU may have, and
                seconds of the least round on 2, 4 and 8 ranks of that machine
arithmetic      from both and stated link speeds, the time of a round on many GPUs; writes page and results
==============  ======================================================================================================

A round lasts from the moment at which its clients get their work to the same moment of the next round. Repeats go round
all arms, and ratios are those of arms in the same repeat. Bytes are compared with the formula, round by round and rank
by rank. Results gather in one file, ``docs/results/ranks.json``; what isn't measured again stays.
"""

import argparse
import hashlib
import itertools
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adabest.engine.distributed import ranks as rank_module
from adabest.errors import InputError
from adabest.models.factory import count_parameters
from benchmarks import files, machine, rank_arithmetic
from benchmarks.rank_arithmetic import LINKS, Fixed, Job, Traffic

Row = dict[str, Any]

RESULTS = "results/ranks.json"
KEYS = {"jobs", "placement", "control", "rates", "arithmetic"}
ALONE = "alone"
_LIMIT = 300.0  # seconds that a job may take
_OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_")
LARGE = "resnet,width=192,blocks=2"
_RATED = {  # models, and the numbers of clients side by side
    "cnn": (1, 2, 3, 4, 7, 10, 13, 25, 50, 100, 200),
    LARGE: (1, 2, 4, 7, 13, 25),
}


@dataclass(frozen=True)
class MeasuredJob:
    """A run that is measured.

    Attributes:
        name: What tables call it.
        words: Its settings.
        algorithm: The algorithm.
        model: The model, and the shape of its inputs.
        rounds: How many rounds are made.
    """

    name: str
    words: str
    algorithm: str
    model: str
    shape: tuple[int, ...]
    rounds: int

    @property
    def parameters(self) -> int:
        """P."""
        found = count_parameters(self.model, self.shape, 10)
        assert found is not None
        return found

    @property
    def traffic(self) -> Traffic:
        """What is sent in a round."""
        return rank_arithmetic.ALGORITHMS[self.algorithm](self.parameters)

    def command(self, out: Path) -> list[str]:
        """The words after ``adabest``."""
        shared = f"--evaluate-every {self.rounds} --checkpoint-every 0 --rounds {self.rounds}"
        chosen = f"--algorithm {self.algorithm} --model {self.model}"
        return ["run", *self.words.split(), *chosen.split(), *shared.split(), "--out", str(out)]


_DIGITS = "--dataset digits --clients 100 --participation 0.1 --alpha 0.3"
_IMAGES = (
    "--dataset synthetic,samples=2000,shape=3x32x32,test=100 --clients 100 --participation 0.1 --partition iid "
    "--batch-size 20 --epochs 2"
)
_MANY = (
    "--dataset synthetic,samples=40000,shape=1x28x28,test=100 --clients 1000 --validation-clients 0 --partition iid "
    "--batch-size 10 --epochs 2"
)
_LEAST = (
    "--dataset synthetic,samples=2000,shape=1x8x8,test=100 --clients 100 --participation 0.1 --partition iid --epochs 1"
)

JOBS = {
    "least": MeasuredJob(
        "logistic regression, one step a client, AdaBest",
        _LEAST,
        "adabest",
        "logistic",
        (1, 8, 8),
        60,
    ),
    "mlp-adabest": MeasuredJob("digits, MLP, AdaBest", _DIGITS, "adabest", "mlp", (1, 8, 8), 60),
    "mlp-fedavg": MeasuredJob("digits, MLP, FedAvg", _DIGITS, "fedavg", "mlp", (1, 8, 8), 60),
    "cnn-adabest": MeasuredJob("CNN of the paper, AdaBest", _IMAGES, "adabest", "cnn", (3, 32, 32), 7),
    "cnn-fedavg": MeasuredJob("CNN of the paper, FedAvg", _IMAGES, "fedavg", "cnn", (3, 32, 32), 7),
}
_PLACED = {
    f"{cohort}-{spread}": MeasuredJob(
        f"{cohort} of 1,000 clients, {'balanced' if spread == 0 else 'σ = 1'}",
        f"{_MANY} --participation {cohort / 1000} --unbalance {spread}",
        "adabest",
        "mlp",
        (1, 28, 28),
        40 if cohort == 10 else 15,
    )
    for cohort in (10, 100)
    for spread in (0, 1)
}


# --- Measuring --------------------------------------------------------------------------------------------------------


def measure_once(job: MeasuredJob, size: int | None, placement: str = "balanced") -> Row:
    """Makes a run on some ranks, or in one process without ranks if ``size`` is None.

    Raises:
        InputError: If it fails, or ranks have sent other bytes than the formula says.
    """
    with tempfile.TemporaryDirectory() as folder:
        notes, out = Path(folder, "notes"), Path(folder, "run")
        _start(job.command(out), size, notes, placement)
        own = [
            json.loads(Path(f"{notes}.{rank}.json").read_text()) for rank in ([ALONE] if size is None else range(size))
        ]
        model = hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
    return {**figures(job, own, size), "model": model}


def _start(words: Sequence[str], size: int | None, notes: Path, placement: str) -> None:
    """Starts the processes of a job by hand, since torchrun itself takes seconds, and waits for them."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(_OF_TORCHRUN)}
    command = [sys.executable, "-m", "benchmarks.rank_process", str(notes), placement, *words]
    port = _free_port()
    processes = []
    for rank in range(size or 1):
        of_rank: Row = (
            {} if size is None else {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_PORT": port}
        )
        of_rank |= {"LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1"} if size is not None else {}
        of_rank |= {"OMP_NUM_THREADS": 1} if size is not None and size > 1 else {}  # as torchrun does
        environment = plain | {name: str(value) for name, value in of_rank.items()}
        processes.append(
            subprocess.Popen(
                command, cwd=machine.ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
        )
    try:
        ends = [process.communicate(timeout=_LIMIT)[1] for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    failed = [end for process, end in zip(processes, ends, strict=True) if process.returncode]
    if failed:
        raise InputError(f"{shlex.join(words)}: {failed[0].strip()[-500:]}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def figures(job: MeasuredJob, own: Sequence[Row], size: int | None) -> Row:
    """What the notes of all processes of a job come to, a round; the first two rounds are warm-up.

    Raises:
        InputError: If ranks have sent other bytes than the formula says.
    """
    first = own[0]["rounds"]
    if len(first) < 4:
        raise InputError(f"{job.name}: {len(first)} rounds are too few; take 4 or more")
    at = [note["at"] for note in first]
    between = len(first) - 3
    row: Row = {
        "seconds": statistics.median(end - begin for begin, end in itertools.pairwise(at[2:])),
        "cpu": sum(one["rounds"][-1]["cpu"] - one["rounds"][2]["cpu"] for one in own) / between,
    }
    if size is None:
        return row
    for number in range(len(first)):
        notes = [one["rounds"][number] for one in own]
        wanted = rank_arithmetic.round_bytes(job.traffic, notes[0]["clients"], notes[0]["moves"])
        found = [(note["sent"], note["received"]) for note in notes]
        if size > 1 and found != wanted:
            raise InputError(f"{job.name}, round {number + 1}: ranks sent and received {found}, not {wanted}")

    def mean(name: str) -> list[float]:
        return [statistics.mean(note[name] for note in one["rounds"][2:]) for one in own]

    return row | {
        "exchange": max(statistics.median(note["exchange"] for note in one["rounds"][2:]) for one in own),
        "sent": mean("sent"),
        "received": mean("received"),
        "text": sum(mean("text")),
        "moved": statistics.mean(len(note["moves"]) for note in first[2:]),
        "most_clients": statistics.mean(max(note["clients"]) for note in first[2:]),
    }


def measure(names: Sequence[str], sizes: Sequence[int], repeats: int, say: Callable[[str], None]) -> Row:
    """Measures jobs, each in all arms in turn."""
    found = {}
    for name in names:
        job, arms = JOBS[name], [None, *sizes]
        made: dict[str, list[Row]] = {str(arm or ALONE): [] for arm in arms}
        for repeat in range(repeats):
            for arm in arms[repeat % len(arms) :] + arms[: repeat % len(arms)]:
                row = measure_once(job, arm)
                made[str(arm or ALONE)].append(row)
                say(f"{name}, {arm or ALONE}: {row['seconds'] * 1e3:.2f} ms a round, CPU {row['cpu'] * 1e3:.2f} ms")
        found[name] = {"name": job.name, "parameters": job.parameters, "arms": summary(made, ALONE)}
    return found


def measure_placement(names: Sequence[str], repeats: int, say: Callable[[str], None]) -> Row:
    """Measures both rules of placement on two ranks, in turn."""
    found = {}
    for name in names:
        made: dict[str, list[Row]] = {"balanced": [], "home": []}
        for repeat in range(repeats):
            for rule in [*made][:: 1 if repeat % 2 == 0 else -1]:
                made[rule].append(measure_once(_PLACED[name], 2, rule))
                say(f"placement {name}, {rule}: {made[rule][-1]['seconds'] * 1e3:.2f} ms a round")
        found[name] = {"name": _PLACED[name].name, "arms": summary(made, "balanced")}
    return found


def summary(made: Mapping[str, Sequence[Row]], base: str) -> dict[str, Row]:
    """Medians over repeats, and the median ratio of each arm to the base in the same repeat.

    Raises:
        InputError: If arms have trained different models.
    """
    models = {row["model"] for rows in made.values() for row in rows}
    if len(models) > 1:
        raise InputError(f"arms should train the same model, but there are {len(models)}")
    found = {}
    for arm, rows in made.items():
        names = [name for name in rows[0] if name not in ("model", "sent", "received")]
        row: Row = {name: statistics.median(one[name] for one in rows) for name in names}
        row |= {name: rows[0][name] for name in ("sent", "received") if name in rows[0]}
        for name in ("seconds", "cpu"):
            row[f"{name}_ratio"] = statistics.median(
                one[name] / other[name] for one, other in zip(rows, made[base], strict=True)
            )
        row["all_seconds"] = [one["seconds"] for one in rows]
        found[arm] = row
    return found


def measure_rates(say: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """Microseconds a client-step by the kernels alone, by model and number of clients side by side."""
    from benchmarks import kernels

    found: dict[str, dict[str, float]] = {}
    for model, sizes in _RATED.items():
        for clients in sizes:
            value = kernels.microseconds((model, (3, 32, 32), 10, 45), clients, offset=True)
            found.setdefault(model, {})[str(clients)] = value
            say(f"{model}, {clients} clients: {value:.2f} µs a client-step")
    return found


# --- Arithmetic -------------------------------------------------------------------------------------------------------

SIZES = (1, 2, 4, 8, 16, 32, 64)
PLACES = ((10, 0.0), (10, 1.0), (100, 0.0), (100, 1.0))
_POPULATION, _STEPS = 1000, 50


def arithmetic(stored: Row, speed: Row) -> Row:
    """Rounds on many GPUs, from what was measured.

    Args:
        stored: What this module has measured.
        speed: The results of ``speed``, for what a round takes beside its kernels.
    """
    fixed = fixed_seconds(stored, speed)
    rounds: list[Row] = []
    stops: list[Row] = []
    for job, rates in gpu_jobs(stored):
        moved = {
            size: rank_arithmetic.place([job.steps] * _POPULATION, job.clients, size, "balanced").most_moved
            for size in SIZES
        }
        for key, link in LINKS.items():
            for size in SIZES:
                time = rank_arithmetic.round_time(job, rates, link, size, fixed=fixed, moved=moved[size])
                rounds.append({"job": job.name, "link": key, **time._asdict(), "seconds": time.seconds})
            worth = rank_arithmetic.last_worthwhile(job, rates, link, fixed, moved)
            stops.append({"job": job.name, "link": key, "ranks": worth})
    return {"fixed": as_json(fixed), "rounds": rounds, "stops": stops, "placement": placements(stored)}


def fixed_seconds(stored: Row, speed: Row) -> Fixed:
    """What more ranks don't shorten, as measured."""
    wide = speed["whole_jobs"]["wide"]
    steps = wide["seconds_a_round"] / wide["end_to_end"] * 1e6
    control = stored["control"]["seconds"]
    return Fixed(
        alone=(wide["end_to_end"] - wide["other"]) * steps * 1e-6,
        control={int(size): value - control[ALONE] for size, value in control.items() if size not in (ALONE, "1")},
        lateness=rank_module._LONGEST_PAUSE / 2,
    )


def as_json(fixed: Fixed) -> Row:
    """With text for keys."""
    return {**fixed._asdict(), "control": {str(size): value for size, value in fixed.control.items()}}


def gpu_jobs(stored: Row) -> list[tuple[Job, dict[int, float]]]:
    """The jobs of the arithmetic, with their rates."""
    rates = stored["rates"]["microseconds"]
    found = []
    for name, model, own in (
        ("the paper's CNN", "cnn", rates["cnn"]),
        ("a ResNet of 25 million parameters", LARGE, rates[LARGE]),
    ):
        parameters = count_parameters(model, (3, 32, 32), 10)
        assert parameters is not None
        found.append((Job(name, model, rank_arithmetic.adabest(parameters)), rank_arithmetic.as_rates(own)))
    return found


def placements(stored: Row) -> list[Row]:
    """Both rules of placement for clients of 50 steps on average, in steps and by arithmetic in time on GPUs."""
    jobs = gpu_jobs(stored)
    rates = {job.name: own[max(own)] * 1e-6 for job, own in jobs}
    found = []
    for cohort, spread in PLACES:
        steps = rank_arithmetic.local_steps(_POPULATION, _STEPS, spread)
        for size in (2, 4, 8, 64):
            for rule in ("balanced", "home"):
                placed = rank_arithmetic.place(steps, cohort, size, rule)
                moving = {
                    job.name: {
                        key: placed.most_moved * job.traffic.state / link.bandwidth for key, link in LINKS.items()
                    }
                    for job, _ in jobs
                }
                found.append(
                    {
                        "cohort": cohort,
                        "spread": spread,
                        "ranks": size,
                        "rule": rule,
                        **placed._asdict(),
                        "training": {name: placed.makespan * rate for name, rate in rates.items()},
                        "moving": moving,
                    }
                )
    return found


# --- The command ------------------------------------------------------------------------------------------------------


def publish(folder: Path, parts: Row) -> list[Path]:
    """Puts what was measured beside what is there, works out the arithmetic and writes results and page.

    Raises:
        InputError: If files hold something else, or the rates or the jobs aren't measured yet.
    """
    from benchmarks import page as speed_page
    from benchmarks import rank_page

    stored = files.read(folder / RESULTS, KEYS) or {}
    for name, part in parts.items():
        stored[name] = {**stored.get(name, {}), **part} if name in ("jobs", "placement") else part
    speed = files.read(folder / speed_page.RESULTS, speed_page.KEYS)
    contents: dict[str, files.Content] = {}
    if speed is not None and {"jobs", "placement", "control", "rates"} <= stored.keys():
        stored["arithmetic"] = arithmetic(stored, speed)
        contents["results/ranks.md"] = rank_page.page(stored)
    return files.write(folder, {RESULTS: stored, **contents})


def main(words: Sequence[str] | None = None) -> int:
    """Parses, calls, prints."""
    given = sys.argv[1:] if words is None else list(words)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ranks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="start ranks on this machine")
    measuring.add_argument("--jobs", nargs="*", choices=list(JOBS), default=list(JOBS))
    measuring.add_argument("--placement", nargs="*", choices=list(_PLACED), default=list(_PLACED))
    measuring.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 4])
    measuring.add_argument("--repeats", type=int, default=3)
    measuring.add_argument("--commit", help="what is measured, where git can't tell")
    commands.add_parser("rates", help="time kernels and orders on a machine with a GPU, and print the results as JSON")
    reckoning = commands.add_parser("arithmetic", help="work out rounds on many GPUs, and write the page")
    reckoning.add_argument("--rates", type=Path, help="what rates has printed; by default as before")
    for command in commands.choices.values():
        command.add_argument("--out", type=Path, default=machine.ROOT / "docs", help="the docs' folder")
    arguments = parser.parse_args(given)
    run = machine.describe(
        "cpu", shlex.join(["python", "-m", "benchmarks.ranks", *given]), getattr(arguments, "commit", None)
    )
    if arguments.command == "rates":
        machine.check("cuda")
        run = machine.describe("cuda", run["command"], run["commit"])
        control = measure(["least"], [1, 2, 4, 8], 3, _say)["least"]["arms"]
        seconds = {arm: row["seconds"] for arm, row in control.items()}
        rates = {"run": run, "microseconds": measure_rates(_say)}
        print(json.dumps({"control": {"run": run, "seconds": seconds}, "rates": rates}))
        return 0
    parts: Row = {}
    if arguments.command == "arithmetic" and arguments.rates is not None:
        parts = files.read(arguments.rates, {"control", "rates"}) or {}
    if arguments.command == "measure":
        parts = {
            "jobs": measure(arguments.jobs, arguments.ranks, arguments.repeats, _say),
            "placement": measure_placement(arguments.placement, arguments.repeats, _say),
        }
        for part in parts.values():
            for job in part.values():
                job["run"] = run
    print("written:", *publish(arguments.out, parts))
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
