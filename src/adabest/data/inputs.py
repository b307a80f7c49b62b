"""Inputs of samples: an ordinary tensor, or whatever can be asked for some of its samples."""

from typing import Any, Protocol

import torch
from torch import Tensor


class Inputs(Protocol):
    """What a tensor of inputs ``[samples, *shape]`` can do and training needs; one that is never held whole."""

    @property
    def shape(self) -> torch.Size:
        """Its shape, samples first."""

    @property
    def dtype(self) -> torch.dtype:
        """The type of its values."""

    def __len__(self) -> int: ...

    def __getitem__(self, samples: Any) -> Tensor:
        """Some samples: of a slice, or of an int64 tensor of any shape, ``[*samples.shape, *shape]``, on its device."""

    def to(self, place: Any) -> "Inputs":
        """The same, ready to be asked for samples by tensors of a device."""

    def fingerprint(self) -> bytes:
        """What tells it from others."""
