"""What each command does, once its options are parsed: it calls the package and prints what came of it."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from adabest.cli import options, parser
from adabest.cli.exit_codes import DAMAGED, DIVERGED, DONE
from adabest.costs.round_costs import Costs
from adabest.costs.round_costs import costs as count_costs
from adabest.data.listing import datasets
from adabest.data.location import data_folder
from adabest.errors import InputError
from adabest.experiments.comparison_calls import Comparison, compare, sweep
from adabest.experiments.report_page import write_report
from adabest.experiments.resume import is_comparison, resume, resume_comparison
from adabest.experiments.single_run import load as load_allowed
from adabest.experiments.single_run import run as make_run
from adabest.experiments.steering_figure import illustrate
from adabest.experiments.tuning import Tuning, tune
from adabest.experiments.verify_call import verify
from adabest.paper.reproduce import Reproduced, reproduce
from adabest.registry import naming, split_specification
from adabest.report.figure import partition_figure, save_figure
from adabest.report.table import datasets_table, facts_table, runs_table
from adabest.runs.build import cut_partition, partition_statistics
from adabest.runs.files.folder import MODELS
from adabest.runs.results_file import Results
from adabest.runs.settings.object_names import named_in
from adabest.runs.settings.resolution import resolve
from adabest.runs.stored_run import Run, find_runs, load


def commands(given: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """The commands, each as a function that tyro can read and that returns what is to be done."""
    chosen = given[0] if given else ""
    return {
        "run": parser.command(_run, "Run one algorithm.", options.run_fields(given if chosen == "run" else [])),
        "compare": parser.command(
            _compare,
            "Run several algorithms on the same clients, then write a table and a figure. What is there is resumed.",
            options.compare_fields(given if chosen == "compare" else []),
        ),
        "sweep": parser.command(
            _sweep,
            "Run one algorithm with every combination of some values of its settings, ordered by validation accuracy.",
            options.sweep_fields(given if chosen == "sweep" else []),
        ),
        "tune": parser.command(
            _tune,
            "Choose hyper-parameters of one algorithm on the validation clients: by default of the paper's values.",
            options.tune_fields(given if chosen == "tune" else []),
        ),
        "reproduce": parser.command(
            _reproduce,
            "Make an experiment of the paper anew, and its table or figure. What is there is resumed.",
            options.reproduce_fields(),
        ),
        "resume": parser.command(
            _resume,
            "Continue a run, a comparison, a sweep or a tuning from its last checkpoint.",
            options.resume_fields(),
        ),
        "list": parser.command(_list, "List the runs below a folder.", options.folder_field("runs")),
        "show": parser.command(_show, "Show a run's settings and results.", options.folder_field()),
        "verify": parser.command(
            _verify,
            "Say which files of runs and of results are whole, and what can still be done.",
            options.verify_fields(),
        ),
        "report": parser.command(
            _report, "Write a page of runs: curves, table, partitions, settings, environment.", options.report_fields()
        ),
        "datasets": parser.command(
            _datasets, "List the data sets that have a name, and which of them are there.", options.datasets_fields()
        ),
        "export": parser.command(_export, "Write a run's model to a file of its own.", options.export_fields()),
        "partition": parser.command(
            _partition,
            "Show how a data set is dealt to clients: statistics and a heat map.",
            options.partition_fields(),
        ),
        "costs": parser.command(
            _costs,
            "Show what a round computes, stores and sends: the paper's formulas, and ours.",
            options.cost_fields(),
        ),
        "illustrate": parser.command(
            _illustrate, "Draw how algorithms steer, from a run of two parameters.", options.illustrate_fields()
        ),
    }


def _run(arguments: Any) -> int:
    return _tell_run(make_run(**_given_by_name(arguments)))


def _tell_run(run: Run) -> int:
    console = _console()
    if run.status == "diverged":
        console.print(
            f"Diverged in round {run.round}: {run.reason}. The models of the round before are in {run.folder}"
        )
        return DIVERGED
    if run.reason is not None:
        console.print(f"Ended early in round {run.round}: {run.reason}")
    final = run.final
    accuracies = ", ".join(
        f"{100 * final[f'{model}_accuracy']:.2f} % ({model})"
        for model in MODELS
        if final.get(f"{model}_accuracy") is not None
    )
    console.print(f"Round {final['round']}: accuracy {accuracies}")
    console.print(f"Written to {run.folder}")
    return DONE


def _compare(arguments: Any) -> int:
    return _tell_comparison(compare(**parser.given(arguments)))


def _sweep(arguments: Any) -> int:
    return _tell_comparison(sweep(**_given_by_name(arguments)))


def _tune(arguments: Any) -> int:
    return _tell_comparison(tune(**_given_by_name(arguments)))


def _given_by_name(arguments: Any) -> dict[str, Any]:
    """The arguments that have a value, with the name of the algorithm alone: its options have become their own."""
    settings = parser.given(arguments)
    settings["algorithm"], _ = split_specification(settings["algorithm"])
    return settings


def _tell_comparison(comparison: Comparison) -> int:
    _console().print(comparison.table.rich())
    diverged = any(run.status == "diverged" for run in comparison.runs.values())
    if isinstance(comparison, Tuning):
        diverged = comparison.chosen is None  # else it is an answer that some of them do
        values = [f"{name} = {value}" for name, value in (comparison.chosen or {}).items()]
        words = "Nothing could be chosen: every point diverged" if diverged else f"Chosen: {', '.join(values)}"
        _console().print(words)
    _tell_files(comparison.files)
    return DIVERGED if diverged else DONE


def _reproduce(arguments: Any) -> int:
    reproduced = reproduce(**parser.given(arguments))
    _tell_tables(reproduced)
    made = reproduced.results.runs if isinstance(reproduced.results, Results) else []
    return DIVERGED if any(run.status == "diverged" for run in made) else DONE


def _resume(arguments: Any) -> int:
    if is_comparison(arguments.folder):
        return _tell_comparison(resume_comparison(**parser.given(arguments)))
    return _tell_run(resume(**parser.given(arguments)))


def _list(arguments: Any) -> int:
    found = find_runs(arguments.folder)
    if not found:
        raise InputError(f"there are no runs below {arguments.folder}")
    table = runs_table([])
    for path in found:
        try:
            table = replace(table, rows=(*table.rows, *runs_table([load(path)]).rows))
        except (InputError, OSError) as error:  # of one run, which is no matter of the others
            print(f"adabest: {path} is left out: {error}", file=sys.stderr)
    _console().print(table.rich())
    return DONE


def _show(arguments: Any) -> int:
    run = load(arguments.folder)
    console = _console()
    console.print(facts_table(run.config.flat(), "settings").rich())
    if run.identity:
        console.print(facts_table(run.identity["partition"], "partition").rich())
    reason = {} if run.reason is None else {"reason": run.reason}
    result = {"status": run.status, "round": run.round, **reason, **run.final}
    console.print(facts_table(result, "result").rich())
    return DONE


def _verify(arguments: Any) -> int:
    found = verify(arguments.paths)
    console = _console()
    for state, path, words in ((finding.state, finding.path, finding.words) for finding in found):
        console.print(f"{state}: {path}: {words}")
    return DONE if all(finding.state == "whole" for finding in found) else DAMAGED


def _report(arguments: Any) -> int:
    settings = parser.given(arguments)
    _tell_files([write_report(settings.pop("runs"), **settings)])
    return DONE


def _datasets(arguments: Any) -> int:
    listings = datasets(arguments.data_dir, fetch=arguments.fetch)
    console = _console()
    console.print(datasets_table(listings).rich())
    for listing in listings:
        for words in [str(listing.where)] if listing.where else listing.lacks:
            console.print(f"{listing.name}: {words}")
    console.print(f"Data folder: {data_folder(arguments.data_dir)}")
    return DONE


def _export(arguments: Any) -> int:
    run = load_allowed(arguments.folder, allow=arguments.allow, trust=arguments.trust)
    written = run.export(arguments.format, arguments.which, out=arguments.out, overwrite=arguments.overwrite)
    _console().print(f"Written: {written}")
    return DONE


def _partition(arguments: Any) -> int:
    settings = parser.given(arguments)
    out = settings.pop("out")
    with naming(named_in(settings)):
        config, components = resolve(settings)
        partition = cut_partition(config, components)
    statistics = partition_statistics(partition)
    title = f"{config.dataset}, {config.partition}, mean label entropy {partition.label_entropy:.2f}"
    _console().print(facts_table(statistics, "partition").rich())
    _tell_files(save_figure(partition_figure(partition, title), out))
    return DONE


def _costs(arguments: Any) -> int:
    costs = count_costs(**parser.given(arguments))
    _tell_tables(costs)
    return DONE


def _illustrate(arguments: Any) -> int:
    _tell_files(illustrate(**parser.given(arguments)).files)
    return DONE


def _tell_tables(found: Reproduced | Costs) -> None:
    console = _console()
    for table in found.tables.values():
        console.print(table.rich())
    for note in found.notes:
        console.print(note)
    _tell_files(found.files)


def _tell_files(paths: Sequence[Path]) -> None:
    for path in paths:
        _console().print(f"Written: {path}")


class _Console(Console):
    """A console that leaves it to ``main`` what to do when nobody reads on."""

    def on_broken_pipe(self) -> None:
        """Passes it on; rich would exit with 1."""
        raise BrokenPipeError


def _console() -> Console:
    """Prints text as it is: no markup, no colours in it, and paths stay in one piece."""
    return _Console(markup=False, highlight=False, soft_wrap=True)
