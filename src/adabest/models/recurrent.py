"""Recurrent layers in simulation: their weights stay where they are, and many clients' are computed at once.

On a GPU, torch moves the weights of ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` into a buffer of its own whenever others
take their place. The parameters would then no longer be views of the model's vector, and training would change what
nobody reads. cuDNN also chooses the order of sums anew, so that equal runs would differ.

``torch.func.vmap`` can't map torch's recurrent functions over clients. Where it is asked to, they are written out here,
one step of the sequence after another.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_batchedtensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class RecurrentForward:
    """A forward pass without cuDNN, which stands in for a recurrent layer's own as its attribute ``forward``."""

    def __init__(self, layer: nn.RNNBase) -> None:
        self._layer = layer

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """The layer's own pass."""
        own = type(self._layer).forward
        before = torch.backends.cudnn.enabled
        torch.backends.cudnn.enabled = False
        try:
            if not _are_mapped([*self._layer.parameters(), *inputs, *options.values()]):
                return own(self._layer, *inputs, **options)
            with _WrittenOut():
                return own(self._layer, *inputs, **options)
        finally:
            torch.backends.cudnn.enabled = before


def settle_recurrent_layers(module: nn.Module) -> None:
    """Has all recurrent layers of a model keep their weights in place, and do without cuDNN."""
    for layer in module.modules():
        if isinstance(layer, nn.RNNBase):
            vars(layer)["flatten_parameters"] = _leave_in_place
            vars(layer)["forward"] = RecurrentForward(layer)


def _leave_in_place() -> None:
    """Does nothing, in place of ``nn.RNNBase.flatten_parameters``."""


def pass_of_layers(plain: Callable[..., Any], *given: Any) -> Any:
    """What one of torch's recurrent functions gives for sequences, written out if tensors are mapped over clients.

    Args:
        plain: The function: ``torch.lstm``, ``gru``, ``rnn_tanh`` or ``rnn_relu``.
        *given: Its arguments.
    """
    is_packed = not isinstance(given[3], bool)
    if is_packed or not _are_mapped(given[:3]):
        return plain(*given)
    sequence, states, weights, _, layers, _, _, both_ways, batch_first = given
    steps = sequence.transpose(0, 1) if batch_first else sequence
    sizes = {"layers": layers, "directions": 1 + both_ways}
    outputs, ends = _written_out(_CELLS[plain], steps, _together(states), weights, **sizes)
    return (outputs.transpose(0, 1) if batch_first else outputs, *ends)


class _WrittenOut(TorchFunctionMode):
    """While entered, recurrent functions whose tensors are mapped over clients are written out."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Answers a call of a function of torch."""
        if func not in _CELLS or _has_dropout(args):
            return func(*args, **(kwargs or {}))  # dropout between layers is keyed by a mode around this one
        return pass_of_layers(func, *args)


def _has_dropout(given: Sequence[Any]) -> bool:
    """Whether a recurrent function drops something between its layers."""
    *_, layers, p, training, _, _ = given
    return bool(layers > 1 and training and p > 0)


def _are_mapped(values: Any) -> bool:
    """Whether a tensor is mapped over clients, or one of those in tuples and lists."""
    if isinstance(values, Tensor):
        return is_batchedtensor(values)
    return isinstance(values, tuple | list) and any(map(_are_mapped, values))


def _together(states: Any) -> tuple[Tensor, ...]:
    """What layers begin with: h, and c for those that have it."""
    return (states,) if isinstance(states, Tensor) else tuple(states)


def _written_out(
    cell: "_Cell", steps: Tensor, states: tuple[Tensor, ...], weights: Sequence[Tensor], *, layers: int, directions: int
) -> tuple[Tensor, list[Tensor]]:
    """The outputs of stacked layers for all steps, and the states that each ends with, ``[layers · directions, …]``."""
    each, ends = len(weights) // (layers * directions), list[tuple[Tensor, ...]]()
    for layer in range(layers):
        ways = list[Tensor]()
        for direction in range(directions):
            place = layer * directions + direction
            own = weights[place * each : (place + 1) * each]
            state = tuple(one[place] for one in states)
            order = range(len(steps)) if direction == 0 else range(len(steps) - 1, -1, -1)
            outputs: dict[int, Tensor] = {}
            given = _linear(steps, own, 0)
            for step in order:
                state = cell(given[step], state, own)
                outputs[step] = state[0]
            ways.append(torch.stack([outputs[step] for step in range(len(steps))]))
            ends.append(state)
        steps = torch.cat(ways, dim=-1)
    return steps, [torch.stack(parts) for parts in zip(*ends, strict=True)]


_Cell = Callable[[Tensor, tuple[Tensor, ...], Sequence[Tensor]], tuple[Tensor, ...]]


def _linear(x: Tensor, own: Sequence[Tensor], which: int) -> Tensor:
    """The product with the weights for inputs (0) or for h (1), and their bias, if there are biases."""
    return functional.linear(x, own[which], own[which + 2] if len(own) >= 4 else None)


def _lstm(given: Tensor, state: tuple[Tensor, ...], own: Sequence[Tensor]) -> tuple[Tensor, ...]:
    h, c = state
    into, kept, new, out = (given + _linear(h, own, 1)).chunk(4, dim=-1)
    c = kept.sigmoid() * c + into.sigmoid() * new.tanh()
    h = out.sigmoid() * c.tanh()
    has_projection = len(own) in (3, 5)
    return (functional.linear(h, own[-1]) if has_projection else h), c


def _gru(given: Tensor, state: tuple[Tensor, ...], own: Sequence[Tensor]) -> tuple[Tensor, ...]:
    (h,) = state
    reset, kept, new = given.chunk(3, dim=-1)
    of_reset, of_kept, of_new = _linear(h, own, 1).chunk(3, dim=-1)
    new = (new + (reset + of_reset).sigmoid() * of_new).tanh()
    return (new + (kept + of_kept).sigmoid() * (h - new),)


def _rnn_tanh(given: Tensor, state: tuple[Tensor, ...], own: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return ((given + _linear(state[0], own, 1)).tanh(),)


def _rnn_relu(given: Tensor, state: tuple[Tensor, ...], own: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return ((given + _linear(state[0], own, 1)).relu(),)


_CELLS: dict[Any, _Cell] = {
    torch.lstm: _lstm,
    torch.gru: _gru,
    torch.rnn_tanh: _rnn_tanh,
    torch.rnn_relu: _rnn_relu,
}
