"""The package from Python: run, resume, compare, sweep, load, datasets, costs, illustrate, write_report."""

import functools
import hashlib
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import nn

from adabest import experiments, report, runs
from adabest.algorithms import Algorithm
from adabest.data import Dataset, Listing, is_file_name, list_datasets
from adabest.errors import InputError, Interrupted
from adabest.experiments import DEFAULT_ALGORITHMS, STEERING_ALGORITHMS, Move
from adabest.models import Factory
from adabest.registry import split_specification
from adabest.report import Table, paper
from adabest.runs import Config, Run
from adabest.runs.config import SURROUNDINGS, refuse_unknown
from adabest.runs.folder import RunFolder, write_text
from adabest.runs.interruption import resume_command

_ROOT = Path("runs")


def run(
    config: str | Path | None = None,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    show: bool = True,
    **settings: Any,
) -> Run:
    """Runs one algorithm.

    Args:
        config: A TOML file with settings.
        out: The run's folder. By default ``runs/`` and a name that the settings determine.
        overwrite: Whether a run that lies there may be replaced.
        show: Whether to show progress.
        **settings: Settings by the names of ``Config`` and the algorithm's hyper-parameters; they override the file's.
            ``dataset``, ``algorithm``, ``model`` and ``loss`` may be objects.

    Returns:
        The run, finished or diverged.

    Raises:
        InputError: If something can't be used. Nothing was run.
        Interrupted: If a signal asked to stop; ``resume`` continues.
    """
    merged = _merge(config, settings, out=out, overwrite=overwrite)
    folder, replace = merged.pop("out", None), merged.pop("overwrite", False)
    complete, components = runs.resolve(merged)
    place = (
        Path(folder)
        if folder
        else _ROOT / f"{_dataset_slug(complete.dataset)}-{_slug(complete.algorithm)}-{complete.digest()}"
    )
    runs.start(complete, components, place, overwrite=replace, show=show)
    return runs.load(place)


def resume(folder: str | Path, *, data_dir: str | None = None, show: bool = True, **objects: Any) -> Run:
    """Continues a run from its last checkpoint.

    Args:
        folder: The run's folder.
        data_dir: The folder of the official data files, if they have moved since.
        show: Whether to show progress.
        **objects: ``dataset``, ``algorithm``, ``model`` or ``loss``, if the run was given Python objects for them; a
            ``dataset`` also if its file has moved.
    """
    unknown = sorted(objects.keys() - {"dataset", "algorithm", "model", "loss"})
    if unknown:
        raise InputError(f"a run can't be resumed with another {unknown[0]!r}: its settings are those it began with")
    runs.resume(Path(folder), objects, data_dir=data_dir, show=show)
    return runs.load(folder)


def load(folder: str | Path) -> Run:
    """Reads a run back: its configuration, its metrics and its model."""
    return runs.load(folder)


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
    merged = _merge(config, settings, **given, out=out, overwrite=overwrite)
    asked = _Asked.taken_from(merged, "compare")
    chosen = merged.pop("algorithms", DEFAULT_ALGORITHMS)
    planned = experiments.plan(chosen, merged, asked.seeds)
    return _make(asked, planned, {"algorithms": list(chosen)}, merged, show=show)


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
    merged = _merge(config, settings, **given, out=out, overwrite=overwrite)
    asked = _Asked.taken_from(merged, "sweep")
    axes = experiments.read_vary(merged.pop("vary", None))
    planned = experiments.plan_sweep(axes, merged, asked.seeds)
    return _make(asked, planned, {"vary": experiments.write_vary(axes)}, merged, show=show)


@dataclass(frozen=True)
class _Asked:
    """What is asked of a comparison as a whole, beside the settings of its runs."""

    kind: Literal["compare", "sweep"]
    seeds: Sequence[int] | None
    target: float | None
    lanes: int | None
    out: str | Path | None
    overwrite: bool

    @classmethod
    def taken_from(cls, settings: dict[str, Any], kind: Literal["compare", "sweep"]) -> "_Asked":
        """Takes it out of settings, and refuses what can't be."""
        target, lanes = settings.pop("target", None), settings.pop("lanes", None)
        _check_target(target)
        if lanes is not None and not (type(lanes) is int and lanes >= 1):
            raise InputError(f"lanes = {lanes!r}: at least 1 run is trained at a time")
        seeds, out = settings.pop("seeds", None) or None, settings.pop("out", None)
        return cls(kind, seeds, target, lanes, out, settings.pop("overwrite", False))


def _check_target(target: Any) -> None:
    if target is not None and not (isinstance(target, int | float) and 0 < target <= 1):
        raise InputError(f"target = {target!r}: an accuracy is above 0 and at most 1")


