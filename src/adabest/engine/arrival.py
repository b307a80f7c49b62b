"""Numbers on their way between the machine and a device.

A GPU works through a queue: what is asked of it is computed later, while the host prepares what comes next. A plain
copy between the two waits until the queue is empty, and then the GPU is idle until the host has filled it again. These
copies take their place in the queue instead. On a CPU there is no queue, and nothing to wait for.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Arrival:
    """Numbers that are being copied from a device to the machine's memory.

    Attributes:
        is_there: Whether the numbers were on the machine from the beginning.
    """

    def __init__(self, values: Tensor) -> None:
        """Begins the copy, after all that was asked of the device before.

        Args:
            values: The numbers; nobody changes them any more.
        """
        self.is_there = not values.is_cuda
        self._event: torch.cuda.Event | None = None
        self._values = values
        if values.is_cuda:
            self._values = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._values.copy_(values, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(values.device))

    def read(self) -> Tensor:
        """The numbers, once they have arrived; any thread may ask."""
        if self._event is not None:
            self._event.synchronize()
        return self._values


def send(numbers: Sequence[Any] | np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers of the host as a tensor on a device, without waiting for it."""
    tensor = torch.as_tensor(numbers, dtype=dtype)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
