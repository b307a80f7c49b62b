"""Aligned memory: every client's numbers lie alike, so that its results don't depend on who trains beside it.

A library of matrix products picks its kernel, and with it the order of its sums, by where operands begin within a line
of the cache and by how far apart their rows are. If clients simply followed each other in memory, the second of two
would begin elsewhere in a line than a lone one, and end with other last bits.
"""

import math

import torch
from torch import Tensor

LINE = 64  # bytes of a cache line, and of the widest vectors that processors compute with


def aligned(like: Tensor, *shape: int) -> Tensor:
    """Uninitialised memory whose every row, along the last dimension, begins at the beginning of a cache line.

    Torch's own allocator aligns the first row on most systems, and never the others.

    Args:
        like: Has the type of the numbers; must lie in the machine's memory.
        shape: The shape. Leading dimensions can be flattened into one without a copy.
    """
    line = LINE // like.itemsize
    width = -(-shape[-1] // line) * line
    memory = like.new_empty(math.prod(shape[:-1]) * width + line)
    before = -memory.data_ptr() % LINE // like.itemsize
    rows = torch.narrow(memory, 0, before, memory.numel() - line)
    return rows.view(*shape[:-1], width)[..., : shape[-1]]