def _make(
    asked: _Asked, planned: experiments.Plan, what: dict[str, Any], settings: dict[str, Any], *, show: bool
) -> Comparison:
    """Makes the runs of a comparison, which is named and remembered by what it is and its settings."""
    essence = {name: value for name, value in settings.items() if name not in SURROUNDINGS}
    if asked.seeds:
        essence["seeds"] = list(asked.seeds)
    folder = Path(asked.out) if asked.out else _ROOT / f"{asked.kind}-{_digest(*what.values(), essence)}"
    settings = settings | _findable(settings, next(iter(planned.runs.values()))[0])
    extra = {"target": asked.target, "lanes": asked.lanes, "seeds": asked.seeds}
    lock = RunFolder(folder)
    lock.acquire()
    try:
        experiments.make_room(planned, folder, overwrite=asked.overwrite)
        experiments.remember(folder, {**what, **settings, **extra})
        made = experiments.compare(planned, folder, lanes=asked.lanes, show=show)
        return _report(made, asked.target, sweep=asked.kind == "sweep")
    except Interrupted:
        how = resume_command(folder) if is_comparison(folder) else f"the same call of adabest.{asked.kind}"
        raise Interrupted(f"interrupted; resume with: {how}") from None
    finally:
        lock.release()


def is_comparison(folder: str | Path) -> bool:
    """Whether a folder holds a comparison or a sweep."""
    return experiments.recall(Path(folder)) is not None


def resume_comparison(folder: str | Path, *, data_dir: str | None = None, show: bool = True) -> Comparison:
    """Continues a comparison where it was interrupted; ``data_dir`` is where its data lie now, if they have moved."""
    settings = experiments.recall(Path(folder))
    if settings is None:
        raise InputError(f"there is no comparison in {folder}")
    moved = {} if data_dir is None else {"data_dir": data_dir}
    again = sweep if "vary" in settings else compare
    return again(out=folder, show=show, **(settings | moved))


def datasets(data_dir: str | None = None, *, fetch: Sequence[str] = ()) -> list[Listing]:
    """All data sets that have a name: what they are, whether they are there, where, and how large.

    Args:
        data_dir: Folder of the official data files. By default $ADABEST_DATA, or the platform's cache folder.
        fetch: Data sets that are downloaded first, if they aren't there. Else nothing is.

    Raises:
        InputError: If there is no such folder, or a data set can't be downloaded.
    """
    return list_datasets(data_dir, fetch)


@dataclass(frozen=True)
class Costs:
    """What a round costs.

    Attributes:
        sizes: What the formulas were evaluated for.
        algorithms: The counted formulas and the paper's, by label.
        tables: In numbers: ``compute-client``, ``compute-server``, ``storage-client``, ``storage-server``,
            ``communication-down``, ``communication-up``.
        notes: What must be known to read the tables.
        files: The tables on disk, if a folder was given.
    """

    sizes: experiments.Sizes
    algorithms: dict[str, experiments.AlgorithmCosts]
    tables: dict[str, Table]
    notes: list[str]
    files: list[Path]


def costs(
    model: str | nn.Module | Factory | None = None,
    *,
    algorithms: Sequence[str | Algorithm] | None = None,
    input_shape: str | Sequence[int] | None = None,
    classes: int | None = None,
    batch_size: int | None = None,
    parameters: int | None = None,
    steps: int = 55,
    participants: int = 10,
    population: int = 100,
    precision: experiments.Precision = "float32",
    out: str | Path | None = None,
) -> Costs:
    """Works out what a round of each algorithm computes, stores and sends: the paper's formulas, and ours as counted.

    Args:
        model: Model: logistic, mlp, cnn, resnet, or module:function, with options as in mlp,hidden=100x100. By default
            cnn.
        algorithms: What to count: names with options, as in adabest,beta=0.9. By default all that come along.
        input_shape: Shape of one input. By default 3x32x32.
        classes: How many classes there are. By default 10.
        batch_size: Samples in a local step. By default 45.
        parameters: Size of the model, in place of model, input shape, classes and batch size; its gradient stays a
            symbol.
        steps: Local steps of a client in a round, K.
        participants: Clients that take part in a round, |P|.
        population: Clients there are, |S|.
        precision: Number format of models and states.
        out: Folder to write the tables to. By default they are only shown.

    Raises:
        InputError: If anything can't be used.
    """
    sizes = experiments.find_sizes(
        {"model": model, "input_shape": input_shape, "classes": classes, "batch_size": batch_size},
        parameters,
        {"steps": steps, "participants": participants, "population": population, "precision": precision},
    )
    counted = experiments.count_costs(algorithms, sizes)
    tables = report.cost_tables(counted)
    files = []
    if out is not None:
        texts = {f"{name}.csv": table.csv() for name, table in tables.items()}
        files = _write(Path(out), {"costs.md": report.cost_text(counted), **texts})
    return Costs(sizes, counted.algorithms, tables, report.cost_notes(counted), files)


