"""The reference engine: one client after another, one step after another. Fast engines must equal it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from adabest.algorithms.base import ClientContext, Correction, Work
from adabest.engine.interface import Answer, Answers, Request, client_context
from adabest.engine.local_step import local_step
from adabest.engine.sections import Observer, unobserved
from adabest.errors import AdabestError, Diverged
from adabest.tasks.base import Heartbeat


class ReferenceEngine:
    """Trains the clients of a cohort in sequence."""

    def __init__(self, heartbeat: Heartbeat, observer: Observer = unobserved) -> None:
        self._heartbeat, self._observer = heartbeat, observer

    def exchange(self, requests: Sequence[Request]) -> list[Answers]:
        """Executes requests run by run and client by client."""
        return [self._one_run(request) for request in requests]

    def _one_run(self, request: Request) -> Answers:
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
        return answers

    def _one_client(self, request: Request, client: int, state: Any) -> Answer:
        algorithm, task, message = request.algorithm, request.task, request.message
        context = client_context(task, client, message, request.context)
        scores = list[tuple[Tensor, Tensor]]()
        with self._observer("client"):
            correction = algorithm.client_start(state, message, context)
            if request.work is Work.TRAIN:
                result = self._train(request, client, correction, context, scores)
            else:
                self._heartbeat()
                result = task.full_gradient(correction.start, client)
            new_state, reply = algorithm.client_finish(state, message, result, context)
        if request.work is not Work.TRAIN:
            return Answer(client, new_state, reply, None, 0, None, None)
        return Answer(client, new_state, reply, result, len(scores), *_means(client, scores))

    def _train(
        self,
        request: Request,
        client: int,
        correction: Correction,
        context: ClientContext,
        scores: list[tuple[Tensor, Tensor]],
    ) -> Tensor:
        """The model that local training leads to; loss and accuracy of each step are added to ``scores``."""
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
            scores.append((local_pass.loss, local_pass.accuracy))
            w = local_step(w, local_pass.gradient, correction, context.eta, request.training)
        return w


def _means(client: int, scores: Sequence[tuple[Tensor, Tensor]]) -> tuple[float, float]:
    """The mean training loss and accuracy of a client.

    Raises:
        Diverged: If a loss isn't finite.
    """
    losses, accuracies = (torch.stack(of_steps).to(torch.float64) for of_steps in zip(*scores, strict=True))
    finite = torch.isfinite(losses)
    if not bool(finite.all()):
        step = int(torch.nonzero(~finite)[0])
        raise Diverged(f"the training loss of client {client} at local step {step} is {float(losses[step])}")
    return float(losses.mean()), float(accuracies.mean())
