"""The plan of a model: the layers that trainers compute one by one.

A model is traced and cut wherever a single tensor goes from one part to the next. Parts that are a convolution, a
linear layer or a normalisation, with the relu and max-pooling that follow, or other pooling behind one, become layers
with operators of their own. All other parts stay what they are and are differentiated by ``torch.func``; neighbours of
that kind become one layer.

Between two cuts several tensors may go on at the same time, as around a shortcut. Such a part is cut into operations,
if all of them become layers with operators of their own: then some layers read the output of the same layer, and sums
join the branches. If they don't, the part stays whole.
"""

import itertools
import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.nn import functional

from adabest.engine.shapes import CUT_OFF, ConvolutionShape, LinearShape, NormShape, PoolShape, SumShape, padded
from adabest.models.forward_pass import why_own_forward
from adabest.models.keyed import KeyedDropout, are_alike, set_dropout_key

_LONGEST_UNFOLDED_RUN = 64
_FEWEST_CHANNELS = 16  # of an image that is stored as it is
_MOST_NORMED = 4096  # channels of a group, which lie side by side in the registers of one program
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
        image: Channels, rows and columns of what it flattens, if that is the output of a layer with operators, whose
            memory has the channels last.
    """

    shape: LinearShape
    weight: str
    bias: str | None
    image: tuple[int, int, int] | None

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of one output."""
        return (self.shape.outputs,)


@dataclass(frozen=True)
class NormLayer:
    """A normalisation over groups of channels, or over features, with its relu and pooling.

    Attributes:
        shape: Its shape.
        weight: The name of its weight among the model's parameters, if it has one.
        bias: The name of its bias, if it has one.
    """

    shape: NormShape
    weight: str | None
    bias: str | None

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of one output: channels, rows, columns; or features."""
        return (self.shape.channels,) if self.shape.flat else (self.shape.channels, *self.shape.pooled)


@dataclass(frozen=True)
class PoolLayer:
    """Pooling that isn't part of the layer before it.

    Attributes:
        shape: Its shape.
    """

    shape: PoolShape

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of one output: channels, rows, columns."""
        return (self.shape.channels, *self.shape.pooled)


