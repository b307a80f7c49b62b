"""The plan of a model: the row of layers that trainers compute one by one.

A model is traced and cut wherever a single tensor goes from one part to the next. Parts that are a convolution or a
linear layer, with the relu and max-pooling that follow, become layers with operators of their own. All other parts stay
what they are and are differentiated by ``torch.func``; neighbours of that kind become one layer.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from adabest.engine.shapes import ConvolutionShape, LinearShape, padded
from adabest.models.forward_pass import has_own_forward
from adabest.models.keyed import KeyedDropout

_LONGEST_UNFOLDED_RUN = 64
_FEWEST_CHANNELS = 16  # of an image that is stored as it is
_POOL_OPTIONS = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")


@dataclass(frozen=True)
class ConvolutionLayer:
    """A convolution with its relu and pooling.

    Attributes:
        shape: Its shape.
        weight: The name of its weight among the model's parameters.
        bias: The name of its bias, if it has one.
    """

    shape: ConvolutionShape
    weight: str
    bias: str | None

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of one output: channels, rows, columns."""
        return (self.shape.outputs, *self.shape.pooled)


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer with its relu.

    Attributes:
        shape: Its shape.
        weight: The name of its weight.
        bias: The name of its bias, if it has one.
        image: Channels, rows and columns of what it flattens, if that is the output of a convolution, whose memory has
            the channels last.
    """

    shape: LinearShape
    weight: str
    bias: str | None
    image: tuple[int, int, int] | None

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of one output."""
        return (self.shape.outputs,)


@dataclass(frozen=True, eq=False)
class FunctionalLayer:
    """Any other part of a model.

    Attributes:
        module: The part.
        parameters: The names of its trainable parameters, in the model and in the part.
        input: The shape of one input.
        output: The shape of one output.
    """

    module: nn.Module
    parameters: dict[str, str]
    input: tuple[int, ...]
    output: tuple[int, ...]


Layer = ConvolutionLayer | LinearLayer | FunctionalLayer


def plan_layers(module: nn.Module, example: Tensor) -> tuple[Layer, ...]:
    """Cuts a model into layers.

    Args:
        module: A classifier that ``models.prepare`` has accepted.
        example: A small batch of inputs, to learn the shapes from.
    """
    names = {id(parameter): name for name, parameter in module.named_parameters() if parameter.requires_grad}
    parts = _parts(module)
    if parts is not None:
        layers = _Assembly(names).of(parts, example)
        # A parameter that two layers share has one gradient, and one that none uses still decays: only the whole knows.
        if sorted(name for layer in layers for name in _parameters(layer)) == sorted(names.values()):
            return layers
    with torch.no_grad():
        output = tuple(module(example).shape[1:])
    return (FunctionalLayer(module, {name: name for name in names.values()}, tuple(example.shape[1:]), output),)


def _parameters(layer: Layer) -> list[str]:
    if isinstance(layer, FunctionalLayer):
        return list(layer.parameters)
    return [layer.weight] if layer.bias is None else [layer.weight, layer.bias]


