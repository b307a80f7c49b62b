"""Parcels: tensors of several shapes and types as one tensor of bytes, and back."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_ALIGNED = 16  # bytes: every type may begin there

Spec = list[Any]
"""The shape and the type of a tensor, as JSON: ``[[3, 2], "float32"]``."""


def spec_of(tensor: Tensor) -> Spec:
    """The shape and the type of a tensor."""
    return [list(tensor.shape), str(tensor.dtype).removeprefix("torch.")]


def packed(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """The bytes of tensors one after another, uint8."""
    parts = []
    for tensor in tensors:
        own = tensor.detach().to(device).contiguous().reshape(-1).view(torch.uint8)
        parts += [own, own.new_zeros(-len(own) % _ALIGNED)]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device=device)


def packed_length(specs: Sequence[Spec]) -> int:
    """How many bytes tensors of such shapes and types have together."""
    return sum(_padded(_length(spec)) for spec in specs)


def unpacked(parcel: Tensor, specs: Sequence[Spec]) -> list[Tensor]:
    """The tensors in a parcel, each with memory of its own: last bits may depend on where a tensor begins."""
    tensors, begin = [], 0
    for spec in specs:
        own = parcel[begin : begin + _length(spec)].clone()
        tensors.append(own.view(_type(spec)).view(spec[0]))
        begin += _padded(_length(spec))
    return tensors


def _length(spec: Spec) -> int:
    return math.prod(spec[0]) * _type(spec).itemsize


def _padded(length: int) -> int:
    return -(-length // _ALIGNED) * _ALIGNED


def _type(spec: Spec) -> torch.dtype:
    found = getattr(torch, str(spec[1]), None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{spec[1]!r} isn't a type of numbers")
    return found
