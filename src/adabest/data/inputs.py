"""Inputs of samples: an ordinary tensor, or an object that makes samples on access."""

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Inputs(Protocol):
    """The part of a tensor's interface that training needs, for inputs ``[samples, *shape]`` that aren't in memory."""

    @property
    def shape(self) -> torch.Size:
        """Its shape, samples first."""

    @property
    def dtype(self) -> torch.dtype:
        """The type of its values."""

    def __len__(self) -> int: ...

    def __getitem__(self, samples: Any) -> Tensor:
        """The samples of a slice, or of an int64 tensor of any shape: ``[*samples.shape, *shape]``, on its device."""

    def to(self, place: Any) -> "Inputs":
        """The same inputs, for sample numbers on a device."""

    def fingerprint(self) -> bytes:
        """Bytes that differ between inputs with different values."""