class _Tracer(fx.Tracer):
    """Traces into all modules but torch's own layers and dropout."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, KeyedDropout) or super().is_leaf_module(m, module_qualified_name)


def _parts(module: nn.Module) -> list[nn.Module] | None:
    """The parts of a model in a row; None if it can't be cut.

    A layer that is used twice has one gradient and two places in the row, so then the model stays whole; as it does if
    it reads parameters or buffers of its own beside its layers', or if its forward pass was replaced.
    """
    if has_own_forward(module):
        return None
    try:
        graph = _Tracer().trace(module)
    except Exception:  # Models may do anything, and whatever can't be traced is still run as a whole.
        return None
    operations = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    called = [node.target for node in operations if node.op == "call_module"]
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    if len(set(called)) < len(called) or len(inputs) != 1 or any(node.op == "get_attr" for node in operations):
        return None
    return _cut(module, inputs[0], operations, _numbered(operations))


def _cut(
    module: nn.Module, value: fx.Node, operations: Sequence[fx.Node], numbers: dict[fx.Node, int]
) -> list[nn.Module] | None:
    """Each part of a traced model as a module of its own, with the model's submodules; None if they aren't in a row.

    Args:
        module: The model.
        value: Its input.
        operations: Its operations, in order.
        numbers: The number of the part that each operation belongs to.
    """
    parts: list[nn.Module] = []
    for _, group in itertools.groupby(operations, numbers.__getitem__):
        own = list(group)
        members = set(own)
        read = {source for node in own for source in node.all_input_nodes if source not in members}
        written = [node for node in own if any(user not in members for user in node.users)]
        if read != {value} or len(written) != 1:
            return None
        part = fx.Graph()
        copies = {value: part.placeholder("value")}
        for node in own:
            copies[node] = part.node_copy(node, copies.__getitem__)
        part.output(copies[written[0]])
        parts.append(fx.GraphModule(module, part))
        value = written[0]
    return parts


def _numbered(operations: Sequence[fx.Node]) -> dict[fx.Node, int]:
    """The number of the part that each operation belongs to."""
    position = {node: place for place, node in enumerate(operations)}
    last_use = {
        node: max((position.get(user, len(operations)) for user in node.users), default=-1) for node in operations
    }
    readers = [place for place, node in enumerate(operations) if _reads_input(node)]
    numbers: dict[fx.Node, int] = {}
    part, alive = 0, set[fx.Node]()
    for place, node in enumerate(operations):
        numbers[node] = part
        alive = {value for value in alive | {node} if last_use[value] > place}
        if len(alive) == 1 and place >= max(readers, default=0):
            part += 1
    return numbers


def _reads_input(node: fx.Node) -> bool:
    return any(source.op == "placeholder" for source in node.all_input_nodes)


class _Assembly:
    """Turns parts into layers, one after another."""

    def __init__(self, names: dict[int, str]) -> None:
        self._names = names
        self._layers: list[Layer] = []
        self._rest: list[nn.Module] = []  # parts that wait to become one functional layer

    def of(self, parts: list[nn.Module], example: Tensor) -> tuple[Layer, ...]:
        self._shape = tuple(example.shape[1:])
        self._rest_shape = self._shape
        # Two batches of different sizes tell which values have one row for each input.
        values: list[Any] = [example, torch.cat([example, example[:1]])]
        sizes, in_rows = [len(value) for value in values], True
        for part in parts:
            operation = _single_operation(part)
            with torch.no_grad():
                values = [part(value) for value in values]
            if not (in_rows and self._absorb(operation)):
                self._add_rest(part)
            in_rows = all(_has_rows(value, size) for value, size in zip(values, sizes, strict=True))
            if in_rows:
                self._shape = tuple(values[0].shape[1:])
        self._close_rest(self._shape)
        return tuple(self._layers)

    def _add_rest(self, part: nn.Module) -> None:
        if not self._rest:
            self._rest_shape = self._shape
        self._rest.append(part)

    def _close_rest(self, output: tuple[int, ...]) -> None:
        if self._rest:
            module = nn.Sequential(*self._rest)
            parameters = {self._names[id(p)]: name for name, p in module.named_parameters() if id(p) in self._names}
            self._layers.append(FunctionalLayer(module, parameters, self._rest_shape, output))
            self._rest = []

    def _absorb(self, operation: Any) -> bool:
        """Makes a layer of an operation, or adds it to the last one; says whether that was possible."""
        last = self._layers[-1] if self._layers and not self._rest else None
        match operation:
            case nn.Conv2d() if self._is_trained(operation) and _is_plain(operation) and len(self._shape) == 3:
                self._close_rest(self._shape)
                self._layers.append(self._convolution(operation))
            case nn.Linear() if self._is_trained(operation) and len(self._shape) == 1:
                self._close_rest(self._shape)
                self._layers.append(self._linear(operation))
            case nn.Identity():
                pass
            case nn.ReLU() if isinstance(last, ConvolutionLayer | LinearLayer) and not last.shape.relu:
                self._layers[-1] = _replaced(last, relu=True)
            case nn.MaxPool2d() if isinstance(last, ConvolutionLayer) and last.shape.pool == 1 and _halves(operation):
                if min(last.shape.pooled) < 2:
                    return False
                self._layers[-1] = _replaced(last, pool=2)
            case nn.Flatten() if operation.start_dim == 1 and operation.end_dim == -1 and not self._rest:
                pass  # memory stays as it is; a linear layer that follows knows how it is laid out
            case _:
                return False
        return True

    def _convolution(self, layer: nn.Conv2d) -> ConvolutionLayer:
        channels, height, width = self._shape
        kernel = (layer.kernel_size[0], layer.kernel_size[1])
        first = not self._layers
        short = channels < _FEWEST_CHANNELS and kernel[1] * channels <= _LONGEST_UNFOLDED_RUN
        shape = ConvolutionShape(
            channels=channels,
            height=height,
            width=width,
            outputs=layer.out_channels,
            kernel=kernel,
            padding=_padding(layer),
            bias=layer.bias is not None,
            unfolded=first and short,
        )
        return ConvolutionLayer(shape, self._names[id(layer.weight)], self._name(layer.bias))

    def _linear(self, layer: nn.Linear) -> LinearLayer:
        before = self._layers[-1] if self._layers else None
        image, inputs = None, padded(layer.in_features)
        if isinstance(before, ConvolutionLayer):
            image = (before.shape.outputs, *before.shape.pooled)
            inputs = before.shape.stored_outputs * image[1] * image[2]
        shape = LinearShape(inputs, layer.out_features, layer.bias is not None)
        return LinearLayer(shape, self._names[id(layer.weight)], self._name(layer.bias), image)

    def _name(self, parameter: Tensor | None) -> str | None:
        return None if parameter is None else self._names[id(parameter)]

    def _is_trained(self, layer: nn.Conv2d | nn.Linear) -> bool:
        """Whether a layer is torch's own, with parameters of its own that are trained as they are."""
        hooked = layer._forward_hooks or layer._forward_pre_hooks
        own = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]
        return type(layer) in (nn.Conv2d, nn.Linear) and not hooked and all(id(p) in self._names for p in own)


