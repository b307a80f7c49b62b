"""The reference engine: one client after another, one step after another. Fast engines must equal it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import ClientContext, Correction, Work
from adabest.algorithms.forms import blank, find_fault
from adabest.engine import algorithm_calls as calls
from adabest.engine.evaluation import EvaluationRequest, EvaluationResult, evaluate_one_by_one
from adabest.engine.gate import sound_states
from adabest.engine.interface import Answers, Request, TrainingScores, client_context, stacked_states
from adabest.engine.local_step import Carried, whole_step
from adabest.engine.sections import Observer, unobserved
from adabest.errors import AdabestError
from adabest.tasks.base import Heartbeat


class ReferenceEngine:
    """Trains the clients of a cohort in sequence."""

    def __init__(self, heartbeat: Heartbeat, observer: Observer = unobserved) -> None:
        self._heartbeat, self._observer = heartbeat, observer

    def exchange(self, requests: Sequence[Request]) -> list[Answers]:
        """Executes requests run by run and client by client."""
        return [self._one_run(request) for request in requests]

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[EvaluationResult]:
        """Judges models run by run and one after another."""
        return [evaluate_one_by_one(request, self._heartbeat) for request in requests]

    def _one_run(self, request: Request) -> Answers:
        answers = []
        for client, state in request.clients.items():
            try:
                answers.append(self._one_client(request, client, state))
            except AdabestError:
                raise
            except Exception as error:
                error.add_note(f"in round {request.context.round}, client {client}")
                raise
        return _stacked(answers, request)

    def _one_client(self, request: Request, client: int, state: Any) -> "_Answer":
        algorithm, task, message = request.algorithm, request.task, request.message
        context = client_context(request, client)
        steps, velocity = list[tuple[Tensor, Tensor]](), None
        with self._observer("client"):
            correction = calls.correction(algorithm, state, message, context)
            if request.work is Work.TRAIN:
                result, velocity = self._train(request, client, correction, context, steps)
            else:
                self._heartbeat()
                result = task.full_gradient(correction.start, client)
            context = replace(context, velocity=velocity)
            new_state, reply = calls.finish(algorithm, state, message, result, context)
        scores = _scores(client, steps) if request.work is Work.TRAIN else None
        return _Answer(client, sound_states(new_state, state), reply, len(steps), scores)

    def _train(
        self,
        request: Request,
        client: int,
        correction: Correction,
        context: ClientContext,
        steps: list[tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, Tensor | None]:
        """The model that local training leads to, and its last m.

        Loss and first metric of each step are added to ``steps``.
        """
        w, carried, round_word = correction.start, Carried.at_start(correction, request.training), request.round_word
        scores = list[tuple[Tensor, Tensor]]()

        def gradient_at(point: Tensor) -> Tensor:
            local_pass = request.task.local_pass(point, client, round_word, len(steps))
            scores[:] = [(local_pass.loss, local_pass.value)]
            return local_pass.gradient

        for step in range(int(request.steps([client])[0])):
            self._heartbeat()
            try:
                w, carried = whole_step(w, gradient_at, correction, context.eta, request.training, carried=carried)
            except AdabestError:
                raise
            except Exception as error:
                error.add_note(f"in local step {step}")
                raise
            steps += scores
        return w, carried.velocity


class _Answer(NamedTuple):
    """The result of one client's work; the fields are those of ``Answers``."""

    client: int
    state: Any
    reply: Any
    steps: int
    scores: TrainingScores | None


def _stacked(answers: Sequence[_Answer], request: Request) -> Answers:
    """The answers of all clients as one; a blank stands in the place of a reply that doesn't have the declared form."""
    kind, like = request.algorithm.reply_type(request.context.phase), request.message.cloud
    found = {answer.client: find_fault(kind, answer.reply, like) for answer in answers}
    faults = {client: fault for client, fault in found.items() if fault is not None}
    replies = [blank(kind, like) if answer.client in faults else answer.reply for answer in answers]
    return Answers(
        clients=[answer.client for answer in answers],
        states=stacked_states([answer.state for answer in answers]),
        replies=stacked_states(replies),
        steps=[answer.steps for answer in answers],
        scores=tuple(answer.scores for answer in answers if answer.scores is not None),
        faults=faults,
    )


def _scores(client: int, steps: Sequence[tuple[Tensor, Tensor]]) -> TrainingScores:
    """The scores of a client, of whose steps loss and first metric are given."""
    losses, accuracies = (torch.stack(of_steps).to("cpu", torch.float64) for of_steps in zip(*steps, strict=True))
    return TrainingScores.of_steps([client], [(losses, accuracies)])
