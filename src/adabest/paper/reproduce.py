"""The call ``adabest.reproduce``: an experiment of the paper, made anew."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from adabest.costs.cost_file import MeasuredCosts
from adabest.costs.measured_tables import measured_cost_notes, measured_cost_tables, measured_cost_text
from adabest.costs.measurement import measure_costs
from adabest.errors import InputError, Interrupted, nearest, note_how_to_go_on
from adabest.experiments.call import ROOT
from adabest.experiments.run_group import check_lanes
from adabest.paper.experiment_runs import ExperimentRequest, ExperimentRuns
from adabest.paper.rendering import figure_name, render
from adabest.paper.specification import COSTS, read_specification, specification_names
from adabest.registry import naming
from adabest.report.figure import save_figure
from adabest.report.table import Table
from adabest.runs.files.atomic_files import write_texts
from adabest.runs.files.folder import RunFolder
from adabest.runs.keywords import ExecutionSettings
from adabest.runs.results_file import CHOICES, Results, read_choices
from adabest.runs.settings.algorithm_specification import refuse_unknown
from adabest.runs.settings.config import BESIDE_SPECIFICATIONS
from adabest.runs.settings.run_plan import check_seeds


@dataclass(frozen=True)
class Reproduced:
    """An experiment of the paper, made anew.

    Attributes:
        folder: Where it lies.
        results: What came of each run, or what was measured of costs.
        tables: In numbers, beside the paper's where it has any, by name.
        notes: How to read them, in sentences.
        files: Results, tables and figures on disk.
    """

    folder: Path
    results: Results | MeasuredCosts
    tables: dict[str, Table]
    notes: list[str]
    files: list[Path]


def reproduce(
    name: str,
    *,
    cells: str | Sequence[str] = (),
    entries: str | Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
    choices: str | Path | None = None,
    results: str | Path | Sequence[str | Path] | None = None,
    lanes: int | None = None,
    out: str | Path | None = None,
    show: bool = True,
    **execution: Unpack[ExecutionSettings],
) -> Reproduced:
    """Makes an experiment of the paper anew, then writes its table or figure.

    What is finished in the folder already is kept, and what was begun is resumed. The table or figure shows all that
    was made there, by this call and earlier ones.

    Args:
        name: The experiment, as in table1 or fig-stability; costs for what a round sends, stores and computes.
        cells: Those of its cells that are to be made, as in cifar100/10/iid or cifar10/*/iid. By default all, or those
            that its specification says.
        entries: What is to be compared in them, as in feddyn adabest or scaffold*. By default all that it compares.
        seeds: Seeds to make each run with. By default those of its specification.
        rounds: Rounds of each run, in place of the experiment's own, to try it out; of costs, the rounds measured.
        choices: File of hyper-parameters that `adabest tune` chose; they aren't tuned again. By default what was chosen
            in the folder before, if anything was.
        results: Files of results that were brought from elsewhere; then nothing is run.
        lanes: How many runs are trained together at most, as lanes of one program. By default all of one seed, and
            those of further seeds as far as the memory goes.
        out: Folder to write to. By default ``runs/`` and the experiment's name.
        show: Whether to show progress.
        **execution: Settings that say how runs are executed: ``device``, ``precision``, ``data_dir`` and others.

    Raises:
        InputError: If something can't be used. Nothing was run.
        Interrupted: If a signal asked to stop; the same call continues.
    """
    brought = None if results is None else [results] if isinstance(results, str | Path) else list(results)
    if brought == []:
        raise InputError("results names no file; leave it out to make the experiment")
    _check_call(name, rounds)
    asked: dict[str, Any] = {
        "cells": cells,
        "entries": entries,
        "seeds": seeds,
        "rounds": rounds,
        "choices": choices,
        "lanes": lanes,
    }
    if name == COSTS:
        if cells or seeds or choices or lanes:
            raise InputError("costs are measured in one setting: leave out cells, seeds, choices and lanes")
        return _reproduce_costs(Path(out) if out else ROOT / COSTS, _as_list(entries), rounds, brought or [], execution)
    if brought:
        ignored = [name for name, value in {**asked, **execution}.items() if value]
        if ignored:
            raise InputError(
                f"results from elsewhere are shown as they are, and nothing is run: leave out {ignored[0]}"
            )
        found = [Results.read(Path(path)) for path in brought]
        folder = Path(out) if out else ROOT / read_specification(name).shares
        return _render(name, folder, functools.reduce(Results.merged, found))
    request, folder = make_request(name, **asked, out=out, execution=execution)
    making = ExperimentRuns(request, folder, show=show)
    making.check()
    lock = RunFolder(folder)
    lock.acquire()
    try:
        place = folder / f"{name}.json"
        earlier = Results.read(place) if place.is_file() else Results(name, [])
        made = earlier.merged(making.make(lambda so_far: earlier.merged(so_far).write(place)))
    except Interrupted:
        raise Interrupted("interrupted; the same command continues where it was") from None
    except OSError as error:
        note_how_to_go_on(error, "mend that; the same command continues where it was")
        raise
    finally:
        lock.release()
    return _render(name, folder, made)


def make_request(
    name: str,
    *,
    cells: str | Sequence[str],
    entries: str | Sequence[str],
    seeds: Sequence[int] | None,
    rounds: int | None,
    choices: str | Path | None,
    lanes: int | None,
    out: str | Path | None,
    execution: Mapping[str, Any],
) -> tuple[ExperimentRequest, Path]:
    """The runs that a call of `reproduce` asks for, and the folder that they belong in.

    Raises:
        InputError: If something can't be used.
    """
    _check_call(name, rounds)
    specification = read_specification(name)
    folder = Path(out) if out else ROOT / specification.shares
    refuse_unknown(execution, BESIDE_SPECIFICATIONS)
    check_lanes(lanes)
    if seeds:
        check_seeds(seeds)
    kept = folder / CHOICES
    files = [Path(choices)] if choices is not None else [kept] if kept.is_file() else []
    request = ExperimentRequest(
        specification,
        specification.chosen_cells(_as_list(cells)),
        specification.chosen_entries(_as_list(entries)),
        seeds or specification.seeds,
        rounds,
        execution,
        [choice for file in files for choice in read_choices(file)],
        lanes,
    )
    request.check_choices(kept=choices is None)
    return request, folder


def _check_call(name: str, rounds: int | None) -> None:
    known = [*specification_names(), COSTS]
    if name not in known:
        raise InputError(f"there is no experiment {name!r}; {nearest(name, known)}")
    if rounds is not None and not (type(rounds) is int and rounds >= 1):
        raise InputError(f"rounds = {rounds!r}: it must be a whole number above 0")


def _as_list(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _reproduce_costs(
    folder: Path,
    algorithms: Sequence[str],
    rounds: int | None,
    results: Sequence[str | Path],
    execution: Mapping[str, Any],
) -> Reproduced:
    """What a round costs, measured."""
    if len(results) > 1:
        raise InputError("costs come from one file: rounds that weren't measured side by side can't be compared")
    if results:
        measured = MeasuredCosts.read(Path(results[0]))
    else:
        repeats = {} if rounds is None else {"repeats": rounds}
        with naming(algorithms):
            measured = measure_costs(execution, algorithms=list(algorithms) or None, **repeats)
    tables = measured_cost_tables(measured)
    csvs = {f"{COSTS}-{part}.csv": table.csv() for part, table in tables.items()}
    texts = write_texts(folder, {f"{COSTS}.md": measured_cost_text(measured), **csvs})
    place = folder / f"{COSTS}.json"
    measured.write(place)
    return Reproduced(folder, measured, tables, measured_cost_notes(measured), [place, *texts])


def _render(name: str, folder: Path, results: Results) -> Reproduced:
    rendered = render(name, results)
    rendered = replace(rendered, tables={part: table for part, table in rendered.tables.items() if table.rows})
    csvs = {f"{name}-{part}.csv": table.csv() for part, table in rendered.tables.items()}
    texts = write_texts(folder, {f"{name}.md": rendered.markdown(), **csvs})
    place = folder / f"{results.experiment}.json"
    results.write(place)
    figures = [
        path
        for part, figure in rendered.figures.items()
        for path in save_figure(figure, folder / figure_name(name, part))
    ]
    return Reproduced(folder, results, rendered.tables, rendered.notes, [place, *texts, *figures])
