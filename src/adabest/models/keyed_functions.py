"""Keyed dropout for functions: those of ``torch.nn.functional``, attention and recurrent layers draw by name.

While ``KeyedFunctions`` is entered, calls of torch's dropout by this thread are answered here. Their masks depend on
(seed, round, client, step, which of the calls of a forward pass it is) and on nothing else.
"""

# Names and order of the answers' arguments are torch's own.
# ruff: noqa: A002, PLR0917

import functools
import math
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from adabest import random
from adabest.models.recurrent import pass_of_layers
from adabest.random import Purpose

_FUNCTIONS = -1  # stands where the number of a dropout layer would
_ALPHA = -1.7580993408473766  # the limit of SELU for small inputs, which alpha dropout puts in the place of an entry


class KeyedDraws:
    """The draws of one dropout layer, or of all functions of a model, in a forward pass.

    Attributes:
        layer: The layer's number.
        key: The words that name the current draws: (seed, round, client, step).
        uses: How many masks have been drawn since the draws were named. Each use draws anew.
    """

    def __init__(self, layer: int = _FUNCTIONS) -> None:
        self.layer = layer
        self.name_draws(0, 0, 0, 0)

    def name_draws(self, *key: Any) -> None:
        """Names the draws of the next forward pass."""
        self.key, self.uses = key, 0

    def kept(self, x: Tensor, probability: float, channel_dimensions: int = 0) -> Tensor:
        """Whether each entry (or whole channel) is kept, in a shape that broadcasts against ``x``."""
        drawn = x.shape[: x.ndim - channel_dimensions]
        places = torch.arange(drawn.numel(), device=x.device)
        seed, *words = self.key
        keys = random.bits(seed, Purpose.DROPOUT, *words, self.layer, self.uses, places)
        self.uses += 1
        kept: Tensor = random.at_least(keys, probability)
        return kept.reshape(*drawn, *[1] * channel_dimensions)

    def dropped(self, x: Tensor, probability: float, channel_dimensions: int = 0) -> Tensor:
        """Zeroes entries (or whole channels) with a probability and scales the others up."""
        return x * self.factor(x, probability, channel_dimensions)

    def factor(self, x: Tensor, probability: float, channel_dimensions: int = 0) -> Tensor | float:
        """What dropout multiplies its input by."""
        if probability == 1:
            return 0.0
        return self.kept(x, probability, channel_dimensions).to(x.dtype) / (1 - probability)


class KeyedFunctions(TorchFunctionMode):
    """While entered, dropout in functions of torch is keyed."""

    def __init__(self, draws: KeyedDraws) -> None:
        super().__init__()
        self._draws = draws

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Answers a call of a function of torch."""
        answer = _ANSWERS.get(func)
        if answer is None:
            return func(*args, **(kwargs or {}))
        return answer(self._draws, func, *args, **(kwargs or {}))


def _is_drawn(p: float, training: bool) -> bool:
    """Whether anything is drawn; what isn't a probability is left to torch, which refuses it."""
    return training and 0 < p <= 1


