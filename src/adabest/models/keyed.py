"""Preparation of a user's module for simulation: keyed dropout, and no state that would leak between clients."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from adabest import random
from adabest.errors import InputError
from adabest.random import Purpose

# At index d: the dropout layer that drops channels of d dimensions; d = 0 drops single entries.
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class KeyedDropout(nn.Module):
    """Dropout whose mask depends on (seed, round, client, step, layer) and on nothing else.

    Attributes:
        key: The words that name the current draws, set by the engine before each forward pass.
    """

    def __init__(self, probability: float, layer: int, channel_dimensions: int = 0) -> None:
        super().__init__()
        self.probability = probability
        self.layer = layer
        self.channel_dimensions = channel_dimensions
        self.name_draws(0, 0, 0, 0)

    def name_draws(self, *key: Any) -> None:
        """Names the draws of the next forward pass. Each use of the layer within it draws anew."""
        self.key = key
        self._uses = 0

    def forward(self, x: Tensor) -> Tensor:
        """Zeroes entries (or whole channels) with the given probability and scales the others up."""
        if not self.training or self.probability == 0:
            return x
        if self.probability == 1:
            return x * 0.0
        drawn = x.shape[: x.ndim - self.channel_dimensions]
        places = torch.arange(drawn.numel(), device=x.device)
        seed, *words = self.key
        keys = random.bits(seed, Purpose.DROPOUT, *words, self.layer, self._uses, places)
        self._uses += 1
        kept = random.at_least(keys, self.probability).reshape(drawn).to(x.dtype) / (1 - self.probability)
        scaled: Tensor = x * kept.reshape(*drawn, *[1] * (x.ndim - len(drawn)))
        return scaled


CheckOutput = Callable[[tuple[int, ...]], None]
"""Raises ``InputError`` if what a model gives for one sample has the wrong shape."""


def prepare(
    module: nn.Module, example: Tensor, classes: int | None = None, check_output: CheckOutput | None = None
) -> nn.Module:
    """A copy of a model with keyed dropout, once a trial pass has shown that it can be simulated.

    Args:
        module: The user's model.
        example: A small batch of inputs, for the trial pass.
        classes: How many class scores it should give, if that is known.
        check_output: Decides on the shape of its outputs in place of ``classes``.

    Returns:
        A copy in which every dropout layer is a ``KeyedDropout``.

    Raises:
        InputError: If a layer keeps state between batches or draws from torch's global generator, or a pass fails.
    """
    module = copy.deepcopy(module).train()
    if any(is_lazy(p) for p in module.parameters()):
        raise InputError("the model has layers whose size is still open (nn.Lazy...); give them their sizes")
    if not any(p.requires_grad for p in module.parameters()):
        raise InputError("the model has no trainable parameter")
    layers = dict(module.named_modules(remove_duplicate=False))
    keyed: dict[nn.Module, KeyedDropout] = {}
    for name, layer in layers.items():
        if isinstance(layer, _DROPOUTS):
            spatial = next(dimensions for dimensions, kind in enumerate(_DROPOUTS) if isinstance(layer, kind))
            keyed.setdefault(layer, KeyedDropout(layer.p, len(keyed), spatial))
            parent, _, attribute = name.rpartition(".")
            setattr(layers[parent], attribute, keyed[layer])
    _refuse_state(module, example, classes, check_output)
    return module


def set_dropout_key(module: nn.Module, *key: Any) -> None:
    """Names the dropout draws of the next forward pass: (seed, round, client, step), numbers or tensors of one."""
    for layer in module.modules():
        if isinstance(layer, KeyedDropout):
            layer.name_draws(*key)


def _float_type(module: nn.Module) -> torch.dtype:
    """The float type of a module's parameters. A user's module may have another than the inputs, before a run."""
    return next(p.dtype for p in module.parameters() if p.requires_grad)


def _refuse_state(module: nn.Module, example: Tensor, classes: int | None, check_output: CheckOutput | None) -> None:
    """Runs one training pass and refuses a module that changed its buffers or used torch's generator.

    The types of layers wouldn't tell: users write their own.
    """
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    generator_before = torch.get_rng_state()
    try:
        with torch.no_grad():
            output = module(example.to(_float_type(module)) if example.is_floating_point() else example)
    except Exception as error:
        if example.is_floating_point():
            raise InputError(f"the model can't take inputs of shape {tuple(example.shape)}: {error}") from error
        raise InputError(
            f"the model can't take ids from {int(example.min())} to {int(example.max())}, int64 of shape "
            f"{tuple(example.shape)}: {error}; ids are looked up, for instance by an nn.Embedding with more "
            "rows than the highest of them, and numbers to compute with should be floating-point"
        ) from error
    has_rows = isinstance(output, Tensor) and output.ndim > 0 and len(output) == len(example)
    if not has_rows or (check_output is None and output.ndim != 2):
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        wanted = "one row of class scores" if check_output is None else "a tensor with one row"
        raise InputError(f"the model should give {wanted} for each input, not {shape}")
    if check_output is not None:
        check_output(tuple(output.shape[1:]))
    elif classes is not None and output.shape[1] != classes:
        raise InputError(f"the model gives {output.shape[1]} class scores, but the data set has {classes} classes")
    for name, buffer in module.named_buffers():
        if name not in before or not torch.equal(buffer, before[name]):
            layer_name, _, buffer_name = name.rpartition(".")
            layer = module.get_submodule(layer_name)
            raise InputError(
                f"layer {layer_name!r} ({type(layer).__name__}) changes its {buffer_name} in every forward pass, which "
                "would leak from one client to the next; use a layer without such state, for instance nn.GroupNorm"
            )
    if not torch.equal(torch.get_rng_state(), generator_before):
        raise InputError(
            "the model draws random numbers from torch's global generator, so runs could not be repeated; "
            "use nn.Dropout modules, whose draws are keyed by (seed, round, client, step, layer), and no dropout "
            "within recurrent or attention layers"
        )
