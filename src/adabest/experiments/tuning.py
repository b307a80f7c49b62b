"""Tuning: hyper-parameters of one algorithm, chosen on validation clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from adabest.errors import InputError
from adabest.experiments.call import asked_for, refuse_callback_objects
from adabest.experiments.comparison import Comparison
from adabest.experiments.default_grids import TUNING_ROUNDS
from adabest.experiments.run_group import Asked, begun, title_of
from adabest.experiments.search import Tried, as_choice, plan_search, try_points
from adabest.experiments.tuning_table import tuning_table
from adabest.report.entries import by_validation
from adabest.runs.files.atomic_files import write_texts
from adabest.runs.keywords import Settings
from adabest.runs.results_file import CHOICES, write_choices
from adabest.runs.settings.algorithm_specification import refuse_hyperparameters
from adabest.runs.settings.config import Config
from adabest.runs.settings.idle_settings import warn_of_idle_settings
from adabest.runs.settings.unjudged_parts import warn_of_unjudged_parts


@dataclass(frozen=True, repr=False)
class Tuning(Comparison):
    """A finished tuning. Its table has scores on validation clients only.

    Attributes:
        folder: Its folder.
        runs: The runs by label.
        entries: The points that were tried, by label: a run each, or one for every seed.
        table: The points in numbers.
        files: The table, the figure and the choice on disk.
        chosen: The values that were chosen; None if every point diverged.
    """

    chosen: dict[str, Any] | None


def tune(
    config: str | Path | None = None,
    *,
    vary: Mapping[str, Sequence[Any]] | Sequence[str] | None = None,
    space: Mapping[str, Any] | Sequence[str] | None = None,
    trials: int | None = None,
    seeds: Sequence[int] | None = None,
    lanes: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    show: bool = True,
    **settings: Unpack[Settings],
) -> Tuning:
    """Chooses hyper-parameters of one algorithm on the validation clients; writes a table, a figure and the choice.

    The point is chosen whose model has the best mean on validation clients in the last round: of accuracy, or of the
    task's first metric. Of several it is the one with the smaller values. A point with a run that diverges isn't
    chosen. Finished runs in the folder are kept, begun ones are resumed.

    Args:
        config: A TOML file with settings.
        vary: The values to try by setting, as in ``{"beta": [0.8, 0.9]}``, or as texts such as ``beta=0.8,0.9``; every
            combination is tried. By default the paper's values, unless there is a space.
        space: Ranges or values of settings, for Optuna to search: ``{"beta": "0:1", "mu": "0.001:0.1:log",
            "batch_size": [16, 32]}``, or texts such as ``beta=0:1``.
        trials: How many points of the space are tried. By default 30.
        seeds: Seeds to run each point with, in place of ``seed``; the means are compared.
        lanes: The most runs that are trained together, as lanes of one program. By default all, or 8 if a space is
            searched: the next points depend on the results of the last.
        out: The folder. By default ``runs/`` and a name that the settings determine.
        overwrite: Whether to make all runs anew, in place of those in the folder.
        show: Whether to show progress.
        **settings: The other settings of all runs. There are 500 rounds by default.

    Raises:
        InputError: If a setting can't be used. Nothing was run.
        Interrupted: If a signal asked to stop; ``adabest resume`` or the same call continues.
    """
    given = {"vary": vary, "space": space, "trials": trials, "seeds": seeds, "lanes": lanes}
    refuse_callback_objects(settings)
    with asked_for(config, settings, **given, out=out, overwrite=overwrite) as merged:
        refuse_hyperparameters(settings, [merged.get("algorithm", Config.algorithm)])
        return make_tuning({"rounds": TUNING_ROUNDS} | merged, show=show)


def make_tuning(settings: dict[str, Any], *, unverified: bool = False, show: bool) -> Tuning:
    """Makes a tuning from complete settings. Unlike ``tune``, it allows none of their names to be imported."""
    if "target" in settings:
        raise InputError("tuning has no target: rounds to a value are counted on the test set")
    asked = Asked.taken_from(settings, "tune")
    what = {name: settings.pop(name, None) for name in ("vary", "space", "trials")}
    search = plan_search(settings, **what, seeds=asked.seeds, lanes=asked.lanes)
    planned = search.plan(search.points)
    warn_of_idle_settings(settings, planned.configs(), asked.seeds)
    warn_of_unjudged_parts(planned.configs())
    with begun(asked, planned, search.what, settings) as folder:
        tried = try_points(search, folder, overwrite=asked.overwrite, unverified=unverified, show=show)
        return _report(tried, ranked=bool(search.what["space"]))


def _report(tried: Tried, *, ranked: bool) -> Tuning:
    """Writes the table, the figure and the choice. Points of a space are ranked; those of a grid keep their order."""
    from adabest.report.figure import save_figure, sweep_figure  # imports Matplotlib: not before the runs

    points = list(tried.points.values())
    if ranked:
        points.sort(key=lambda point: (not point.counts, -point.goodness, point.values != tried.chosen))
    table = tuning_table(points, tried.chosen)
    figure = sweep_figure(by_validation(tried.entries), title_of(list(tried.runs.values())))
    files = write_texts(tried.folder, {"table.md": table.markdown(), "table.csv": table.csv()})
    files += save_figure(figure, tried.folder / "figure")
    choice = as_choice(tried)
    place = tried.folder / CHOICES
    if choice is None:
        place.unlink(missing_ok=True)
    else:
        write_choices(place, [choice])
        files.append(place)
    return Tuning(tried.folder, tried.runs, tried.entries, table, files, tried.chosen, _ranked=True)
