"""The catalog of trackers by name.

A tracker of your own is a class ``module:Class`` with three methods of ``Callback``: ``start``, ``after_evaluation``
and ``end``. Options stand behind the name, as in ``wandb,project=mine``.
"""

from collections.abc import Iterable
from typing import Any

from adabest.errors import InputError
from adabest.extras import require
from adabest.registry import Registry, check_options, options_of, split_specification
from adabest.runs.callbacks.base import Callback
from adabest.runs.trackers.mlflow import MLflow
from adabest.runs.trackers.tensorboard import TensorBoard
from adabest.runs.trackers.trackio import Trackio
from adabest.runs.trackers.wandb import WandB

TRACKERS: Registry[type[Callback]] = Registry(
    kind="logger",
    group="adabest.loggers",
    builtin={"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow, "trackio": Trackio},
)


def check_trackers(specifications: Iterable[str]) -> None:
    """Makes sure that trackers can be made, without making them.

    Raises:
        InputError: If a tracker is unknown, has no such option, or needs a package that isn't installed.
    """
    for specification in specifications:
        _find(specification)


def make_tracker(specification: str) -> Callback:
    """Makes a tracker from a specification such as ``wandb,project=mine``.

    Raises:
        InputError: If ``check_trackers`` refuses it.
    """
    kind, options = _find(specification)
    return kind(**options)


def _find(specification: str) -> tuple[type[Callback], dict[str, Any]]:
    name, options = split_specification(specification)
    kind = TRACKERS.find(name)
    methods = ("start", "after_evaluation", "end")
    if not isinstance(kind, type) or not all(callable(getattr(kind, method, None)) for method in methods):
        before = "; before version 0.6.0 they were called begin, log and end" if hasattr(kind, "begin") else ""
        raise InputError(
            f"logger {name!r} should be a class with the methods {', '.join(methods)}, not {kind!r}{before}"
        )
    package = getattr(kind, "requires", None)
    if package is not None:
        require(f"logger {name!r}", package, package)
    return kind, check_options(f"logger {name!r}", options, options_of(kind))
