"""The layers of a program: forward and backward passes of all clients at once, with the buffers between them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, vjp, vmap
from torch.nn import functional

from adabest.engine.cohort_table import DrawKeys
from adabest.engine.gpu.kernels import twins
from adabest.engine.gpu.kernels.buffers import Direction, Pace, Region
from adabest.engine.layer_plan import (
    ConvolutionLayer,
    FunctionalLayer,
    Layer,
    LinearLayer,
    NormLayer,
    PoolLayer,
    SumLayer,
    has_images,
)
from adabest.engine.shapes import padded
from adabest.models.keyed import set_dropout_key


class Allocator:
    """Makes buffers with a dimension for the clients, and counts their bytes.

    Attributes:
        bytes: The bytes of all buffers so far.
        dtype: The type of buffers that ask for no other.
    """

    def __init__(self, clients: int, dtype: torch.dtype, device: torch.device) -> None:
        self._clients, self._device = clients, device
        self.dtype, self.bytes = dtype, 0

    def __call__(self, *shape: int, kind: torch.dtype | None = None, first: tuple[int, ...] = ()) -> Tensor:
        """Zeros, ``[*first, clients, *shape]``."""
        tensor = torch.zeros((*first, self._clients, *shape), dtype=kind or self.dtype, device=self._device)
        self.bytes += tensor.numel() * tensor.element_size()
        return tensor


class ConvolutionForward:
    """The forward pass of a convolution with relu and pooling."""

    def __init__(
        self,
        layer: ConvolutionLayer,
        regions: tuple[Region, ...],
        operators: Any,
        *,
        border: tuple[int, int],
        batch: int,
        allocate: Allocator,
    ) -> None:
        shape = layer.shape
        self.layer = layer
        self._shape, self._operators = shape, operators
        self._weight, self._bias = regions[0], regions[1] if len(regions) > 1 else None
        rows, columns = shape.pooled
        self.output = allocate(batch, rows + 2 * border[0], columns + 2 * border[1], shape.stored_outputs)
        self._kind: Tensor | None = None

    def forward(self, x: Tensor, parameters: Tensor, pace: Pace, keys: DrawKeys | None = None) -> Tensor:
        """The output, with its border."""
        self._x = x
        bias = None if self._bias is None else self._bias.of(parameters)
        weight = self._weight.of(parameters)
        self._operators.convolve(self._shape, pace, x, weight, bias, self.output, self._kind)
        return self.output


class ConvolutionWork(ConvolutionForward):
    """A convolution with relu and pooling, both ways."""

    def __init__(
        self,
        layer: ConvolutionLayer,
        regions: tuple[Region, ...],
        operators: Any,
        *,
        first: bool,
        border: tuple[int, int],
        batch: int,
        allocate: Allocator,
    ) -> None:
        super().__init__(layer, regions, operators, border=border, batch=batch, allocate=allocate)
        shape = layer.shape
        outputs, parts = shape.stored_outputs, operators.parts(shape, batch)
        sums = torch.promote_types(allocate.dtype, torch.float32)
        self._partial = allocate(parts.pools if first else parts.weight, shape.depth * outputs, kind=sums)
        self._bias_partial = allocate(parts.pools if first else parts.spread, outputs, kind=sums)
        # Where nothing is fused, as before a norm, the gradient of the output is that of the sums already.
        self._is_plain = not (first or shape.relu or shape.bias) and shape.pool == 1
        if not self._is_plain:
            self._kind = allocate(batch, *shape.pooled, outputs, kind=torch.uint8)
        self._dense = None if first or self._is_plain else allocate(batch, *shape.dense, outputs)
        self._gradient = None if first else allocate(batch, shape.height, shape.width, shape.stored_input[2])

    def input_gradient(self, dy: Tensor, parameters: Tensor, pace: Pace, other: Tensor | None = None) -> Tensor | None:
        """The gradient of the input, without border, added to that by others; None for the first layer."""
        self._dy = dy.view(*dy.shape[:2], *self._shape.pooled, self._shape.stored_outputs)
        if self._gradient is None:
            return None
        if self._is_plain:
            self._dense = self._dy
        else:
            self._operators.spread(self._shape, pace, self._dy, self._kind, self._dense, self._bias_partial)
        weight = self._weight.of(parameters)
        other = None if other is None else other.view(self._gradient.shape)
        self._operators.input_gradient(self._shape, pace, self._dense, weight, self._gradient, other)
        return self._gradient

    def weight_gradient(self, direction: Direction, pace: Pace) -> None:
        """Puts the gradients of the parameters into the direction."""
        operators, partial, bias = self._operators, self._partial, self._bias_partial
        if self._dense is None:
            operators.weight_gradient_of_pools(self._shape, pace, self._x, self._dy, self._kind, partial, bias)
        else:
            operators.weight_gradient(self._shape, pace, self._x, self._dense, partial)
        operators.fold(direction, pace, self._weight, partial, self._bias, bias)


class LinearForward:
    """The forward pass of a linear layer with relu."""

    def __init__(
        self,
        layer: LinearLayer,
        regions: tuple[Region, ...],
        operators: Any,
        *,
        batch: int,
        allocate: Allocator,
        kind: torch.dtype | None = None,
    ) -> None:
        self.layer = layer
        self._shape, self._operators = layer.shape, operators
        self._weight, self._bias = regions[0], regions[1] if len(regions) > 1 else None
        self.output = allocate(batch, layer.shape.stored_outputs, kind=kind)

    def forward(self, x: Tensor, parameters: Tensor, pace: Pace, keys: DrawKeys | None = None) -> Tensor:
        """The output, padded."""
        self._x = x.flatten(2)
        bias = None if self._bias is None else self._bias.of(parameters)
        self._operators.linear(self._shape, pace, self._x, self._weight.of(parameters), bias, self.output)
        return self.output


class LinearWork(LinearForward):
    """A linear layer with relu, both ways."""

    def __init__(
        self,
        layer: LinearLayer,
        regions: tuple[Region, ...],
        operators: Any,
        *,
        first: bool,
        after_relu: bool,
        batch: int,
        allocate: Allocator,
    ) -> None:
        super().__init__(layer, regions, operators, batch=batch, allocate=allocate)
        self._first, self._after_relu = first, after_relu
        self._gradient = allocate(batch, 0 if first else layer.shape.inputs)

    def input_gradient(self, dy: Tensor, parameters: Tensor, pace: Pace) -> Tensor | None:
        """The gradient of the input, through the relu of a linear layer before it; None for the first layer."""
        self._dy = dy
        if self._first:
            return None
        x = self._x if self._after_relu else None
        weight = self._weight.of(parameters)
        self._operators.linear_input_gradient(self._shape, pace, dy, weight, x, self._gradient)
        return self._gradient

    def weight_gradient(self, direction: Direction, pace: Pace) -> None:
        """Puts the gradients of the parameters into the direction."""
        self._operators.linear_weight_gradient(
            self._shape, pace, self._x, self._dy, direction, self._weight, self._bias
        )


class NormForward:
    """The forward pass of a normalisation with relu and pooling."""

    def __init__(
        self,
        layer: NormLayer,
        regions: tuple[Region, ...],
        operators: Any,
        *,
        border: tuple[int, int],
        batch: int,
        allocate: Allocator,
        kind: torch.dtype | None = None,
    ) -> None:
        shape, own = layer.shape, iter(regions)
        self.layer = layer
        self._shape, self._operators = shape, operators
        self._weight = None if layer.weight is None else next(own)
        self._bias = None if layer.bias is None else next(own)
        rows, columns = shape.pooled
        self._sums = torch.promote_types(allocate.dtype, torch.float32)
        self._stored_output = allocate(batch, rows + 2 * border[0], columns + 2 * border[1], shape.stored, kind=kind)
        self.output = self._stored_output.flatten(2) if shape.flat else self._stored_output
        self._statistics = [allocate(batch, shape.groups, kind=self._sums) for _ in range(2)]

    def forward(self, x: Tensor, parameters: Tensor, pace: Pace, keys: DrawKeys | None = None) -> Tensor:
        """The output, with its border."""
        shape = self._shape
        self._x = x.reshape(*x.shape[:2], shape.height, shape.width, shape.stored).contiguous()
        own = self._parameters(parameters)
        self._operators.normalise(shape, pace, self._x, *own, self._stored_output, *self._statistics)
        return self.output

    def _parameters(self, packed: Tensor) -> list[Tensor | None]:
        return [None if region is None else region.of(packed) for region in (self._weight, self._bias)]


class NormWork(NormForward):
    """A normalisation with relu and pooling, both ways."""

    def __init__(
        self,
        layer: NormLayer,
        regions: tuple[Region, ...],
        operators: Any,
        *,
        first: bool,
        border: tuple[int, int],
        batch: int,
        allocate: Allocator,
    ) -> None:
        super().__init__(layer, regions, operators, border=border, batch=batch, allocate=allocate)
        shape, parts = layer.shape, operators.norm_parts(layer.shape, batch)
        self._partial = [allocate(parts, shape.stored, kind=self._sums) for _ in range(2)]
        self._gradient = None if first else allocate(batch, shape.height, shape.width, shape.stored)

    def input_gradient(self, dy: Tensor, parameters: Tensor, pace: Pace) -> Tensor | None:
        """The gradient of the input; None for the first layer. Computes those of the parameters as well."""
        shape, own = self._shape, self._parameters(parameters)
        dy = dy.view(*dy.shape[:2], *shape.pooled, shape.stored)
        self._operators.normalise_gradients(
            shape, pace, self._x, dy, *own, *self._statistics, self._gradient, *self._partial
        )
        return self._gradient.flatten(2) if shape.flat and self._gradient is not None else self._gradient

    def weight_gradient(self, direction: Direction, pace: Pace) -> None:
        """Puts the gradients of the parameters into the direction."""
        if self._weight is not None:
            self._operators.fold(direction, pace, self._weight, self._partial[0], self._bias, self._partial[1])


class PoolForward:
    """The forward pass of pooling."""

    def __init__(
        self,
        layer: PoolLayer,
        operators: Any,
        *,
        border: tuple[int, int],
        batch: int,
        allocate: Allocator,
        kind: torch.dtype | None = None,
    ) -> None:
        shape = layer.shape
        self.layer = layer
        self._shape, self._operators = shape, operators
        rows, columns = shape.pooled
        self.output = allocate(batch, rows + 2 * border[0], columns + 2 * border[1], shape.stored, kind=kind)
        self._kind = None if shape.mean else allocate(batch, rows, columns, shape.stored, kind=torch.uint8)

    def forward(self, x: Tensor, parameters: Tensor, pace: Pace, keys: DrawKeys | None = None) -> Tensor:
        """The output, with its border."""
        self._operators.pool(self._shape, pace, x.contiguous(), self.output, self._kind)
        return self.output


class PoolWork(PoolForward):
    """Pooling, both ways; it is never the first layer."""

    def __init__(
        self, layer: PoolLayer, operators: Any, *, border: tuple[int, int], batch: int, allocate: Allocator
    ) -> None:
        super().__init__(layer, operators, border=border, batch=batch, allocate=allocate)
        self._gradient = allocate(batch, layer.shape.height, layer.shape.width, layer.shape.stored)

    def input_gradient(self, dy: Tensor, parameters: Tensor, pace: Pace) -> Tensor:
        """The gradient of the input."""
        dy = dy.view(*dy.shape[:2], *self._shape.pooled, self._shape.stored)
        self._operators.pool_gradient(self._shape, pace, dy, self._kind, self._gradient)
        return self._gradient

    def weight_gradient(self, direction: Direction, pace: Pace) -> None:
        """Does nothing: pooling has no parameters."""


class SumForward:
    """The sum of two tensors with relu."""

    def __init__(
        self,
        layer: SumLayer,
        operators: Any,
        *,
        border: tuple[int, int],
        batch: int,
        allocate: Allocator,
        kind: torch.dtype | None = None,
    ) -> None:
        self.layer = layer
        self._shape, self._operators = layer.shape, operators
        self._inside = rows, columns = layer.shape.height, layer.shape.width
        stored = layer.shape.stored
        self._stored_output = allocate(batch, rows + 2 * border[0], columns + 2 * border[1], stored, kind=kind)
        self.output = self._stored_output.flatten(2) if layer.shape.flat else self._stored_output

    def forward(self, first: Tensor, second: Tensor, pace: Pace) -> Tensor:
        """The output, with its border."""
        a, b = (value[:, :, None, None] if value.ndim == 3 else value for value in (first, second))
        self._operators.add(pace, a, b, twins.interior(self._stored_output, self._inside), relu=self._shape.relu)
        return self.output


class SumWork(SumForward):
    """The sum of two tensors with relu, both ways."""

    def __init__(
        self, layer: SumLayer, operators: Any, *, border: tuple[int, int], batch: int, allocate: Allocator
    ) -> None:
        super().__init__(layer, operators, border=border, batch=batch, allocate=allocate)
        self._gradient = allocate(batch, *self._inside, layer.shape.stored) if layer.shape.relu else None

    def input_gradient(self, dy: Tensor, parameters: Tensor, pace: Pace) -> Tensor | None:
        """The gradient of both inputs, without border."""
        if self._gradient is None:
            return dy if self._shape.flat else dy.view(*dy.shape[:2], *self._inside, self._shape.stored)
        shown = twins.interior(self._stored_output, self._inside)
        self._operators.add(pace, dy.reshape(self._gradient.shape), None, self._gradient, shown=shown)
        return self._gradient.flatten(2) if self._shape.flat else self._gradient

    def weight_gradient(self, direction: Direction, pace: Pace) -> None:
        """Does nothing: a sum has no parameters."""


class FunctionalWork:
    """Any other part of a model: one function of parameters and inputs, mapped over the clients."""

    def __init__(
        self,
        layer: FunctionalLayer,
        regions: tuple[Region, ...],
        operators: Any,
        shapes: dict[str, tuple[int, ...]],
        *,
        first: bool,
        operand: torch.dtype,
    ) -> None:
        self.layer = layer
        self._operators, self._first = operators, first
        self._region = regions[0] if regions else None
        self._shapes = {own: shapes[name] for name, own in layer.parameters.items()}
        # What isn't trained, in the type of the activations.
        self._fixed = {
            name: tensor.to(operand)
            for name, tensor in (*layer.module.named_parameters(), *layer.module.named_buffers())
            if name not in self._shapes and tensor.is_floating_point() and tensor.dtype != operand
        }

    def forward(self, x: Tensor, parameters: Tensor, pace: Pace, keys: DrawKeys) -> Tensor:
        """The output, in torch's own layout."""
        mine = parameters[:, :0] if self._region is None else self._region.of(parameters)
        step = pace.step[0].to(torch.int64)

        def of_all(mine: Tensor, x: Tensor) -> Tensor:
            # A copy: what works in place must not reach the layer before.
            mapped: Tensor = vmap(self._one, in_dims=(0, 0, 0, None))(mine, x.clone(), keys, step)
            return mapped

        if self._first:
            differentiated: Any = vjp(lambda mine: of_all(mine, x), mine)
        else:
            differentiated = vjp(of_all, mine, x)
        output: Tensor
        output, self._back = differentiated
        return output

    def _one(self, mine: Tensor, x: Tensor, keys: DrawKeys, step: Tensor) -> Tensor:
        sizes = [torch.Size(shape).numel() for shape in self._shapes.values()]
        pieces = torch.split(mine, sizes) if sizes else ()
        parameters = {
            name: piece.view(shape) for (name, shape), piece in zip(self._shapes.items(), pieces, strict=True)
        }
        set_dropout_key(self.layer.module, *keys, step)
        try:
            result: Tensor = functional_call(self.layer.module, parameters | self._fixed, (x,))
        finally:
            set_dropout_key(self.layer.module, 0, 0, 0, 0)  # tensors of ``vmap`` can't be used once it has ended
        return result

    def input_gradient(self, dy: Tensor, parameters: Tensor, pace: Pace) -> Tensor | None:
        """The gradient of the input; None for the first layer. Computes that of the parameters as well."""
        gradients = self._back(dy)
        del self._back
        self._mine = gradients[0]
        return None if self._first else gradients[1]

    def weight_gradient(self, direction: Direction, pace: Pace) -> None:
        """Puts the gradients of the parameters into the direction."""
        if self._region is not None:
            self._operators.correct(direction, pace, self._region, self._mine)


