"""The catalog of objectives: those that ``--task`` knows by name, and the user's own."""

import functools
import math
from typing import Any

from torch import Tensor

from adabest.data.dataset import Dataset
from adabest.errors import AdabestError, InputError, told
from adabest.registry import Registry, check_options, options_of, split_specification
from adabest.tasks.objectives.base import Objective
from adabest.tasks.objectives.classification import Classification
from adabest.tasks.objectives.metric import Metric
from adabest.tasks.objectives.multi_label import MultiLabel
from adabest.tasks.objectives.next_token import NextToken
from adabest.tasks.objectives.regression import Regression
from adabest.tasks.objectives.segmentation import Segmentation

OBJECTIVES: Registry[type[Objective]] = Registry(
    kind="task",
    group="adabest.tasks",
    builtin={
        "classification": Classification,
        "multi-label": MultiLabel,
        "regression": Regression,
        "next-token": NextToken,
        "segmentation": Segmentation,
    },
)
CLASSIFICATION = Classification()
_ROUNDED = 1e-6  # by which rounding may take a share beyond its ends


def make_objective(specification: str) -> Objective:
    """The objective of a specification such as ``regression`` or ``my_module:Ranking,depth=10``.

    The same one for the same specification, so that runs which share it can be trained together.

    Raises:
        InputError: If there is no such objective, or it can't be made.
    """
    name, options = split_specification(specification)
    kind: Any = OBJECTIVES.find(name)
    if kind is Classification and not options:
        return CLASSIFICATION
    if isinstance(kind, Objective):
        return check_objective(kind)
    if not callable(kind):
        raise InputError(f"task {name!r} is a {type(kind).__name__}, not a class of objectives")
    checked = check_options(f"task {name!r}", options, options_of(kind, skip=0))
    return _made(name, kind, tuple(sorted(checked.items())))


@functools.lru_cache(maxsize=32)
def _made(name: str, kind: Any, options: tuple[tuple[str, Any], ...]) -> Objective:
    try:
        made = kind(**dict(options))
    except AdabestError:
        raise
    except Exception as error:
        raise InputError(f"task {name!r} can't be made: {told(error)}") from error
    return check_objective(made)


def check_objective(thing: Any) -> Objective:
    """An objective, once it is clear that it is one.

    Raises:
        InputError: If it isn't, or has no metrics.
    """
    if isinstance(thing, type) and issubclass(thing, Objective):
        raise InputError(f"task {thing.__name__} is a class; pass an object of it, as in {thing.__name__}()")
    if not isinstance(thing, Objective):
        raise InputError(
            f"task should be a name or an adabest.Objective, not a {type(thing).__name__}; a class of your own derives "
            "from adabest.Objective"
        )
    metrics: Any = getattr(thing, "metrics", None)
    if not (isinstance(metrics, tuple) and metrics and all(isinstance(metric, Metric) for metric in metrics)):
        raise InputError(f"task {type(thing).__name__}: metrics should be a tuple of adabest.Metric, at least one")
    names = [metric.name for metric in metrics]
    if len(set(names)) < len(names):
        raise InputError(f"task {type(thing).__name__}: two metrics have one name, among {', '.join(names)}")
    return thing


def try_objective(objective: Objective, outputs: Tensor, targets: Tensor, dataset: Dataset) -> None:
    """Makes an objective's sums and values of a few samples, so that what doesn't fit is refused before any long work.

    Raises:
        InputError: If they can't be made, or have other shapes than the interface says.
    """
    name, count = type(objective).__name__, len(targets)
    try:
        sums: Any = objective.sums(outputs, targets)
        fits = isinstance(sums, Tensor) and sums.ndim == 2 and len(sums) == count
        values: Any = objective.values(sums.sum(dim=0)) if fits else None
        by_client: Any = objective.values(sums[None].expand(3, *sums.shape).sum(dim=1)) if fits else None
    except Exception as error:
        raise InputError(
            f"task {name}: its metrics can't be computed on data set {dataset.name}, from outputs "
            f"{tuple(outputs.shape)} and targets {tuple(targets.shape)}: {told(error)}"
        ) from error
    if not fits:
        gave = tuple(sums.shape) if isinstance(sums, Tensor) else type(sums).__name__
        raise InputError(f"task {name}: sums should give a row for each of {count} samples, not {gave}")
    wanted = len(objective.metrics)
    for value, shape in ((values, (wanted,)), (by_client, (3, wanted))):
        if not (isinstance(value, Tensor) and tuple(value.shape) == shape):
            gave = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise InputError(
                f"task {name}: values should give [..., {wanted}] of sums [..., {sums.shape[1]}], one for each metric, "
                f"and not {gave} in place of {shape}"
            )
    for metric, value in zip(objective.metrics, values.tolist(), strict=True):
        if metric.is_share and not (-_ROUNDED <= value <= 1 + _ROUNDED or math.isnan(value)):
            raise InputError(
                f"task {name}: its metric {metric.name} is a share, which lies between 0 and 1, and is {value:g} for "
                f"{count} samples of data set {dataset.name}; divide it, or leave is_share out"
            )