@dataclass(frozen=True)
class SumLayer:
    """The sum of two tensors with its relu.

    Attributes:
        shape: Its shape.
    """

    shape: SumShape

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of one output."""
        shape = self.shape
        return (shape.channels,) if shape.flat else (shape.channels, shape.height, shape.width)


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


Layer = ConvolutionLayer | LinearLayer | NormLayer | PoolLayer | SumLayer | FunctionalLayer


INPUT = -1  # the place of what comes in, among layers and among parts


def has_images(layer: Layer | None) -> bool:
    """Whether a layer has operators whose outputs are images, in memory that has the channels last."""
    return isinstance(layer, ConvolutionLayer | NormLayer | PoolLayer | SumLayer) and len(layer.output) == 3


class Obstacle(NamedTuple):
    """The reason why a part of a model has no operators of its own, or why a model isn't cut.

    Attributes:
        why: The reason, a sentence without its end.
        change: What would let the plan do it, an order without its end; empty if no change of that part would.
    """

    why: str
    change: str = ""


@dataclass(frozen=True, eq=False)
class PlannedPart:
    """A part of a model in its plan.

    Attributes:
        module: The part: operations of a traced model, or the whole model.
        reads: The parts whose outputs it takes, in the order of its arguments; ``INPUT`` stands for the model's input.
        layer: The place of the layer that it belongs to; None if nothing needs to be computed for it.
        obstacle: Why ``torch.func`` computes it; None if it has operators of its own.
        operation: The layer of torch that it consists of, functions taken for the layers they are the same as; None for
            all others.
    """

    module: nn.Module
    reads: tuple[int, ...]
    layer: int | None
    obstacle: Obstacle | None
    operation: nn.Module | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """The plan of a model.

    Attributes:
        layers: The layers that trainers compute one by one; the last one gives the model's output.
        sources: The layers whose outputs each layer reads, all before it; ``INPUT`` stands for the model's input, which
            the first layer alone reads. In a row, each reads the one before it.
        parts: The parts that they are made of, in order.
        whole: Why the model is a single functional layer; None if it was cut.
    """

    layers: tuple[Layer, ...]
    sources: tuple[tuple[int, ...], ...]
    parts: tuple[PlannedPart, ...]
    whole: Obstacle | None = None


def plan_layers(module: nn.Module, example: Tensor) -> tuple[Layer, ...]:
    """Cuts a model into layers; the arguments are those of ``plan_model``."""
    return plan_model(module, example).layers


def plan_model(module: nn.Module, example: Tensor) -> Plan:
    """Cuts a model into layers, and keeps the reasons.

    Args:
        module: A classifier that ``models.prepare`` has accepted.
        example: A small batch of inputs, to learn the shapes from.
    """
    names = {id(parameter): name for name, parameter in module.named_parameters() if parameter.requires_grad}
    parts = _parts(module)
    if isinstance(parts, Obstacle):
        return _uncut(module, example, names, parts)
    if not _give_the_same(nn.Sequential(*parts), module, example):
        return _uncut(module, example, names, _ALIASED)
    plan = _Assembly(names).of(parts, example)
    # A parameter that two layers share has one gradient, and one that none uses still decays: only the whole knows.
    found = Counter(name for layer in plan.layers for name in _parameters(layer))
    for name in names.values():
        if found[name] != 1:
            obstacle = _SHARED if found[name] else _UNUSED
            return _uncut(module, example, names, Obstacle(f"its parameter {name} {obstacle.why}", obstacle.change))
    return plan


# Tracing takes ``z += y`` for ``z = z + y``, so what else z was called keeps its value.
_ALIASED = Obstacle("what its forward pass gives isn't what tracing makes of it", "change no tensor in place")
_SHARED = Obstacle("belongs to several layers, and has one gradient", "give each layer parameters of its own")
_UNUSED = Obstacle("takes part in none of its layers, and still decays", "leave unused parameters out of the model")


def _give_the_same(one: nn.Module, other: nn.Module, example: Tensor) -> bool:
    """Whether two modules give the same for the same inputs, weights and dropout, but for rounding.

    Their weights get noise: where some are zero, as at the end of a residual block, the first outputs may hide it.
    """
    generator = torch.Generator().manual_seed(0)
    noisy = {
        id(p): p.detach() + 0.1 * torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p)
        for p in other.parameters()
    }
    outputs = list[Tensor]()
    for module in (one, other):
        set_dropout_key(module, 0, 0, 0, 0)
        weights = {name: noisy[id(p)] for name, p in module.named_parameters(remove_duplicate=False)}
        with torch.no_grad():
            outputs.append(functional_call(module, weights, (example.clone(),)))
    return are_alike(*outputs)


def _uncut(module: nn.Module, example: Tensor, names: dict[int, str], obstacle: Obstacle) -> Plan:
    """The plan of a model that stays whole."""
    with torch.no_grad():
        output = tuple(module(example).shape[1:])
    layer = FunctionalLayer(module, {name: name for name in names.values()}, tuple(example.shape[1:]), output)
    return Plan((layer,), ((INPUT,),), (PlannedPart(module, (INPUT,), 0, obstacle),), obstacle)


def _parameters(layer: Layer) -> list[str]:
    if isinstance(layer, FunctionalLayer):
        return list(layer.parameters)
    if isinstance(layer, PoolLayer | SumLayer):
        return []
    return [name for name in (layer.weight, layer.bias) if name is not None]


class _Tracer(fx.Tracer):
    """Traces into all modules but torch's own layers and dropout."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, KeyedDropout) or super().is_leaf_module(m, module_qualified_name)


def is_one_layer(module: nn.Module) -> bool:
    """Whether the plan takes a module for one layer, whatever is in it."""
    return _Tracer().is_leaf_module(module, "")


