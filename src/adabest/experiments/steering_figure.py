"""The call ``adabest.illustrate``: the paths of algorithms, one panel each, all on the same map."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from adabest.algorithms.base import Algorithm
from adabest.experiments.steering import Move, plane, steer
from adabest.registry import naming
from adabest.report.figure import save_figure
from adabest.report.palette import BLUE, GREEN, MARKERS, PURPLE, VERMILION, YELLOW
from adabest.runs.settings.call_arguments import STEERING_ALGORITHMS
from adabest.tasks.quadratic import QuadraticTask

# Shapes tell the clients apart without their colours.
_CLIENTS = tuple((colour.light, shape) for colour, shape in zip((BLUE, GREEN, PURPLE), MARKERS, strict=False))
_SERVER = VERMILION.light
_WIDTH, _MARGIN, _GRID, _LEVELS = 10.8, 0.07, 120, 10

_POINT: dict[str, Any] = {"linestyle": "none", "markeredgecolor": "black"}
_CENTRE: dict[str, Any] = {**_POINT, "markersize": 11}
_OPTIMUM: dict[str, Any] = {**_POINT, "color": YELLOW.light, "marker": "*", "markersize": 14}
_AGGREGATE: dict[str, Any] = {**_POINT, "color": "white", "marker": "s", "markersize": 12}
_CLOUD: dict[str, Any] = {**_POINT, "color": "black", "marker": "o", "markersize": 9}
_MEANS: dict[str, Any] = {"color": "0.45", "linestyle": "--", "linewidth": 1.1}
_PLAIN: dict[str, Any] = {"linestyle": (0, (1, 1.5)), "linewidth": 1.1, "alpha": 0.8}
_ARROW: dict[str, Any] = {"arrowstyle": "-|>", "color": _SERVER, "linewidth": 2.2, "shrinkA": 0, "shrinkB": 3}


def steering_figure(task: QuadraticTask, moves: Mapping[str, Sequence[Move]]) -> Figure:
    """The moves of each algorithm, over the contour lines of the common objective.

    Args:
        task: The clients, of two parameters.
        moves: The rounds of each algorithm, by its label.
    """
    low, high = _box(task, moves)
    columns = min(2, len(moves))
    rows = -(-len(moves) // columns)
    width, height = high - low
    inches = rows * (_WIDTH / columns * height / width + 0.3) + 1.0
    figure = Figure(figsize=(_WIDTH, inches), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in panels:
        axes.set_axis_off()
    for axes, (label, rounds) in zip(panels, moves.items(), strict=False):
        axes.set_axis_on()
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[], aspect="equal")
        axes.set_title(label.replace(",", ", "), fontsize=11)
        _draw_map(axes, task)
        for number, move in enumerate(rounds, start=1):
            _draw_move(axes, number, rounds[number - 2].aggregate if number > 1 else move.start, move)
        _draw_models(axes, rounds)
    figure.legend(handles=_legend(), loc="outside lower center", ncols=3, frameon=False, fontsize=10)
    return figure


def _box(task: QuadraticTask, moves: Mapping[str, Sequence[Move]]) -> tuple[np.ndarray, np.ndarray]:
    """The corners of a map that has everything on it, and is neither a tower nor a ribbon."""
    points = [task.centres, task.optimum()[None]]
    for move in (move for rounds in moves.values() for move in rounds):
        points.append(torch.stack([move.start, move.aggregate, move.cloud]))
        points += [path for leg in move.legs.values() for path in (leg.path, leg.plain)]
    everything = torch.cat(points).numpy()
    low, high = everything.min(axis=0), everything.max(axis=0)
    size = (high - low) + 2 * _MARGIN * (high - low).max()
    size = np.maximum(size, [size[1], size[0] / 2])
    middle = (low + high) / 2
    return middle - size / 2, middle + size / 2


def _draw_map(axes: Axes, task: QuadraticTask) -> None:
    """What is the same for all: the common objective, its optimum, and those of the clients."""
    across, up = np.linspace(*axes.get_xlim(), _GRID), np.linspace(*axes.get_ylim(), _GRID)
    points = torch.from_numpy(np.stack(np.meshgrid(across, up), axis=-1))
    heights = (task.objective(points) - task.objective(task.optimum())).numpy()
    # Squares, because then the rings of a quadratic have equal distances.
    levels = heights.max() * np.linspace(0, 1, _LEVELS + 2)[1:-1] ** 2
    axes.contour(across, up, heights, levels=levels, colors="0.86", linewidths=0.8, zorder=0)
    for client, centre in enumerate(task.centres):
        colour, shape = _CLIENTS[client]
        axes.plot(*_coordinates(centre), color=colour, marker=shape, label=f"optimum of client {client}", **_CENTRE)
    axes.plot(*_coordinates(task.optimum()), label="optimum", zorder=1, **_OPTIMUM)


def _draw_move(axes: Axes, number: int, previous: Tensor, move: Move) -> None:
    """A round: the clients' steps, how the mean moved, and what the server made of it."""
    axes.plot(*torch.stack([previous, move.aggregate]).T.numpy(), label=f"mean {number}", **_MEANS)
    for client, leg in move.legs.items():
        colour, shape = _CLIENTS[client]
        if not torch.equal(leg.plain, leg.path):
            axes.plot(*leg.plain.T.numpy(), color=colour, label=f"plain {number}, client {client}", **_PLAIN)
        label = f"path {number}, client {client}"
        axes.plot(*leg.path.T.numpy(), color=colour, marker=shape, markersize=3.2, linewidth=1.5, label=label)
    if not torch.equal(move.cloud, move.aggregate):
        axes.annotate("", xy=_coordinates(move.cloud), xytext=_coordinates(move.aggregate), arrowprops=_ARROW)


