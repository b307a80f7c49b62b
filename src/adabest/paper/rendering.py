"""Tables and figures of an experiment, made of its results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from matplotlib.figure import Figure

from adabest.errors import InputError, nearest
from adabest.paper import agreement, figures, leaderboard, notes, overview, ranking, summary
from adabest.paper.facts import HETEROGENEITIES, all_cells, cells_in_order, entry_options, is_number
from adabest.paper.result_tables import Runs, choices_table, final_table, models_table, provenance_table, rounds_table
from adabest.paper.scores import SMOOTHED
from adabest.paper.sensitivity import AUTO, auto_table, beta_table, misses_table, ratio_table, train_table
from adabest.paper.specification import read_specification
from adabest.report.table import Table
from adabest.runs.results_file import Results


@dataclass(frozen=True)
class Rendered:
    """Results as tables, figures and notes.

    Attributes:
        tables: By name.
        figures: By name.
        notes: How to read them, in sentences.
    """

    tables: dict[str, Table]
    figures: dict[str, Figure]
    notes: list[str]

    def markdown(self) -> str:
        """Tables and notes, for a page."""
        parts = [f"## {table.title}\n\n{table.markdown()}" for table in self.tables.values()]
        return "\n".join([*parts, "".join(f"- {note}\n" for note in self.notes)])


def figure_name(experiment: str, figure: str) -> str:
    """What a figure is called among those of other experiments."""
    return figure if figure.startswith(experiment) else f"{experiment}-{figure}"


def render(name: str, results: Results) -> Rendered:
    """Makes the tables and figures of an experiment.

    Args:
        name: The experiment's.
        results: Its results, or a part of them; for fig-overfitting those of fig-stability will do.

    Raises:
        InputError: If there is no such experiment, the results are another one's, or there is nothing to show.
    """
    if name not in RENDERINGS:
        raise InputError(f"there are no tables and figures of {name!r}; there are those of {', '.join(RENDERINGS)}")
    if results.experiment not in {name, read_specification(name).shares}:
        raise InputError(f"results of {results.experiment} can't be shown as {name}")
    if not results.runs:
        raise InputError(f"there are no results of {name} to show")
    _refuse_foreign(results)
    runs: Runs = {cell: results.of(cell) for cell in cells_in_order(results.cells())}
    rendered = RENDERINGS[name](runs)
    tuning = {"tuning": choices_table(results.tuning)} if results.tuning else {}
    return Rendered(
        tables={**rendered.tables, **tuning, "provenance": provenance_table(results)},
        figures=rendered.figures,
        notes=[
            *rendered.notes,
            *notes.lengths(results),
            *notes.open_questions(name),
            *notes.stand_in(results),
            *notes.precisions(results),
        ],
    )


def _refuse_foreign(results: Results) -> None:
    """Refuses cells that neither the experiment nor Table 1 has, and entries whose β or μ is no number (β may be auto).

    Tables and figures read both off their names.
    """
    known = [
        *dict.fromkeys([*(cell.name for cell in read_specification(results.experiment).all_cells()), *all_cells()])
    ]
    for run in results.runs:
        if run.cell not in known:
            raise InputError(f"{results.experiment} has no cell {run.cell!r}; {nearest(run.cell, known)}")
        for name, value in entry_options(run.entry).items():
            if name in ("beta", "mu") and not is_number(value) and (name, value) != ("beta", "auto"):
                raise InputError(f"results of {results.experiment}: {name} of {run.entry!r} should be a number")


def _table1(runs: Runs) -> Rendered:
    return _compared(runs, all_cells())


def _table1_exact(runs: Runs) -> Rendered:
    return _compared(runs, all_cells(kind for kind in HETEROGENEITIES if kind != "iid"))


def _table1_mnist(runs: Runs) -> Rendered:
    tables = {
        "accuracy": summary.stand_in_table(runs, "emnist-l"),
        "rounds": rounds_table(runs),
        "models": models_table(runs),
        "final": final_table(runs),
    }
    said = [*notes.hyperparameters(runs), *_ROUNDS, *_MODELS]
    return Rendered(tables, {"curves": overview.curves_figure(runs)}, said)


def _compared(runs: Runs, wanted: Sequence[str]) -> Rendered:
    lines = agreement.lines(runs)
    orders = ranking.orders(lines)
    tables = {
        "headline": summary.headline_table(lines),
        "comparison": agreement.agreement_table(lines),
        "outside": agreement.outside_table(lines),
        "ranking": ranking.ranking_table(orders),
        "summary": summary.summary_table(lines, orders),
        "cells": summary.cells_table(lines, orders),
        "rounds": rounds_table(runs),
        "models": models_table(runs),
        "final": final_table(runs),
    }
    pictures = {"curves": overview.curves_figure(runs)}
    whole = [line for line in lines if line.verdict is not None]
    if whole:
        pictures = {"agreement": overview.agreement_figure(whole), **pictures}
    said = [*agreement.agreement_notes(lines, wanted), *notes.hyperparameters(runs), *_ROUNDS, *_MODELS]
    return Rendered(tables, pictures, said)


_ROUNDS = [
    "Rounds to an accuracy: the first evaluated round, mean over seeds; in brackets, how many times sooner than FedAvg "
    "(> where FedAvg never gets there), or how many of the seeds do.",
]
_MODELS = ["The averaged model is the mean of θ̄ over the second half of a run; the paper has none."]


def _stability(runs: Runs) -> Rendered:
    figure = figures.stacked_figure(runs, ("scored_loss", "cloud_norm", "scored_accuracy"), _titles(runs))
    tables = {"final": final_table(runs), "rounds": rounds_table(runs)}
    return Rendered(tables, {"fig-stability": figure}, [_BANDS, *notes.hyperparameters(runs)])


def _stability_emnist(runs: Runs) -> Rendered:
    figure = figures.stacked_figure(runs, ("scored_accuracy", "cloud_norm"), _titles(runs), zoomed=True)
    tables = {"final": final_table(runs), "rounds": rounds_table(runs)}
    return Rendered(tables, {"fig-stability-emnist": figure}, [_BANDS, _ZOOMED])


_BANDS = "Lines are means over seeds, bands a standard deviation (n − 1) to each side; × marks divergence."
_ZOOMED_BOTH = "Scales differ from panel to panel, and show what comes after the first fifth of the rounds."
_ZOOMED = "The axis of accuracy leaves out where everyone climbs, in the first fifth of the rounds."


def _overfitting(runs: Runs) -> Rendered:
    entries = next(iter(runs.values()))
    shown = figures.only(entries, figures.OVERFITTING)
    if not shown:
        raise InputError(f"fig-overfitting shows {', '.join(figures.OVERFITTING)}; there are no results of any of them")
    title = notes.described(figures.all_runs(shown))
    said = (
        "Training accuracy is that of a round's clients on their own batches, before each step; it is smoothed by a "
        f"running mean over {SMOOTHED} evaluations, test accuracy isn't."
    )
    return Rendered(
        {"final": train_table(shown)},
        {"fig-overfitting": figures.overfitting_figure(shown, title)},
        [said, *notes.hyperparameters(runs)],
    )


def _scale(runs: Runs) -> Rendered:
    tables = {"ratio": ratio_table(runs), "final": final_table(runs), "rounds": rounds_table(runs)}
    said = (
        "The paper claims “nearly a two-fold improvement in test accuracy over the second-best candidate in some "
        "cases”. The ratio is AdaBest's accuracy over the best other's: in the last round, and where it is largest "
        "after the first tenth of the rounds."
    )
    return Rendered(
        tables, {"fig-scale": figures.scale_figure(runs, _title(runs))}, [_BANDS, said, *notes.hyperparameters(runs)]
    )


def _mu(runs: Runs) -> Rendered:
    pictures = {}
    for cell, title in _titles(runs).items():
        name = "fig-mu" if len(runs) == 1 else f"fig-mu-{cell}"
        pictures[name] = figures.mu_figure(runs[cell], title)
    return Rendered({"final": final_table(runs)}, pictures, [_BANDS, _ZOOMED_BOTH])


def _beta(runs: Runs) -> Rendered:
    by_share = {cell.split("/")[-1]: entries for cell, entries in runs.items()}
    shares = {share: by_share[share] for share in cells_in_order(by_share)}
    tables = {"beta": beta_table(shares), "final": final_table(runs)}
    said = ["The best β of each participation is bold. It is the best on the test set: a finding, not a choice."]
    if any(AUTO in entries for entries in runs.values()):
        tables = {"auto": auto_table(shares, "best fixed"), **tables}
        said += _SAME_SEEDS
    return Rendered(tables, {"fig-beta": figures.beta_figure(shares, _title(runs))}, said)


def _beta_settings(runs: Runs) -> Rendered:
    rendered = _beta(runs)
    return replace(rendered, figures={"beta-auto-settings": rendered.figures["fig-beta"]})


def _beta_auto(runs: Runs) -> Rendered:
    shown = {cell: {e: of for e, of in entries.items() if e in ("adabest", AUTO)} for cell, entries in runs.items()}
    return Rendered({"auto": auto_table(shown, "tuned"), "final": final_table(shown)}, {}, [*_SAME_SEEDS])


def _beta_small(runs: Runs) -> Rendered:
    tables = {"auto": auto_table(runs, "best fixed"), "beta": beta_table(runs), "final": final_table(runs)}
    return Rendered(tables, {}, [*_SAME_SEEDS])


_SAME_SEEDS = ["Values of β are compared with the same seeds: those that both have."]


def _population(runs: Runs) -> Rendered:
    tables = {"final": final_table(runs), "rounds": rounds_table(runs)}
    return Rendered(tables, {"population": figures.population_figure(runs, _title(runs))}, [_BANDS, _ZOOMED, *_ROUNDS])


def _zoo(runs: Runs) -> Rendered:
    boards = {f"leaderboard-{cell}": leaderboard.leaderboard_table(cell, entries) for cell, entries in runs.items()}
    picture = leaderboard.leaderboard_figure(runs)
    return Rendered({**boards, "final": final_table(runs)}, {"zoo": picture}, leaderboard.leaderboard_notes(runs))


def _misses(runs: Runs) -> Rendered:
    varied = {cell: entries for cell, entries in runs.items() if any(map(entry_options, entries))}
    return Rendered({"misses": misses_table(varied), "final": final_table(varied)}, {}, [])


def _titles(runs: Runs) -> dict[str, str]:
    return {cell: notes.described(figures.all_runs(entries)) for cell, entries in runs.items()}


def _title(runs: Runs) -> str:
    return notes.described([run for entries in runs.values() for run in figures.all_runs(entries)])


RENDERINGS: dict[str, Callable[[Runs], Rendered]] = {
    "table1": _table1,
    "table1-exact": _table1_exact,
    "table1-mnist": _table1_mnist,
    "fig-stability": _stability,
    "fig-scale": _scale,
    "fig-stability-emnist": _stability_emnist,
    "fig-overfitting": _overfitting,
    "fig-mu": _mu,
    "fig-beta": _beta,
    "beta-auto": _beta_auto,
    "beta-auto-digits": _beta_small,
    "beta-auto-mnist": _beta_small,
    "beta-auto-settings": _beta_settings,
    "population": _population,
    "misses-adabest": _misses,
    "misses-scaffold": _misses,
    "misses-skew": _misses,
    "zoo": _zoo,
}
