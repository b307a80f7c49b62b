"""Completion: what a configuration leaves open is filled in from the data set and the algorithm."""

import dataclasses
from collections.abc import Mapping

from adabest.algorithms.base import Algorithm
from adabest.data.dataset import Dataset
from adabest.data.loading import findable
from adabest.data.location import absolute
from adabest.errors import InputError
from adabest.federation.partition import BY_LABEL, NATURAL, default_partition, default_validation_clients
from adabest.runs.settings.config import Config
from adabest.runs.settings.object_names import hyperparameters_of, is_plain

_DEFAULT_CLIENTS = 100
_CROSS_ENTROPY = "cross-entropy"  # the loss of classification, which configurations have always named


def complete(config: Config, dataset: Dataset, algorithm: Algorithm, names: Mapping[str, str]) -> Config:
    """Fills in what was left to defaults, and gives objects their names."""
    defaults = dataset.defaults
    values = hyperparameters_of(algorithm)
    partition = config.partition or default_partition(dataset.clients is not None, has_labels=dataset.has_labels)
    if partition in BY_LABEL and not dataset.has_labels:
        raise InputError(
            f"partition {partition!r} deals samples by their labels, and targets of data set {dataset.name} aren't one "
            f"label a sample; use iid, {NATURAL} if the data come split by client, or a partitioner of your own"
        )
    clients, held_out = _counts(config, partition, dataset)
    task = names.get("task", config.task)
    return dataclasses.replace(
        config,
        dataset=names["dataset"] if "dataset" in names else findable(config.dataset),
        data_dir=config.data_dir and str(absolute(f"data_dir = {config.data_dir}", config.data_dir)),
        algorithm=names.get("algorithm", config.algorithm),
        model=names.get("model") or config.model or defaults.model,
        task=task,
        loss=names.get("loss") or config.loss or (_CROSS_ENTROPY if task == Config.task else None),
        clients=clients,
        validation_clients=held_out,
        partition=partition,
        batch_size=defaults.batch_size if config.batch_size is None else config.batch_size,
        weight_decay=defaults.weight_decay if config.weight_decay is None else config.weight_decay,
        augmentation=defaults.augmentation if config.augmentation is None else config.augmentation,
        partition_seed=config.seed if config.partition_seed is None else config.partition_seed,
        precision=config.precision or config.usual_precision(),
        hyperparameters={name: value for name, value in values.items() if is_plain(value)},
    )


def _counts(config: Config, partition: str, dataset: Dataset) -> tuple[int, int]:
    """How many clients train and validate, by default."""
    clients, held_out = config.clients, config.validation_clients
    if clients is None and partition == NATURAL and dataset.clients is not None:
        everyone = int(dataset.clients.max()) + 1
        if held_out is None:
            held_out = min(-(-everyone // 11), everyone - 1)  # 10 of 110, as elsewhere
        return everyone - held_out, held_out
    clients = _DEFAULT_CLIENTS if clients is None else clients
    return clients, default_validation_clients(clients) if held_out is None else held_out
