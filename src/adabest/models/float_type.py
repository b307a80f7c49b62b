"""The type that torch gives to floats when nobody says which, for as long as this package computes."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def float32_by_default() -> Iterator[None]:
    """Within, new parameters and tensors of floats are float32, even if the process asked torch for another type.

    Initial weights would otherwise be other draws, and layers would refuse float32 inputs.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
