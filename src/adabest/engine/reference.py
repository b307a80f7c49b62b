"""The reference engine: one client after another, one step after another. Fast engines must equal it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import ClientContext, Correction, Work
from adabest.engine.evaluation import EvaluationRequest, EvaluationResult, evaluate_one_by_one
from adabest.engine.interface import Answers, Request, TrainingScores, client_context, stacked_states
from adabest.engine.local_step import local_step
from adabest.engine.sections import Observer, unobserved
from adabest.errors import AdabestError, Diverged
from adabest.tasks.base import Heartbeat


class ReferenceEngine:
    """Trains the clients of a cohort in sequence."""

    def __init__(self, heartbeat: Heartbeat, observer: Observer = unobserved) -> None:
        self._heartbeat, self._observer = heartbeat, observer

    def exchange(self, requests: Sequence[Request]) -> list[Answers | Diverged]:
        """Executes requests run by run and client by client."""
        return [self._one_run(request) for request in requests]

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[EvaluationResult]:
        """Judges models run by run and one after another."""
        return [evaluate_one_by_one(request, self._heartbeat) for request in requests]

    def _one_run(self, request: Request) -> Answers | Diverged:
        answers = []
        for client, state in request.clients.items():
            try:
                answers.append(self._one_client(request, client, state))
            except Diverged as diverged:
                return diverged
            except AdabestError:
                raise
            except Exception as error:
                error.add_note(f"in round {request.context.round}, client {client}")
                raise
        return _stacked(answers)

    def _one_client(self, request: Request, client: int, state: Any) -> "_Answer":
        algorithm, task, message = request.algorithm, request.task, request.message
        context = client_context(task, client, message, request.context)
        steps = list[tuple[Tensor, Tensor]]()
        with self._observer("client"):
            correction = algorithm.client_start(state, message, context)
            if request.work is Work.TRAIN:
                result = self._train(request, client, correction, context, steps)
            else:
                self._heartbeat()
                result = task.full_gradient(correction.start, client)
            new_state, reply = algorithm.client_finish(state, message, result, context)
        if request.work is not Work.TRAIN:
            return _Answer(client, new_state, reply, None, 0, None)
        scores = _scores(client, steps)
        scores.read()  # a run that has diverged trains no further client
        return _Answer(client, new_state, reply, result, len(steps), scores)

    def _train(
        self,
        request: Request,
        client: int,
        correction: Correction,
        context: ClientContext,
        steps: list[tuple[Tensor, Tensor]],
    ) -> Tensor:
        """The model that local training leads to; loss and accuracy of each step are added to ``steps``."""
        w = correction.start
        for step in range(request.task.steps(client)):
            self._heartbeat()
            try:
                local_pass = request.task.local_pass(w, client, context.round, step)
            except AdabestError:
                raise
            except Exception as error:
                error.add_note(f"in local step {step}")
                raise
            steps.append((local_pass.loss, local_pass.accuracy))
            w = local_step(w, local_pass.gradient, correction, context.eta, request.training)
        return w


class _Answer(NamedTuple):
    """The result of one client's work; the fields are those of ``Answers``."""

    client: int
    state: Any
    reply: Any
    model: Tensor | None
    steps: int
    scores: TrainingScores | None


def _stacked(answers: Sequence[_Answer]) -> Answers:
    """The answers of all clients as one."""
    models = [answer.model for answer in answers if answer.model is not None]
    return Answers(
        clients=[answer.client for answer in answers],
        states=stacked_states([answer.state for answer in answers]),
        replies=stacked_states([answer.reply for answer in answers]),
        models=torch.stack(models) if models else None,
        steps=[answer.steps for answer in answers],
        scores=tuple(answer.scores for answer in answers if answer.scores is not None),
    )


def _scores(client: int, steps: Sequence[tuple[Tensor, Tensor]]) -> TrainingScores:
    """The scores of a client, of whose steps loss and accuracy are given."""
    losses, accuracies = (torch.stack(of_steps).to("cpu", torch.float64) for of_steps in zip(*steps, strict=True))
    return TrainingScores.of_steps([client], [(losses, accuracies)])