Forward = ConvolutionForward | LinearForward | NormForward | PoolForward | SumForward
Work = ConvolutionWork | LinearWork | NormWork | PoolWork | SumWork | FunctionalWork


def output_border(place: int, layers: Sequence[Layer], sources: Sequence[tuple[int, ...]]) -> tuple[int, int]:
    """The zeros around a layer's output, in rows and columns: as many as a convolution that reads it needs."""
    readers = (layer for layer, read in zip(layers, sources, strict=True) if place in read)
    paddings = [layer.shape.padding for layer in readers if isinstance(layer, ConvolutionLayer)]
    return max((rows for rows, _ in paddings), default=0), max((columns for _, columns in paddings), default=0)


def outputs_of_all(
    works: Sequence[Work] | Sequence[Forward],
    sources: Sequence[tuple[int, ...]],
    x: Tensor,
    parameters: Tensor,
    pace: Pace,
    *,
    keys: DrawKeys | None = None,
) -> list[Tensor]:
    """The outputs of all layers, in order.

    Args:
        works: The layers.
        sources: What each of them reads (see ``Plan``).
        x: The input of the first.
        parameters: The point.
        pace: Who is still training.
        keys: What names each client's draws.
    """
    outputs = list[Tensor]()
    for work, read in zip(works, sources, strict=True):
        given = [
            as_input(x, None, work) if place < 0 else as_input(outputs[place], works[place], work) for place in read
        ]
        if isinstance(work, SumForward):
            outputs.append(work.forward(given[0], given[1], pace))
        elif isinstance(work, FunctionalWork):
            assert keys is not None
            outputs.append(work.forward(given[0], parameters, pace, keys))
        else:
            outputs.append(work.forward(given[0], parameters, pace))
    return outputs


