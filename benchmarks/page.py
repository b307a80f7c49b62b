"""The results of ``speed`` for readers: a page and a figure for each device, written from the JSON file alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from adabest.report.table import Table
from benchmarks import machine
from benchmarks.files import Content
from benchmarks.measures import short
from benchmarks.tasks import TASKS, Task

Row = dict[str, Any]

RESULTS = "results/speed.json"

_HEAD = (
    *("", "s a round", "median", "times adabest", "samples/s", "µs a client-step"),
    *("% of peak", "peak MB", "start-up s"),
)
# What kinds of arms look like, in print without colours, too.
_LOOKS: dict[str, dict[str, Any]] = {
    "adabest": {"color": "#000000"},
    "hand-written": {"facecolor": "#bbbbbb", "edgecolor": "#000000"},
    "framework": {"facecolor": "#ffffff", "edgecolor": "#000000", "hatch": "////"},
}
_MARKERS = "osD^vP*X<>hd"
_DEVICES = {"cpu": "On a CPU", "cuda": "On a GPU"}


def files(found: Mapping[str, Any]) -> dict[str, Content]:
    """Results, page and figures, by their places in the docs."""
    devices = [device for device in _DEVICES if _of(found, device)]
    figures = {f"assets/speed-{device}.png": figure(found, device) for device in devices}
    return {RESULTS: dict(found), "results/speed.md": page(found), **figures}


def _of(found: Mapping[str, Any], device: str) -> list[Row]:
    return [row for row in found["results"] if row["device"] == device]


def page(found: Mapping[str, Any]) -> str:
    """The page."""
    parts = [_INTRODUCTION]
    for device, title in _DEVICES.items():
        rows = _of(found, device)
        if rows:
            parts += _section(device, title, rows, found["runs"])
    parts.append(_NOTES)
    return "\n".join(parts)


def _section(device: str, title: str, rows: Sequence[Row], runs: Sequence[Row]) -> list[str]:
    parts = [f"## {title}\n"]
    for run in (run for number, run in enumerate(runs) if any(row["run"] == number for row in rows)):
        peaks = ", ".join(f"{name} {peak / 1e9:,.0f} GFLOP/s" for name, peak in run["peaks"].items())
        parts.append(
            f"{machine.words(run)}. Peak of a large matrix product: {peaks}. Commit {run['commit']}, {run['date']}, "
            f"measured {run['repeats']} times:\n\n<!-- not run: it takes long -->\n```sh\n{run['command']}\n```\n"
        )
    parts.append(f"![{_alternative(device)}](../assets/speed-{device}.png)\n")
    for task in TASKS.values():
        for clients in sorted({row["clients"] for row in rows if row["task"] == task.name}):
            sized = task.with_cohort(clients)
            chosen = [row for row in rows if row["task"] == task.name and row["clients"] == clients]
            parts.append(f"### {task.title}, {clients} clients a round\n\n{_work(sized)}\n")
            parts.append(table(chosen).markdown())
            missing = [row for row in chosen if "seconds_a_round" not in row]
            if missing:
                parts.append("".join(f"- {_label(row)}: {_why(row)}\n" for row in missing))
    return parts


def table(rows: Sequence[Row]) -> Table:
    """Arms in numbers, the fastest first; those that gave none are left out."""
    measured = sorted((row for row in rows if "seconds_a_round" in row), key=lambda row: row["seconds_a_round"])
    own = min((row["seconds_a_round"] for row in measured if row["kind"] == "adabest"), default=None)
    return Table(_HEAD, tuple(_cells(row, own) for row in measured))


def _cells(row: Row, own: float | None) -> tuple[str, ...]:
    seconds = row["seconds_a_round"]
    return (
        f"**{_label(row)}**" if row["kind"] == "adabest" else _label(row),
        short(seconds),
        short(row["median_seconds_a_round"]),
        "–" if own is None else f"{seconds / own:.2f}",
        f"{row['samples_a_second']:,.0f}",
        short(row["microseconds_a_client_step"]),
        f"{100 * row['share_of_peak']:.1f}",
        f"{row['peak_memory'] / 1e6:,.0f}",
        f"{row['startup_seconds']:.1f}",
    )


def _label(row: Row) -> str:
    """What an arm is called, and what it multiplies in if that isn't the usual."""
    precision: str = row["precision"]
    return row["label"] if precision == "float32" else f"{row['label']}, {precision}"


def _why(row: Row) -> str:
    if "not_installed" in row:
        return f"not installed; `{row['not_installed']}`"
    return f"failed: `{row.get('error', 'it was not measured')}`"


