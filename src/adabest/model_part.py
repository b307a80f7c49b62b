"""Parts of a model: some of its parameters, told by their names, by layers, or by the kind of layer."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adabest.errors import InputError, nearest


@dataclass(frozen=True)
class Parameter:
    """One parameter of a model.

    Attributes:
        name: Its name, which begins with that of its layer: ``3.weight``.
        size: How many numbers it has.
        normalises: Whether its layer is a normalisation layer.
    """

    name: str
    size: int
    normalises: bool = False

    @property
    def layer(self) -> str:
        """The name of its layer."""
        return self.name.rpartition(".")[0]


@dataclass(frozen=True)
class Part:
    """A part of any model: the parameters that one of the attributes tells.

    Attributes:
        patterns: Patterns of names of parameters or of layers, as a shell has them: ``3``, ``head.*``, ``*.bias``.
        last_layers: How many of the last layers that have parameters.
        normalisation: Whether it has the parameters of normalisation layers.
    """

    patterns: tuple[str, ...] = ()
    last_layers: int = 0
    normalisation: bool = False

    def mask(self, parameters: Sequence[Parameter]) -> Tensor:
        """Which numbers of a flat model belong to it, bool ``[P]``.

        Args:
            parameters: The parameters of the model, in their order.

        Raises:
            InputError: If a pattern tells no parameter, or the part is nothing, or the whole model.
        """
        layers = list(dict.fromkeys(one.layer for one in parameters))
        chosen = set(layers[-self.last_layers :]) if self.last_layers else set[str]()
        for pattern in self.patterns:
            if not any(_matches(one.name, pattern) for one in parameters):
                known = nearest(pattern, (one.name for one in parameters))
                raise InputError(f"{pattern!r} is the name of no parameter and of no layer of the model; {known}")
        inside = [
            one.layer in chosen
            or (self.normalisation and one.normalises)
            or any(_matches(one.name, pattern) for pattern in self.patterns)
            for one in parameters
        ]
        names = ", ".join(one.name for one in parameters)
        if not any(inside):
            sought = "normalisation layers with parameters" if self.normalisation else "such parameters"
            right = ": take one with GroupNorm or LayerNorm, as resnet is" if self.normalisation else ""
            raise InputError(f"the model has no {sought}; it has {names or 'no parameters at all'}{right}")
        if all(inside):
            raise InputError(
                f"that is the whole model, and nothing of it would be shared; it has {names}: leave at least one of "
                "them out, or take a model with more layers"
            )
        sizes = torch.tensor([one.size for one in parameters])
        return torch.repeat_interleave(torch.tensor(inside), sizes)


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern}.*")