def _parts(module: nn.Module) -> list[fx.GraphModule] | Obstacle:
    """The parts of a model in a row; why not, if it can't be cut.

    A layer with parameters that is used twice has one gradient and two places in the row, so then the model stays
    whole; as it does if it reads parameters or buffers of its own beside its layers', or if its forward pass was
    replaced.
    """
    own_forward = why_own_forward(module)
    if own_forward is not None:
        return Obstacle(*own_forward)
    try:
        graph = _Tracer().trace(module)
    except Exception as error:  # Models may do anything, and whatever can't be traced is still run as a whole.
        return Obstacle(
            f"it can't be traced ({first_line(error)})",
            "write a forward pass that decides nothing by the values or the shapes of tensors",
        )
    operations = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    called = [node.target for node in operations if node.op == "call_module"]
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    repeated = next((name for name, count in Counter(called).items() if count > 1 and _holds(module, str(name))), None)
    if repeated is not None:
        return Obstacle(f"its layer {repeated} is used several times", "use a layer of its own at each place")
    if len(inputs) != 1:
        return Obstacle(f"its forward pass takes {len(inputs)} arguments", "let it take the inputs alone")
    own = next((str(node.target) for node in operations if node.op == "get_attr"), None)
    if own is not None:
        return Obstacle(
            f"its forward pass reads {own}, which belongs to no layer of torch",
            "let layers such as nn.Linear hold parameters and buffers",
        )
    return _cut(module, inputs[0], operations, _numbered(operations))


def _holds(module: nn.Module, name: str) -> bool:
    """Whether a layer holds anything: parameters, buffers, or draws of dropout, which go on from use to use."""
    layer = module.get_submodule(name)
    kept = (*layer.parameters(), *layer.buffers())
    return bool(kept) or any(isinstance(part, KeyedDropout) for part in layer.modules())


def _cut(
    module: nn.Module, value: fx.Node, operations: Sequence[fx.Node], numbers: dict[fx.Node, int]
) -> list[fx.GraphModule] | Obstacle:
    """Each part of a traced model as a module of its own, with the model's submodules; why not, if not in a row.

    Args:
        module: The model.
        value: Its input.
        operations: Its operations, in order.
        numbers: The number of the part that each operation belongs to.
    """
    parts: list[fx.GraphModule] = []
    for _, group in itertools.groupby(operations, numbers.__getitem__):
        own = list(group)
        members = set(own)
        read = {source for node in own for source in node.all_input_nodes if source not in members}
        written = [node for node in own if any(user not in members for user in node.users)]
        if read != {value} or len(written) != 1:
            return Obstacle("no single tensor goes from one of its parts to the next")
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


class _Sum(nn.Module):
    """Stands for the sum of two tensors, for which torch has no layer."""


class _Branch(NamedTuple):
    """A value of a part in which several go on at the same time.

    Attributes:
        value: The value of an example.
        layer: The layer that gives it.
        part: The part that gives it.
        source: The last operation before it that is neither a relu nor pooling.
    """

    value: Tensor
    layer: int
    part: int
    source: Any


