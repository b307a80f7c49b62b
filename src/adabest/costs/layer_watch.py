"""Watched passes: what the parts of a planned model compute, one operation after another, and how much that is."""

import contextlib
import copy
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from adabest.engine.layer_plan import INPUT, Plan, PlannedPart, is_one_layer
from adabest.models.keyed import KeyedDropout

# Operations that pick something or lay it out anew, and compute nothing.
_SELECTIONS = {"getattr", "getitem", "size", "dim", "len", "chunk", "split", "unbind"}
_VIEWS = {"flatten", "unflatten", "view", "reshape", "permute", "transpose", "t", "squeeze", "unsqueeze", "contiguous"}
_UNTOLD = (nn.Identity, nn.Flatten, nn.Unflatten)


class Operation(NamedTuple):
    """Something that a model computes.

    Attributes:
        words: What it is.
        parameters: Its trained parameters that no operation before it has.
        output: The shape of one output.
        flops: For one sample.
        part: The part of the plan that it belongs to.
    """

    words: str
    parameters: int
    output: tuple[int, ...] | None
    flops: int
    part: PlannedPart


def planned_operations(plan: Plan, example: Tensor) -> list[Operation]:
    """What a model computes, in order; what is fused is one operation.

    Args:
        plan: Its plan.
        example: A few inputs.
    """
    values: dict[int, Any] = {INPUT: example}
    found, seen = list[Operation](), set[int]()
    with torch.no_grad(), _counted_in_full():
        for place, part in enumerate(plan.parts):
            module, given = part.module, [values[one] for one in part.reads]
            if isinstance(module, fx.GraphModule):
                records, values[place] = _watch_graph(module, *given)
            else:
                records, values[place] = _watch_module(module, *given)
            if part.layer is not None:
                found += [
                    Operation(one.words, _new_parameters(one.parameters, seen), _shape(one.output), one.flops, part)
                    for one in records
                ]
    groups: dict[Any, list[Operation]] = {}
    for one in found:
        groups.setdefault(one.part.layer if one.part.obstacle is None else id(one), []).append(one)
    return [_together(group, len(example)) for group in groups.values()]


class _Record(NamedTuple):
    """A call while a model is watched."""

    words: str
    parameters: list[nn.Parameter]
    output: Any
    flops: int


def _watch_graph(module: fx.GraphModule, *values: Any) -> tuple[list[_Record], Any]:
    """The operations of a traced part, and what it gives."""
    watch = _Watch(module)
    with watch.counter:
        given = watch.run(*values)
    return watch.records, given


class _Watch(fx.Interpreter):
    """Runs a traced part, and keeps what its operations give and take."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.counter = FlopCounterMode(display=False)
        self.records: list[_Record] = []

    def run_node(self, n: fx.Node) -> Any:
        """Runs one operation."""
        before = self.counter.get_total_flops()
        given = super().run_node(n)
        name = getattr(n.target, "__name__", str(n.target)).strip("_")
        if n.op == "call_module":
            layer = self.fetch_attr(str(n.target))
            if not isinstance(layer, _UNTOLD):
                flops = self.counter.get_total_flops() - before
                self.records.append(_Record(_words_of(layer), [*layer.parameters()], given, flops))
        elif n.op in ("call_function", "call_method") and name not in _SELECTIONS | _VIEWS:
            self.records.append(_Record(name, [], given, self.counter.get_total_flops() - before))
        return given


def _watch_module(module: nn.Module, value: Any) -> tuple[list[_Record], Any]:
    """The layers that a model calls, and what is between them; and what it gives."""
    watched, counter = copy.deepcopy(module), FlopCounterMode(display=False)
    records, inside, began = list[_Record](), list[nn.Module](), list[int]()

    def enter(layer: nn.Module, _given: Any) -> None:
        inside.append(layer)
        began.append(counter.get_total_flops())

    def leave(layer: nn.Module, _given: Any, result: Any) -> None:
        inside.pop()
        flops = counter.get_total_flops() - began.pop()
        if not inside and not isinstance(layer, _UNTOLD):
            records.append(_Record(_words_of(layer), [*layer.parameters()], result, flops))

    for layer in watched.modules():
        if layer is not watched and is_one_layer(layer):
            layer.register_forward_pre_hook(enter)
            layer.register_forward_hook(leave)
    with counter:
        given = watched(value)
    flops = counter.get_total_flops() - sum(one.flops for one in records)
    known = {id(parameter) for one in records for parameter in one.parameters}
    rest = [parameter for parameter in watched.parameters() if id(parameter) not in known and parameter.requires_grad]
    if flops or rest or not records:
        records.append(_Record("all beside its layers" if records else _words_of(watched), rest, given, flops))
    return records, given


def _words_of(layer: nn.Module) -> str:
    """What a layer is, in a few words."""
    match layer:
        case nn.Conv2d():
            stride = "" if layer.stride == (1, 1) else f", stride {_by(layer.stride)}"
            dilation = "" if layer.dilation == (1, 1) else f", dilation {_by(layer.dilation)}"
            groups = "" if layer.groups == 1 else f", {layer.groups} groups"
            sizes = f"{layer.in_channels}→{layer.out_channels}, {_by(layer.kernel_size)}"
            return f"conv {sizes}{stride}{dilation}{groups}"
        case nn.Linear():
            return f"linear {layer.in_features}→{layer.out_features}"
        case nn.RNNBase():
            return f"{type(layer).__name__} {layer.input_size}→{layer.hidden_size}"
        case nn.Embedding():
            return f"Embedding {layer.num_embeddings}→{layer.embedding_dim}"
        case nn.ReLU():
            return "relu"
        case nn.MaxPool2d():
            side = layer.kernel_size
            return f"max-pool {side}×{side}" if isinstance(side, int) else f"max-pool {_by(side)}"
        case KeyedDropout():
            return "dropout"
        case _:
            return type(layer).__name__


def _by(sides: Iterable[int]) -> str:
    return "×".join(map(str, sides))


def _new_parameters(parameters: Iterable[nn.Parameter], seen: set[int]) -> int:
    """How many numbers of trained parameters haven't been seen."""
    new = {id(one): one.numel() for one in parameters if one.requires_grad and id(one) not in seen}
    seen.update(new)
    return sum(new.values())


def _shape(given: Any) -> tuple[int, ...] | None:
    """The shape of one output; of several tensors, as recurrent layers give, that of the first."""
    first = given[0] if isinstance(given, tuple | list) and given else given
    return tuple(first.shape[1:]) if isinstance(first, Tensor) else None


def _together(group: list[Operation], samples: int) -> Operation:
    """Operations that one kernel computes, as one; FLOPs for one of so many samples."""
    return Operation(
        words=" + ".join(one.words for one in group),
        parameters=sum(one.parameters for one in group),
        output=group[-1].output,
        flops=sum(one.flops for one in group) // samples,
        part=group[-1].part,
    )


@contextlib.contextmanager
def _counted_in_full() -> Iterator[None]:
    """Within, torch computes attention and recurrent layers by products, whose FLOPs it can count."""
    mkldnn: Any = torch.backends.mkldnn
    before = mkldnn.enabled
    mkldnn.enabled = False
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        mkldnn.enabled = before
