"""Checks of a complete configuration: values out of range, and runs that no machine could make."""

import math

from adabest.data.augmentation import AUGMENTATIONS
from adabest.data.dataset import Dataset
from adabest.engine.local_step import parse_optimizer
from adabest.engine.memory_tiers import parse_size
from adabest.engine.step_numbers import check_local_steps, most_steps
from adabest.federation.partition import NATURAL
from adabest.runs.settings.config import SETTINGS, Config
from adabest.runs.settings.demand import Demand, refuse_many_threads


def check_ranges(config: Config) -> None:
    """Refuses values that their declaration excludes, and names that don't exist.

    Raises:
        InputError: With the name of the setting, its value and what would be right.
    """
    for name, setting in SETTINGS.items():
        value = getattr(config, name)
        if value is None:
            continue
        if setting.meaning.range is not None:
            setting.meaning.range.check(name, value)
        if setting.meaning.size:
            parse_size(name, value)
    AUGMENTATIONS.find(str(config.augmentation))
    check_local_steps(config.local_steps)
    parse_optimizer(config.local_optimizer)


def refuse_absurd(config: Config, dataset: Dataset) -> None:
    """Refuses what no machine could do, as far as that can be told before the partition and the model are made."""
    refuse_many_threads(config.threads)
    clients, held_out = config.clients or 1, config.validation_clients or 0
    samples, everyone = len(dataset.y_train), max(clients + held_out, 1)
    largest = max(samples // everyone, 1)
    if config.partition == NATURAL and dataset.clients is not None:
        largest = int(dataset.clients.bincount().max())
    inputs = math.prod(dataset.input_shape)
    Demand(
        epochs=config.epochs,
        batch_size=config.batch_size or dataset.defaults.batch_size,
        drawn_steps=most_steps(config.local_steps),
        largest=largest,
        clients=1,
        inputs=inputs,
        held_out=samples * max(held_out, 0) // everyone * inputs * dataset.x_train.dtype.itemsize,
    ).refuse_absurd()
