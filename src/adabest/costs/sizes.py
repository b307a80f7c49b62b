"""Sizes that formulas of costs are evaluated for: of a model, of its gradient, of a cohort."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from adabest.errors import InputError, nearest
from adabest.machine import refuse_beyond_memory
from adabest.model_part import Parameter
from adabest.models.factory import Factory, build_model
from adabest.models.vector import parameters_of
from adabest.registry import convert
from adabest.runs.settings.precisions import PRECISIONS

Precision = Literal["float32", "float64"]

_DEFAULTS: dict[str, Any] = {"model": "cnn", "input_shape": "3x32x32", "classes": 10, "batch_size": 45}
_HELD = 32  # bytes that a number of an input takes at least: its own, its gradient's, and those of what is made of it


@dataclass(frozen=True)
class Sizes:
    """Sizes that formulas are evaluated for.

    Attributes:
        parameters: n.
        steps: K.
        participants: |P|.
        population: |S|.
        precision: Number format of models and states.
        gradient: g, in operations; None if the model isn't known.
        described: What n and g belong to, in words, if the model is known.
    """

    parameters: int
    steps: int = 55
    participants: int = 10
    population: int = 100
    precision: Precision = "float32"
    gradient: int | None = None
    described: str = ""

    def __post_init__(self) -> None:
        for name in ("parameters", "steps", "participants", "population"):
            _check_count(name, getattr(self, name))
        if self.participants > self.population:
            raise InputError(
                f"participants = {self.participants}: there can't be more of them than the population of "
                f"{self.population}"
            )
        known = get_args(Precision)
        if self.precision not in known:
            raise InputError(
                f"precision = {self.precision!r} isn't one of its values; {nearest(self.precision, known)}"
            )

    @property
    def dtype(self) -> torch.dtype:
        """The precision as torch has it."""
        return PRECISIONS[self.precision]

    def values(self) -> dict[str, int]:
        """The values of the symbols. Gradients are left out; what has no value here, as s and m, counts one.

        q is in a formula only where the model isn't known, and counts nothing there.
        """
        return {"n": self.parameters, "K": self.steps, "|P|": self.participants, "q": 0, "g": 0, "G": 0}


def find_sizes(
    described: Mapping[str, Any], parameters: int | None, cohort: Mapping[str, Any]
) -> tuple[Sizes, Sequence[Parameter]]:
    """The sizes of a model that is described, or those of one of which nothing is known but its parameters.

    Args:
        described: What is known of ``model``, ``input_shape``, ``classes`` and ``batch_size``; None where nothing is.
        parameters: n, if nothing else is known.
        cohort: The sizes that have nothing to do with the model.

    Returns:
        The sizes, and the model's parameters by name; none if it isn't known.

    Raises:
        InputError: If anything can't be used, or both are given.
    """
    given = {name: value for name, value in described.items() if value is not None}
    if parameters is None:
        return _sizes_of_model(**{**_DEFAULTS, **given}, cohort=cohort)
    if given:
        raise InputError(
            f"parameters stands for a model of which nothing else is known: drop it, or {next(iter(given))}"
        )
    return Sizes(parameters, **cohort), ()


def _sizes_of_model(
    *,
    model: str | nn.Module | Factory,
    input_shape: str | Sequence[int],
    classes: int,
    batch_size: int,
    cohort: Mapping[str, Any],
) -> tuple[Sizes, Sequence[Parameter]]:
    """Builds a model, and counts its parameters and the operations of one mini-batch gradient."""
    Sizes(1, **cohort)  # so that what is wrong with the cohort comes out before the model is made
    shape: tuple[int, ...] = convert("input_shape", input_shape, tuple[int, ...])
    if not shape or min(shape) < 1:
        raise InputError(f"input_shape = {input_shape!r}: it should be one or more sizes above 0, as in 3x32x32")
    _check_count("classes", classes)
    _check_count("batch_size", batch_size)
    name = model if isinstance(model, str) else getattr(model, "__name__", type(model).__name__)
    shown = "x".join(map(str, shape))
    refuse_beyond_memory(
        "one mini-batch gradient",
        {f"{batch_size:,} inputs of {shown}": _HELD * max(batch_size, 2) * math.prod(shape)},
        "take a smaller batch_size or input_shape",
    )
    try:
        module = build_model(model, torch.zeros(2, *shape, dtype=torch.float32), classes, seed=0)
        gradient = _operations(module, torch.zeros(batch_size, *shape, dtype=torch.float32))
    except (RuntimeError, MemoryError) as error:
        raise InputError(
            f"a batch of {batch_size} inputs of shape {shown} can't be passed through the model {name}: {error}"
        ) from error
    sizes = Sizes(
        parameters=sum(p.numel() for p in module.parameters() if p.requires_grad),
        gradient=gradient,
        described=f"{name}, inputs of {shown}, {classes} classes, batches of {batch_size}",
        **cohort,
    )
    return sizes, parameters_of(module)


def _operations(module: nn.Module, x: torch.Tensor) -> int:
    """Multiplications and additions of the matrix products and convolutions, forward and backward."""
    counter = FlopCounterMode(display=False)
    with counter:
        loss = functional.cross_entropy(module(x), torch.zeros(len(x), dtype=torch.int64))
        torch.autograd.backward(loss)
    return int(counter.get_total_flops())


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} = {value!r}: it must be a whole number above 0")
