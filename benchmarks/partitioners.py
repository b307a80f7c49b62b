"""How long partitioners take, and how that grows; writes docs/assets/partitioners.png and prints a table.

python benchmarks/partitioners.py

`dirichlet-legacy` draws one sample after another by nature and is measured up to 50,000 samples only.
"""

import time
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from adabest.federation import PARTITIONERS, Scheme, cut
from adabest.report import Table

CLASSES = 10
SIZES = ((5_000, 110), (50_000, 1_100), (250_000, 11_000), (1_000_000, 100_000))
LARGEST_FOR_LEGACY = 50_000
FIGURE = Path(__file__).parent.parent / "docs" / "assets" / "partitioners.png"


def seconds(name: str, samples: int, clients: int) -> float:
    """The best of three."""
    labels = np.arange(samples) % CLASSES
    scheme = Scheme(clients, 0, name, alpha=0.3, unbalance=0.0, seed=0)
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        cut(labels, CLASSES, scheme)
        times.append(time.perf_counter() - begun)
    return min(times)


measured: dict[str, list[float | None]] = {
    name: [
        None if name == "dirichlet-legacy" and samples > LARGEST_FOR_LEGACY else seconds(name, samples, clients)
        for samples, clients in SIZES
    ]
    for name in PARTITIONERS.builtin
}
head = ("samples / clients", *(f"{samples:,} / {clients:,}" for samples, clients in SIZES))
rows = [(name, *("–" if t is None else f"{t:.3f} s" for t in times)) for name, times in measured.items()]
print(Table(head, tuple(rows)).markdown())

figure = Figure(figsize=(6, 3.6), layout="constrained")
FigureCanvasAgg(figure)
axes = figure.subplots()
for name, times in measured.items():
    points = [(samples, t) for (samples, _), t in zip(SIZES, times, strict=True) if t is not None]
    axes.loglog(*zip(*points, strict=True), marker="o", label=name)
axes.set(xlabel="samples", ylabel="seconds", title="Cutting a training set into clients")
axes.grid(alpha=0.3, which="both")
axes.legend(frameon=False)
FIGURE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(FIGURE, dpi=110)