def _write(folder: Path, texts: dict[str, str]) -> list[Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_text(folder / name, text)
    except OSError as error:
        raise InputError(f"can't write to the folder {folder}: {error.strerror or error}") from error
    return [folder / name for name in texts]


@dataclass(frozen=True)
class Reproduced:
    """An experiment of the paper, made anew.

    Attributes:
        folder: Where it lies.
        results: What came of each run.
        tables: In numbers, beside the paper's where it has any, by name.
        notes: What must be known to read them.
        files: Results, tables and figures on disk.
    """

    folder: Path
    results: experiments.Results
    tables: dict[str, Table]
    notes: list[str]
    files: list[Path]


def reproduce(
    name: str,
    *,
    cells: Sequence[str] = (),
    entries: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
    choices: str | Path | None = None,
    results: Sequence[str | Path] = (),
    lanes: int | None = None,
    out: str | Path | None = None,
    show: bool = True,
    **execution: Any,
) -> Reproduced:
    """Makes an experiment of the paper anew, then writes its table or figure.

    What is finished in the folder already is kept, and what was begun is resumed.

    Args:
        name: The experiment, as in table1 or fig-stability.
        cells: Those of its cells that are to be made, as in cifar100/10/iid or cifar10/*/iid. By default all, or those
            that its specification says.
        entries: What is to be compared in them, as in feddyn adabest. By default all that it compares.
        seeds: Seeds to make each run with. By default those of its specification.
        rounds: Rounds of each run, in place of the experiment's own, to try it out.
        choices: File of hyper-parameters that `adabest tune` chose; they aren't tuned again. By default what was chosen
            in the folder before, if anything was.
        results: Files of results that were brought from elsewhere; then nothing is run.
        lanes: How many runs are trained together at most, as lanes of one program. By default all that share their
            shapes.
        out: Folder to write to. By default ``runs/`` and the experiment's name.
        show: Whether to show progress.
        **execution: Settings that say how runs are executed: ``device``, ``precision``, ``data_dir`` and others.

    Raises:
        InputError: If something can't be used. Nothing was run.
        Interrupted: If a signal asked to stop; the same call continues.
    """
    specification = experiments.read_specification(name)
    folder = Path(out) if out else _ROOT / specification.shares
    if results:
        found = [experiments.Results.read(Path(path)) for path in results]
        return _render(name, folder, functools.reduce(experiments.Results.merged, found))
    refuse_unknown(execution, experiments.EXECUTION)
    if seeds:
        experiments.check_seeds(seeds)
    kept = folder / experiments.CHOICES
    files = [Path(choices)] if choices is not None else [kept] if kept.is_file() else []
    request = experiments.Request(
        specification,
        specification.chosen_cells(cells),
        specification.chosen_entries(entries),
        seeds or specification.seeds,
        rounds,
        execution,
        [choice for file in files for choice in experiments.read_choices(file)],
        lanes,
    )
    lock = RunFolder(folder)
    lock.acquire()
    try:
        making = experiments.Reproduction(request, folder, show=show)
        making.check()
        made = making.make(lambda so_far: so_far.write(folder / f"{name}.json"))
    except Interrupted:
        raise Interrupted("interrupted; the same command continues where it was") from None
    finally:
        lock.release()
    return _render(name, folder, made)


def _render(name: str, folder: Path, results: experiments.Results) -> Reproduced:
    rendered = paper.render(name, results)
    place = folder / f"{results.experiment}.json"
    csvs = {f"{name}-{part}.csv": table.csv() for part, table in rendered.tables.items()}
    texts = _write(folder, {f"{name}.md": rendered.markdown(), **csvs})
    results.write(place)
    figures = [
        path
        for part, figure in rendered.figures.items()
        for path in report.save_figure(figure, folder / paper.figure_name(name, part))
    ]
    return Reproduced(folder, results, rendered.tables, rendered.notes, [place, *texts, *figures])


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
    task = experiments.plane()
    moves = experiments.illustrate(algorithms, task, rounds=rounds, participation=participation, seed=seed)
    return Illustration(moves, report.save_figure(report.steering_figure(task, moves), out))


def write_report(
    folders: str | Path | Sequence[str | Path],
    *,
    html: str | Path = "report.html",
    target: float | None = None,
    data_dir: str | None = None,
) -> Path:
    """Writes a page of runs: curves, table, partitions, settings and environment, in one HTML file.

    Runs that differ only in their seeds are shown as one, with mean and standard deviation.

    Args:
        folders: Folders of runs, of comparisons and sweeps, or folders with such below them; or files of results that
            `adabest reproduce` wrote, which end in .json.
        html: The page to write. One that is there is replaced.
        target: The accuracy whose first round the table tells. By default the comparison's own, or one that all reach.
        data_dir: The folder of the official data files, if they have moved since; partitions are drawn from them.

    Returns:
        The page.

    Raises:
        InputError: If there are no runs, one can't be read, or the page can't be written.
    """
    page = Path(html)
    _check_target(target)
    _check_page(page)
    given = [Path(folders)] if isinstance(folders, str | Path) else [Path(folder) for folder in folders]
    if not given:
        raise InputError("a report needs folders of runs, comparisons or sweeps, or files of results")
    kept = {path: experiments.Results.read(path) for path in given if path.suffix == ".json"}
    found = experiments.runs_in(path for path in given if path not in kept)
    loaded = [runs.load(_short(path)) for path in found]
    shown = [report.Shown.of(run) for run in loaded]
    shown += [one for path, results in kept.items() for one in report.Shown.kept(results, path.name)]
    if not shown:
        raise InputError(f"there are no results in {', '.join(map(str, kept))}")
    entries = report.entries_of(shown)
    target = experiments.shared_target(found) if target is None else target
    sweeps = not kept and all(map(experiments.is_of_sweep, found))
    if sweeps:
        ordered = report.by_validation({label: [one.run for one in group] for label, group in entries.items()})
        entries = {label: entries[label] for label in ordered}
    titles = [*([_title(loaded)] if loaded else []), *(results.experiment for results in kept.values())]
    title = "; ".join(dict.fromkeys(titles))
    text = report.page_text(entries, title=title, target=target, data_dir=data_dir, by_validation=sweeps)
    _write(page.parent, {page.name: text})
    return page


def _check_page(page: Path) -> None:
    """Refuses what no page can be written to, before anything is read."""
    if page.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"html = {str(page)!r}: the name of a page ends in .html")
    if page.is_dir():
        raise InputError(f"{page} is a folder; name a file in it")
    if RunFolder(page.parent).holds_run():
        raise InputError(
            f"{page.parent} holds a run, which couldn't be replaced with a page in it; choose another folder"
        )
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=page.parent):
            pass
    except OSError as error:
        raise InputError(f"can't write to the folder {page.parent}: {error.strerror or error}") from error


