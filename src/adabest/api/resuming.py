"""Going on with what was interrupted: a run, or several that belong together."""

from pathlib import Path
from typing import Any

from adabest import experiments, runs
from adabest.api.several import Comparison, compare, sweep
from adabest.api.tuning import tune
from adabest.errors import InputError
from adabest.runs import Run


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
    made = [name for name in experiments.specification_names() if (Path(folder) / f"{name}.json").is_file()]
    if made:
        raise InputError(f"{folder} holds an experiment of the paper; `adabest reproduce {made[0]}` continues it")
    runs.resume(Path(folder), objects, data_dir=data_dir, show=show)
    return runs.load(folder)


def is_comparison(folder: str | Path) -> bool:
    """Whether a folder holds a comparison, a sweep or a tuning."""
    return experiments.recall(Path(folder)) is not None


def resume_comparison(folder: str | Path, *, data_dir: str | None = None, show: bool = True) -> Comparison:
    """Continues a comparison, a sweep or a tuning where it was interrupted.

    ``data_dir`` is where its data lie now, if they have moved.
    """
    settings = experiments.recall(Path(folder))
    if settings is None:
        raise InputError(f"there is no comparison in {folder}")
    moved = {} if data_dir is None else {"data_dir": data_dir}
    again = tune if "space" in settings else sweep if "vary" in settings else compare
    return again(out=folder, show=show, **(settings | moved))