class _Assembly:
    """Turns parts into layers, one after another."""

    def __init__(self, names: dict[int, str]) -> None:
        self._names = names
        self._layers: list[Layer] = []
        self._sources: list[tuple[int, ...]] = []
        self._rest: list[nn.Module] = []  # parts that wait to become one functional layer
        self._at = INPUT  # the layer that gives the current value, but for the waiting parts
        self._is_shared = False  # whether several operations read the current value
        self._source: Any = None  # the last operation that is neither a relu nor pooling

    def of(self, parts: list[fx.GraphModule], example: Tensor) -> Plan:
        """The plan of a model that consists of parts, for inputs like an example."""
        self._shape = tuple(example.shape[1:])
        self._rest_shape = self._shape
        # Two batches of different sizes tell which values have one row for each input.
        values: list[Any] = [example, torch.cat([example, example[:1]])]
        sizes, in_rows, planned = [len(value) for value in values], True, list[PlannedPart]()
        for part in parts:
            operation, before = _single_operation(part), values
            with torch.no_grad():
                values = [part(value) for value in values]
            if not in_rows:
                obstacle: Obstacle | None = _NOT_IN_ROWS
            elif len(_operations_of(part)) > 1:
                obstacle = self._absorb_branches(part, before[0], planned)
                if obstacle is None:
                    self._shape = tuple(values[0].shape[1:])
                    continue
            else:
                obstacle = self._absorb(operation)
            if obstacle is not None:
                self._add_rest(part)
            planned.append(self._planned(part, (len(planned) - 1,), obstacle, operation))
            in_rows = all(_has_rows(value, size) for value, size in zip(values, sizes, strict=True))
            if in_rows:
                self._shape = tuple(values[0].shape[1:])
        self._close_rest(self._shape)
        return Plan(tuple(self._layers), tuple(self._sources), tuple(planned))

    def _planned(
        self, part: nn.Module, reads: tuple[int, ...], obstacle: Obstacle | None, operation: Any
    ) -> PlannedPart:
        """A part that was absorbed just now, or waits with others."""
        if not isinstance(operation, nn.ReLU | _Pool | nn.Identity):
            self._source = operation
        at = len(self._layers) if self._rest else self._at
        computed = obstacle is not None or not isinstance(operation, nn.Flatten | nn.Identity)
        return PlannedPart(part, reads, at if computed else None, obstacle, operation)

    def _append(self, layer: Layer, *sources: int) -> None:
        """Adds a layer that reads the current value, or others; its output is the next value."""
        self._layers.append(layer)
        self._sources.append(sources or (self._at,))
        self._at = len(self._layers) - 1

    def _absorb_branches(self, part: fx.GraphModule, example: Tensor, planned: list[PlannedPart]) -> Obstacle | None:
        """Makes layers of the operations of a part in which several tensors go on at the same time; why not, if not.

        Args:
            part: The part.
            example: A batch of its inputs.
            planned: The parts before it, to which its operations are added.
        """
        before = (list(self._layers), list(self._sources), list(self._rest), self._at, self._shape, self._source)
        self._close_rest(self._shape)
        found = list(planned)
        obstacle = self._why_not_branches(part, example, found)
        self._is_shared = False
        if obstacle is not None:
            self._layers, self._sources, self._rest, self._at, self._shape, self._source = before
            return Obstacle(f"{_SEVERAL_TENSORS}{obstacle.why}", obstacle.change)
        planned[:] = found
        return None

    def _why_not_branches(self, part: fx.GraphModule, example: Tensor, planned: list[PlannedPart]) -> Obstacle | None:
        """Absorbs the operations of a part one by one; why not all of them, the end of a sentence."""
        if self._at == INPUT:
            return Obstacle(", and they come out of the model's inputs", "let a single layer read the inputs")
        operations = _operations_of(part)
        entry = next(node for node in part.graph.nodes if node.op == "placeholder")
        readers = _readers(part, operations)
        branches = {entry: _Branch(example, self._at, len(planned) - 1, self._source)}
        for node in operations:
            own, reads = _alone(part, node), [branches[source] for source in node.all_input_nodes]
            operation = _single_operation(own)
            is_shared = any(readers[source] > 1 for source in node.all_input_nodes)
            with torch.no_grad():
                value = own(*(one.value for one in reads))
            if not node.users:
                return Obstacle(f", and nothing reads what {node.name} gives", "leave that out")
            if is_shared and _is_in_place(node, operation):
                return Obstacle(f", and {node.name} changes in place what others read", "make it change a copy")
            if operation is None or not reads:
                obstacle: Obstacle | None = _WITHOUT_KERNELS
            elif isinstance(operation, _Sum):
                obstacle = self._absorb_sum(value, reads)
            else:
                first = reads[0]
                self._at, self._shape, self._source = first.layer, tuple(first.value.shape[1:]), first.source
                self._is_shared = is_shared
                obstacle = self._absorb(operation)
            if obstacle is not None:
                kind = node.name if operation is None else type(operation).__name__.strip("_")
                return Obstacle(f", and {kind} is in the way: {obstacle.why}", obstacle.change)
            planned.append(self._planned(own, tuple(one.part for one in reads), None, operation))
            branches[node] = _Branch(value, self._at, len(planned) - 1, self._source)
        return None

    def _absorb_sum(self, value: Tensor, reads: "Sequence[_Branch]") -> Obstacle | None:
        """Makes a layer of a sum; why not, if that isn't possible."""
        shape = tuple(value.shape[1:])
        outputs = [self._layers[one.layer].output for one in reads]
        if len(reads) != 2 or any(one != shape for one in outputs):
            return Obstacle("it adds tensors of several shapes, or one to itself", "add two tensors of the same shape")
        if len(shape) not in (1, 3):
            return Obstacle("it adds what is neither images nor features")
        channels, height, width = (*shape, 1, 1)[:3]
        self._append(SumLayer(SumShape(channels, height, width, flat=len(shape) == 1)), *(one.layer for one in reads))
        return None

    def _add_rest(self, part: nn.Module) -> None:
        if not self._rest:
            self._rest_shape = self._shape
        self._rest.append(part)

    def _close_rest(self, output: tuple[int, ...]) -> None:
        if self._rest:
            module = nn.Sequential(*self._rest)
            parameters = {self._names[id(p)]: name for name, p in module.named_parameters() if id(p) in self._names}
            self._append(FunctionalLayer(module, parameters, self._rest_shape, output))
            self._rest = []

    def _absorb(self, operation: Any) -> Obstacle | None:
        """Makes a layer of an operation, or adds it to the one before; why not, if that isn't possible."""
        last = None if self._rest or self._at == INPUT else self._layers[self._at]
        obstacle: Obstacle | None
        match operation:
            case (
                nn.ReLU() | nn.MaxPool2d() | nn.AvgPool2d() | nn.AdaptiveAvgPool2d() | nn.Identity() | nn.Flatten()
            ) if _is_changed(operation):
                obstacle = _HOOKED
            case nn.Conv2d():
                obstacle = self._why_not_trained(operation) or _why_not_plain(operation)
                if obstacle is None and len(self._shape) != 3:
                    obstacle = Obstacle("its inputs aren't images of channels, rows and columns")
                if obstacle is None:
                    self._close_rest(self._shape)
                    self._append(self._convolution(operation))
            case nn.Linear():
                obstacle = self._why_not_trained(operation)
                if obstacle is None and len(self._shape) != 1:
                    obstacle = Obstacle("it takes several rows of features for each sample, and kernels take one")
                if obstacle is None:
                    self._close_rest(self._shape)
                    self._append(self._linear(operation))
            case nn.GroupNorm() | nn.LayerNorm():
                obstacle = self._why_not_trained(operation) or self._why_not_normed(operation)
                if obstacle is None:
                    self._close_rest(self._shape)
                    self._append(self._norm(operation))
            case nn.Identity():
                obstacle = None
            case nn.ReLU():
                obstacle = self._why_not_behind(last) or _why_not_relu(last)
                if self._is_shared and obstacle is None:
                    obstacle = Obstacle("others read what comes before it, too")
                if obstacle is None:
                    assert isinstance(last, _WithShape)
                    self._layers[self._at] = _replaced(last, relu=True)
            case nn.MaxPool2d() | nn.AvgPool2d() | nn.AdaptiveAvgPool2d():
                shape = _pool_shape(operation, self._shape) if len(self._shape) == 3 else None
                obstacle = self._why_not_behind(last) or _why_not_pool(last, operation, shape)
                if obstacle is None and not self._is_shared and _fuses(last, operation):
                    assert isinstance(last, ConvolutionLayer | NormLayer)
                    self._layers[self._at] = _replaced(last, pool=2)
                elif obstacle is None:
                    assert shape is not None
                    self._append(PoolLayer(shape))
            case nn.Flatten() if operation.start_dim == 1 and operation.end_dim == -1:
                # Memory stays as it is; a linear layer that follows knows how it is laid out.
                obstacle = Obstacle("it stands behind an operation without kernels") if self._rest else None
            case _:
                obstacle = _WITHOUT_KERNELS
        return obstacle

    def _why_not_behind(self, last: Layer | None) -> Obstacle | None:
        """Why no layer is there that relu or pooling could be part of; None if there may be one."""
        if last is None and isinstance(self._source, _Trained):
            return Obstacle("the layer before it has no kernels, or something stands between them")
        return None

    def _why_not_trained(self, layer: "_Trained") -> Obstacle | None:
        """Why a layer isn't torch's own, with parameters of its own that are trained as they are; None if it is."""
        kind = next(kind for kind in get_args(_Trained) if isinstance(layer, kind))
        if type(layer) is not kind:
            return Obstacle(
                f"it is a {type(layer).__name__}, which may compute anything", f"use nn.{kind.__name__} itself"
            )
        if _is_changed(layer):
            return _HOOKED
        if not all(id(p) in self._names for p in (layer.weight, layer.bias) if p is not None):
            return Obstacle("it has parameters that aren't trained", "train all of its parameters")
        return None

    def _why_not_normed(self, layer: nn.GroupNorm | nn.LayerNorm) -> Obstacle | None:
        """Why kernels can't compute a normalisation; None if they can."""
        last = None if self._rest or self._at == INPUT else self._layers[self._at]
        if len(self._shape) == 1 and last is not None and has_images(last) and last.output[1:] != (1, 1):
            return Obstacle("it takes flattened images", "take nn.GroupNorm before nn.Flatten")
        if isinstance(layer, nn.LayerNorm) and layer.normalized_shape != self._shape:
            return Obstacle("it takes several rows of features for each sample, and kernels take one")
        if isinstance(layer, nn.LayerNorm) and len(self._shape) != 1:
            return Obstacle("it has a weight for each pixel", "take nn.GroupNorm(1, channels)")
        if len(self._shape) not in (1, 3):
            return Obstacle("its inputs are neither images of channels, rows and columns nor features")
        if self._shape[0] // _groups(layer) > _MOST_NORMED:
            return Obstacle(f"a group has more than {_MOST_NORMED:,} channels", "take more groups")
        return None

    def _norm(self, layer: nn.GroupNorm | nn.LayerNorm) -> NormLayer:
        is_flat = len(self._shape) == 1
        channels, height, width = (*self._shape, 1, 1) if is_flat else self._shape
        shape = NormShape(channels, height, width, _groups(layer), layer.eps, is_flat)
        return NormLayer(shape, self._name(layer.weight), self._name(layer.bias))

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
            stride=(layer.stride[0], layer.stride[1]),
        )
        return ConvolutionLayer(shape, self._names[id(layer.weight)], self._name(layer.bias))

    def _linear(self, layer: nn.Linear) -> LinearLayer:
        before = None if self._at == INPUT else self._layers[self._at]
        image, inputs = None, padded(layer.in_features)
        if before is not None and has_images(before):
            channels, rows, columns = before.output
            image, inputs = (channels, rows, columns), padded(channels) * rows * columns
        shape = LinearShape(inputs, layer.out_features, layer.bias is not None)
        return LinearLayer(shape, self._names[id(layer.weight)], self._name(layer.bias), image)

    def _name(self, parameter: Tensor | None) -> str | None:
        return None if parameter is None else self._names[id(parameter)]


