"""Bytes that a simulated federation keeps between rounds."""

from fractions import Fraction

from torch import Tensor

from adabest.costs.formula import Number, whole_or_fraction
from adabest.engine.simulation import Simulation, message_bytes


def kept_bytes(simulation: Simulation) -> dict[str, Number]:
    """Bytes of the algorithm and for the scored model: on the server, and the mean of the clients that took part.

    Returns:
        ``client`` and ``server``, the cloud model not counted; ``scored_client`` and ``scored_server``.
    """
    state, seen = simulation.state, list(simulation.state.clients)
    of_states = sum(message_bytes(simulation.client_state(client)) for client in seen)
    of_models = 0 if state.scored is None else message_bytes(map(simulation.client_model, seen))
    return {
        "client": whole_or_fraction(Fraction(of_states, len(seen))),
        "server": message_bytes(state.server),
        "scored_client": whole_or_fraction(Fraction(of_models, len(seen))),
        "scored_server": 0 if state.scored is None else state.scored.pieces().bytes,
    }


def metrics_bytes(simulation: Simulation) -> int:
    """Bytes of θ̄ and h, which the simulator keeps for metrics, where the algorithm's server doesn't keep them."""
    state = simulation.state
    own = set(map(_address, [state.cloud, *state.server]))
    held = {_address(tensor): tensor for tensor in (state.aggregate, state.h) if tensor is not None}
    return message_bytes(tensor for address, tensor in held.items() if address not in own)


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
