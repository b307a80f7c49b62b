"""Tuning: one algorithm at many points, one of which is chosen on the validation clients, never on the test set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adabest.data.dataset import Dataset
from adabest.errors import InputError
from adabest.experiments.choice import Point, choose
from adabest.experiments.default_grids import paper_grid
from adabest.experiments.held_run import Run
from adabest.experiments.run_group import RunGroup, make_runs, refuse_other_runs
from adabest.experiments.space import Proposals, ends, proposals, read_space, write_space
from adabest.experiments.sweep import algorithm_of, grid_points, label_of_point, plan_points, read_vary, write_vary
from adabest.registry import check_options
from adabest.runs.results_file import Choice, provenance
from adabest.runs.settings.config import SETTINGS, TASK_SETTINGS, Config
from adabest.runs.settings.demand import refuse_many_runs
from adabest.runs.settings.run_plan import Plan
from adabest.tasks.objectives.metric import ACCURACY

DEFAULT_TRIALS = 30
DEFAULT_LANES = 8  # of a search: the fewer points are tried together, the more is known when the next is proposed


@dataclass(frozen=True)
class Search:
    """A search: points that are to be tried.

    Attributes:
        what: The searched settings, as texts that can be stored: ``vary``, or ``space`` and ``trials``.
        settings: The other settings.
        seeds: The seeds of each point's runs; None for that of the settings.
        lanes: The most runs that are trained together; None for all.
        points: The points that are tried first.
        further: The generator of the next points, which is sent the results of the last ones.
        dataset: The data set that the settings name, if it has been loaded.
    """

    what: dict[str, Any]
    settings: Mapping[str, Any]
    seeds: Sequence[int] | None
    lanes: int | None
    points: list[dict[str, Any]]
    further: Proposals
    dataset: Dataset | None = None

    def plan(self, points: Sequence[Mapping[str, Any]]) -> Plan:
        """The plan of the runs of points, each point once."""
        distinct = {self.label(point): point for point in points}
        return plan_points(distinct.values(), self.settings, self.seeds, self.dataset)

    def label(self, point: Mapping[str, Any]) -> str:
        """The label of a point."""
        return label_of_point(algorithm_of(self.settings), point)


@dataclass(frozen=True)
class Tried(RunGroup):
    """Runs that were made to choose one of several points.

    Attributes:
        points: The points with their results, by the label of their entries.
    """

    points: dict[str, Point]

    @property
    def chosen(self) -> dict[str, Any] | None:
        """The point that was chosen; None if all diverged."""
        return choose(list(self.points.values()))


def plan_search(
    settings: Mapping[str, Any],
    *,
    vary: Any = None,
    space: Any = None,
    trials: int | None = None,
    seeds: Sequence[int] | None = None,
    lanes: int | None = None,
) -> Search:
    """Plans a search, and so finds bad settings before any run begins.

    Args:
        settings: The settings of all runs, ``algorithm`` among them.
        vary: Values by setting, of which every combination is tried. By default the paper's, unless there is a space.
        space: The ranges or values of settings, for Optuna to search.
        trials: How many points of the space to try.
        seeds: The seeds of each point's runs. By default there is one, that of the settings.
        lanes: The most runs that are trained together.

    Raises:
        InputError: If a setting can't be used.
    """
    if vary and space:
        raise InputError("tuning takes values to vary or a space to search, not both")
    if settings.get("stop_at") is not None:
        raise InputError("stop_at looks at the test set, which tuning must not; stop_after looks at validation clients")
    if space:
        return _search_space(space, trials, settings, seeds, lanes)
    if trials is not None:
        raise InputError(f"trials = {trials!r}: trials are points of a space; name one, as in --space beta=0:1")
    algorithm = algorithm_of(settings)
    share = {"participation": settings.get("participation", Config.participation)}
    participation = check_options("a run", share, SETTINGS, text=False)["participation"]
    axes = read_vary(vary) if vary else paper_grid(algorithm, participation)
    _refuse_given(axes)
    further = _all_at_once(grid_points(axes, settings))
    return Search({"vary": write_vary(axes), "space": []}, settings, seeds, lanes, next(further), further)


def _search_space(
    space: Any, trials: Any, settings: Mapping[str, Any], seeds: Sequence[int] | None, lanes: int | None
) -> Search:
    dimensions = read_space(space, algorithm_of(settings))
    _refuse_given(dimensions)
    count = DEFAULT_TRIALS if trials is None else trials
    if type(count) is not int or count < 1:
        raise InputError(f"trials = {trials!r}: at least 1 point must be tried")
    tried = plan_points(ends(dimensions), settings, seeds)
    refuse_many_runs(count, len(seeds or [0]))
    config, components = next(iter(tried.runs.values()))
    together = lanes or DEFAULT_LANES
    further = proposals(dimensions, count, max(1, together // len(seeds or [0])), config.seed)
    what = {"space": write_space(dimensions), "trials": count}
    return Search(what, settings, seeds, together, next(further), further, components.dataset)


def _all_at_once(points: list[dict[str, Any]]) -> Proposals:
    """Proposes all points of a grid in one list."""
    yield points


def _refuse_given(names: Mapping[str, Any]) -> None:
    for name in names:
        if name in TASK_SETTINGS:
            raise InputError(
                f"{name} can't be tuned: it belongs to the task, and points of other tasks can't be compared"
            )


def try_points(
    search: Search, folder: Path, *, overwrite: bool = False, unverified: bool = False, show: bool = False
) -> Tried:
    """Tries all points of a search. Finished runs in the folder are kept, begun ones are resumed.

    Args:
        search: The search. The caller has made sure that its first points' folders hold no other runs.
        folder: The folder of the runs.
        overwrite: Whether all runs are made anew, in place of those in the folder.
        unverified: Whether runs of version 0.4.0, which nothing proves, may be resumed.
        show: Whether to show progress.

    Raises:
        InputError: If a run in the folder was made of other data, or with other settings.
        Interrupted: If a signal asked to stop.
    """
    tried = Tried(folder, {}, {}, {})
    points = search.points
    while True:
        new = {search.label(point): point for point in points if search.label(point) not in tried.points}
        if new:
            planned = search.plan(list(new.values()))
            if tried.points:
                refuse_other_runs(planned, folder, overwrite=overwrite)
            how: dict[str, Any] = {"overwrite": overwrite, "unverified": unverified, "blind": True, "show": show}
            made = make_runs(planned, folder, lanes=search.lanes, **how)
            tried.runs.update(made.runs)
            tried.entries.update(made.entries)
            tried.points.update({label: Point.of(new[label], runs) for label, runs in made.entries.items()})
        try:
            points = search.further.send([tried.points[search.label(point)] for point in points])
        except StopIteration:
            return tried


def as_choice(tried: Tried) -> Choice | None:
    """The choice, as ``adabest reproduce`` takes it; None if every point diverged, or it isn't made by accuracy."""
    chosen = tried.chosen
    first: list[Run] = next(iter(tried.entries.values()))
    if chosen is None or first[0].metric != ACCURACY:
        return None
    return Choice(
        cells="*",
        algorithm=first[0].config.algorithm,
        chosen=chosen,
        grid=[point.row() for point in tried.points.values()],
        rounds=first[0].config.rounds,
        seeds=[run.config.seed for run in first],
        provenance=provenance(first[0]),
    )
