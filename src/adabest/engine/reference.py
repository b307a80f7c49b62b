"""The reference engine: one client after another, one step after another. Fast engines must equal it."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Correction, ServerContext, Work
from adabest.engine.exchange import Outcome
from adabest.engine.local import LocalTraining, local_step
from adabest.engine.task import Heartbeat, Task
from adabest.errors import AdabestError, Diverged


class ReferenceEngine:
    """Trains the clients of a cohort in sequence."""

    def __init__(self, algorithm: Algorithm, task: Task, training: LocalTraining, heartbeat: Heartbeat) -> None:
        self._algorithm = algorithm
        self._task = task
        self._training = training
        self._heartbeat = heartbeat

    def exchange(
        self,
        work: Work,
        clients: Mapping[int, Any],
        message: Any,
        server_context: ServerContext,
    ) -> list[Outcome]:
        """One phase of a round, client by client."""
        outcomes = []
        for client, state in clients.items():
            try:
                outcomes.append(self._one_client(work, client, state, message, server_context))
            except AdabestError:
                raise
            except Exception as error:
                error.add_note(f"in round {server_context.round}, client {client}")
                raise
        return outcomes

    def _one_client(self, work: Work, client: int, state: Any, message: Any, server: ServerContext) -> Outcome:
        context = self._context(client, message, server)
        correction = self._algorithm.client_start(state, message, context)
        if work is Work.TRAIN:
            result, loss, accuracy = self._train(client, correction, context)
            model, steps = result, self._task.steps(client)
        else:
            self._heartbeat()
            result = self._task.full_gradient(correction.start, client)
            model, steps, loss, accuracy = None, 0, None, None
        new_state, reply = self._algorithm.client_finish(state, message, result, context)
        return Outcome(client, new_state, reply, model, steps, loss, accuracy)

    def estimate_norms(self, clients: Mapping[int, Any], message: Any, server_context: ServerContext) -> list[float]:
        """‖h_i‖ of clients at the scale in which it would act under a message; empty if the algorithm has no h_i."""
        norms = []
        for client, state in clients.items():
            context = self._context(client, message, server_context)
            estimate = self._algorithm.client_estimate(state, message, context)
            if estimate is not None:
                norms.append(float(torch.linalg.vector_norm(estimate, dtype=torch.float64)))
        return norms

    def _context(self, client: int, message: Any, server: ServerContext) -> ClientContext:
        return ClientContext(
            round=server.round,
            phase=server.phase,
            eta=server.eta,
            base_eta=server.base_eta,
            steps=message.cloud.new_tensor([self._task.steps(client)]),
            samples=message.cloud.new_tensor([self._task.samples(client)]),
        )

    def _train(self, client: int, correction: Correction, context: ClientContext) -> tuple[Tensor, float, float]:
        w = correction.start
        losses, accuracies = [], []
        for step in range(self._task.steps(client)):
            self._heartbeat()
            try:
                local_pass = self._task.local_pass(w, client, context.round, step)
            except AdabestError:
                raise
            except Exception as error:
                error.add_note(f"in local step {step}")
                raise
            losses.append(local_pass.loss)
            accuracies.append(local_pass.accuracy)
            w = local_step(w, local_pass.gradient, correction, context.eta, self._training)
        all_losses = torch.stack(losses).to(torch.float64)
        finite = torch.isfinite(all_losses)
        if not bool(finite.all()):
            step = int(torch.nonzero(~finite)[0])
            raise Diverged(f"the training loss of client {client} at local step {step} is {float(all_losses[step])}")
        return w, float(all_losses.mean()), float(torch.stack(accuracies).to(torch.float64).mean())
