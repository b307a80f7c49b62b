"""How the cost of a round grows: with clients in parallel, the size of the model, runs side by side, the population."""

import contextlib
import dataclasses
import functools
import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from adabest.engine.simulation import Simulation
from adabest.errors import InputError, nearest
from adabest.report.table import Table
from adabest.runs.build import build_federation
from adabest.runs.process_settings import ProcessSettings
from adabest.runs.settings.resolution import resolve
from benchmarks import machine
from benchmarks.arms.adabest import settings
from benchmarks.files import Content
from benchmarks.measures import short
from benchmarks.tasks import CNN, MLP, Linear, Relu, Task

Point = dict[str, Any]
Say = Callable[[str], None]

CLIENTS = {"cpu": (1, 2, 5, 10, 20, 50, 100), "cuda": (1, 10, 50, 100, 500)}
WIDTHS = {"cpu": (25, 50, 100, 200, 400, 800), "cuda": (25, 50, 100, 200, 400, 800, 1600)}
LANES = {"cpu": (1, 2, 4, 8), "cuda": (1, 4, 16, 64)}
POPULATIONS = (10**3, 10**4, 10**5, 10**6)


def measure(
    device: str, parts: Sequence[str], say: Say = lambda line: None, *, engine: str, repeats: int
) -> Iterator[tuple[str, list[Point]]]:
    """Measures parts one after another.

    Each point has the number that grows (``size``), the seconds of a round and, where it makes sense, of a step.

    Raises:
        InputError: If there is no such part.
    """
    for part in parts:
        if part not in PARTS:
            raise InputError(f"there is no part {part!r}; {nearest(part, PARTS)}")
    for part in parts:
        try:
            points = []
            for point in PARTS[part](device, engine, repeats):
                say(f"{part} {point['size']:,}: {point['seconds_a_round']:.4f} s a round")
                points.append(point)
            yield part, points
        except ModuleNotFoundError as error:
            say(f"{part}: left out, there is no {error.name}")


def _clients(device: str, engine: str, repeats: int) -> Iterator[Point]:
    task = dataclasses.replace(MLP if device == "cpu" else CNN, epochs=1)
    for clients in CLIENTS[device]:
        sized = task.with_cohort(clients)
        with _simulations(sized, device, engine, 1) as simulations:
            seconds = _best(functools.partial(_step, simulations[0], sized), repeats)
        yield _point(clients, seconds, sized.cohort * sized.steps)


def _model(device: str, engine: str, repeats: int) -> Iterator[Point]:
    for width in WIDTHS[device]:
        layers = (Linear(width), Relu(), Linear(width), Relu(), Linear(MLP.classes))
        task = dataclasses.replace(MLP, layers=layers, epochs=1)
        with _simulations(task, device, engine, 1) as simulations:
            seconds = _best(functools.partial(_step, simulations[0], task), repeats)
        yield _point(task.parameters, seconds, task.cohort * task.steps)


def _lanes(device: str, engine: str, repeats: int) -> Iterator[Point]:
    together: Any = importlib.import_module("adabest.engine.lanes").advance_together
    task = dataclasses.replace(MLP if device == "cpu" else CNN, epochs=1).with_cohort(1)
    for lanes in LANES[device]:
        with _simulations(task, device, engine, lanes) as simulations:
            seconds = _best(functools.partial(_step_together, together, simulations), repeats)
        yield _point(lanes, seconds, lanes * task.steps)


def _population(device: str, engine: str, repeats: int) -> Iterator[Point]:
    if device != "cpu":
        return  # it is about memory and disks, and is measured on a CPU
    measured: Any = importlib.import_module("benchmarks.population").measure
    for population in POPULATIONS:
        found = measured(population, rounds=10 * repeats)
        yield {"size": population, "seconds_a_round": found["seconds_per_round_median"], **found}


PARTS: Mapping[str, Callable[[str, str, int], Iterator[Point]]] = {
    "clients": _clients,
    "model": _model,
    "lanes": _lanes,
    "population": _population,
}
WORDS = {
    "clients": "clients in parallel",
    "model": "parameters of the model",
    "lanes": "runs side by side",
    "population": "clients in the population",
}
_WORK = {
    "clients": "One epoch of 500 samples in batches of 50 a client; the MLP on a CPU, the paper's CNN on a GPU.",
    "model": "Ten clients, one epoch of 500 samples in batches of 50, an MLP whose two hidden layers grow.",
    "lanes": "Runs that differ in their seeds, advanced together, each with one client a round, as above.",
    "population": "The paper's CNN, ten clients a round, one sample and one local step each.",
}
_INTRODUCTION = """\
# Scale

How the cost of a round grows. Each number is the best of several rounds, after one that doesn't count; what a client
costs should fall with more clients and runs in parallel, until the machine is full, and not depend on the population.
"""
RESULTS = "results/scale.json"


