"""The arm's side of a measurement. Needs the standard library only: arms run in environments of their own.

An arm is started as ``PYTHON -m benchmarks.arms.NAME --task T --device D --clients-in-parallel N
--rounds-per-measurement R``, with options of its own after these. On its standard output it says one line of JSON,
``{"ready": true, "startup_seconds": ..., "versions": {...}}``, as soon as it is warm. For each line ``go`` that it
reads it trains R rounds and says ``{"seconds": ..., "peak_memory": ...}``. At ``quit``, or if its parent is gone, it
ends. Whatever else it or its package prints goes to standard error.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

_IMPORTED = time.monotonic()

S = TypeVar("S")


def serve(
    prepare: Callable[[argparse.Namespace], S],
    train: Callable[[S, int], None],
    *,
    warm_up: Callable[[S], None] | None = None,
    packages: Iterable[str] = (),
    peak_memory: Callable[[], int] | None = None,
    options: Callable[[argparse.ArgumentParser], object] | None = None,
) -> None:
    """Runs an arm until its parent has enough of it.

    Args:
        prepare: From the arguments (``task``, ``device``, ``clients``, ``rounds`` and the arm's own) to whatever
            ``train`` needs: data, model, server.
        train: Trains one round, by number, and returns when the work is done, not when it is queued. Numbers of rounds
            begin with 1; 0 is the warm-up.
        warm_up: All that keeps the first round from being as fast as the others: compilation, caches, worker processes.
            By default a whole round.
        packages: Distributions whose versions matter.
        peak_memory: The largest number of bytes in use so far. By default the resident memory of this process and of
            those that it has started.
        options: Adds the arm's own options to the parser.
    """
    say = _private_output()
    arguments = _arguments(options)
    state = prepare(arguments)
    (warm_up or (lambda ready: train(ready, 0)))(state)
    versions = {name: importlib.metadata.version(name) for name in packages}
    say({"ready": True, "startup_seconds": _age(), "versions": {"python": platform.python_version(), **versions}})
    round_number = 0
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        begun = time.perf_counter()
        for _ in range(arguments.rounds):
            round_number += 1
            train(state, round_number)
        seconds = time.perf_counter() - begun
        say({"seconds": seconds, "peak_memory": (peak_memory or resident_memory)()})


def _arguments(options: Callable[[argparse.ArgumentParser], object] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--clients-in-parallel", dest="clients", type=int, required=True)
    parser.add_argument("--rounds-per-measurement", dest="rounds", type=int, default=1)
    if options is not None:
        options(parser)
    return parser.parse_args()


def _private_output() -> Callable[[dict[str, Any]], None]:
    """Keeps standard output for the protocol: packages that print, and their child processes, get standard error."""
    sys.stdout.flush()
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        output.write(json.dumps(message) + "\n")
        output.flush()

    return say


def _age() -> float:
    """Seconds since this process was started, or, where the system doesn't tell, since this module was imported."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return uptime - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return time.monotonic() - _IMPORTED


def resident_memory() -> int:
    """The peak resident memory of this process and those below it, in bytes; 0 where the system doesn't tell."""
    children: dict[int, list[int]] = {}
    peaks: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        except OSError:  # it has ended
            continue
        process = int(status.parent.name)
        children.setdefault(int(lines["PPid"]), []).append(process)
        peaks[process] = 1024 * int(lines.get("VmHWM", "0 kB").split()[0])
    family, total = [os.getpid()], 0
    while family:
        process = family.pop()
        total += peaks.get(process, 0)
        family += children.get(process, [])
    return total
