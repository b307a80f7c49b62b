"""What a round, the set-up and the memory cost for populations of a thousand to a million clients with a CNN.

python benchmarks/population.py [--populations 1000 1000000] [--rounds 200] [--out docs/assets/population]

Ten clients a round, each with one sample of a synthetic data set and one local step; the models are evaluated after the
last round only. Every population is measured in a process of its own.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import platform
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import torch

from adabest.report.table import Table
from adabest.runs.build import build_federation
from adabest.runs.settings.resolution import resolve

POPULATIONS = (10**3, 10**4, 10**5, 10**6)
COHORT = 10
MIB = 2**20


def measure(population: int, *, rounds: int = 200, client_memory: str = "4GiB", threads: int = 1) -> dict[str, Any]:
    """Runs some rounds in a process of their own.

    Args:
        population: How many clients there are, each with one sample.
        rounds: How many rounds of ten clients, at least two; the last one is evaluated and timed apart.
        client_memory: What the clients' rows may take before they go to a mapped file, which is a temporary one.
        threads: CPU threads.
    """
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measure, population, rounds, client_memory, threads).result()


def _measure(population: int, rounds: int, client_memory: str, threads: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    peak = _Peak()
    begun = time.perf_counter()
    settings = {
        "dataset": f"synthetic,samples={population},shape=3x32x32,classes=10",
        "model": "cnn",
        "algorithm": "adabest",
        "clients": population,
        "validation_clients": 0,
        "participation": COHORT / population,
        "epochs": 1,
        "batch_size": 1,
        "client_memory": client_memory,
    }
    federation = build_federation(*resolve(settings))
    simulation = federation.simulation
    set_up = time.perf_counter() - begun
    wall, cpu = [], []
    for _ in range(rounds - 1):
        begun, begun_cpu = time.perf_counter(), time.process_time()
        simulation.step()
        wall.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - begun_cpu)
    begun = time.perf_counter()
    metrics = simulation.step(evaluate=True)
    evaluated = time.perf_counter() - begun
    assert metrics is not None
    taken = simulation.state.clients.bytes()
    return {
        "population": population,
        "rounds": rounds,
        "took_part": len(simulation.state.clients),
        "set_up_seconds": set_up,
        "seconds_per_round_median": statistics.median(wall),
        "seconds_per_round_fastest": min(wall),
        "seconds_per_round_mean": statistics.mean(wall),
        "cpu_seconds_per_round": statistics.mean(cpu),
        "last_round_with_evaluation_seconds": evaluated,
        "peak_anonymous_bytes": peak.stop(),
        "client_memory_bytes": taken["client_memory"],
        "client_disk_bytes": taken["client_disk"],
        "scored_accuracy": metrics["scored_accuracy"],
    }


class _Peak:
    """The largest anonymous memory of this process, looked at fifty times a second."""

    def __init__(self) -> None:
        self._peak, self._stopped = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._stopped.set()
        self._thread.join()
        return self._peak

    def _watch(self) -> None:
        while not self._stopped.wait(0.02):
            lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
            anonymous = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
            self._peak = max(self._peak, anonymous * 1024)


def table(results: list[dict[str, Any]]) -> Table:
    """The measurements as a table."""
    header = ("clients", "took part", "set-up", "round, median", "round, CPU", "evaluation", "anonymous memory, peak")
    rows = tuple(
        (
            f"{r['population']:,}",
            f"{r['took_part']:,}",
            f"{r['set_up_seconds']:.1f} s",
            f"{r['seconds_per_round_median']:.3f} s",
            f"{r['cpu_seconds_per_round']:.3f} s",
            f"{r['last_round_with_evaluation_seconds']:.1f} s",
            f"{r['peak_anonymous_bytes'] / MIB:,.0f} MiB",
            f"{r['client_memory_bytes'] / MIB:,.0f} MiB",
            f"{r['client_disk_bytes'] / MIB:,.0f} MiB",
        )
        for r in results
    )
    return Table((*header, "rows in memory", "rows in the mapped file"), rows)


def main() -> None:
    """Measures, prints, and writes JSON and Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--populations", type=int, nargs="+", default=POPULATIONS)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--client-memory", default="4GiB")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/population"), help="Files to write, without ending.")
    given = parser.parse_args()
    results = []
    for population in given.populations:
        results.append(
            measure(population, rounds=given.rounds, client_memory=given.client_memory, threads=given.threads)
        )
        print(json.dumps(results[-1]), flush=True)
    machine = {"machine": platform.machine(), "processors": os.cpu_count(), "torch": torch.__version__}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.with_suffix(".json").write_text(json.dumps({**machine, "results": results}, indent=2) + "\n")
    given.out.with_suffix(".md").write_text(table(results).markdown())
    print(table(results).markdown())


if __name__ == "__main__":
    main()
