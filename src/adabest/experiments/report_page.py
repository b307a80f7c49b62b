"""The call ``adabest.write_report``: a page of runs in one HTML file."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from adabest.errors import InputError
from adabest.experiments.run_group import check_target, title_of
from adabest.experiments.run_partitions import partition_maps
from adabest.experiments.run_search import is_of_sweep, runs_in, shared_target
from adabest.registry import allowing
from adabest.report.entries import by_validation, common_metric
from adabest.report.page.page import page_text
from adabest.report.page.page_runs import PageRun, page_entries
from adabest.runs.files.atomic_files import write_texts
from adabest.runs.files.folder import RunFolder
from adabest.runs.results_file import Results
from adabest.runs.stored_run import read_run


def write_report(
    folders: str | Path | Sequence[str | Path],
    *,
    html: str | Path = "report.html",
    target: float | None = None,
    data_dir: str | None = None,
    allow: str | Sequence[str] = (),
    trust: bool = False,
) -> Path:
    """Writes a page of runs: curves, table, partitions, settings and environment, in one HTML file.

    Runs that differ only in their seeds are shown as one, with mean and standard deviation.

    Args:
        folders: Folders of runs, of comparisons and sweeps, or folders with such below them; or files of results that
            `adabest reproduce` wrote, which end in .json.
        html: The page to write. One that is there is replaced.
        target: The accuracy, or value of the task's first metric, whose first round the table tells. By default the
            comparison's own, or one that all reach.
        data_dir: The folder of the official data files, if they have moved since; partitions are drawn from them.
        allow: Names of the form module:attribute in the runs that may be imported, such as that of a data set, whose
            partition is then drawn. None is by default, since importing runs code.
        trust: Import whatever the runs name, since you know where they come from.

    Returns:
        The page.

    Raises:
        InputError: If there are no runs, one can't be read, or the page can't be written.
    """
    with allowing(allow, trust=trust):
        return _write(folders, Path(html), target, data_dir)


def _write(folders: str | Path | Sequence[str | Path], page: Path, target: float | None, data_dir: str | None) -> Path:
    check_target(target)
    _check_page(page)
    given = [Path(folders)] if isinstance(folders, str | Path) else [Path(folder) for folder in folders]
    if not given:
        raise InputError("a report needs folders of runs, comparisons or sweeps, or files of results")
    kept = {path: Results.read(path) for path in given if path.suffix == ".json"}
    found = runs_in(path for path in given if path not in kept)
    loaded = [read_run(_from_here(path)) for path in found]
    shown = [PageRun.of(run) for run in loaded]
    shown += [one for path, results in kept.items() for one in PageRun.of_results(results, path.name)]
    if not shown:
        raise InputError(f"there are no results in {', '.join(map(str, kept))}")
    metric = common_metric(one.run for one in shown)
    if target is not None:
        metric.check_value("target", target)
    entries = page_entries(shown)
    target = shared_target(found) if target is None else target
    sweeps = not kept and all(map(is_of_sweep, found))
    if sweeps:
        ordered = by_validation({label: [one.run for one in group] for label, group in entries.items()})
        entries = {label: entries[label] for label in ordered}
    titles = [*([title_of(loaded)] if loaded else []), *(results.experiment for results in kept.values())]
    title = "; ".join(dict.fromkeys(titles))
    maps = partition_maps(entries, data_dir)
    text = page_text(entries, title=title, maps=maps, target=target, by_validation=sweeps)
    write_texts(page.parent, {page.name: text})
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


def _from_here(path: Path) -> Path:
    """A path relative to the working directory, if it lies below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
