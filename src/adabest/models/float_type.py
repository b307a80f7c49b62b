"""Torch's default float type, while this package computes."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def float32_by_default() -> Iterator[None]:
    """While entered, torch's default float type is float32, even if the process has set another.

    With another type, initial weights would be other draws, and layers would refuse float32 inputs.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
