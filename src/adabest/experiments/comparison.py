"""Comparisons: several algorithms on the same clients, trained together."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from adabest.algorithms.base import Algorithm
from adabest.experiments.call import asked_for, refuse_callback_objects
from adabest.experiments.held_run import Run
from adabest.experiments.run_group import Asked, RunGroup, begun, make_runs, title_of
from adabest.report.entries import by_validation
from adabest.report.frame import as_frame
from adabest.report.table import Table, comparison_table, sweep_table
from adabest.runs.files.atomic_files import write_texts
from adabest.runs.keywords import SharedSettings
from adabest.runs.settings.algorithm_specification import check_algorithms, refuse_hyperparameters
from adabest.runs.settings.call_arguments import DEFAULT_ALGORITHMS
from adabest.runs.settings.idle_settings import warn_of_idle_settings
from adabest.runs.settings.run_plan import Plan, plan_algorithms
from adabest.runs.settings.unjudged_parts import warn_of_unjudged_parts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Comparison:
    """A finished comparison.

    Attributes:
        folder: Its folder.
        runs: The runs by label.
        entries: The compared entries by label: a run each, or one for every seed.
        table: The comparison in numbers.
        files: The table and the figure on disk.
    """

    folder: Path
    runs: dict[str, Run]
    entries: dict[str, list[Run]]
    table: Table
    files: list[Path]
    _ranked: bool = field(default=False, kw_only=True, repr=False, compare=False)  # by validation accuracy: a sweep

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r}: {len(self.entries)} entries, {len(self.runs)} runs)"

    def _repr_html_(self) -> str:
        """For notebooks: the table."""
        return self.table.html()

    def plot(self, title: str | None = None) -> "Figure":
        """The comparison's figure: accuracy and ‖θ‖ over rounds, as a figure of Matplotlib, which notebooks show.

        Args:
            title: The title. By default the settings that all runs share.
        """
        from adabest.report.figure import comparison_figure, sweep_figure  # imports Matplotlib

        words = title_of(list(self.runs.values())) if title is None else title
        if self._ranked:
            return sweep_figure(by_validation(self.entries), words)
        return comparison_figure(self.entries, words)

    def to_pandas(self) -> Any:
        """The metrics of all runs as a ``pandas.DataFrame``: one row per run and evaluated round.

        The columns ``entry`` and ``seed`` come first.

        Raises:
            InputError: If pandas isn't installed.
        """
        return as_frame(
            [
                {"entry": label, "seed": run.config.seed, **row}
                for label, runs in self.entries.items()
                for run in runs
                for row in run.metrics
            ]
        )


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
    **settings: Unpack[SharedSettings],
) -> Comparison:
    """Runs several algorithms on the same clients, then writes a table and a figure.

    Finished runs in the folder are kept, begun ones are resumed.

    Args:
        config: A TOML file with settings.
        algorithms: Specifications such as ``adabest,beta=0.9``, or Algorithm objects.
        seeds: Seeds to run each algorithm with, in place of ``seed``; the table has means and standard deviations.
        target: The accuracy, or value of the task's first metric, of which the table tells the first round that
            reaches it. By default one that all reach.
        lanes: The most runs that are trained together, as lanes of one program; 1 for one after another. By default
            all.
        out: The comparison's folder. By default ``runs/`` and a name that the settings determine.
        overwrite: Whether to make all runs anew, in place of those in the folder.
        show: Whether to show progress.
        **settings: Settings of all runs. Hyper-parameters are given with their algorithms: ``"adabest,beta=0.9"``.
    """
    given = {"algorithms": algorithms, "seeds": seeds, "target": target, "lanes": lanes}
    refuse_callback_objects(settings)
    with asked_for(config, settings, **given, out=out, overwrite=overwrite) as merged:
        algorithms = merged.get("algorithms", DEFAULT_ALGORITHMS)
        check_algorithms(algorithms)
        refuse_hyperparameters(settings, algorithms)
        return make_comparison(merged, show=show)


def make_comparison(settings: dict[str, Any], *, unverified: bool = False, show: bool) -> Comparison:
    """Makes a comparison from complete settings. Unlike ``compare``, it allows none of their names to be imported."""
    asked = Asked.taken_from(settings, "compare")
    chosen = settings.pop("algorithms", DEFAULT_ALGORITHMS)
    planned = plan_algorithms(chosen, settings, asked.seeds)
    return make_and_report(asked, planned, {"algorithms": list(chosen)}, settings, unverified=unverified, show=show)


def make_and_report(
    asked: Asked,
    planned: Plan,
    what: dict[str, Any],
    settings: dict[str, Any],
    *,
    unverified: bool,
    show: bool,
) -> Comparison:
    """Makes the runs of a comparison or a sweep, then writes a table and a figure."""
    varied = dict.fromkeys(text.partition("=")[0] for text in what.get("vary", ()))
    warn_of_idle_settings({**settings, **varied}, planned.configs(), asked.seeds)
    warn_of_unjudged_parts(planned.configs())
    with begun(asked, planned, what, settings) as folder:
        made = make_runs(
            planned, folder, lanes=asked.lanes, overwrite=asked.overwrite, unverified=unverified, show=show
        )
        return _report(made, asked.target, sweep=asked.kind == "sweep")


def _report(comparison: RunGroup, target: float | None, *, sweep: bool) -> Comparison:
    from adabest.report.figure import save_figure  # imports Matplotlib: not before the runs

    folder, entries = comparison.folder, comparison.entries
    entries = by_validation(entries) if sweep else entries
    table = sweep_table(entries, target) if sweep else comparison_table(entries, target)
    texts = write_texts(folder, {"table.md": table.markdown(), "table.csv": table.csv()})
    made = Comparison(folder, comparison.runs, entries, table, texts, _ranked=sweep)
    return replace(made, files=[*texts, *save_figure(made.plot(), folder / "figure")])
