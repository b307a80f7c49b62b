"""Going on with what was interrupted: a run, or several that belong together."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adabest.errors import InputError
from adabest.experiments.comparison import recall, refuse_unproven
from adabest.experiments.comparison_calls import Comparison, make_comparison, make_sweep
from adabest.experiments.tuning import make_tuning
from adabest.registry import allowing, naming
from adabest.runs.execution import resume as made_resume
from adabest.runs.results_file import experiment_in
from adabest.runs.settings.algorithm_specification import merge
from adabest.runs.stored_run import Run, load


def resume(
    folder: str | Path,
    *,
    data_dir: str | None = None,
    allow: str | Sequence[str] = (),
    trust: bool = False,
    unverified: bool = False,
    show: bool = True,
    **objects: Any,
) -> Run:
    """Continues a run from its last checkpoint.

    Args:
        folder: The run's folder.
        data_dir: The folder of the official data files, if they have moved since.
        allow: Names in its configuration of the form ``module:attribute`` that may be imported. None is by default:
            importing runs code, and a configuration is a file that anyone may have written.
        trust: Whether all of them may be, since you know where the run comes from. They are then also looked for where
            the run began.
        unverified: Whether to go on with a run of version 0.4.0, or one that has lost its manifest: nothing proves its
            files. It imports nothing.
        show: Whether to show progress.
        **objects: ``dataset``, ``algorithm``, ``model`` or ``loss``, if the run was given Python objects for them, or
            in place of a ``module:attribute`` in its configuration; a ``dataset`` also if its file has moved.
    """
    unknown = sorted(objects.keys() - {"dataset", "algorithm", "model", "loss"})
    if unknown:
        raise InputError(f"a run can't be resumed with another {unknown[0]!r}: its settings are those it began with")
    made = experiment_in(Path(folder))
    if made is not None:
        raise InputError(f"{folder} holds an experiment of the paper; `adabest reproduce {made}` continues it")
    with allowing(allow, trust=trust), naming(list(objects.values())):
        made_resume(Path(folder), objects, unverified=unverified, data_dir=data_dir, show=show)
        return load(folder)


def is_comparison(folder: str | Path) -> bool:
    """Whether a folder holds a comparison, a sweep or a tuning."""
    return recall(Path(folder)) is not None


def resume_comparison(
    folder: str | Path,
    *,
    data_dir: str | None = None,
    allow: str | Sequence[str] = (),
    trust: bool = False,
    unverified: bool = False,
    show: bool = True,
) -> Comparison:
    """Continues a comparison, a sweep or a tuning where it was interrupted.

    Args:
        folder: Its folder.
        data_dir: Where its data lie now, if they have moved.
        allow: Names in its settings of the form ``module:attribute`` that may be imported.
        trust: Whether all of them may be, in all of its runs.
        unverified: Whether to go on with a comparison of version 0.4.0, whose files nothing proves.
        show: Whether to show progress.
    """
    settings = recall(Path(folder))
    if settings is None:
        raise InputError(f"there is no comparison in {folder}")
    if not unverified:
        refuse_unproven(Path(folder))
    # The file says what is compared, and nothing else: neither where, nor that anything may be replaced.
    asked = {**settings, "out": folder, "overwrite": False}
    if data_dir is not None:
        asked["data_dir"] = data_dir
    again = make_tuning if "space" in settings else make_sweep if "vary" in settings else make_comparison
    with allowing(allow, trust=trust):
        return again(merge({}, asked), unverified=unverified, show=show)