def _short(path: Path) -> Path:
    """A path as it is read best: from the working directory, if it lies below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _report(comparison: experiments.Comparison, target: float | None, *, sweep: bool) -> Comparison:
    folder, entries = comparison.folder, comparison.entries
    title = _title(list(comparison.runs.values()))
    if sweep:
        entries = report.by_validation(entries)
        table, figure = report.sweep_table(entries, target), report.sweep_figure(entries, title)
    else:
        table, figure = report.comparison_table(entries, target), report.comparison_figure(entries, title)
    texts = _write(folder, {"table.md": table.markdown(), "table.csv": table.csv()})
    figures = report.save_figure(figure, folder / "figure")
    return Comparison(folder, comparison.runs, entries, table, [*texts, *figures])


def _title(compared: Sequence[Run]) -> str:
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


def _merge(config: str | Path | None, settings: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    """The file's settings, overridden by those given in Python; what wasn't given doesn't count."""
    from_file = runs.read_toml(Path(config)) if config is not None else {}
    given = {name: value for name, value in arguments.items() if value is not None and value is not False}
    return runs.merge(from_file, {**settings, **given})


def _findable(settings: Mapping[str, Any], config: Config) -> dict[str, str]:
    """Where data lie, as it is found from any working directory."""
    return {name: getattr(config, name) for name in ("dataset", "data_dir") if isinstance(settings.get(name), str)}


def _dataset_slug(name: str) -> str:
    return _slug(Path(name).stem if is_file_name(name) else split_specification(name)[0])


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")


def _digest(*what: Any) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=_describe).encode()).hexdigest()[:8]


def _describe(thing: Any) -> str:
    """What tells an object from another of its kind, as far as that can be read off it."""
    if isinstance(thing, Dataset):
        return thing.fingerprint()
    if isinstance(thing, nn.Module):
        weights = [tensor.detach().cpu().numpy().tobytes() for tensor in thing.state_dict().values()]
        return hashlib.sha256(b"|".join([repr(thing).encode(), *weights])).hexdigest()
    return str(getattr(thing, "__qualname__", repr(thing)))