def _has_rows(value: Any, count: int) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and len(value) == count


_Trained = nn.Conv2d | nn.Linear | nn.GroupNorm | nn.LayerNorm


def _groups(layer: nn.GroupNorm | nn.LayerNorm) -> int:
    return layer.num_groups if isinstance(layer, nn.GroupNorm) else 1


def _is_changed(layer: nn.Module) -> bool:
    """Whether a layer computes something else than its class says."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks) or "forward" in vars(layer)


_HOOKED = Obstacle("it has hooks, which may compute anything", "take them off")
_WITHOUT_KERNELS = Obstacle(
    "kernels are for nn.Conv2d, nn.Linear, nn.GroupNorm, nn.LayerNorm, sums, relu, and max- and average pooling"
)
_SEVERAL_TENSORS = "several tensors go on at the same time there, as around a shortcut"
_NOT_IN_ROWS = Obstacle("what comes in isn't a tensor with one row for each sample")


def _why_not_plain(layer: nn.Conv2d) -> Obstacle | None:
    """Why kernels can't compute a convolution; None if they can."""
    if layer.dilation != (1, 1):
        return Obstacle(f"its dilation is {_by(layer.dilation)}, and kernels have none", "take dilation 1")
    if layer.groups != 1:
        return Obstacle(f"it has {layer.groups} groups of channels, and kernels have one", "take groups=1")
    if layer.padding_mode != "zeros":
        return Obstacle(f"it pads with {layer.padding_mode!r}, and kernels with zeros", "take padding_mode='zeros'")
    if layer.padding == "same" and not all(side % 2 for side in layer.kernel_size):
        return Obstacle("its padding is 'same', which differs from side to side here", "take a kernel with odd sides")
    return None


