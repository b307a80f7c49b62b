"""Building models by name.

A model of your own is a function or class ``module:name`` called with the shape of one input and the number of classes
(and options, if the specification has some), or an ``nn.Module`` passed in Python, whose weights are the initial ones.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from adabest import random
from adabest.errors import AdabestError, InputError, told
from adabest.machine import refuse_beyond_memory
from adabest.models.classifiers import cnn, logistic, mlp
from adabest.models.float_type import float32_by_default
from adabest.models.keyed import prepare
from adabest.models.resnet import resnet
from adabest.random import Purpose
from adabest.registry import Registry, check_options, options_of, split_specification

MODELS: Registry[Callable[..., nn.Module]] = Registry(
    kind="model",
    group="adabest.models",
    builtin={"logistic": logistic, "mlp": mlp, "cnn": cnn, "resnet": resnet},
)


Factory = Callable[..., nn.Module]

# Of a model's size, what a run holds at least: the initial, the cloud, the aggregate and the scored model, the server's
# state, and a client's model, gradient and state.
_COPIES = 8


def build_model(model: str | nn.Module | Factory, example: Tensor, classes: int, seed: int) -> nn.Module:
    """Builds a model on the CPU with its initial weights, which depend on the seed and on nothing else.

    Args:
        model: A specification such as ``mlp,hidden=100x100``, a module, or what makes one of (input_shape, classes).
        example: A small batch of normalised inputs.
        classes: How many classes there are.
        seed: The run's seed.

    Raises:
        InputError: If there is no such model, or it can't be simulated (see ``prepare``).
    """
    name, options = split_specification(model) if isinstance(model, str) else (getattr(model, "__name__", "model"), {})
    factory = MODELS.find(name) if isinstance(model, str) else model
    if isinstance(factory, nn.Module):
        return prepare(factory, example, classes)
    if not callable(factory):
        raise InputError(f"model {name!r} is a {type(factory).__name__}, not something that makes an nn.Module")
    checked = check_options(f"model {name!r}", options, options_of(factory, skip=2))
    shape = tuple(example.shape[1:])
    with float32_by_default(), torch.random.fork_rng(devices=[]):
        if factory in MODELS.builtin.values():
            _refuse_too_large(name, factory, shape, classes, checked)
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
    return prepare(module, example, classes)


def _refuse_too_large(
    name: str, factory: Factory, shape: tuple[int, ...], classes: int, options: dict[str, Any]
) -> None:
    """Counts the parameters of a model without allocating them, and refuses more than a run could hold.

    Models of one's own aren't built twice: they may read files, or do without torch's initialisation.
    """
    try:
        with torch.device("meta"):
            module = factory(shape, classes, **options)
    except (RuntimeError, TypeError, OverflowError) as error:  # a layer with more weights than can be counted
        words = ", ".join(f"{key} = {value}" for key, value in options.items())
        raise InputError(f"model {name!r}: layers of {words or 'this shape'} are too large to be made") from error
    size = sum(p.numel() * p.element_size() for p in module.parameters())
    refuse_beyond_memory(
        f"model {name!r}",
        {f"{_COPIES} vectors of {size // 4:,} parameters": _COPIES * size},
        "take fewer or narrower layers",
    )
