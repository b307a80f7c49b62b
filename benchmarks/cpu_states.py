"""Two states of this package side by side on a CPU: how much slower or faster one is; prints a table.

Each state is a process of its own, started once for each work and algorithm, and both train the same rounds in turn.
The ratio is that of the earlier state's time to the later one's, so above 1 the later one is faster: once for the
minima and once for the medians over the repeats, of the time on the clock and of the time that the process computed.
"Computing, pairs" is the median of the ratios of two rounds that followed each other, with their quartiles; what else
runs on the machine slows both of a pair alike. "Same bits" says whether both states come to the same cloud model.

python benchmarks/cpu_states.py BEFORE [AFTER] [--repeats 15] [--threads 2] [--works NAME ...] [--algorithms NAME ...]

BEFORE and AFTER are checkouts (``git archive COMMIT | tar -x -C FOLDER``); AFTER is by default this one.
"""

import argparse
import hashlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Work(NamedTuple):
    """What is trained in a round."""

    model: str
    shape: tuple[int, ...]
    clients: int
    steps: int
    batch: int
    unbalance: float = 0.0


WORKS = {
    "MLP": Work("mlp", (1, 28, 28), 10, 20, 50),
    "MLP, unbalanced": Work("mlp", (1, 28, 28), 10, 20, 50, 0.5),
    "MLP, one client": Work("mlp", (1, 28, 28), 1, 100, 50),
    "CNN": Work("cnn", (3, 32, 32), 2, 2, 50),
    "CNN, one client": Work("cnn", (3, 32, 32), 1, 2, 50),
    "small MLP": Work("mlp", (1, 8, 8), 10, 50, 10),
    "small MLP, unbalanced": Work("mlp", (1, 8, 8), 10, 50, 10, 0.5),
    "logistic": Work("logistic", (1, 8, 8), 10, 50, 10),
    "logistic, 100 clients": Work("logistic", (1, 8, 8), 100, 10, 10),
}


def serve(name: str, algorithm: str, threads: int) -> None:
    """Trains a round for each line that is read, and says what it took: seconds on the clock, and of computing.

    At last it says the digest of the cloud model.
    """
    import numpy as np
    import torch

    from adabest.algorithms.catalog import ALGORITHMS
    from adabest.data.dataset import from_arrays
    from adabest.engine.local_step import LocalTraining
    from adabest.engine.simulation import Simulation
    from adabest.federation.partition import Scheme, cut
    from adabest.federation.roster import Attendance
    from adabest.models.factory import build_model
    from adabest.tasks.classification import ClassificationTask

    try:
        make: Any = importlib.import_module("adabest.runs.build").make_batched_engine
    except AttributeError:  # an earlier state, whose engine chose the trainer itself
        make = importlib.import_module("adabest.engine.batched").BatchedEngine

    work = WORKS[name]
    count = work.clients * work.steps * work.batch
    images = np.random.default_rng(0).integers(0, 256, size=(count, *work.shape), dtype=np.uint8)
    labels = np.arange(count) % 10
    dataset = from_arrays(images, labels, images[:10], labels[:10], name="random")
    partition = cut(labels, 10, Scheme(work.clients, 0, "iid", alpha=1.0, unbalance=work.unbalance, seed=0))
    module = build_model(work.model, torch.zeros(2, *work.shape), 10, seed=0)
    task = ClassificationTask(dataset, partition, module, epochs=1, batch_size=work.batch)
    simulation = Simulation(
        ALGORITHMS.find(algorithm)(),
        task,
        partition.training,
        training=LocalTraining(weight_decay=1e-3),
        attendance=Attendance(participation=1.0),
        engine=lambda beat: make(beat, threads=threads),
    )
    torch.set_num_threads(threads)
    simulation.step()
    print("ready", flush=True)
    for _ in sys.stdin:
        clock, computing = time.perf_counter(), time.process_time()
        simulation.step()
        print(json.dumps([time.perf_counter() - clock, time.process_time() - computing]), flush=True)
    print(hashlib.sha256(simulation.state.cloud.numpy().tobytes()).hexdigest(), flush=True)


def compare(name: str, algorithm: str, states: list[Path], repeats: int, threads: int) -> list[str]:
    """A row of the table: before by after, and whether the bits are the same."""
    serving = ["--serve", name, "--algorithms", algorithm, "--threads", str(threads)]
    processes = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), *serving],
            env={**os.environ, "PYTHONPATH": str(state / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for state in states
    ]
    times: list[list[list[float]]] = [[], []]
    for repeat in range(-1, repeats):  # the first line is that they are ready
        for place in (0, 1) if repeat % 2 else (1, 0):
            said, heard = processes[place].stdin, processes[place].stdout
            assert said is not None
            assert heard is not None
            if repeat >= 0:
                said.write("go\n")
                said.flush()
            line = heard.readline()
            if repeat >= 0:
                times[place].append(json.loads(line))
    digests = [process.communicate()[0].strip() for process in processes]
    columns = [list(zip(*own, strict=True)) for own in times]
    measures = ((min, 0), (statistics.median, 0), (min, 1), (statistics.median, 1))
    ratios = [float(measure(columns[0][column]) / measure(columns[1][column])) for measure, column in measures]
    low, middle, high = statistics.quantiles([a / b for a, b in zip(columns[0][1], columns[1][1], strict=True)], n=4)
    same = "yes" if digests[0] == digests[1] else "no"
    return [*(f"{ratio:.3f}" for ratio in ratios), f"{middle:.3f} ({low:.3f} to {high:.3f})", same]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?", help="a checkout of the earlier state")
    parser.add_argument("after", type=Path, nargs="?", default=ROOT, help="a checkout of the later one")
    parser.add_argument("--repeats", type=int, default=15, help="rounds of each state")
    parser.add_argument("--threads", type=int, default=2, help="cores to use")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS), help="what to train")
    parser.add_argument("--algorithms", nargs="+", default=["adabest"], help="what trains it, by name")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve, options.algorithms[0], options.threads)
        return
    if options.before is None:
        parser.error("name a checkout of the earlier state")
    titles = (
        "clock, minima",
        "clock, medians",
        "computing, minima",
        "computing, medians",
        "computing, pairs",
        "same bits",
    )
    print("| work | algorithm | " + " | ".join(titles) + " |")
    print("|---|---|" + "---:|" * len(titles))
    for name in options.works:
        for algorithm in options.algorithms:
            row = compare(name, algorithm, [options.before, options.after], options.repeats, options.threads)
            print(f"| {name} | {algorithm} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
