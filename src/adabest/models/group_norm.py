"""GroupNorm in place of BatchNorm, whose statistics would leak from one client to the next."""

from typing import Literal

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

BatchNorm = Literal["refuse", "group"]
"""What becomes of BatchNorm: a model that has it is refused, or gets GroupNorm in its place."""

CHANNELS_IN_GROUP = 8  # as in the built-in ResNet


def replace_batch_norm(module: nn.Module) -> nn.Module:
    """Puts GroupNorm in the place of every BatchNorm of a module, in place; without some, nothing changes.

    Weights, biases and what of them is trained are kept, running statistics aren't.

    Returns:
        The module, or what stands for it if it is a BatchNorm itself.
    """
    if isinstance(module, _BatchNorm):
        return _group_norm(module)
    made: dict[nn.Module, nn.Module] = {}  # a layer that is used in two places stays one
    for name, layer in list(module.named_modules(remove_duplicate=False)):
        if isinstance(layer, _BatchNorm):
            parent, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(parent), attribute, made.setdefault(layer, _group_norm(layer)))
    return module


def number_of_groups(layer: _BatchNorm) -> int:
    """Groups of 8 channels; a single one where channels aren't a multiple of 8, or where there is no image."""
    if isinstance(layer, nn.BatchNorm1d) or layer.num_features % CHANNELS_IN_GROUP:
        return 1
    return layer.num_features // CHANNELS_IN_GROUP


def _group_norm(layer: _BatchNorm) -> nn.GroupNorm:
    replaced = nn.GroupNorm(number_of_groups(layer), layer.num_features, layer.eps, affine=layer.affine)
    if layer.affine:  # the parameters themselves: their type, their place, whether they are trained
        replaced.weight, replaced.bias = layer.weight, layer.bias
    return replaced.train(layer.training)
