"""Several runs, trained together and compared: algorithms, or points of a sweep."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from adabest.algorithms.base import Algorithm
from adabest.errors import AdabestError, InputError, Interrupted, note_how_to_go_on
from adabest.experiments.call import ROOT, asked_for, digest, findable
from adabest.experiments.comparison import Comparison as Made
from adabest.experiments.comparison import compare as make_runs
from adabest.experiments.comparison import make_room, recall, remember
from adabest.experiments.sweep import plan_sweep, read_vary, write_vary
from adabest.report.entries import by_validation
from adabest.report.figure import comparison_figure, save_figure, sweep_figure
from adabest.report.table import Table, comparison_table, sweep_table
from adabest.runs.files.atomic_files import write_texts
from adabest.runs.files.folder import RunFolder
from adabest.runs.settings.call_arguments import DEFAULT_ALGORITHMS
from adabest.runs.settings.config import ENVIRONMENT_SETTINGS, Config
from adabest.runs.settings.object_names import named_in
from adabest.runs.settings.run_plan import Plan, plan
from adabest.runs.stored_run import Run
from adabest.stop_requests import resume_command


@dataclass(frozen=True)
class Comparison:
    """A finished comparison.

    Attributes:
        folder: Where it lies.
        runs: The runs by label.
        entries: What is compared, by label: a run each, or one for every seed.
        table: The comparison in numbers.
        files: The table and the figure on disk.
    """

    folder: Path
    runs: dict[str, Run]
    entries: dict[str, list[Run]]
    table: Table
    files: list[Path]


def compare(
    config: str | Path | None = None,
    *,
    algorithms: Sequence[str | Algorithm] | None = None,
    seeds: Sequence[int] | None = None,
    target: float | None = None,
    lanes: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    show: bool = True,
    **settings: Any,
) -> Comparison:
    """Runs several algorithms on the same clients, then writes a table and a figure.

    What is finished in the folder already is kept, and what was begun is resumed.

    Args:
        config: A TOML file with settings.
        algorithms: Specifications such as ``adabest,beta=0.9``, or Algorithm objects.
        seeds: Seeds to run each algorithm with, in place of ``seed``; the table has means and standard deviations.
        target: The accuracy whose first round the table tells. By default one that all reach.
        lanes: How many runs are trained together at most, as lanes of one program; 1 for one after another. By default
            all.
        out: The comparison's folder. By default ``runs/`` and a name that the settings determine.
        overwrite: Whether to make all runs anew, whatever lies there.
        show: Whether to show progress.
        **settings: Settings of all runs. A hyper-parameter goes to every algorithm that has it.
    """
    given = {"algorithms": algorithms, "seeds": seeds, "target": target, "lanes": lanes}
    with asked_for(config, settings, **given, out=out, overwrite=overwrite) as merged:
        return make_comparison(merged, show=show)


def make_comparison(settings: dict[str, Any], *, unverified: bool = False, show: bool) -> Comparison:
    """What ``compare`` does, with settings from wherever: nothing of them counts as named by the call."""
    asked = Asked.taken_from(settings, "compare")
    chosen = settings.pop("algorithms", DEFAULT_ALGORITHMS)
    planned = plan(chosen, settings, asked.seeds)
    return _make(asked, planned, {"algorithms": list(chosen)}, settings, unverified=unverified, show=show)


def sweep(
    config: str | Path | None = None,
    *,
    vary: Mapping[str, Sequence[Any]] | Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    target: float | None = None,
    lanes: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    show: bool = True,
    **settings: Any,
) -> Comparison:
    """Runs one algorithm with every combination of some values of its settings, then writes a table and a figure.

    The table is in the order of validation accuracy. What is finished in the folder already is kept, and what was begun
    is resumed.

    Args:
        config: A TOML file with settings.
        vary: The values to try by setting, as in ``{"beta": [0.8, 0.9], "mu": [0.02, 0.05]}``, or as texts such as
            ``beta=0.8,0.9``.
        seeds: Seeds to run each combination with, in place of ``seed``; the table has means and standard deviations.
        target: The accuracy whose first round the table tells. By default one that all reach.
        lanes: How many runs are trained together at most, as lanes of one program; 1 for one after another. By default
            all.
        out: The sweep's folder. By default ``runs/`` and a name that the settings determine.
        overwrite: Whether to make all runs anew, whatever lies there.
        show: Whether to show progress.
        **settings: The other settings of all runs.
    """
    given = {"vary": vary, "seeds": seeds, "target": target, "lanes": lanes}
    with asked_for(config, settings, **given, out=out, overwrite=overwrite) as merged:
        return make_sweep(merged, show=show)


def make_sweep(settings: dict[str, Any], *, unverified: bool = False, show: bool) -> Comparison:
    """What ``sweep`` does, with settings from wherever: nothing of them counts as named by the call."""
    asked = Asked.taken_from(settings, "sweep")
    axes = read_vary(settings.pop("vary", None))
    planned = plan_sweep(axes, settings, asked.seeds)
    return _make(asked, planned, {"vary": write_vary(axes)}, settings, unverified=unverified, show=show)


Kind = Literal["compare", "sweep", "tune"]


@dataclass(frozen=True)
class Asked:
    """What is asked of a comparison as a whole, beside the settings of its runs."""

    kind: Kind
    seeds: Sequence[int] | None
    target: float | None
    lanes: int | None
    out: str | Path | None
    overwrite: bool

    @classmethod
    def taken_from(cls, settings: dict[str, Any], kind: Kind) -> "Asked":
        """Takes it out of settings, and refuses what can't be."""
        target, lanes = settings.pop("target", None), settings.pop("lanes", None)
        check_target(target)
        check_lanes(lanes)
        seeds, out = settings.pop("seeds", None) or None, settings.pop("out", None)
        return cls(kind, seeds, target, lanes, out, settings.pop("overwrite", False))