def _why_not_relu(last: Layer | None) -> Obstacle | None:
    """Why a relu can't be part of the layer before it; None if it can."""
    if not isinstance(last, _WithShape) or _is_mean(last):
        return Obstacle(
            "it isn't right behind a convolution, a linear layer, a normalisation, a sum or max-pooling with kernels",
            "put it right behind one, before dropout",
        )
    if last.shape.relu:
        return Obstacle("there is a relu before it already", "leave it out, since it changes nothing")
    return None


def _is_mean(layer: Layer) -> bool:
    return isinstance(layer, PoolLayer) and layer.shape.mean


_Pool = nn.MaxPool2d | nn.AvgPool2d | nn.AdaptiveAvgPool2d


def _why_not_pool(last: Layer | None, pool: _Pool, shape: PoolShape | None) -> Obstacle | None:
    """Why kernels can't compute pooling; None if they can."""
    if not has_images(last):
        return Obstacle(
            "it isn't right behind a convolution or a normalisation with kernels, or its relu",
            "put it right behind one, before dropout",
        )
    if shape is None and isinstance(pool, nn.AdaptiveAvgPool2d):
        return Obstacle("the sides of its output don't divide those of its images", "take other sides")
    if shape is None:
        return Obstacle("its options are unusual", "take no more than sizes, strides and padding")
    if not shape.mean and shape.taps > CUT_OFF:
        return Obstacle(f"its windows have more than {CUT_OFF} pixels", "take smaller ones")
    return None


