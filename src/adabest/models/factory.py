"""The model factory: builds models by name.

A model of your own is a function or class ``module:name`` called with the shape of one input and the number of classes
(and options, if the specification has some), or an ``nn.Module`` passed in Python, whose weights are the initial ones.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from adabest import random
from adabest.errors import AdabestError, InputError, told
from adabest.machine import refuse_beyond_memory
from adabest.models.classifiers import cnn, logistic, mlp
from adabest.models.float_type import float32_by_default
from adabest.models.group_norm import BatchNorm
from adabest.models.keyed import CheckOutput, prepare
from adabest.models.resnet import resnet
from adabest.random import Purpose
from adabest.registry import Registry, check_options, options_of, split_specification

MODELS: Registry[Callable[..., nn.Module]] = Registry(
    kind="model",
    group="adabest.models",
    builtin={"logistic": logistic, "mlp": mlp, "cnn": cnn, "resnet": resnet},
)


Factory = Callable[..., nn.Module]

# Vectors of the model's size that a run holds at least: the initial, the cloud, the aggregate and the scored model, the
# server's state, and a client's model, gradient and state.
_COPIES = 8


def build_model(
    model: str | nn.Module | Factory,
    example: Tensor,
    classes: int,
    seed: int,
    batch_norm: BatchNorm = "refuse",
    *,
    check_output: CheckOutput | None = None,
) -> nn.Module:
    """Builds a model on the CPU with its initial weights, which depend on the seed and on nothing else.

    Args:
        model: A specification such as ``mlp,hidden=100x100``, a module, or a function of (input_shape, classes).
        example: A small batch of normalised inputs.
        classes: How many classes there are.
        seed: The run's seed.
        batch_norm: Whether BatchNorm is refused, or replaced by GroupNorm.
        check_output: Refuses a model by the shape of what it gives for one sample. By default all are refused that
            don't give a row of as many scores as there are classes.

    Raises:
        InputError: If there is no such model, or it can't be simulated (see ``prepare``).
    """
    name, options, factory = _parsed(model)
    if isinstance(factory, nn.Module):
        return prepare(factory, example, classes, batch_norm, check_output)
    if not callable(factory):
        raise InputError(f"model {name!r} is a {type(factory).__name__}, not something that makes an nn.Module")
    if factory in MODELS.builtin.values() and not example.is_floating_point():
        raise InputError(
            f"model {name!r}, which was named or is the default, computes with numbers, and the inputs are ids, as of "
            "tokens; name a model of yours that looks ids up, as in --model my_module:my_model; if they aren't ids, "
            "numbers to compute with should be floating-point"
        )
    checked = check_options(f"model {name!r}", options, options_of(factory, skip=2))
    shape = tuple(example.shape[1:])
    with float32_by_default(), torch.random.fork_rng(devices=[]):
        if factory in MODELS.builtin.values():
            _refuse_too_large(name, _without_memory(name, factory, shape, classes, checked))
        torch.manual_seed(random.torch_seed(seed, Purpose.INITIAL_MODEL))
        try:
            module = factory(shape, classes, **checked)
        except AdabestError:
            raise
        except TypeError as error:
            signature = f"{name}{inspect.signature(factory)}"
            raise InputError(f"model {signature} can't be called with (input_shape, classes): {error}") from error
        except (Exception, SystemExit) as error:
            if factory in MODELS.builtin.values():
                raise
            raise InputError(
                f"model {name!r} raised {told(error)}; it should make an nn.Module of (input_shape, classes)"
            ) from error
    if not isinstance(module, nn.Module):
        raise InputError(f"model {name!r} gave a {type(module).__name__}, not an nn.Module")
    return prepare(module, example, classes, batch_norm, check_output)


def count_parameters(model: str | nn.Module | Factory, shape: tuple[int, ...], classes: int) -> int | None:
    """The number of a model's trainable parameters, without building the model.

    Args:
        model: As for ``build_model``.
        shape: The shape of one input.
        classes: How many classes there are.

    Returns:
        None for models that must be built to be counted: those of users' factories. They aren't built twice, since
        they may read files, or draw weights without torch.

    Raises:
        InputError: If there is no such model, or it is too large to be made.
    """
    name, options, factory = _parsed(model)
    if isinstance(factory, nn.Module):
        return None if any(map(is_lazy, factory.parameters())) else trainable_parameters(factory)
    if factory not in MODELS.builtin.values():
        return None
    checked = check_options(f"model {name!r}", options, options_of(factory, skip=2))
    with torch.random.fork_rng(devices=[]):
        module = _without_memory(name, factory, shape, classes, checked)
    _refuse_too_large(name, module)
    return trainable_parameters(module)


def trainable_parameters(module: nn.Module) -> int:
    """The number of a module's trainable parameters."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def _parsed(model: str | nn.Module | Factory) -> tuple[str, dict[str, str], Any]:
    """The name of a model, its options, and the module or factory itself."""
    if isinstance(model, str):
        name, options = split_specification(model)
        return name, options, MODELS.find(name)
    return getattr(model, "__name__", "model"), {}, model


def _without_memory(
    name: str, factory: Factory, shape: tuple[int, ...], classes: int, options: dict[str, Any]
) -> nn.Module:
    """A built-in model on torch's meta device: its parameters have shapes, but no memory."""
    try:
        with torch.device("meta"):
            return factory(shape, classes, **options)
    except (RuntimeError, TypeError, OverflowError) as error:  # a layer with more weights than can be counted
        words = ", ".join(f"{key} = {value}" for key, value in options.items())
        raise InputError(f"model {name!r}: layers of {words or 'this shape'} are too large to be made") from error


def _refuse_too_large(name: str, module: nn.Module) -> None:
    """Refuses a model with more parameters than a run could hold."""
    size = sum(p.numel() * p.element_size() for p in module.parameters())
    refuse_beyond_memory(
        f"model {name!r}",
        {f"{_COPIES} vectors of {size // 4:,} parameters": _COPIES * size},
        "take fewer or narrower layers",
    )
