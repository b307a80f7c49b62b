"""The model of a run: counted before the run is built, and built once."""

import copy
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from adabest.engine.threads import one_thread
from adabest.models import factory
from adabest.models.factory import MODELS, build_model, trainable_parameters
from adabest.registry import split_specification
from adabest.runs.settings.config import Config
from adabest.runs.settings.resolution import Components

_REMEMBERED = 16  # the most factories whose parameter count is kept
_KEPT, _LARGEST_KEPT = 4, 2**24  # the most built-in models that are kept for further runs, and their most parameters


@dataclass
class _Counted:
    """The models that one factory of a user makes for inputs of one shape.

    Attributes:
        factory: Keeps the factory alive: the key of this entry contains its ``id``.
        parameters: The number of trainable parameters.
        unused: The model that was built to be counted, by the seed of its run, until the run takes it.
    """

    factory: Any
    parameters: int
    unused: dict[int, nn.Module] = field(default_factory=dict)


_COUNTED: OrderedDict[Hashable, _Counted] = OrderedDict()
_BUILT: OrderedDict[Hashable, nn.Module] = OrderedDict()  # built-in models with their initial weights


def count_run_parameters(config: Config, components: Components) -> int:
    """The number of trainable parameters of a run's model.

    The model is built only if there is no other way to count it, and is then kept for the run.

    Raises:
        InputError: If the model can't be made.
    """
    dataset = components.dataset
    count = factory.count_parameters(components.model, tuple(dataset.input_shape), components.outputs)
    if count is not None:
        return count
    key, made_by = _key(config, components)
    if key not in _COUNTED:
        module = _built(config, components)
        _COUNTED[key] = _Counted(made_by, trainable_parameters(module), {config.seed: module})
        if len(_COUNTED) > _REMEMBERED:
            _COUNTED.popitem(last=False)
    return _COUNTED[key].parameters


def take_model(config: Config, components: Components) -> nn.Module:
    """The model of a run with its initial weights: the one that was built to be counted, or a new one.

    Raises:
        InputError: If the model can't be made.
    """
    if isinstance(components.model, nn.Module):
        return _built(config, components)
    key, made_by = _key(config, components)
    if made_by in MODELS.builtin.values():
        return _copy_of_built((key, config.seed), config, components)
    counted = _COUNTED.get(key)
    module = None if counted is None else counted.unused.pop(config.seed, None)
    return _built(config, components) if module is None else module


def _copy_of_built(key: Hashable, config: Config, components: Components) -> nn.Module:
    """A built-in model, whose weights depend on its options and the seed alone; lanes that share them copy one."""
    if key not in _BUILT:
        module = _built(config, components)
        if trainable_parameters(module) > _LARGEST_KEPT:
            return module
        _BUILT[key] = module
        if len(_BUILT) > _KEPT:
            _BUILT.popitem(last=False)
    return copy.deepcopy(_BUILT[key])


def _key(config: Config, components: Components) -> tuple[Hashable, Any]:
    """The key of a model in ``_COUNTED``, and its factory."""
    dataset, model, options = components.dataset, components.model, ""
    made_by: Any = model
    if isinstance(model, str):
        name, options = split_specification(model)[0], model
        made_by = MODELS.find(name)
    kind = (id(made_by), options, config.batch_norm, id(components.task))
    return (*kind, tuple(dataset.input_shape), dataset.id_range, components.outputs), made_by


def _built(config: Config, components: Components) -> nn.Module:
    dataset = components.dataset
    with one_thread():  # with several, an initialisation that decomposes matrices would have other last bits
        return build_model(
            components.model,
            dataset.example(),
            components.outputs,
            config.seed,
            config.batch_norm,
            check_output=components.check_output,
        )
