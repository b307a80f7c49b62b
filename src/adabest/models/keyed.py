"""Preparation of a user's module for simulation: keyed dropout, and no state that would leak between clients."""

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.parameter import is_lazy

from adabest.errors import InputError
from adabest.global_generators import GlobalGenerators
from adabest.models.forward_pass import SimulatedForward, class_scores
from adabest.models.group_norm import BatchNorm, replace_batch_norm
from adabest.models.keyed_functions import KeyedDraws, KeyedFunctions
from adabest.models.recurrent import settle_recurrent_layers

# At index d: the dropout layer that drops channels of d dimensions; d = 0 drops single entries.
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class KeyedDropout(nn.Module):
    """Dropout whose mask depends on (seed, round, client, step, layer) and on nothing else.

    Attributes:
        draws: Its draws, named by the engine before each forward pass.
    """

    def __init__(self, probability: float, layer: int, channel_dimensions: int = 0) -> None:
        super().__init__()
        self.probability = probability
        self.channel_dimensions = channel_dimensions
        self.draws = KeyedDraws(layer)

    def forward(self, x: Tensor) -> Tensor:
        """Zeroes entries (or whole channels) with the given probability and scales the others up."""
        if not self.training or self.probability == 0:
            return x
        return self.draws.dropped(x, self.probability, self.channel_dimensions)


CheckOutput = Callable[[tuple[int, ...]], None]
"""Raises ``InputError`` if what a model gives for one sample has the wrong shape."""


def prepare(
    module: nn.Module,
    example: Tensor,
    classes: int | None = None,
    batch_norm: BatchNorm = "refuse",
    check_output: CheckOutput | None = None,
) -> nn.Module:
    """A copy of a model with keyed dropout, once a trial pass has shown that it can be simulated.

    Args:
        module: The user's model.
        example: A small batch of inputs, for the trial pass.
        classes: How many class scores it should give, if that is known.
        batch_norm: Whether BatchNorm is refused, or replaced by GroupNorm.
        check_output: Decides on the shape of its outputs in place of ``classes``.

    Returns:
        A copy in which dropout is keyed, in layers and in functions, and which gives class scores as a tensor.

    Raises:
        InputError: If a layer keeps state between batches or draws from torch's global generator, or a pass fails.
    """
    module = copy.deepcopy(module).train()
    if any(is_lazy(p) for p in module.parameters()):
        raise InputError("the model has layers whose size is still open (nn.Lazy...); give them their sizes")
    if not any(p.requires_grad for p in module.parameters()):
        raise InputError("the model has no trainable parameter")
    for name, layer in module.named_modules():
        if isinstance(layer, torch.jit.ScriptModule):
            # The gradients of a copy's parameters would go to those of the original, and nothing would be trained.
            part = f"layer {name!r}" if name else "the model"
            raise InputError(
                f"{part} was compiled by torch.jit, and its parameters can't be trained by client; pass it as it was "
                "before torch.jit.script or torch.jit.trace"
            )
    if batch_norm == "group":
        if not any(isinstance(layer, _BatchNorm) for layer in module.modules()):
            warnings.warn("batch_norm has no effect: the model has no BatchNorm", stacklevel=2)
        module = replace_batch_norm(module)
    layers = dict(module.named_modules(remove_duplicate=False))
    keyed: dict[nn.Module, KeyedDropout] = {}
    for name, layer in layers.items():
        if isinstance(layer, _DROPOUTS):
            spatial = next(dimensions for dimensions, kind in enumerate(_DROPOUTS) if isinstance(layer, kind))
            keyed.setdefault(layer, KeyedDropout(layer.p, len(keyed), spatial))
            parent, _, attribute = name.rpartition(".")
            setattr(layers[parent], attribute, keyed[layer])
    settle_recurrent_layers(module)
    draws = KeyedDraws()
    output = _trial(module, example, draws, classes, check_output)
    if draws.uses or not isinstance(output, Tensor):
        module.forward = SimulatedForward(module, draws if draws.uses else None)
    if draws.uses:
        _refuse_draws_in_evaluation(module, example)
    _refuse_memory_between_calls(module, example, class_scores(output))
    return module


def set_dropout_key(module: nn.Module, *key: Any) -> None:
    """Names the dropout draws of the next forward pass: (seed, round, client, step), numbers or tensors of one."""
    for layer in module.modules():
        if isinstance(layer, KeyedDropout):
            layer.draws.name_draws(*key)
    forward = vars(module).get("forward")
    if isinstance(forward, SimulatedForward) and forward.draws is not None:
        forward.draws.name_draws(*key)


def _as_given(module: nn.Module, example: Tensor) -> Tensor:
    """Inputs in the float type of a module's parameters, unless they are ids. A copy: the module may write into it."""
    return example.to(_float_type(module) if example.is_floating_point() else example.dtype, copy=True)