def in_torch_layout(value: Tensor, before: Work | Forward | None, shape: tuple[int, ...]) -> Tensor:
    """The output of a layer, or an input from the data set, in torch's own layout ``[clients, batch, *shape]``."""
    lead = value.shape[:2]
    if before is not None and has_images(before.layer):
        channels, rows, columns = before.layer.output
        inside = twins.interior(value, (rows, columns))[..., :channels]
        return inside.permute(0, 1, 4, 2, 3).contiguous().reshape(*lead, *shape)
    features = torch.Size(shape).numel()
    return value.flatten(2)[..., :features].reshape(*lead, *shape)


def as_input(value: Tensor, before: Work | Forward | None, work: Work | Forward) -> Tensor:
    """The output of a layer in the layout of the next one's input. ``before`` is None for inputs from the data set."""
    if isinstance(work, FunctionalWork):
        return in_torch_layout(value, before, work.layer.input)
    if before is None:
        return value
    if has_images(before.layer):
        _, rows, columns = before.layer.output
        down, right = work.layer.shape.padding if isinstance(work, ConvolutionForward) else (0, 0)
        return twins.interior(value, (rows + 2 * down, columns + 2 * right))
    if not isinstance(before, FunctionalWork):
        return value
    if isinstance(work, LinearForward):
        return _padded_to(value.flatten(2), work.layer.shape.inputs)
    if isinstance(work, ConvolutionForward):
        return _channels_last(value, work.layer.shape.stored_input, work.layer.shape.padding)
    shape = work.layer.shape
    images = value.view(*value.shape[:2], shape.channels, shape.height, shape.width)
    return _channels_last(images, (shape.height, shape.width, shape.stored), (0, 0))


