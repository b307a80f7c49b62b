"""Recurrent layers in simulation: their weights stay where they are, and cuDNN doesn't compute them.

On a GPU, torch moves the weights of ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` into a buffer of its own whenever others
take their place. The parameters would then no longer be views of the model's vector, and training would change what
nobody reads. cuDNN also chooses the order of sums anew, so that equal runs would differ.
"""

from typing import Any

import torch
from torch import nn


class RecurrentForward:
    """A forward pass without cuDNN, which stands in for a recurrent layer's own as its attribute ``forward``."""

    def __init__(self, layer: nn.RNNBase) -> None:
        self._layer = layer

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """The layer's own pass."""
        before = torch.backends.cudnn.enabled
        torch.backends.cudnn.enabled = False
        try:
            return type(self._layer).forward(self._layer, *inputs, **options)
        finally:
            torch.backends.cudnn.enabled = before


def settle_recurrent_layers(module: nn.Module) -> None:
    """Has all recurrent layers of a model keep their weights in place, and do without cuDNN."""
    for layer in module.modules():
        if isinstance(layer, nn.RNNBase):
            vars(layer)["flatten_parameters"] = _leave_in_place
            vars(layer)["forward"] = RecurrentForward(layer)


def _leave_in_place() -> None:
    """Does nothing, in place of ``nn.RNNBase.flatten_parameters``."""