def _pool_shape(pool: _Pool, image: tuple[int, ...]) -> PoolShape | None:
    """The shape of pooling that has no other options than sizes, strides and padding; None if it has some."""
    channels, height, width = image
    if isinstance(pool, nn.AdaptiveAvgPool2d):
        wanted = [own or side for own, side in zip(_pair(pool.output_size), (height, width), strict=True)]
        if height % wanted[0] or width % wanted[1]:
            return None
        kernel = height // wanted[0], width // wanted[1]
        return PoolShape(channels, height, width, kernel, kernel, mean=True)
    kernel, padding = _pair(pool.kernel_size), _pair(pool.padding)
    stride = kernel if pool.stride is None else _pair(pool.stride)
    if isinstance(pool, nn.MaxPool2d):
        is_plain = _pair(pool.dilation) == (1, 1) and not pool.return_indices
    else:
        is_plain = pool.divisor_override is None and (padding == (0, 0) or pool.count_include_pad)
    if pool.ceil_mode or not is_plain:
        return None
    return PoolShape(channels, height, width, kernel, stride, padding, mean=isinstance(pool, nn.AvgPool2d))


def _pair(sides: Any) -> tuple[Any, Any]:
    rows, columns = (sides, sides) if not isinstance(sides, Sequence) else sides
    return rows, columns


def _fuses(last: Layer | None, pool: _Pool) -> bool:
    """Whether pooling can be part of the layer before it."""
    return (
        isinstance(last, ConvolutionLayer | NormLayer)
        and last.shape.pool == 1
        and isinstance(pool, nn.MaxPool2d)
        and _halves(pool)
    )


def _by(pair: Sequence[int]) -> str:
    return "×".join(map(str, pair))


