"""Sums over a vector that have the same bits on every device, for any number of rows and of threads."""

import torch
from torch import Tensor


def dot(one: Tensor, other: Tensor) -> Tensor:
    """The product Σ x y of vectors ``[..., P]``, in float64, ``[..., 1]``.

    One half of the products is added to the other until one number is left. Torch's own sums have an order that depends
    on the number of rows, of threads and on the device.
    """
    terms = one.to(torch.float64) * other.to(torch.float64)
    length = terms.shape[-1]
    while length > 1:
        half = 1 << (length - 1).bit_length() - 1
        terms[..., : length - half] += terms[..., half:length]
        length = half
    return terms[..., :1].clone()  # not a view, which would keep all terms
