"""The norms ‖h_i‖ of what clients keep, for the metrics."""

from dataclasses import replace

import torch
from torch import Tensor

from adabest.engine import algorithm_calls as calls
from adabest.engine.interface import Request, client_context, stacked_context, stacked_states

_STACKED_CLIENTS = 32  # whose states are in memory a second time
_ROUND = 512  # elements: whatever their type, a multiple of the bytes that allocators align to


def estimate_norms(request: Request) -> Tensor:
    """‖h_i‖ of the clients of a request, at the scale in which it acts under its message.

    Returns:
        One norm per client, float64, on the device of the message; none at all if the algorithm has no h_i.
    """
    if request.message.cloud.is_cuda:
        return stacked_norms(request)
    norms = list[Tensor]()
    for client, state in request.clients.items():
        context = client_context(request, client)
        estimate = calls.client_estimates(request.algorithm, state, request.message, context)
        if estimate is not None:
            norms.append(torch.linalg.vector_norm(estimate, dtype=torch.float64))
    return torch.stack(norms) if norms else _none(request)


def stacked_norms(request: Request) -> Tensor:
    """``estimate_norms`` for a few dozen clients at a time: on a GPU every operation has to be launched."""
    everyone, norms = list(request.clients), list[Tensor]()
    whole = stacked_context(request, everyone)  # of all at once: making one copies from the host
    for first in range(0, len(everyone), _STACKED_CLIENTS):
        some = slice(first, first + _STACKED_CLIENTS)
        states = stacked_states([request.clients[client] for client in everyone[some]])
        noise = replace(whole.noise, client=tuple(everyone[some]))
        context = replace(whole, steps=whole.steps[some], samples=whole.samples[some], noise=noise)
        leading = (len(everyone[some]),)
        estimate = calls.client_estimates(request.algorithm, states, request.message, context, leading=leading)
        if estimate is None:
            return _none(request)
        norms.append(norms_of_rows(estimate))
    return torch.cat(norms) if norms else _none(request)


def norms_of_rows(rows: Tensor) -> Tensor:
    """The norm of each row of ``[at most 32, P]``, float64, which doesn't depend on how many there are or on its place.

    On a GPU the order of a sum depends on the shape of the whole, and on the addresses at which rows begin. So these
    are always the same.
    """
    clients, length = rows.shape
    apart = rows.new_zeros(_STACKED_CLIENTS, -(-length // _ROUND) * _ROUND)[:, :length]
    apart[:clients] = rows
    norms: Tensor = torch.linalg.vector_norm(apart, dim=1, dtype=torch.float64)
    return norms[:clients]


def _none(request: Request) -> Tensor:
    return torch.empty(0, dtype=torch.float64, device=request.message.cloud.device)
