"""Resuming of an interrupted run, comparison, sweep or tuning."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from adabest.errors import InputError
from adabest.experiments.comparison import Comparison, make_comparison
from adabest.experiments.comparison_file import recall, refuse_unproven
from adabest.experiments.held_run import Run, read_run
from adabest.experiments.sweep import make_sweep
from adabest.experiments.tuning import make_tuning
from adabest.registry import allowing, naming
from adabest.runs.callbacks.base import Callback
from adabest.runs.execution import resume_run
from adabest.runs.keywords import Objects
from adabest.runs.results_file import experiment_in
from adabest.runs.settings.algorithm_specification import merge


def resume(
    folder: str | Path,
    *,
    data_dir: str | None = None,
    allow: str | Sequence[str] = (),
    trust: bool = False,
    unverified: bool = False,
    callbacks: Sequence[Callback] = (),
    show: bool = True,
    **objects: Unpack[Objects],
) -> Run | Comparison:
    """Continues a run from its last checkpoint, or a comparison, a sweep or a tuning where it was interrupted.

    Args:
        folder: The folder of the run, or of the comparison.
        data_dir: The folder of the official data files, if they have moved since.
        allow: Names in its settings of the form ``module:attribute`` that may be imported. By default none may:
            importing runs code, and a configuration is a file that anyone may have written.
        trust: Whether all names may be imported, since you know where the folder comes from. Their modules are then
            also looked for in the directory in which the run began.
        unverified: Whether to resume a run of version 0.4.0, or one that has lost its manifest, although nothing
            proves its files. It allows no import.
        callbacks: The callbacks of a run that was given some as objects.
        show: Whether to show progress.
        **objects: ``dataset``, ``algorithm``, ``model``, ``loss``, ``task`` or ``metrics``, if the run was given Python
            objects for them, or in place of a ``module:attribute`` in its configuration; a ``dataset`` also if its file
            has moved.

    Returns:
        The run, or the comparison: a ``Tuning`` if it is one.

    Raises:
        InputError: If the folder holds neither, or what the run depends on has changed.
        Interrupted: If a signal asked to stop again.
    """
    unknown = sorted(objects.keys() - Objects.__annotations__.keys())
    if unknown:
        raise InputError(f"a run can't be resumed with another {unknown[0]!r}: its settings are those it began with")
    place = Path(folder)
    made = experiment_in(place)
    if made is not None:
        raise InputError(f"{folder} holds an experiment of the paper; `adabest reproduce {made}` continues it")
    with allowing(allow, trust=trust), naming(list(objects.values())):
        if recall(place) is None:
            resume_run(place, objects, callbacks=callbacks, unverified=unverified, data_dir=data_dir, show=show)
            return read_run(place)
        if objects or callbacks:
            raise InputError(f"{folder} holds a comparison, which is resumed without objects: it was given none")
        return _resume_comparison(place, data_dir=data_dir, unverified=unverified, show=show)


def _resume_comparison(folder: Path, *, data_dir: str | None, unverified: bool, show: bool) -> Comparison:
    settings = recall(folder) or {}
    if not unverified:
        refuse_unproven(folder)
    # Not from the file: else whoever wrote it could have runs written, or replaced, in another folder.
    asked = {**settings, "out": folder, "overwrite": False}
    if data_dir is not None:
        asked["data_dir"] = data_dir
    again = make_tuning if "space" in settings else make_sweep if "vary" in settings else make_comparison
    return again(merge({}, asked), unverified=unverified, show=show)
