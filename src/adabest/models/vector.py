"""A model as one vector, which algorithms compute with."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from adabest.model_part import Parameter

_NORMALISING = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)  # the first is BatchNorm's and InstanceNorm's


class VectorModel:
    """A module whose trainable parameters are views of one vector, and their gradients of another.

    Loading a vector is one copy, and after a backward pass the whole gradient is there without gathering it.

    Attributes:
        module: The module itself.
        vector: All trainable parameters, in the order of ``module.named_parameters()``.
        gradient: Their gradients.
        shapes: The shape of each parameter, by name.
    """

    def __init__(self, module: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
        self.module = module.to(device=device, dtype=dtype)
        parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.shapes = {name: tuple(p.shape) for name, p in parameters.items()}
        self.vector = torch.cat([p.detach().reshape(-1) for p in parameters.values()])
        self.gradient = torch.zeros_like(self.vector)
        views, gradients = self.unflatten(self.vector), self.unflatten(self.gradient)
        for name, parameter in parameters.items():
            parameter.data = views[name]
            parameter.grad = gradients[name]

    def load(self, vector: Tensor) -> None:
        """Sets the parameters."""
        self.vector.copy_(vector)

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Views of a vector in the parameters' shapes, by name."""
        sizes = [torch.Size(shape).numel() for shape in self.shapes.values()]
        pieces = torch.split(vector, sizes)
        return {name: piece.view(shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)}


def parameters_of(module: nn.Module) -> list[Parameter]:
    """The trainable parameters of a module, in the order in which they lie in a vector."""
    layers = dict(module.named_modules(remove_duplicate=False))
    return [
        Parameter(name, tensor.numel(), isinstance(layers[name.rpartition(".")[0]], _NORMALISING))
        for name, tensor in module.named_parameters()
        if tensor.requires_grad
    ]
