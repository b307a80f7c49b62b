"""The results of ``speed`` for readers: a page and a figure for each device, written from the JSON file alone."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from adabest.report.palette import BLUE, GREY
from adabest.report.table import Table
from benchmarks import machine
from benchmarks.files import Content
from benchmarks.measures import short
from benchmarks.tasks import TASKS, Task

Row = dict[str, Any]

RESULTS = "results/speed.json"
KEYS = {"runs", "results", "whole_jobs"}  # of that file

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
# The ways to train a round on a GPU, by the starts of their arms' names: of several that fit, the longest counts.
_FAMILIES = {
    "adabest": "adabest",
    "im2col": "torch, im2col and bmm",
    "vmap": "torch, vmap and CUDA graph",
    "jax": "JAX or DrJAX, vmap",
    "drjax": "JAX or DrJAX, vmap",
    "graph": "a loop over clients as a CUDA graph",
    "pfl-5": "pfl, 5 processes",
    "pfl": "a loop over clients: torch or pfl",
    "eager": "a loop over clients: torch or pfl",
}
_WIDTH = 100  # the clients at which families are compared; those that train one after another are measured with fewer
_FIRST = "paper"  # the task of the GPU's figure
_COLUMNS = 3  # panels beside each other in the CPU's figure
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
    if found.get("whole_jobs"):
        parts += _whole_jobs(found["whole_jobs"])
    parts.append(_NOTES)
    return "\n".join(parts)


def _section(device: str, title: str, rows: Sequence[Row], runs: Sequence[Row]) -> list[str]:
    parts = [f"## {title}\n"]
    calls = _calls(rows)
    for index, call in calls.items():
        run = runs[index]
        peaks = ", ".join(f"{name} {peak / 1e9:,.0f} GFLOP/s" for name, peak in run["peaks"].items())
        parts.append(
            f"{call}{machine.words(run)}. Peak of a large matrix product: {peaks}. Commit {run['commit']}, "
            f"{run['date']}, measured {run['repeats']} times:\n\n<!-- not run: it takes long -->\n"
            f"```sh\n{run['command']}\n```\n"
        )
    parts.append(f"![{_alternative(device)}](../assets/speed-{device}.png)\n")
    for task in TASKS.values():
        for clients in sorted({row["clients"] for row in rows if row["task"] == task.name}):
            sized = task.with_cohort(clients)
            chosen = [row for row in rows if row["task"] == task.name and row["clients"] == clients]
            parts.append(f"### {task.title}, {clients} clients a round\n\n{_work(sized)}\n")
            for index, call in calls.items():
                parts += _of_a_call(call, [row for row in chosen if row["run"] == index])
    return parts


def _calls(rows: Sequence[Row]) -> dict[int, str]:
    """What the calls that rows come from are named, by their places among the runs; nothing if there is only one."""
    indices = sorted({row["run"] for row in rows})
    return {index: f"Call {number}. " if len(indices) > 1 else "" for number, index in enumerate(indices, start=1)}


def _of_a_call(call: str, rows: Sequence[Row]) -> list[str]:
    """One call's table of a task: calls differ in machine and day, so no ratio goes across them."""
    if not rows:
        return []
    parts = [f"{call.strip()}\n"] if call else []
    if any("seconds_a_round" in row for row in rows):
        parts.append(table(rows).markdown())
    missing = [row for row in rows if "seconds_a_round" not in row]
    if missing:
        parts.append("".join(f"- {_label(row)}: {_why(row)}\n" for row in missing))
    return parts


def table(rows: Sequence[Row]) -> Table:
    """The arms of one call in numbers, the fastest first; those that gave none are left out."""
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
    if "left_out" in row:
        return f"left out; {row['left_out']}"
    if "not_installed" in row:
        return f"not installed; `{row['not_installed']}`"
    return f"failed: `{row.get('error', 'it was not measured')}`"


