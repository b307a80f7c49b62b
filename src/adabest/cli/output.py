"""What commands print."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from adabest.cli.exit_codes import DIVERGED, DONE

if TYPE_CHECKING:
    from adabest.experiments.comparison import Comparison
    from adabest.report.table import Table
    from adabest.runs.stored_run import Run


class _Console(Console):
    """A console that leaves it to ``main`` what to do when nobody reads on."""

    def on_broken_pipe(self) -> None:
        """Passes it on; rich would exit with 1."""
        raise BrokenPipeError


def console() -> Console:
    """Prints text as it is: no markup, no colours in it, and paths stay in one piece."""
    return _Console(markup=False, highlight=False, soft_wrap=True)


def print_files(paths: Sequence[Path]) -> None:
    """Which files were written."""
    for path in paths:
        console().print(f"Written: {path}")


def print_tables(tables: "Iterable[Table]", notes: Sequence[str], files: Sequence[Path]) -> None:
    """Tables, the notes to read them by, and which files were written."""
    for table in tables:
        console().print(table.rich())
    for note in notes:
        console().print(note)
    print_files(files)


def print_run(run: "Run") -> int:
    """What came of a run.

    Returns:
        The exit code.
    """
    from adabest.runs.files.folder import MODELS

    if run.status == "diverged":
        console().print(
            f"Diverged in round {run.round}: {run.reason}. The models of the round before are in {run.folder}"
        )
        return DIVERGED
    if run.reason is not None:
        console().print(f"Ended early in round {run.round}: {run.reason}")
    final = run.final
    own = run.judged_by[len(run.judged_by) - len(run.config.metrics) :]
    for metric in (run.metric, *own) if final else ():
        told = ", ".join(
            f"{metric.shown(final[name], places=2)} ({model})"
            for model in MODELS
            if final.get(name := f"{model}_{metric.name}") is not None
        )
        console().print(f"Round {final['round']}: {metric.words} {told or 'is not defined'}")
    local = ", ".join(
        f"{run.metric.shown(final[name], places=2)} ({words})"
        for kind, words in (("global", "the same model for all"), ("own", "each client's own"))
        if final.get(name := f"local_{kind}_{run.metric.name}") is not None
    )
    if local:
        console().print(f"Client by client, on average: {run.metric.words} {local}")
    console().print(f"Written to {run.folder}")
    return DONE


def print_comparison(comparison: "Comparison") -> int:
    """What came of a comparison, a sweep or a tuning.

    Returns:
        The exit code.
    """
    from adabest.experiments.tuning import Tuning

    console().print(comparison.table.rich())
    diverged = any(run.status == "diverged" for run in comparison.runs.values())
    if isinstance(comparison, Tuning):
        diverged = comparison.chosen is None  # that some points diverge is a result of a tuning
        values = [f"{name} = {value}" for name, value in (comparison.chosen or {}).items()]
        words = "Nothing could be chosen: every point diverged" if diverged else f"Chosen: {', '.join(values)}"
        console().print(words)
    print_files(comparison.files)
    return DIVERGED if diverged else DONE
