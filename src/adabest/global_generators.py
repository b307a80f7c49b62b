"""A watch over global random generators, from which nothing in a run may draw.

Their numbers would depend on the order in which clients are computed, and on whatever else the process does.
"""

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor


class GlobalGenerators:
    """States of the process's global generators at a moment: torch's on the CPU and on GPUs, NumPy's and Python's."""

    def __init__(self, *, all_libraries: bool = True) -> None:
        """Takes the states.

        Args:
            all_libraries: Whether NumPy's and Python's are among them; torch's states are read ten times as fast.
        """
        self._torch = _torch_states()
        self._others = (np.random.get_state(legacy=False), random.getstate()) if all_libraries else None

    def used_since(self) -> list[str]:
        """The names of those that have been drawn from, or given a seed, since."""
        used = []
        # Compared by NumPy: torch's comparison would be counted among the operations of a round (``costs``).
        cpu, *gpus = (
            np.array_equal(before.numpy(), now.numpy())
            for before, now in zip(self._torch, _torch_states(), strict=True)
        )
        if not cpu:
            used.append("torch's global generator")
        if not all(gpus):
            used.append("torch's global generator on a GPU")
        if self._others is not None:
            numpy_state, python_state = self._others
            if _without_arrays(np.random.get_state(legacy=False)) != _without_arrays(numpy_state):
                used.append("NumPy's global generator")
            if random.getstate() != python_state:
                used.append("Python's global generator")
        return used

    def restore(self) -> None:
        """Gives the generators the states back."""
        torch.set_rng_state(self._torch[0])
        for device, state in enumerate(self._torch[1:]):
            torch.cuda.set_rng_state(state, device)
        if self._others is not None:
            np.random.set_state(self._others[0])
            random.setstate(self._others[1])


def _torch_states() -> list[Tensor]:
    """The states of torch's generators: that of the CPU, then those of the GPUs if they are in use."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else range(0)
    return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, devices)]


def _without_arrays(state: Any) -> Any:
    """A state of NumPy's that can be compared."""
    if isinstance(state, dict):
        return {name: _without_arrays(value) for name, value in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state