def _dropout(
    draws: KeyedDraws, plain: Any, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    return _by_channel(0, draws, plain, input, p, training, inplace)


def _by_channel(
    dimensions: int,
    draws: KeyedDraws,
    plain: Any,
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Any:
    if not _is_drawn(p, training):
        return plain(input, p, training, inplace)
    if plain is functional.dropout2d and input.ndim == 3:
        dimensions = 1  # as torch has it: such an input is a batch of sequences, not an image
    factor = draws.factor(input, p, min(dimensions, input.ndim))
    return input.mul_(factor) if inplace else input * factor


def _builtin(draws: KeyedDraws, plain: Any, input: Tensor, p: float, train: bool) -> Any:
    return draws.dropped(input, p) if _is_drawn(p, train) else plain(input, p, train)


def _builtin_in_place(draws: KeyedDraws, plain: Any, input: Tensor, p: float, train: bool) -> Any:
    return input.mul_(draws.factor(input, p)) if _is_drawn(p, train) else plain(input, p, train)


def _alpha(
    whole_channels: bool,
    draws: KeyedDraws,
    plain: Any,
    input: Tensor,
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
) -> Any:
    """Alpha dropout, which keeps mean and variance of the outputs of SELU."""
    if not _is_drawn(p, training) or p == 1:
        return plain(input, p, training, inplace)
    kept = draws.kept(input, p, max(input.ndim - 2, 0) if whole_channels else 0)
    scale = 1 / math.sqrt((1 - p) * (1 + p * _ALPHA**2))
    result = torch.where(kept, input, _ALPHA) * scale - scale * _ALPHA * p
    return input.copy_(result) if inplace else result


def _attention(
    draws: KeyedDraws,
    plain: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention whose weights are dropped. Written out: torch's fused one draws inside."""
    if not _is_drawn(dropout_p, True):
        return plain(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if enable_gqa:
        key, value = (_repeated(part, query.shape[-3] // part.shape[-3]) for part in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1)
    if is_causal:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~visible, -torch.inf)
    if attn_mask is not None:
        masked = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -torch.inf) if masked else scores + attn_mask
    return draws.dropped(scores.softmax(dim=-1), dropout_p) @ value


def _repeated(heads: Tensor, times: int) -> Tensor:
    """Each head of keys or values as often as queries share it."""
    return heads.unsqueeze(-3).expand(*heads.shape[:-2], times, *heads.shape[-2:]).flatten(-4, -3)


def _multi_head_attention(draws: KeyedDraws, plain: Any, *inputs: Any, **options: Any) -> Any:
    """Torch's own function, in which dropout and attention are the keyed ones.

    It is copied with other globals, since it would ask this mode again and again if the mode were entered around it.
    """
    replaced = {
        "has_torch_function": lambda _: False,
        "dropout": functools.partial(_dropout, draws, functional.dropout),
        "scaled_dot_product_attention": functools.partial(_attention, draws, functional.scaled_dot_product_attention),
    }
    keyed = types.FunctionType(
        plain.__code__, {**plain.__globals__, **replaced}, plain.__name__, plain.__defaults__, plain.__closure__
    )
    return keyed(*inputs, **options)


def _recurrent(draws: KeyedDraws, plain: Any, *given: Any) -> Any:
    """Stacked recurrent layers, one by one, with dropout between them."""
    is_packed = not isinstance(given[3], bool)
    head: tuple[Any, ...] = ()
    tail: tuple[Any, ...] = ()
    if is_packed:
        sequence, sizes, states, weights, biases, layers, p, training, both_ways = given
        head = (sizes,)
    else:
        sequence, states, weights, biases, layers, p, training, both_ways, batch_first = given
        tail = (batch_first,)
    if layers == 1 or not _is_drawn(p, training):
        return plain(*given)
    directions, each = 1 + both_ways, len(weights) // layers
    last: list[tuple[Tensor, ...]] = []
    for layer in range(layers):
        rows, own = slice(layer * directions, (layer + 1) * directions), weights[layer * each : (layer + 1) * each]
        start = states[rows] if isinstance(states, Tensor) else tuple(state[rows] for state in states)
        sequence, *ends = pass_of_layers(plain, sequence, *head, start, own, biases, 1, 0.0, training, both_ways, *tail)
        last.append(tuple(ends))
        if layer < layers - 1:
            sequence = draws.dropped(sequence, p)
    return (sequence, *(torch.cat(parts) for parts in zip(*last, strict=True)))


_ANSWERS: dict[Any, Callable[..., Any]] = {
    functional.dropout: _dropout,
    functional.dropout1d: functools.partial(_by_channel, 1),
    functional.dropout2d: functools.partial(_by_channel, 2),
    functional.dropout3d: functools.partial(_by_channel, 3),
    functional.alpha_dropout: functools.partial(_alpha, False),
    functional.feature_alpha_dropout: functools.partial(_alpha, True),
    functional.scaled_dot_product_attention: _attention,
    functional.multi_head_attention_forward: _multi_head_attention,
    torch.dropout: _builtin,
    torch.dropout_: _builtin_in_place,
    torch.lstm: _recurrent,
    torch.gru: _recurrent,
    torch.rnn_tanh: _recurrent,
    torch.rnn_relu: _recurrent,
}
