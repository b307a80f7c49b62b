"""The reference engine: one client after another, one step after another. Fast engines must equal it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Correction, ServerContext, Work
from adabest.engine.local import LocalTraining, local_step
from adabest.engine.task import Heartbeat, Task
from adabest.errors import AdabestError, Diverged


class Outcome(NamedTuple):
    """What one client's work in one phase of a round came to.

    Attributes:
        client: Who.
        state: What the client keeps.
        reply: What it sends.
        model: Its trained model; None if the phase had no training.
        steps: How many local steps it made.
        loss: Mean training loss over its steps; None if there were none.
        accuracy: Mean training accuracy over its steps; likewise.
    """

    client: int
    state: Any
    reply: Any
    model: Tensor | None
    steps: int
    loss: float | None
    accuracy: float | None


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
        """One phase of a round.

        Args:
            work: What the clients do.
            clients: The cohort, and each client's state.
            message: What the server sent.
            server_context: The round, as the server sees it.

        Raises:
            Diverged: If a training loss isn't finite.
        """
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
            result = self._task.full_gradient(correction.start, client)
            model, steps, loss, accuracy = None, 0, None, None
        new_state, reply = self._algorithm.client_finish(state, message, result, context)
        return Outcome(client, new_state, reply, model, steps, loss, accuracy)

    def estimate_norms(self, clients: Mapping[int, Any], message: Any, server: ServerContext) -> dict[int, float]:
        """‖h_i‖ at the scale in which it would act under a message; empty if the algorithm has no h_i.

        Args:
            clients: Clients and their states.
            message: What the server would send them.
            server: The round, as the server sees it.
        """
        norms = {}
        for client, state in clients.items():
            estimate = self._algorithm.client_estimate(state, message, self._context(client, message, server))
            if estimate is not None:
                norms[client] = float(torch.linalg.vector_norm(estimate, dtype=torch.float64))
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