def _whole_jobs(jobs: Mapping[str, Row]) -> list[str]:
    """The section of whole jobs: each beside its kernels alone, which were timed in the same call."""
    parts = ["## Whole jobs\n", _JOBS]
    runs = {json.dumps(row["run"], sort_keys=True): row["run"] for row in jobs.values()}
    commands = [
        f"{machine.words(run)}. Commit {run['commit']}, {run['date']}:\n\n<!-- not run: it needs a GPU -->\n"
        f"```sh\n{run['command']}\n```\n"
        for run in runs.values()
    ]
    notes = "".join(f"- {row['what']}: {row['note']}\n" for row in jobs.values() if "note" in row)
    return [*parts, *commands, jobs_table(jobs).markdown(), *([notes] if notes else [])]


def jobs_table(jobs: Mapping[str, Row]) -> Table:
    """Whole jobs in numbers."""
    head = ("what", "end to end", "kernels alone in the same call", "beside", "ratio", "done at", "")
    rows = []
    for row in jobs.values():
        beside_kernels = "kernel" in row["beside"]
        kernels = row["other"] if beside_kernels else row.get("kernels")
        unit = " s" if row["unit"] == "s" else " µs"
        rows.append(
            (
                row["what"],
                short(row["end_to_end"]) + unit,
                "–" if kernels is None else short(kernels) + unit,
                "kernels" if beside_kernels else f"{row['beside']}: {_or_dash(row['other'], unit)}",
                "–" if row["ratio"] is None else f"{row['ratio']:.2f}",
                row["done_at"] or "–",
                {True: "reached", False: "not reached", None: ""}[row["reached"]],
            )
        )
    return Table(head, tuple(rows))


def _or_dash(value: float | None, unit: str) -> str:
    return "–" if value is None else short(value) + unit


def _work(task: Task) -> str:
    return (
        f"{task.population:,} clients × {task.samples} samples, {task.cohort} a round, {task.epochs} "
        f"{'epoch' if task.epochs == 1 else 'epochs'} of batches of {task.batch_size}: {task.cohort * task.steps:,} "
        f"client-steps of {task.flops_a_sample * task.batch_size / 1e9:.3g} GFLOP; {task.parameters:,} parameters."
    )


def _alternative(device: str) -> str:
    if device == "cuda":
        return "Microseconds a client-step of the best of each family of ways to train, the paper's CNN"
    return "Seconds a round of each arm, for each task"


def figure(found: Mapping[str, Any], device: str) -> Figure:
    """Bars: one panel a task with all arms, or on a GPU, where there are many, one bar for each family of ways."""
    rows = _of(found, device)
    panels = _panels(rows)
    if device == "cuda":
        panels = _headline(rows)
    columns = max(1, min(_COLUMNS, len(panels)))
    bars = [len(chosen) for chosen in panels.values()] or [1]
    heights = [1.2 + 0.26 * max(bars[first : first + columns]) for first in range(0, len(bars), columns)]
    size = (7.0, 3.2) if device == "cuda" else (5.2 * columns, sum(heights))
    drawn = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(drawn)
    places = drawn.add_gridspec(len(heights), columns, height_ratios=heights)
    for place, (title, chosen) in enumerate(panels.items()):
        axes = drawn.add_subplot(places[divmod(place, columns)])
        if device == "cuda":
            _family_bars(axes, families(chosen))
        else:
            _bars(axes, chosen)
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    return drawn


