"""The packing of a model's parameters: their places in a packed vector, and the way there and back.

A model's vector has the parameters one after another, in torch's layout. The operators want them aligned, padded, and a
convolution's with its outputs last. Padding is zero and stays so: its gradients are zero.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adabest.engine.gpu.kernels.buffers import Region
from adabest.engine.layer_plan import (
    ConvolutionLayer,
    FunctionalLayer,
    Layer,
    LinearLayer,
    NormLayer,
    PoolLayer,
    SumLayer,
)
from adabest.engine.shapes import padded

_ALIGNMENT = 64
_PADDING = -1


@dataclass(frozen=True)
class Packing:
    """The layout of packed parameters.

    Attributes:
        regions: Where each layer's parameters lie: the weight and the bias, those that it has, or all of a functional
            layer's in one.
        size: The length of a packed vector.
        slots: How many partial sums of squares there are.
        source: For each element of a packed vector its place in the model's, or −1 for padding.
        target: For each element of the model's vector its place in a packed one.
    """

    regions: tuple[tuple[Region, ...], ...]
    size: int
    slots: int
    source: Tensor
    target: Tensor

    def pack(self, vectors: Tensor) -> Tensor:
        """``[..., parameters]`` to ``[..., size]``."""
        packed: Tensor = vectors[..., self.source.clamp(min=0)]
        return packed.masked_fill_(self.source == _PADDING, 0)

    def unpack(self, packed: Tensor) -> Tensor:
        """``[..., size]`` to ``[..., parameters]``."""
        vectors: Tensor = packed[..., self.target]
        return vectors


def packing(
    layers: Sequence[Layer], shapes: Mapping[str, tuple[int, ...]], operators: Any, device: torch.device
) -> Packing:
    """Lays the parameters of layers out.

    Args:
        layers: The layers.
        shapes: The shape of each parameter, in the order of the model's vector.
        operators: The operators that work on them, which decide how many partial sums of squares there are.
        device: Where the packed vectors lie.
    """
    starts = dict(zip(shapes, np.cumsum([0, *(int(np.prod(shape)) for shape in shapes.values())]), strict=False))
    pieces: list[np.ndarray] = []
    regions: list[tuple[Region, ...]] = []
    at = slot = 0
    for layer in layers:
        of_layer = []
        for own, slots in _pieces(layer, starts, shapes, operators):
            of_layer.append(Region(at, len(own), slot))
            size = padded(len(own), _ALIGNMENT)
            pieces.append(np.pad(own, (0, size - len(own)), constant_values=_PADDING))
            at, slot = at + size, slot + slots
        regions.append(tuple(of_layer))
    source = np.concatenate(pieces)
    real = np.flatnonzero(source != _PADDING)
    target = np.empty(len(real), dtype=np.int64)
    target[source[real]] = real
    return Packing(
        regions=tuple(regions),
        size=at,
        slots=max(slot, 1),
        source=torch.from_numpy(source).to(device),
        target=torch.from_numpy(target).to(device),
    )


def _pieces(layer: Layer, starts: Mapping[str, Any], shapes: Mapping[str, Any], operators: Any) -> list[Any]:
    """The packed parameters of a layer, as places in the model's vector, and how many slots each takes."""
    if isinstance(layer, FunctionalLayer):
        own = [_places(name, starts, shapes).reshape(-1) for name in layer.parameters]
        everything = np.concatenate(own) if own else np.empty(0, dtype=np.int64)
        return [(everything, operators.slots(len(everything)))] if own else []
    if isinstance(layer, PoolLayer | SumLayer):
        return []
    if isinstance(layer, NormLayer):
        both = [_padded(_places(name, starts, shapes)) for name in (layer.weight, layer.bias) if name is not None]
        return [(vector, operators.slots(len(vector))) for vector in both]
    places = _places(layer.weight, starts, shapes)
    if isinstance(layer, ConvolutionLayer):
        weight = _kernel(layer, places)
        slots = [operators.slots(len(weight)), operators.slots(layer.shape.stored_outputs)]
    else:
        weight = _matrix(layer, places)
        slots = list(operators.linear_slots(layer.shape))
    found = [(weight, slots[0])]
    if layer.bias is not None:
        found.append((_padded(_places(layer.bias, starts, shapes)), slots[1]))
    return found


def _padded(vector: np.ndarray) -> np.ndarray:
    """A vector of outputs or channels as it is stored."""
    return np.pad(vector, (0, padded(len(vector)) - len(vector)), constant_values=_PADDING)


def _places(name: str, starts: Mapping[str, Any], shapes: Mapping[str, Any]) -> np.ndarray:
    """A parameter whose elements are their own places in the model's vector."""
    shape = shapes[name]
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape) + int(starts[name])


def _kernel(layer: ConvolutionLayer, places: np.ndarray) -> np.ndarray:
    """``[outputs, channels, rows, columns]`` as ``[rows, run, outputs]``, flat."""
    shape = layer.shape
    rows, columns = shape.kernel
    channels = shape.channels if shape.unfolded else padded(shape.channels)
    packed = np.full((rows, columns, channels, shape.stored_outputs), _PADDING, dtype=np.int64)
    packed[:, :, : shape.channels, : shape.outputs] = places.transpose(2, 3, 1, 0)
    runs = packed.reshape(rows, columns * channels, -1)
    return np.pad(runs, ((0, 0), (0, shape.run - runs.shape[1]), (0, 0)), constant_values=_PADDING).reshape(-1)


def _matrix(layer: LinearLayer, places: np.ndarray) -> np.ndarray:
    """``[outputs, inputs]`` with the inputs as they are stored, flat."""
    outputs = layer.shape.outputs
    if layer.image is not None:
        channels, rows, columns = layer.image
        image = np.full((outputs, rows, columns, padded(channels)), _PADDING, dtype=np.int64)
        image[..., :channels] = places.reshape(outputs, channels, rows, columns).transpose(0, 2, 3, 1)
        return image.reshape(-1)
    packed = np.full((outputs, layer.shape.inputs), _PADDING, dtype=np.int64)
    packed[:, : places.shape[1]] = places
    return packed.reshape(-1)
