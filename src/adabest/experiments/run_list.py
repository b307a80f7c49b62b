"""Runs on disk: those below a folder, and one with its settings and results."""

from dataclasses import dataclass
from pathlib import Path

from adabest.errors import InputError
from adabest.experiments.held_run import Run, read_run
from adabest.report.table import Table, facts_table, rejections_table, runs_table
from adabest.runs.stored_run import find_runs


@dataclass(frozen=True, repr=False)
class RunList:
    """The runs below a folder.

    Attributes:
        runs: Those that can be read.
        unreadable: Why others can't be read, by folder.
        table: Status, round, algorithm and accuracy of each run.
    """

    runs: list[Run]
    unreadable: dict[Path, str]
    table: Table

    def __repr__(self) -> str:
        lost = f", {len(self.unreadable)} unreadable" if self.unreadable else ""
        return f"RunList({len(self.runs)} runs{lost})"

    def _repr_html_(self) -> str:
        """For notebooks: the table."""
        return self.table.html()


def list_runs(folder: str | Path = "runs") -> RunList:
    """Reads all runs below a folder.

    Args:
        folder: The folder.

    Raises:
        InputError: If there are none.
    """
    found = find_runs(folder)
    if not found:
        raise InputError(f"there are no runs below {folder}")
    runs, unreadable = [], {}
    for path in found:
        try:
            run = read_run(path)
            runs_table([run])  # reads its last metrics
        except (InputError, OSError) as error:  # of one run, which is no matter of the others
            unreadable[path] = str(error)
        else:
            runs.append(run)
    return RunList(runs, unreadable, runs_table(runs))


def show(folder: str | Path) -> dict[str, Table]:
    """The settings, the partition, the results and the bad replies of a run, as tables by name.

    Args:
        folder: The run's folder.

    Raises:
        InputError: If there is no run.
    """
    run = read_run(folder)
    tables = {"settings": facts_table(run.config.flat(), "settings")}
    if run.identity:
        tables["partition"] = facts_table(run.identity["partition"], "partition")
    reason = {} if run.reason is None else {"reason": run.reason}
    notes = run.measured.notes()
    counts = {"rejected": notes.rejected, "unanswered": notes.unanswered}
    result = {"status": run.status, "round": run.round, **reason, **run.final}
    result |= {name: count for name, count in counts.items() if count}
    tables["result"] = facts_table(result, "result")
    if notes.rejected:
        tables["rejections"] = rejections_table(notes)
    return tables
