"""How long partitioners take, and how that grows.

``dirichlet-legacy`` draws one sample after another by nature and is measured up to 50,000 samples only.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from adabest.federation.partition import Scheme, cut
from adabest.federation.partitioners import PARTITIONERS
from adabest.report.table import Table
from benchmarks import machine

CLASSES = 10
SIZES = ((5_000, 110), (50_000, 1_100), (250_000, 11_000), (1_000_000, 100_000))
LARGEST_FOR_LEGACY = 50_000
_MARKERS = "osD^v"


def measure() -> dict[str, list[float | None]]:
    """Seconds of each partitioner for each (samples, clients); None where it would take too long."""
    return {
        name: [
            None if name == "dirichlet-legacy" and samples > LARGEST_FOR_LEGACY else _seconds(name, samples, clients)
            for samples, clients in SIZES
        ]
        for name in PARTITIONERS.builtin
    }


def _seconds(name: str, samples: int, clients: int) -> float:
    """The best of three."""
    labels = np.arange(samples) % CLASSES
    scheme = Scheme(clients, 0, name, alpha=0.3, unbalance=0.0, seed=0)
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        cut(labels, CLASSES, scheme)
        times.append(time.perf_counter() - begun)
    return min(times)


def table(measured: dict[str, list[float | None]]) -> Table:
    """Partitioners in numbers."""
    head = ("samples / clients", *(f"{samples:,} / {clients:,}" for samples, clients in SIZES))
    return Table(
        head, tuple((name, *("–" if t is None else f"{t:.3f} s" for t in times)) for name, times in measured.items())
    )


def page(run: dict[str, Any], tables: Sequence[str]) -> str:
    """The results as a page: how long partitioners take, and what draws cost."""
    cuts, draws = tables
    return "\n".join(
        [
            "# Partitions and draws\n",
            f"{machine.words(run)}. Commit {run['commit']}, {run['date']}:\n",
            f"<!-- not run: it takes long -->\n```sh\n{run['command']}\n```\n",
            "## Cutting a training set into clients, best of three\n",
            cuts,
            "![Seconds over samples, for each partitioner](../assets/partitioners.png)\n",
            "## Drawing who takes part, time of a round\n",
            draws,
        ]
    )


def figure(measured: dict[str, list[float | None]]) -> Figure:
    """Seconds over samples, one line a partitioner."""
    drawn = Figure(figsize=(6, 3.6), layout="constrained")
    FigureCanvasAgg(drawn)
    axes = drawn.subplots()
    for (name, times), marker in zip(measured.items(), _MARKERS, strict=False):
        points = [(samples, t) for (samples, _), t in zip(SIZES, times, strict=True) if t is not None]
        axes.loglog(*zip(*points, strict=True), marker=marker, label=name)
    axes.set(xlabel="samples", ylabel="seconds", title="Cutting a training set into clients")
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False)
    return drawn
