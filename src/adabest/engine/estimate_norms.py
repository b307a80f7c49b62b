"""The norms ‖h_i‖ of what clients keep, for the metrics."""

import torch
from torch import Tensor

from adabest.engine.interface import Request, client_context, stacked_context, stacked_states

_STACKED_CLIENTS = 32  # whose states are in memory a second time


def estimate_norms(request: Request) -> list[float]:
    """‖h_i‖ of the clients of a request, at the scale in which it acts under its message.

    Returns:
        One norm per client; none at all if the algorithm has no h_i.
    """
    if request.message.cloud.is_cuda:
        return stacked_norms(request)
    norms = []
    for client, state in request.clients.items():
        context = client_context(request.task, client, request.message, request.context)
        estimate = request.algorithm.client_estimate(state, request.message, context)
        if estimate is not None:
            norms.append(float(torch.linalg.vector_norm(estimate, dtype=torch.float64)))
    return norms


def stacked_norms(request: Request) -> list[float]:
    """``estimate_norms`` for a few dozen clients at a time: on a GPU every operation has to be launched."""
    everyone, norms = list(request.clients), list[Tensor]()
    for first in range(0, len(everyone), _STACKED_CLIENTS):
        clients = everyone[first : first + _STACKED_CLIENTS]
        states = stacked_states([request.clients[client] for client in clients])
        estimate = request.algorithm.client_estimate(states, request.message, stacked_context(request, clients))
        if estimate is None:
            return []
        norms.append(torch.linalg.vector_norm(estimate, dim=1, dtype=torch.float64))
    return torch.cat(norms).tolist() if norms else []