def _work(task: Task) -> str:
    return (
        f"{task.population:,} clients × {task.samples} samples, {task.cohort} a round, {task.epochs} "
        f"{'epoch' if task.epochs == 1 else 'epochs'} of batches of {task.batch_size}: {task.cohort * task.steps:,} "
        f"client-steps of {task.flops_a_sample * task.batch_size / 1e9:.3g} GFLOP; {task.parameters:,} parameters."
    )


def _alternative(device: str) -> str:
    if device == "cuda":
        return "Microseconds a client-step over clients in parallel, for each task"
    return "Seconds a round of each arm, for each task"


def figure(found: Mapping[str, Any], device: str) -> Figure:
    """One panel a task: bars, or on a GPU, where numbers of clients differ, lines over the clients in parallel."""
    rows = [row for row in _of(found, device) if "seconds_a_round" in row]
    tasks = [task for task in TASKS.values() if any(row["task"] == task.name for row in rows)]
    most = max((sum(row["task"] == task.name for row in rows) for task in tasks), default=1)
    height = 1.2 + 0.26 * most if device == "cpu" else 5.6
    looks = _line_looks(rows)
    drawn = Figure(figsize=(5.2 * max(1, len(tasks)), height), layout="constrained")
    FigureCanvasAgg(drawn)
    for axes, task in zip(drawn.subplots(1, max(1, len(tasks)), squeeze=False)[0], tasks, strict=False):
        chosen = [row for row in rows if row["task"] == task.name]
        if len({row["clients"] for row in chosen}) == 1:
            _bars(axes, chosen)
        else:
            _lines(axes, chosen, looks)
        axes.set_title(task.title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    if device == "cuda":
        lines = {str(line.get_label()): line for axes in drawn.axes for line in axes.lines}
        drawn.legend(handles=lines.values(), loc="outside lower center", ncols=3, frameon=False, fontsize=7)
    return drawn


def _bars(axes: Axes, rows: Sequence[Row]) -> None:
    slowest_first = sorted(rows, key=lambda row: -row["seconds_a_round"])
    for place, row in enumerate(slowest_first):
        axes.barh(place, row["seconds_a_round"], height=0.7, linewidth=0.8, **_LOOKS[row["kind"]])
        axes.annotate(
            short(row["seconds_a_round"]),
            (row["seconds_a_round"], place),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.set_yticks(range(len(rows)), [_label(row) for row in slowest_first], fontsize=8)
    axes.set_xlabel("seconds a round, best")
    axes.margins(x=0.15)


def _line_looks(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """How each arm's line looks, in all panels: ours black and broad, those of frameworks dotted."""
    looks = {}
    for number, row in enumerate({row["arm"]: row for row in rows}.values()):
        kind = row["kind"]
        looks[row["arm"]] = {
            "color": "#000000" if kind == "adabest" else "#777777",
            "linewidth": 2 if kind == "adabest" else 1,
            "linestyle": ":" if kind == "framework" else "-" if row["precision"] == "bf16" else "--",
            "marker": _MARKERS[number % len(_MARKERS)],
            "markersize": 5,
            "label": _label(row),
        }
    return looks


def _lines(axes: Axes, rows: Sequence[Row], looks: Mapping[str, Mapping[str, Any]]) -> None:
    for name in dict.fromkeys(row["arm"] for row in rows):
        points = sorted((row["clients"], row["microseconds_a_client_step"]) for row in rows if row["arm"] == name)
        axes.loglog(*zip(*points, strict=True), **looks[name])
    axes.set(xlabel="clients in parallel", ylabel="µs a client-step")
    axes.grid(alpha=0.3, which="both")


_INTRODUCTION = """\
# Speed

How long a round takes here and elsewhere: the same models, the same numbers of clients, samples, epochs and batches,
plain SGD and the mean of the clients' models, without evaluation. The command that measures writes this page.
"""

_NOTES = """\
## How it is measured

- Every arm is a process of its own, a framework's in its own environment (`python -m benchmarks install-peers`, pins in
  `benchmarks/peers`). All are started and warmed up, then measured in turn, so that no moment favours one.
- Seconds a round are the best of the repeats, and the median beside it; all other columns are of the best. A
  client-step is one client's forward and backward pass and update on one batch.
- The share of the peak counts the multiplications and additions of convolutions and linear layers, forward and
  backward, without the gradient of the images, against a large matrix product measured in the same run.
- Peak memory is the resident memory of the process and its children, shared pages counted in each, the data set
  included; on a GPU it is the device's. Start-up is the time from the start of the process until it is warm: imports,
  data, compilation.
- Frameworks run with what makes them fast: evaluation off, data in memory, and for those on torch one thread or all
  cores, whichever is faster for the model. Those on JAX get the convolution that is fastest here, a matrix product
  over patches. Flower trains as many clients at a time as there are cores.
- Inputs are noise of the right shapes, so no data set is needed.
"""