def check_target(target: Any) -> None:
    """Refuses what is no accuracy.

    Raises:
        InputError: If it is none.
    """
    if target is not None and not (isinstance(target, int | float) and 0 < target <= 1):
        raise InputError(f"target = {target!r}: an accuracy is above 0 and at most 1")


def check_lanes(lanes: Any) -> None:
    """Refuses what is no number of runs.

    Raises:
        InputError: If it is none.
    """
    if lanes is not None and not (type(lanes) is int and lanes >= 1):
        raise InputError(f"lanes = {lanes!r}: at least 1 run is trained at a time")


def _make(
    asked: Asked,
    planned: Plan,
    what: dict[str, Any],
    settings: dict[str, Any],
    *,
    unverified: bool,
    show: bool,
) -> Comparison:
    with begun(asked, planned, what, settings) as folder:
        made = make_runs(
            planned, folder, lanes=asked.lanes, overwrite=asked.overwrite, unverified=unverified, show=show
        )
        return _report(made, asked.target, sweep=asked.kind == "sweep")


@contextlib.contextmanager
def begun(asked: Asked, planned: Plan, what: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[Path]:
    """The folder of several runs, which is named and remembered by what they are and their settings.

    While entered, nobody else works there.

    Args:
        asked: What is asked of all of them.
        planned: The runs that there must be room for.
        what: What tells them apart, as the call takes it.
        settings: The settings of all of them.

    Raises:
        InputError: If the folder can't be used.
        Interrupted: If the work was interrupted; it says how to go on.
    """
    essence = {name: value for name, value in settings.items() if name not in ENVIRONMENT_SETTINGS}
    if asked.seeds:
        essence["seeds"] = list(asked.seeds)
    folder = Path(asked.out) if asked.out else ROOT / f"{asked.kind}-{digest(*what.values(), essence)}"
    found = findable(settings, next(iter(planned.runs.values()))[0])
    extra = {"target": asked.target, "lanes": asked.lanes, "seeds": asked.seeds}
    lock = RunFolder(folder)
    lock.acquire()
    try:
        make_room(planned, folder, overwrite=asked.overwrite)
        remember(folder, {**what, **settings, **found, **extra})
        yield folder
    except Interrupted:
        raise Interrupted(f"interrupted; resume with: {_way_to_resume(folder, asked.kind)}") from None
    except AdabestError:
        raise
    except Exception as error:
        note_how_to_go_on(error, f"mend that, then resume with: {_way_to_resume(folder, asked.kind)}")
        raise
    finally:
        lock.release()


def _way_to_resume(folder: Path, kind: Kind) -> str:
    settings = recall(folder)
    return f"the same call of adabest.{kind}" if settings is None else resume_command(folder, named_in(settings))


def _report(comparison: Made, target: float | None, *, sweep: bool) -> Comparison:
    folder, entries = comparison.folder, comparison.entries
    title = title_of(list(comparison.runs.values()))
    if sweep:
        entries = by_validation(entries)
        table, figure = sweep_table(entries, target), sweep_figure(entries, title)
    else:
        table, figure = comparison_table(entries, target), comparison_figure(entries, title)
    texts = write_texts(folder, {"table.md": table.markdown(), "table.csv": table.csv()})
    figures = save_figure(figure, folder / "figure")
    return Comparison(folder, comparison.runs, entries, table, [*texts, *figures])


def title_of(compared: Sequence[Run]) -> str:
    """What is the same for all runs, and their seeds."""
    seeds = sorted({run.config.seed for run in compared})
    parts = [_parts(run.config) for run in compared]
    shared = [part for number, part in enumerate(parts[0]) if all(other[number] == part for other in parts)]
    return ", ".join([*shared, f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"])


def _parts(config: Config) -> list[str]:
    details = {"shards": f", {config.shards} each"} | dict.fromkeys(
        ("dirichlet", "dirichlet-legacy"), f" α = {config.alpha:g}"
    )
    skew = f"{config.partition}{details.get(str(config.partition), '')}"
    return [config.dataset, f"{config.clients} clients", f"{100 * config.participation:g} % a round", skew]
