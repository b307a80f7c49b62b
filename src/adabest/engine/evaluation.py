"""Evaluations: a run asks for its models to be judged, and gets their scores.

Runs that are advanced together, as lanes, ask at the same time, and an evaluator may judge all their models at once.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from adabest.tasks.base import Heartbeat, Scores, Task, ValidationScores
from adabest.tasks.classification import ClassificationTask


class EvaluationRequest(NamedTuple):
    """The models of one run that are to be judged.

    Attributes:
        task: The run's task, which has the data.
        models: The models by name that are judged on the test set, each a vector ``[P]``.
        validated: The model that is judged on the validation clients; None if none is.
    """

    task: Task
    models: Mapping[str, Tensor]
    validated: Tensor | None


class EvaluationResult(NamedTuple):
    """The scores of one run's models.

    Attributes:
        tests: The scores on the test set by the models' names, in the order of the request. Nothing need follow a model
            whose loss isn't finite, since such a run ends.
        validation: The scores on the validation clients; None if there are none.
    """

    tests: Mapping[str, Scores]
    validation: ValidationScores | None


class Evaluator(Protocol):
    """Judges models whose tasks are of one kind (see ``ClassificationTask.kind``), those of several runs at once.

    A model's scores must not depend on which others are judged beside it.
    """

    def evaluate(self, requests: Sequence[EvaluationRequest], heartbeat: Heartbeat) -> list[EvaluationResult]:
        """Judges the models of several runs; one result per request.

        Args:
            requests: The models.
            heartbeat: Called now and then; may raise.
        """


MakeEvaluator = Callable[[ClassificationTask], Evaluator | None]
"""Makes the evaluator for all tasks of a task's kind; None if their models are to be judged one by one."""


class Evaluators:
    """The evaluators of an engine: one for each kind of tasks, made when it is first needed.

    What has no evaluator is judged by its task, one model after another.
    """

    def __init__(self, heartbeat: Heartbeat, make_evaluator: MakeEvaluator) -> None:
        """Makes none yet.

        Args:
            heartbeat: Called now and then during an evaluation; may raise.
            make_evaluator: Makes the evaluator of a task.
        """
        self._heartbeat = heartbeat
        self._make_evaluator = make_evaluator
        self._evaluators: dict[Hashable, Evaluator | None] = {}
        self._tasks: dict[Hashable, Task] = {}  # keeps one task of each kind alive: a kind contains id()s

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[EvaluationResult]:
        """Judges the models of several runs, those of one kind at the same time; one result per request."""
        results: dict[int, EvaluationResult] = {}
        alike: dict[Hashable, list[int]] = {}
        for number, request in enumerate(requests):
            if isinstance(request.task, ClassificationTask) and self._evaluator(request.task) is not None:
                alike.setdefault(request.task.kind, []).append(number)
            else:
                results[number] = evaluate_one_by_one(request, self._heartbeat)
        for kind, numbers in alike.items():
            evaluator = self._evaluators[kind]
            assert evaluator is not None
            found = evaluator.evaluate([requests[number] for number in numbers], self._heartbeat)
            results |= zip(numbers, found, strict=True)
        return [results[number] for number in range(len(requests))]

    def _evaluator(self, task: ClassificationTask) -> Evaluator | None:
        if task.kind not in self._evaluators:
            self._tasks[task.kind] = task
            self._evaluators[task.kind] = self._make_evaluator(task)
        return self._evaluators[task.kind]


def evaluate_one_by_one(request: EvaluationRequest, heartbeat: Heartbeat) -> EvaluationResult:
    """Judges the models of one run by its task, one after another.

    A model whose test loss isn't finite is the last one: its run ends.
    """
    tests: dict[str, Scores] = {}
    for name, model in request.models.items():
        tests[name] = request.task.test(model, heartbeat)
        if not np.isfinite(tests[name].loss):
            return EvaluationResult(tests, None)
    if request.validated is None:
        return EvaluationResult(tests, None)
    return EvaluationResult(tests, request.task.validate(request.validated, heartbeat))
