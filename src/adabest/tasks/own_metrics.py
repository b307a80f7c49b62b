"""Metrics of the user's own beside those of the task: functions of outputs and targets, or scikit-learn's by name."""

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from adabest.errors import InputError, nearest, told
from adabest.registry import Registry, is_own_name
from adabest.tasks.objectives.base import Objective
from adabest.tasks.objectives.metric import Metric
from adabest.tasks.objectives.multi_label import MultiLabel

Function = Callable[[Tensor, Tensor], Any]

METRICS: Registry[Function] = Registry(kind="metric", group="adabest.metrics", builtin={})


class OwnMetric(NamedTuple):
    """A metric of the user's own.

    Attributes:
        metric: What it is called.
        function: Of (outputs, targets), tensors on the CPU; a number.
    """

    metric: Metric
    function: Function

    def value(self, outputs: Tensor, targets: Tensor) -> float:
        """The value on the test set; NaN where it isn't defined, as the area under a curve of a single class.

        Raises:
            InputError: If the function fails. Outputs that aren't finite excuse it: their run diverges.
        """
        try:
            return self._computed(outputs, targets)
        except ZeroDivisionError:
            return math.nan
        except Exception as error:
            if not bool(outputs.isfinite().all()):
                return math.nan
            raise InputError(
                f"metric {self.metric.name!r} can't be computed on the test set, from outputs {tuple(outputs.shape)} "
                f"and targets {tuple(targets.shape)}: {told(error)}; it should be a function of both that gives a "
                "number"
            ) from error

    def value_or_nan(self, outputs: Tensor, targets: Tensor) -> float:
        """The value on the samples of a client; NaN where there is none, since they may lack a class."""
        try:
            return self._computed(outputs, targets)
        except (ValueError, ZeroDivisionError):
            return math.nan

    def _computed(self, outputs: Tensor, targets: Tensor) -> float:
        with warnings.catch_warnings(action="ignore"):  # that it isn't defined is no news
            return float(self.function(outputs, targets))