def _refuse_draws_in_evaluation(module: nn.Module, example: Tensor) -> None:
    """Refuses a module whose dropout stays on when it is evaluated."""
    before = torch.get_rng_state()
    module.eval()
    with torch.no_grad():
        module(_as_given(module, example))
    module.train()
    if not torch.equal(torch.get_rng_state(), before):
        torch.set_rng_state(before)
        raise InputError(
            "the model draws random numbers in evaluation, too; give its functions training=self.training, and "
            "attention dropout_p=p if self.training else 0.0"
        )


def are_alike(first: Tensor, second: Tensor) -> bool:
    """Whether two outputs are the same but for rounding.

    The last bits of equal sums may depend on where in memory their operands lie.
    """
    tolerance = 0.0
    if first.is_floating_point():
        finite = first[torch.isfinite(first)].abs()
        tolerance = math.sqrt(torch.finfo(first.dtype).eps) * (float(finite.max()) if len(finite) else 0.0)
    same_form = first.shape == second.shape and first.dtype == second.dtype
    return same_form and torch.allclose(first, second, rtol=0, atol=tolerance, equal_nan=True)


def _refuse_memory_between_calls(module: nn.Module, example: Tensor, first: Tensor) -> None:
    """Refuses a module that gives something else when it is called again, by the same inputs and the same dropout.

    Buffers don't tell: hidden states and counters may be plain attributes. What is merely cached changes no output.
    """
    set_dropout_key(module, 0, 0, 0, 0)  # as in the trial pass
    with torch.no_grad():
        second = class_scores(module(_as_given(module, example)))
    if not are_alike(first, second):
        raise InputError(
            "the model gives something else when it is called again with the same inputs: it remembers something, such "
            "as a hidden state or a counter, which would leak from one client to the next, or draws from a generator "
            "of its own; begin every call of forward anew"
        )


def _float_type(module: nn.Module) -> torch.dtype:
    """The float type of a module's parameters. A user's module may have another than the inputs, before a run."""
    return next(p.dtype for p in module.parameters() if p.requires_grad)


def _way_out(layer: nn.Module) -> str:
    """What would be right in place of a layer that keeps state."""
    if isinstance(layer, _BatchNorm):
        return "batch_norm=group puts nn.GroupNorm in its place (--batch-norm group)"
    return "use a layer without such state" + (", for instance nn.GroupNorm" if isinstance(layer, _NormBase) else "")


def _trial(
    module: nn.Module, example: Tensor, draws: KeyedDraws, classes: int | None, check_output: CheckOutput | None
) -> Any:
    """Runs one training pass and refuses a module that changed its buffers or used torch's generator.

    The types of layers wouldn't tell: users write their own. Dropout in functions draws from ``draws``.

    Returns:
        What the module gave.
    """
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    generators = GlobalGenerators()
    try:
        with torch.no_grad(), KeyedFunctions(draws):
            output = module(_as_given(module, example))
    except Exception as error:
        if example.is_floating_point():
            looks_up = (
                "; ids are whole numbers of a type wider than bytes, such as int64" if "indices" in str(error) else ""
            )
            raise InputError(
                f"the model can't take inputs of shape {tuple(example.shape)}: {error}{looks_up}"
            ) from error
        raise InputError(
            f"the model can't take ids from {int(example.min())} to {int(example.max())}, int64 of shape "
            f"{tuple(example.shape)}: {error}; ids are looked up, for instance by an nn.Embedding with more "
            "rows than the highest of them, and numbers to compute with should be floating-point"
        ) from error
    scores = class_scores(output)
    wanted = "one row of class scores" if check_output is None else "one row"
    if not isinstance(scores, Tensor):
        raise InputError(
            f"the model gives a {type(output).__name__}; it should give a tensor with {wanted} for each input, or an "
            "object that has this tensor as .logits"
        )
    has_rows = scores.ndim > 0 and len(scores) == len(example)
    if not has_rows or (check_output is None and scores.ndim != 2):
        raise InputError(f"the model should give {wanted} for each input, not {tuple(scores.shape)}")
    if check_output is not None:
        check_output(tuple(scores.shape[1:]))
    elif classes is not None and scores.shape[1] != classes:
        raise InputError(f"the model gives {scores.shape[1]} class scores, but the data set has {classes} classes")
    for name, buffer in module.named_buffers():
        if name not in before or not torch.equal(buffer, before[name]):
            layer_name, _, buffer_name = name.rpartition(".")
            layer = module.get_submodule(layer_name)
            part = f"layer {layer_name!r}" if layer_name else "the model"
            raise InputError(
                f"{part} ({type(layer).__name__}) changes its {buffer_name} in every forward pass, which "
                f"would leak from one client to the next; {_way_out(layer)}"
            )
    used = generators.used_since()
    if used:
        raise InputError(
            f"the model draws random numbers from {used[0]}, so runs could not be repeated; "
            "dropout is keyed by (seed, round, client, step, place in the model), as a layer, a function, or within "
            "attention and recurrent layers; other draws, such as nn.RReLU's, must go"
        )
    return output