def _headline(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The GPU's panel by its title: of the headline's task, or else of the first that was measured."""
    measured = [row for row in rows if "seconds_a_round" in row]
    names = [task.name for task in TASKS.values() if any(row["task"] == task.name for row in measured)]
    shown = [_FIRST] if _FIRST in names else names[:1]
    return {TASKS[name].title: [row for row in measured if row["task"] == name] for name in shown}


def _panels(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The CPU's panels by their titles: one a task, or one a call where several calls measured the same task."""
    calls, panels = _calls(rows), dict[str, list[Row]]()
    for task in TASKS.values():
        own = [row for row in rows if row["task"] == task.name and "seconds_a_round" in row]
        indices = sorted({row["run"] for row in own})
        for index in indices:
            name = f", {calls[index].strip(' .').lower()}" if len(indices) > 1 else ""
            panels[task.title + name] = [row for row in own if row["run"] == index]
    return panels


def families(rows: Sequence[Row]) -> dict[str, Row]:
    """The best arm of each family, by its name, the fastest first: at 100 clients, or at the most that it was given."""
    members: dict[str, list[Row]] = {}
    for row in rows:
        fitting = [start for start in _FAMILIES if row["arm"].startswith(start)]
        if fitting and row["clients"] <= _WIDTH:
            members.setdefault(_FAMILIES[max(fitting, key=len)], []).append(row)
    best = {}
    for name, own in members.items():
        widest = max(row["clients"] for row in own)
        best[name] = min((row for row in own if row["clients"] == widest), key=_microseconds)
    return dict(sorted(best.items(), key=lambda item: _microseconds(item[1])))


def _microseconds(row: Row) -> float:
    return float(row["microseconds_a_client_step"])


def _family_bars(axes: Axes, best: Mapping[str, Row]) -> None:
    """Horizontal bars, the fastest on top, ours in colour, each with its number."""
    widest = max((row["clients"] for row in best.values()), default=0)
    for place, row in enumerate(best.values()):
        value = _microseconds(row)
        colour = BLUE if row["kind"] == "adabest" else GREY
        axes.barh(place, value, height=0.7, color=colour.light)
        axes.annotate(
            f"{short(value)} µs",
            (value, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            fontweight="bold" if row["kind"] == "adabest" else "normal",
        )
    names = [name if row["clients"] == widest else f"{name} ({row['clients']} clients)" for name, row in best.items()]
    axes.set_yticks(range(len(best)), names, fontsize=9)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:,.0f}"))
    axes.set_xlim(left=10 ** math.floor(math.log10(min(map(_microseconds, best.values()), default=1.0))))
    axes.margins(x=0.15)
    axes.set_xlabel(f"microseconds a client-step, {widest} clients a round (logarithmic)")


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


_INTRODUCTION = """\
# Speed

How long a round takes here and elsewhere: the same models, the same numbers of clients, samples, epochs and batches,
plain SGD and the mean of the clients' models, without evaluation. The command that measures writes this page.
"""

_JOBS = """\
What users run: data, batches, augmentation, training, server steps, metrics, files, and an evaluation every 20 rounds.
A client-step's time is that between evaluations, without the first, over all client-steps of all lanes. The kernels
alone are one local step of as many clients as train at a time, replayed as a CUDA graph in the same call.
"""

_NOTES = """\
## How it is measured

- Every arm is a process of its own, a framework's in its own environment (`python -m benchmarks install-peers`, pins in
  `benchmarks/peers`). All are started and warmed up, then measured in turn, so that no moment favours one.
- Seconds a round are the best of the repeats, and the median beside it; all other columns are of the best. A
  client-step is one client's forward and backward pass and update on one batch.
- The share of the peak counts the multiplications and additions of convolutions and linear layers, forward and
  backward, without the gradient of the images, against a large matrix product measured in the same run. On AMD's
  processors that product, which MKL makes, is slower than convolutions, which oneDNN makes: shares can be above 100.
- Peak memory is the resident memory of the process and its children, shared pages counted in each, the data set
  included; on a GPU it is the device's. Start-up is the time from the start of the process until it is warm: imports,
  data, compilation.
- Frameworks run with what makes them fast: evaluation off, data in memory, and for those on torch one thread or all
  cores, whichever is faster for the model. Those on JAX get the convolution that is fastest here, a matrix product
  over patches. Flower trains as many clients at a time as there are cores.
- Arms whose program has no padding, GroupNorm or residual blocks leave out the tasks that need them, and say so.
- Inputs are noise of the right shapes, so no data set is needed.
"""