def as_output_gradient(gradient: Tensor, work: Work | None, before: Work) -> Tensor:
    """The gradient of a layer's input in the layout of the output before it. ``work`` is None for that of the loss."""
    outside = work is None or isinstance(work, FunctionalWork)
    if isinstance(before, FunctionalWork):
        if gradient.ndim == 5 and isinstance(work, ConvolutionWork | NormWork | PoolWork | SumWork):
            gradient = gradient[..., : work.layer.shape.channels].permute(0, 1, 4, 2, 3)
        return in_torch_layout(gradient, None, before.layer.output)
    if isinstance(before, LinearWork):
        shape = before.layer.shape
        if isinstance(work, LinearWork):  # which has gone through the relu
            return gradient
        gradient = _padded_to(gradient.flatten(2), shape.stored_outputs)
        return gradient.masked_fill(~(before.output > 0), 0.0) if shape.relu else gradient
    if outside and has_images(before.layer):
        channels, rows, columns = before.layer.output
        image = gradient.reshape(*gradient.shape[:2], channels, rows, columns)
        return _channels_last(image, (rows, columns, padded(channels)), (0, 0))
    return _padded_to(gradient.flatten(2), padded(before.layer.output[0])) if outside else gradient


def _padded_to(rows: Tensor, size: int) -> Tensor:
    return functional.pad(rows, (0, size - rows.shape[-1])).contiguous()


def _channels_last(images: Tensor, stored: tuple[int, ...], padding: tuple[int, int]) -> Tensor:
    """``[clients, batch, channels, rows, columns]`` as a convolution stores it, with its border."""
    (down, right), channels = padding, stored[-1] - images.shape[2]
    return functional.pad(images.permute(0, 1, 3, 4, 2), (0, channels, right, right, down, down)).contiguous()