def make_own_metrics(given: Sequence[Any], objective: Objective) -> tuple[OwnMetric, ...]:
    """The metrics that are named, or given as functions.

    Args:
        given: Names of scikit-learn's scores, such as ``f1_macro``, names like ``module:function``, or functions.
        objective: The task's own, whose metrics have other names.

    Raises:
        InputError: If there is no such metric, or two have one name.
    """
    made = tuple(_made(thing, objective) for thing in given)
    names = [own.metric.name for own in made]
    theirs = {metric.name for metric in objective.metrics}
    for thing, name in zip(given, names, strict=True):
        if name in theirs:
            is_own = not isinstance(thing, str) or is_own_name(thing)
            right = "give your function another name" if is_own else "leave it out"
            raise InputError(f"metrics: the task has {name} already; {right}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"metrics: two are called {twice!r}; give a function of your own another name")
    return made


def try_own_metrics(metrics: Sequence[OwnMetric], outputs: Tensor, targets: Tensor) -> None:
    """Computes metrics of made-up outputs for the test set, so that what fails does so before any training.

    Args:
        metrics: The metrics.
        outputs: The outputs for a few samples, which tell the shape.
        targets: The targets of the test set.

    Raises:
        InputError: If one can't be computed.
    """
    shape = (len(targets), *outputs.shape[1:])
    made_up = torch.linspace(-1, 1, math.prod(shape), dtype=outputs.dtype).cos().view(shape)
    targets = targets.cpu()
    for own in metrics:
        value = own.value(made_up, targets)
        if targets.is_floating_point() and made_up.shape != targets.shape and made_up.numel() == targets.numel():
            _refuse_spread_out(own, value, made_up, targets)


def _refuse_spread_out(own: OwnMetric, value: float, outputs: Tensor, targets: Tensor) -> None:
    """Refuses a metric that compares each output with each target, as torch has it for ``[n, 1]`` and ``[n]``.

    Raises:
        InputError: If its value is another one where outputs have the shape of targets.
    """
    try:
        alike = own.value(outputs.reshape(targets.shape), targets)
    except InputError:  # it counts on the shape that the model gives
        return
    if not math.isclose(value, alike, rel_tol=1e-4) and not (math.isnan(value) or math.isnan(alike)):
        raise InputError(
            f"metric {own.metric.name!r} compares each output with each target, since outputs have the shape "
            f"{tuple(outputs.shape)} and targets {tuple(targets.shape)}; it should begin with "
            "outputs = outputs.reshape(targets.shape)"
        )


def _made(thing: Any, objective: Objective) -> OwnMetric:
    function: Any = thing
    name = getattr(thing, "__name__", type(thing).__name__)
    if isinstance(thing, str):
        name = thing.rpartition(":")[2].rpartition(".")[2]
        function = (
            METRICS.find(thing)
            if is_own_name(thing)
            else _of_sklearn(thing, has_labels=isinstance(objective, MultiLabel))
        )
    if not callable(function):
        raise InputError(f"metric {name!r} is a {type(function).__name__}, not a function of (outputs, targets)")
    return OwnMetric(Metric(name.lower()), function)


@functools.cache  # the same function for runs that can be trained together
def _of_sklearn(name: str, *, has_labels: bool) -> Function:
    from sklearn.metrics import get_scorer, get_scorer_names  # takes a second, which most runs needn't wait for

    if name not in get_scorer_names():
        known = nearest(name, get_scorer_names())
        raise InputError(f"unknown metric {name!r}; {known}. Your own is named as module:function")
    scorer = get_scorer(name)
    estimators = _estimators()

    def score(outputs: Tensor, targets: Tensor) -> float:
        if has_labels and targets.shape[1] > 1:
            kind = estimators.labelled
        elif has_labels:
            kind, (outputs, targets) = estimators.classified, _by_place(outputs, targets[:, 0].long())
        elif targets.is_floating_point():
            kind = estimators.regressed
        else:
            kind, (outputs, targets) = estimators.classified, _by_place(outputs, targets)
        return float(scorer(kind(outputs), np.arange(len(targets)), targets.numpy()))

    return score


def _by_place(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Class scores ``[places, classes]`` and classes ``[places]``, of whatever has a class: a sample, token or pixel.

    Places with a negative target, which is padding, are left out. A single score for each place is that of class 1,
    where class 0 has 0, so that the softmax of both is the sigmoid.
    """
    if outputs.numel() == targets.numel():
        one = outputs.reshape(targets.shape)
        outputs = torch.stack([torch.zeros_like(one), one], dim=-1)
    elif outputs.shape[:-1] != targets.shape:
        outputs = outputs.movedim(1, -1)
    scores, classes = outputs.reshape(-1, outputs.shape[-1]), targets.flatten()
    counted = classes >= 0
    return (scores, classes) if bool(counted.all()) else (scores[counted], classes[counted])


class _Estimators(NamedTuple):
    """What scikit-learn's scores ask: a fitted model, which knows its outputs for numbered samples."""

    classified: Callable[[Tensor], Any]
    labelled: Callable[[Tensor], Any]
    regressed: Callable[[Tensor], Any]


@functools.cache
def _estimators() -> _Estimators:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

    class Classified(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        def __init__(self, outputs: Tensor) -> None:
            self.outputs = outputs
            self.classes_ = np.arange(outputs.shape[1])

        def predict(self, rows: np.ndarray) -> np.ndarray:
            return self.outputs[rows].argmax(dim=1).numpy()

        def predict_proba(self, rows: np.ndarray) -> np.ndarray:
            return self.outputs[rows].double().softmax(dim=1).numpy()

        def __sklearn_is_fitted__(self) -> bool:
            return True

    class Labelled(Classified):
        def __init__(self, outputs: Tensor) -> None:
            self.outputs = outputs
            self.classes_ = np.tile([0, 1], (outputs.shape[1], 1))  # two of each label

        def predict(self, rows: np.ndarray) -> np.ndarray:
            return (self.outputs[rows] > 0).long().numpy()

        def predict_proba(self, rows: np.ndarray) -> np.ndarray:
            return self.outputs[rows].double().sigmoid().numpy()

    class Regressed(RegressorMixin, BaseEstimator):  # type: ignore[misc]
        def __init__(self, outputs: Tensor) -> None:
            self.outputs = outputs

        def predict(self, rows: np.ndarray) -> np.ndarray:
            found = self.outputs[rows].double().flatten(1).numpy()
            return found[:, 0] if found.shape[1] == 1 else found

        def __sklearn_is_fitted__(self) -> bool:
            return True

    return _Estimators(Classified, Labelled, Regressed)