@contextlib.contextmanager
def _simulations(task: Task, device: str, engine: str, count: int) -> Iterator[list[Simulation]]:
    """Runs of a task before their first round, which differ in their seeds, with the arithmetic of a run."""
    shared = settings(task)
    with contextlib.ExitStack() as stack:
        made = []
        for seed in range(count):
            config, components = resolve({**shared, "device": device, "engine": engine, "seed": seed})
            federation = build_federation(config, components)
            if seed == 0:
                stack.enter_context(ProcessSettings.of(config, components).entered())
            made.append(federation.simulation)
        yield made


def _step(simulation: Simulation, task: Task, number: int) -> None:
    simulation.step(cohort=task.cohort_of(number))


def _step_together(together: Callable[..., object], simulations: list[Any], number: int) -> None:
    together([one.round() for one in simulations], simulations[0].engine)


def _best(train: Callable[[int], object], repeats: int) -> float:
    """The seconds of the fastest of several rounds, after one that doesn't count."""
    times = []
    for number in range(repeats + 1):
        begun = time.perf_counter()
        train(number)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return min(times[1:])


def _point(size: int, seconds: float, client_steps: int) -> Point:
    return {"size": size, "seconds_a_round": seconds, "microseconds_a_client_step": seconds * 1e6 / client_steps}


def table(part: str, points: Sequence[Point]) -> Table:
    """One part in numbers."""
    with_steps = any("microseconds_a_client_step" in point for point in points)
    head = (WORDS[part], "s a round", *(["µs a client-step"] if with_steps else []))
    rows = []
    for point in points:
        steps = [short(point["microseconds_a_client_step"])] if with_steps else []
        rows.append((f"{point['size']:,}", short(point["seconds_a_round"]), *steps))
    return Table(head, tuple(rows))


def files(found: Mapping[str, Any]) -> dict[str, Content]:
    """Results, page and figures, by their places in the docs."""
    figures = {f"assets/scale-{device}.png": figure(found[device]["parts"]) for device in found}
    return {RESULTS: dict(found), "results/scale.md": page(found), **figures}


def page(found: Mapping[str, Any]) -> str:
    """The page."""
    lines = [_INTRODUCTION]
    for device, part_of in found.items():
        run = part_of["run"]
        lines += [
            f"## {'On a GPU' if device == 'cuda' else 'On a CPU'}\n",
            f"{machine.words(run)}. Commit {run['commit']}, {run['date']}:\n",
            f"<!-- not run: it takes long -->\n```sh\n{run['command']}\n```\n",
            f"![Cost over what grows](../assets/scale-{device}.png)\n",
        ]
        for part, points in part_of["parts"].items():
            lines += [f"### {WORDS[part].capitalize()}\n", f"{_WORK[part]}\n", table(part, points).markdown()]
    return "\n".join(lines)


def figure(measured: Mapping[str, Sequence[Point]]) -> Figure:
    """One panel a part: µs of a client-step, or seconds of a round, over what grows."""
    drawn = Figure(figsize=(3.6 * max(1, len(measured)), 3.2), layout="constrained")
    FigureCanvasAgg(drawn)
    panels = drawn.subplots(1, max(1, len(measured)), squeeze=False)[0]
    for axes, (part, points) in zip(panels, measured.items(), strict=False):
        steps = all("microseconds_a_client_step" in point for point in points)
        name = "microseconds_a_client_step" if steps else "seconds_a_round"
        axes.loglog([p["size"] for p in points], [p[name] for p in points], color="#000000", marker="o", markersize=4)
        axes.set(xlabel=WORDS[part], ylabel="µs a client-step" if steps else "seconds a round")
        lowest, highest = axes.get_ylim()
        axes.set_ylim(min(lowest, highest / 12), highest)  # else noise around a constant would look like growth
        axes.grid(alpha=0.3, which="both")
        axes.spines[["top", "right"]].set_visible(False)
    return drawn