def _has_rows(value: Any, count: int) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and len(value) == count


def _is_plain(layer: nn.Conv2d) -> bool:
    return (
        layer.stride == (1, 1)
        and layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and (not isinstance(layer.padding, str) or layer.padding == "valid")
    )


def _single_operation(part: nn.Module) -> Any:
    """The layer that a part consists of, functions taken for the layers they are the same as; None for all others."""
    if not isinstance(part, fx.GraphModule):
        return None
    operations = [node for node in part.graph.nodes if node.op not in ("placeholder", "output")]
    if len(operations) != 1:
        return None
    node = operations[0]
    if node.op == "call_module":
        return part.get_submodule(str(node.target))
    extra = (*node.args[1:], *sorted(node.kwargs.items()))
    if node.target in (functional.relu, functional.relu_, torch.relu, torch.relu_, "relu", "relu_"):
        return nn.ReLU()  # in place or not: nothing else reads what goes from one part to the next
    if node.target in (torch.flatten, "flatten") and extra in ((1,), (("start_dim", 1),)):
        return nn.Flatten()
    if node.target is functional.max_pool2d and len(node.all_input_nodes) == 1:
        options: dict[str, Any] = dict(zip(_POOL_OPTIONS, node.args[1:], strict=False)) | node.kwargs
        return nn.MaxPool2d(**options)
    return None


def _halves(pool: nn.MaxPool2d) -> bool:
    """Whether pooling is over two by two pixels, side by side."""
    pair = ((2, 2), 2)
    plain = pool.padding in (0, (0, 0)) and pool.dilation in (1, (1, 1))
    return pool.kernel_size in pair and pool.stride in pair and plain and not (pool.ceil_mode or pool.return_indices)


def _padding(layer: nn.Conv2d) -> tuple[int, int]:
    return (0, 0) if isinstance(layer.padding, str) else (layer.padding[0], layer.padding[1])


def _replaced(layer: ConvolutionLayer | LinearLayer, **changes: Any) -> ConvolutionLayer | LinearLayer:
    shape: Any = type(layer.shape)(**(vars(layer.shape) | changes))
    return type(layer)(**(vars(layer) | {"shape": shape}))
