"""The choice of a program's operators: Triton kernels, or their twins in plain torch."""

import importlib.util
import warnings
from typing import Any

import torch

from adabest.engine.gpu.kernels import twins


def why_no_kernels(device_type: str, dtype: torch.dtype) -> str | None:
    """Why kernels can't compute on a kind of device with a type of operands; None if they can."""
    if device_type != "cuda":
        return "kernels are for GPUs"
    if dtype == torch.float64:
        return "kernels don't compute in float64"
    return None


def operators(device: torch.device, dtype: torch.dtype, *, tf32: bool = False) -> Any:
    """The fastest operators there are for a device and a type of operands.

    Args:
        device: Where.
        dtype: The type of activations and products.
        tf32: Whether float32 products may be made by the matrix units.
    """
    if why_no_kernels(device.type, dtype) is not None:
        return twins
    if importlib.util.find_spec("triton") is None:
        warnings.warn(
            "Triton isn't installed, so batched training goes through plain torch, which is slower; "
            "install it with `pip install triton`",
            stacklevel=2,
        )
        return twins
    from adabest.engine.gpu.kernels.fused import Fused

    return Fused("tf32" if tf32 else "ieee")
