"""Single runs: made, or read back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adabest.data.loading import is_file_name
from adabest.experiments.call import ROOT, asked_for, slug
from adabest.registry import allowing, split_specification
from adabest.runs.callbacks.base import Callback
from adabest.runs.execution import start
from adabest.runs.settings.config import resolve
from adabest.runs.stored_run import Run, read_run


def run(
    config: str | Path | None = None,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    show: bool = True,
    **settings: Any,
) -> Run:
    """Runs one algorithm.

    Args:
        config: A TOML file with settings.
        out: The run's folder. By default ``runs/`` and a name that the settings determine.
        overwrite: Whether a run in the folder may be replaced.
        callbacks: Objects that are told of every round and evaluation, and may ask the run to stop.
        show: Whether to show progress.
        **settings: Settings by the names of ``Config`` and the algorithm's hyper-parameters; they override the file's.
            ``dataset``, ``algorithm``, ``model`` and ``loss`` may be objects.

    Returns:
        The run, finished or diverged.

    Raises:
        InputError: If a setting can't be used. Nothing was run.
        Interrupted: If a signal asked to stop; ``resume`` continues.
    """
    with asked_for(config, settings, out=out, overwrite=overwrite) as merged:
        folder, replace = merged.pop("out", None), merged.pop("overwrite", False)
        complete, components = resolve(merged)
        path = (
            Path(folder)
            if folder
            else ROOT / f"{_dataset_slug(complete.dataset)}-{slug(complete.algorithm)}-{complete.digest()}"
        )
        start(complete, components, path, callbacks=callbacks, overwrite=replace, show=show)
        return read_run(path)


def load(folder: str | Path, *, allow: str | Sequence[str] = (), trust: bool = False) -> Run:
    """Reads a run back: its configuration, its metrics and its model.

    Args:
        folder: The run's folder.
        allow: Names in it of the form ``module:attribute`` that may be imported, to build its model.
        trust: Whether all names may be imported, since you know where the run comes from.

    Raises:
        InputError: If there is no run.
    """
    with allowing(allow, trust=trust):
        return read_run(folder)


def _dataset_slug(name: str) -> str:
    return slug(Path(name).stem if is_file_name(name) else split_specification(name)[0])
