"""The reference engine: one client after another, one step after another. Fast engines must equal it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from adabest.algorithms.base import ClientContext, Correction, Work
from adabest.engine.interface import Answer, Answers, Request, client_context
from adabest.engine.local_step import local_step
from adabest.errors import AdabestError, Diverged
from adabest.tasks.base import Heartbeat


class ReferenceEngine:
    """Trains the clients of a cohort in sequence."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat

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
        correction = algorithm.client_start(state, message, context)
        if request.work is Work.TRAIN:
            result, loss, accuracy = self._train(request, client, correction, context)
            model, steps = result, task.steps(client)
        else:
            self._heartbeat()
            result = task.full_gradient(correction.start, client)
            model, steps, loss, accuracy = None, 0, None, None
        new_state, reply = algorithm.client_finish(state, message, result, context)
        return Answer(client, new_state, reply, model, steps, loss, accuracy)

    def _train(
        self, request: Request, client: int, correction: Correction, context: ClientContext
    ) -> tuple[Tensor, float, float]:
        w = correction.start
        losses, accuracies = [], []
        for step in range(request.task.steps(client)):
            self._heartbeat()
            try:
                local_pass = request.task.local_pass(w, client, context.round, step)
            except AdabestError:
                raise
            except Exception as error:
                error.add_note(f"in local step {step}")
                raise
            losses.append(local_pass.loss)
            accuracies.append(local_pass.accuracy)
            w = local_step(w, local_pass.gradient, correction, context.eta, request.training)
        all_losses = torch.stack(losses).to(torch.float64)
        finite = torch.isfinite(all_losses)
        if not bool(finite.all()):
            step = int(torch.nonzero(~finite)[0])
            raise Diverged(f"the training loss of client {client} at local step {step} is {float(all_losses[step])}")
        return w, float(all_losses.mean()), float(torch.stack(accuracies).to(torch.float64).mean())