def first_line(error: Exception) -> str:
    """The first line of an error's message; its kind, if it has none."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _single_operation(part: fx.GraphModule) -> Any:
    """The layer that a part consists of, functions taken for the layers they are the same as; None for all others."""
    operations = _operations_of(part)
    if len(operations) != 1:
        return None
    node = operations[0]
    if node.op == "call_module":
        return part.get_submodule(str(node.target))
    extra = (*node.args[1:], *sorted(node.kwargs.items()))
    if node.target in (functional.relu, functional.relu_, torch.relu, torch.relu_, "relu", "relu_"):
        return nn.ReLU()  # in place or not: nothing else reads what goes from one part to the next
    if _is_sum(node):
        return _Sum()
    if node.target in (torch.flatten, "flatten") and extra in ((1,), (("start_dim", 1),)):
        return nn.Flatten()
    if not node.args or len(node.all_input_nodes) != 1:
        return None
    if node.target is functional.max_pool2d:
        options: dict[str, Any] = dict(zip(_POOL_OPTIONS, node.args[1:], strict=False)) | node.kwargs
        return nn.MaxPool2d(**options)
    means: dict[Any, Any] = {
        functional.avg_pool2d: nn.AvgPool2d,
        functional.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
        torch.mean: _mean_of_images,
        "mean": _mean_of_images,
    }
    return means[node.target](*node.args[1:], **node.kwargs) if node.target in means else None


def _mean_of_images(dim: Any = None, keepdim: bool = False, **options: Any) -> nn.Module | None:
    """The layer of a mean over rows and columns; None for other means."""
    if options or not isinstance(dim, Sequence):
        return None
    return nn.AdaptiveAvgPool2d(1) if sorted(dim) in ([2, 3], [-2, -1]) else None


def _is_sum(node: fx.Node) -> bool:
    """Whether an operation adds two tensors, and nothing more."""
    plain = len(node.args) == 2 and not node.kwargs and all(isinstance(one, fx.Node) for one in node.args)
    return plain and node.target in (operator.add, operator.iadd, torch.add, "add", "add_")


def _is_in_place(node: fx.Node, operation: Any) -> bool:
    """Whether an operation that may have operators of its own changes what it reads."""
    by_name = node.target in (operator.iadd, "add_", "relu_", functional.relu_, torch.relu_)
    is_told = node.target is functional.relu and (True in node.args or node.kwargs.get("inplace") is True)
    return by_name or is_told or bool(getattr(operation, "inplace", False))


def _readers(part: fx.GraphModule, operations: Sequence[fx.Node]) -> dict[fx.Node, int]:
    """How many operations read the memory of each value of a part; what only passes it on doesn't count."""
    roots: dict[fx.Node, fx.Node] = {}
    counts: Counter[fx.Node] = Counter()
    for node in operations:
        sources = [roots.get(source, source) for source in node.all_input_nodes]
        if isinstance(_single_operation(_alone(part, node)), nn.Identity | nn.Flatten):
            roots[node] = sources[0]
        else:
            counts.update(sources)
    return {node: counts[roots.get(node, node)] for node in part.graph.nodes}


def _alone(part: fx.GraphModule, node: fx.Node) -> fx.GraphModule:
    """An operation of a part as a module of its own, whose arguments are the values that it reads."""
    graph = fx.Graph()
    copies = {source: graph.placeholder(f"value_{place}") for place, source in enumerate(node.all_input_nodes)}
    graph.output(graph.node_copy(node, copies.__getitem__))
    return fx.GraphModule(part, graph)


def _operations_of(part: fx.GraphModule) -> list[fx.Node]:
    return [node for node in part.graph.nodes if node.op not in ("placeholder", "output")]


def _halves(pool: nn.MaxPool2d) -> bool:
    """Whether pooling is over two by two pixels, side by side."""
    pair = ((2, 2), 2)
    plain = pool.padding in (0, (0, 0)) and pool.dilation in (1, (1, 1))
    return pool.kernel_size in pair and pool.stride in pair and plain and not (pool.ceil_mode or pool.return_indices)


def _padding(layer: nn.Conv2d) -> tuple[int, int]:
    if layer.padding == "same":
        return layer.kernel_size[0] // 2, layer.kernel_size[1] // 2
    return (0, 0) if isinstance(layer.padding, str) else (layer.padding[0], layer.padding[1])


_WithShape = ConvolutionLayer | LinearLayer | NormLayer | PoolLayer | SumLayer


def _replaced(layer: _WithShape, **changes: Any) -> _WithShape:
    shape: Any = type(layer.shape)(**(vars(layer.shape) | changes))
    return type(layer)(**(vars(layer) | {"shape": shape}))