def _draw_models(axes: Axes, rounds: Sequence[Move]) -> None:
    """The server's models, on top of everything and numbered, later ones above earlier ones."""
    _draw_model(axes, "cloud", 0, rounds[0].start)
    for number, move in enumerate(rounds, start=1):
        _draw_model(axes, "aggregate", number, move.aggregate)
        _draw_model(axes, "cloud", number, move.cloud)


def _draw_model(axes: Axes, name: str, number: int, model: Tensor) -> None:
    style, ink = (_CLOUD, "white") if name == "cloud" else (_AGGREGATE, "black")
    x, y = _coordinates(model)
    axes.plot(x, y, label=f"{name} {number}", zorder=4 + number, **style)
    axes.text(x, y, str(number), color=ink, fontsize=7.5, ha="center", va="center_baseline", zorder=4 + number)


def _coordinates(point: Tensor) -> tuple[float, float]:
    x, y = point.tolist()
    return x, y


def _legend() -> list[Line2D]:
    clients = [
        Line2D([], [], color=colour, marker=shape, markersize=4.5, label=f"client {name}: local steps; large: optimum")
        for name, (colour, shape) in zip("abc", _CLIENTS, strict=True)
    ]
    return [
        *clients,
        Line2D([], [], color="0.3", label="the same steps, uncorrected", **_PLAIN),
        Line2D([], [], label="θ̄, the mean of what came back", **_AGGREGATE),
        Line2D([], [], label="how θ̄ moves", **_MEANS),
        Line2D([], [], label="θ, what is sent out", **_CLOUD),
        Line2D(
            [],
            [],
            label="−h: what the server adds to θ̄",
            linestyle="none",
            marker="$\\longrightarrow$",
            markersize=26,
            color=_SERVER,
        ),
        Line2D([], [], label="optimum of all clients together", **_OPTIMUM),
    ]


@dataclass(frozen=True)
class Illustration:
    """A figure of how algorithms steer.

    Attributes:
        moves: The rounds of each algorithm by its label, point by point.
        files: The figure on disk.
    """

    moves: dict[str, list[Move]]
    files: list[Path]


def illustrate(
    *,
    algorithms: Sequence[str | Algorithm] = STEERING_ALGORITHMS,
    rounds: int = 4,
    participation: float = 0.67,
    seed: int = 0,
    out: str | Path = "steering",
) -> Illustration:
    """Draws how algorithms steer, from runs of two parameters on three clients with quadratic objectives.

    Args:
        algorithms: What to draw: names with options, as in adabest,beta=0.5.
        rounds: How many rounds to draw.
        participation: Share of the three clients that takes part in a round.
        seed: Keys the draw of the cohorts.
        out: Figure to write, without ending.

    Raises:
        InputError: If something can't be used.
    """
    task = plane()
    with naming(algorithms):
        moves = steer(algorithms, task, rounds=rounds, participation=participation, seed=seed)
    return Illustration(moves, save_figure(steering_figure(task, moves), out))
