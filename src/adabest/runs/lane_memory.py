"""Memory of lanes: how many runs can be trained together before what their clients keep leaves the fastest memory."""

from collections.abc import Sequence

import torch

from adabest.engine.memory_tiers import free_by_default
from adabest.engine.simulation import message_bytes
from adabest.runs.model_source import count_run_parameters
from adabest.runs.settings.config import Config
from adabest.runs.settings.resolution import Components


def fitting_lanes(runs: Sequence[tuple[Config, Components]]) -> int:
    """How many runs of one device can be trained together with all that their clients keep in its memory. At least 1.

    The number holds whichever of the runs are trained together: it is that of the largest ones.

    Raises:
        InputError: If a model can't be made.
    """
    left, count = free_by_default(runs[0][0].device), 0
    if left is None:
        return len(runs)  # building the first one says that there is no such device
    for size in sorted((kept_bytes(*run) for run in runs), reverse=True):
        left -= size
        if left < 0:
            break
        count += 1
    return max(count, 1)


def kept_bytes(config: Config, components: Components) -> int:
    """The bytes that the clients of a run keep in the end: their states and latest models."""
    model = torch.empty(count_run_parameters(config, components), dtype=config.dtype, device="meta")
    clients = config.clients or 0
    took_part = min(clients, round(config.participation * clients + 0.5) * config.rounds)
    return took_part * message_bytes([*components.algorithm.client_init(model), model])
