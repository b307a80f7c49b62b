"""Single runs: made, or read back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from adabest.data.loading import is_file_name
from adabest.experiments.call import ROOT, asked_for, slug
from adabest.experiments.held_run import Run, read_run
from adabest.registry import allowing, split_specification
from adabest.runs.callbacks.base import Callback
from adabest.runs.callbacks.catalog import callback_names
from adabest.runs.execution import start
from adabest.runs.keywords import Settings
from adabest.runs.settings.algorithm_specification import refuse_hyperparameters
from adabest.runs.settings.config import Config
from adabest.runs.settings.idle_settings import warn_of_idle_settings
from adabest.runs.settings.resolution import resolve
from adabest.runs.settings.unjudged_parts import warn_of_unjudged_parts


def run(
    config: str | Path | None = None,
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    show: bool = True,
    **settings: Unpack[Settings],
) -> Run:
    """Runs one algorithm.

    Args:
        config: A TOML file with settings.
        out: The run's folder. By default ``runs/`` and a name that the settings determine.
        overwrite: Whether a run in the folder may be replaced.
        show: Whether to show progress.
        **settings: Settings by the names of ``Config``; they override the file's. ``dataset``, ``algorithm``,
            ``model``, ``loss`` and ``task`` may be objects, and so may each of the ``callbacks`` and ``metrics``.
            Hyper-parameters are given with the algorithm: ``"adabest,beta=0.9"``.

    Returns:
        The run, finished or diverged.

    Raises:
        InputError: If a setting can't be used. Nothing was run.
        Interrupted: If a signal asked to stop; ``resume`` continues.
    """
    objects = list[Callback]()
    if "callbacks" in settings:
        given = settings["callbacks"]
        settings["callbacks"] = callback_names(given)
        objects = [one for one in given if isinstance(one, Callback)]
    with asked_for(config, settings, out=out, overwrite=overwrite) as merged:
        refuse_hyperparameters(settings, [merged.get("algorithm", Config.algorithm)])
        return make_run(merged, callbacks=objects, show=show)


def make_run(settings: dict[str, Any], *, callbacks: Sequence[Callback] = (), show: bool) -> Run:
    """What ``run`` does, with settings from wherever, hyper-parameters among them."""
    folder, replace = settings.pop("out", None), settings.pop("overwrite", False)
    complete, components = resolve(settings)
    warn_of_idle_settings(settings, [complete])
    warn_of_unjudged_parts([complete])
    place = (
        Path(folder)
        if folder
        else ROOT / f"{_dataset_slug(complete.dataset)}-{slug(complete.algorithm)}-{complete.digest()}"
    )
    start(complete, components, place, callbacks=callbacks, overwrite=replace, show=show)
    return read_run(place, components)


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
