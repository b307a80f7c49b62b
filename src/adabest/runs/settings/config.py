"""One configuration, with the same names in a TOML file, on the command line and in Python."""

import dataclasses
import functools
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tomli_w
import torch
from torch import nn

from adabest.algorithms.base import Algorithm
from adabest.algorithms.catalog import ALGORITHMS
from adabest.data.augmentation import AUGMENTATIONS
from adabest.data.dataset import Dataset
from adabest.data.loading import findable, is_file_name, load_dataset
from adabest.data.location import absolute
from adabest.engine.memory_tiers import parse_size
from adabest.errors import InputError, nearest
from adabest.federation.partition import NATURAL, default_partition, default_validation_clients
from adabest.models.factory import Factory
from adabest.registry import (
    Option,
    also_named,
    check_options,
    is_own_name,
    options_of,
    own_names,
    split_specification,
    stands_for,
)
from adabest.runs.settings.demand import Demand, refuse_many_threads
from adabest.tasks.classification import LOSSES, Loss

_OBJECT = "python-object:"
SURROUNDINGS = ("data_dir", "tensorboard", "loggers")  # where data lie and who watches: no part of what a run is
_SIZES = ("client_memory", "client_device_memory", "client_disk")
BOUNDS = ("clients_in_parallel", *_SIZES)  # how much there may be of something at a time
_NO_MATTER = (*SURROUNDINGS, *BOUNDS, "checkpoint_every", "threads", "device")  # nor is how it is executed
_COMPONENTS = ("dataset", "algorithm", "model", "loss")
_WITH_NAMES = (*_COMPONENTS, "partition", "augmentation", "sampler", "loggers", "algorithms", "vary", "space")
_DEFAULT_CLIENTS = 100
# What models and states are kept in; local training may compute in less.
PRECISIONS = {"float32": torch.float32, "float64": torch.float64, "tf32": torch.float32, "bf16": torch.float32}
_LARGEST_FILE = 2**20  # bytes of a configuration
_DEEPEST = 100  # parts of a key: the time that tomllib takes for one grows with the square of them
_DEEP_KEY = re.compile(rf"(?:[^.=,]*\.){{{_DEEPEST}}}")
_RESERVED = {"config", "out", "overwrite", "show", "algorithms", "target", "lanes", "seeds", "hyperparameters"}
_RESERVED |= {"vary", "space", "trials"}


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that a run's result depends on, and how it is executed.

    Attributes:
        dataset: Data set: digits, mnist, emnist-l, emnist-letters, cifar10, cifar100, a path to an .npz file, or
            module:function, with options as in leaf,path=femnist, huggingface,path=folder,client=writer or
            synthetic,samples=1000000,shape=3x32x32.
        data_dir: Folder of the official data files. By default $ADABEST_DATA, or the platform's cache folder.
        algorithm: Algorithm: fedavg, fedprox, scaffold, scaffold-m, feddyn, adabest, or module:Class.
        model: Model: logistic, mlp, cnn, resnet, or module:function, with options as in mlp,hidden=100x100. By default
            the data set's own.
        loss: Loss: cross-entropy, or module:function.
        clients: How many clients train. By default 100, or all there are where the data set comes split by client.
        validation_clients: How many clients are held out on top, for validation. By default a tenth, rounded up.
        partition: How samples are dealt: dirichlet, dirichlet-legacy, shards, iid, or natural for a data set that comes
            split by client. By default natural for such a one, else dirichlet.
        alpha: Concentration of the Dirichlet label skew; smaller is more skewed.
        shards: How many runs of samples sorted by label a client gets, with partition shards.
        unbalance: Spread (lognormal σ) of the clients' sizes; 0 makes them equal.
        participation: Share of the training clients present that takes part in a round.
        sampler: How those are drawn: uniform (exactly so many), bernoulli (each by a coin of its own), weighted
            (exactly so many, by their numbers of samples) or round-robin.
        churn: Probability with which, before each round but the first, a present client leaves and an absent one comes
            back.
        schedule: Clients that leave or join at given rounds, as in 100:leave:0-49 200:join:0-9,30; training clients
            count from 0.
        rounds: How many rounds to train.
        epochs: Passes of a client over its samples in a round.
        batch_size: Samples in a local step. By default the data set's own.
        learning_rate: Local learning rate in the first round.
        learning_rate_decay: What the learning rate is multiplied by from round to round.
        weight_decay: Local weight decay. By default the data set's own.
        clip: Largest norm of the corrected gradient; 0 for none.
        augmentation: Augmentation of training images: none or flip-crop. By default the data set's own.
        local_steps: Steps of a client in a round: its own number, or for all the one of a client of mean size.
        server_rate: How far the cloud model moves towards the algorithm's, η_g.
        scored_clients: Whose latest models the scored model averages: those seen so far, or all, unseen ones counting
            as the initial model.
        average_from: Part of the run after which the aggregate models are averaged over rounds into a model of its own,
            as in 0.5. By default there is none.
        seed: Keys every random draw.
        partition_seed: Keys the partition alone. By default the seed.
        evaluate_every: Rounds between two evaluations; the last round is always evaluated.
        stop_at: Accuracy of the scored model on the test set at which the run ends early.
        stop_after: Rounds without a new best validation accuracy after which the run ends early; test accuracy where
            there are no validation clients.
        checkpoint_every: Rounds between two checkpoints; 0 for only when interrupted. By default as often as takes at
            most 5 % of the time.
        tensorboard: Write TensorBoard event files into the run's folder.
        loggers: Trackers that get every metrics row: wandb, mlflow, trackio, tensorboard, or module:Class.
        engine: How rounds are executed: ``batched``, clients side by side, or ``reference``, one after another.
        device: Where: cpu, cuda or cuda:N.
        precision: Number format of models and states, float32 or float64. With ``bf16``, activations and products of
            local training are in bfloat16, all sums, models and states in float32; with ``tf32``, products are made by
            a GPU's matrix units. By default bf16 for the batched engine on a GPU, and float32 elsewhere.
        clients_in_parallel: At most so many clients train at a time; by default as many as fit into memory.
        threads: CPU threads: so many clients train side by side, and torch has as many for all else. By default one
            client on each core, and torch's own choice, or one for models of under 100,000 parameters.
        client_memory: Memory for what clients keep between rounds, as in 6GiB. By default a quarter of the machine's.
            What doesn't fit goes to a file in the run's folder.
        client_device_memory: The same on a GPU, which is filled first. By default a quarter of its memory.
        client_disk: The largest size of that file. By default what is free on the disk.
        hyperparameters: The algorithm's own settings, by name.
    """

    dataset: str = "digits"
    data_dir: str | None = None
    algorithm: str = "adabest"
    model: str | None = None
    loss: str = "cross-entropy"
    clients: int | None = None
    validation_clients: int | None = None
    partition: str | None = None
    alpha: float = 0.3
    shards: int = 2
    unbalance: float = 0.0
    participation: float = 0.1
    sampler: str = "uniform"
    churn: float = 0.0
    schedule: tuple[str, ...] = ()
    rounds: int = 200
    epochs: int = 5
    batch_size: int | None = None
    learning_rate: float = 0.1
    learning_rate_decay: float = 0.998
    weight_decay: float | None = None
    clip: float = 10.0
    augmentation: str | None = None
    local_steps: Literal["own", "mean"] = "own"
    server_rate: float = 1.0
    scored_clients: Literal["seen", "all"] = "seen"
    average_from: float | None = None
    seed: int = 0
    partition_seed: int | None = None
    evaluate_every: int = 10
    stop_at: float | None = None
    stop_after: int | None = None
    checkpoint_every: int | None = None
    tensorboard: bool = False
    loggers: tuple[str, ...] = ()
    engine: Literal["batched", "reference"] = "batched"
    device: str = "cpu"
    precision: Literal["float32", "float64", "tf32", "bf16"] | None = None
    clients_in_parallel: int | None = None
    threads: int | None = None
    client_memory: str | None = None
    client_device_memory: str | None = None
    client_disk: str | None = None
    hyperparameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def dtype(self) -> torch.dtype:
        """The type of models and states."""
        return PRECISIONS[self.precision or "float32"]

    def runs_kernels(self) -> bool:
        """Whether clients are trained by the batched engine on a GPU."""
        return self.engine == "batched" and self.device.startswith("cuda")

    def flat(self) -> dict[str, Any]:
        """All settings by name, the algorithm's own among them, without those that are left to a default."""
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "hyperparameters"}
        settings |= self.hyperparameters
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in settings.items()
            if value is not None
        }

    def has_objects(self) -> bool:
        """Whether it names a Python object that a later process can't find by its name."""
        return any(is_object_name(str(getattr(self, key))) for key in _COMPONENTS)

    def own_names(self) -> list[str]:
        """The names of the user's own modules in it, as in ``my_module:MyAlgorithm``."""
        return named_in(self.flat())

    def essence(self) -> dict[str, Any]:
        """The settings that the result depends on, by name."""
        return {name: value for name, value in self.flat().items() if name not in _NO_MATTER}

    def trackers(self) -> list[str]:
        """The loggers that watch the run, each once."""
        return list(dict.fromkeys([*self.loggers, *(["tensorboard"] if self.tensorboard else [])]))

    def digest(self) -> str:
        """A short name of everything that the result depends on."""
        return hashlib.sha256(json.dumps(self.essence(), sort_keys=True).encode()).hexdigest()[:8]


@dataclasses.dataclass(frozen=True)
class Components:
    """The objects that a configuration's names stand for."""

    dataset: Dataset
    algorithm: Algorithm
    model: str | nn.Module | Factory
    loss: Loss


CONFIG_OPTIONS: dict[str, Option] = {
    name: option for name, option in options_of(Config).items() if name != "hyperparameters"
}


def algorithm_options(name: str) -> dict[str, Option]:
    """The hyper-parameters of an algorithm given by name.

    Raises:
        InputError: If there is no such algorithm, or it claims a name that every run has.
    """
    kind = ALGORITHMS.find(name)
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise InputError(f"algorithm {name!r} should be a subclass of adabest.algorithms.base.Algorithm, not {kind!r}")
    options: dict[str, Option] = options_of(kind) if dataclasses.is_dataclass(kind) else {}
    _refuse_clash(name, options)
    return options


def _refuse_clash(algorithm: str, names: Iterable[str]) -> None:
    taken = sorted((CONFIG_OPTIONS.keys() | _RESERVED) & set(names))
    if taken:
        raise InputError(
            f"algorithm {algorithm!r} names a hyper-parameter {taken[0]!r}, which is a setting of every run"
        )


def named_in(settings: Mapping[str, Any]) -> list[str]:
    """The names of the user's own modules in the settings of a run or of several, as in ``my_module:MyAlgorithm``."""
    values = {key: settings[key] for key in _WITH_NAMES if key in settings}
    if isinstance(values.get("dataset"), str) and is_file_name(values["dataset"]):
        del values["dataset"]
    return [name for name in own_names(values) if not is_object_name(name)]


def resolve(
    settings: Mapping[str, Any], loaded: Dataset | None = None, names: Mapping[str, str] | None = None
) -> tuple[Config, Components]:
    """Turns settings into a complete configuration and the objects it names.

    Args:
        settings: Names and values. For ``dataset``, ``algorithm``, ``model`` and ``loss`` the value may be an object.
        loaded: The data set that the settings name, if it has been loaded already.
        names: What objects among the settings are called in the configuration. By default a name is made up for each.

    Raises:
        InputError: For an unknown name, a wrong type or a value out of range; the message has the nearest right name.
    """
    objects = {key: settings[key] for key in _COMPONENTS if _is_object(settings, key)}
    plain = {name: value for name, value in settings.items() if name not in objects}
    if "algorithm" in objects:
        algorithm = _check_algorithm(objects["algorithm"])
        checked = _check_settings(plain, CONFIG_OPTIONS)
    else:
        algorithm, checked = _make_algorithm(plain)
    config = Config(**checked)
    dataset = objects.get("dataset") or loaded
    if dataset is None:
        dataset = load_dataset(_refuse_placeholder("dataset", config.dataset), config.data_dir)
    if not isinstance(dataset, Dataset):
        raise InputError(f"dataset should be a name or a Dataset, not a {type(dataset).__name__}")
    also_named(dataset.defaults.model)  # no file has a say in it: code that is running did
    model = objects.get("model", _refuse_placeholder("model", config.model or dataset.defaults.model))
    if not (isinstance(model, str | nn.Module) or callable(model)):
        raise InputError(f"model should be a name, an nn.Module or a function, not a {type(model).__name__}")
    loss = objects.get("loss") or LOSSES.find(_refuse_placeholder("loss", config.loss))
    config = _complete(config, dataset, algorithm, _names_of(objects, dataset) | dict(names or {}))
    _check_ranges(config)
    _refuse_absurd(config, dataset)
    return config, Components(dataset, algorithm, model, loss)


def _make_algorithm(settings: Mapping[str, Any]) -> tuple[Algorithm, dict[str, Any]]:
    """The algorithm that settings name, with its hyper-parameters, and the other settings in their right types."""
    name, options = specified(settings.get("algorithm", Config.algorithm))
    own = algorithm_options(name)
    checked = _check_settings({**options, **settings, "algorithm": name}, CONFIG_OPTIONS | own)
    hyperparameters = {key: checked.pop(key) for key in list(checked) if key in own}
    missing = [key for key, o in own.items() if o.default is dataclasses.MISSING and key not in hyperparameters]
    if missing:
        raise InputError(f"algorithm {name!r} needs a value for {', '.join(missing)}")
    return ALGORITHMS.find(name)(**hyperparameters), checked


def make_algorithm(algorithm: str | Algorithm) -> Algorithm:
    """The algorithm that a specification names, such as ``adabest,beta=0.9``; an object is what it is.

    Raises:
        InputError: If there is no such algorithm, or its hyper-parameters can't be used.
    """
    return _make_algorithm({"algorithm": algorithm})[0] if isinstance(algorithm, str) else _check_algorithm(algorithm)


def specified(algorithm: str) -> tuple[str, dict[str, Any]]:
    """The name of an algorithm, and the hyper-parameters that stand behind it, as in ``adabest,beta=0.9``.

    Raises:
        InputError: If there is no such algorithm, or it has no such hyper-parameter.
    """
    if not isinstance(algorithm, str):
        raise InputError(f"algorithm should be a name or an Algorithm, not {algorithm!r}")
    name, options = split_specification(algorithm)
    own = algorithm_options(_refuse_placeholder("algorithm", name))
    refuse_unknown(options, own)
    return name, check_options(f"algorithm {name!r}", options, own)


def _check_algorithm(algorithm: Any) -> Algorithm:
    if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
        raise InputError(
            f"algorithm should be a name or an Algorithm: {algorithm.__name__}(), not {algorithm.__name__}"
        )
    if not isinstance(algorithm, Algorithm):
        raise InputError(f"algorithm should be a name or an Algorithm, not a {type(algorithm).__name__}")
    _refuse_clash(type(algorithm).__name__, vars(algorithm))
    return algorithm


def _check_settings(settings: Mapping[str, Any], known: Mapping[str, Option]) -> dict[str, Any]:
    refuse_unknown(settings, known)
    return check_options("a run", settings, known, text=False)


def refuse_unknown(names: Iterable[str], known: Iterable[str]) -> None:
    """Refuses names that aren't settings.

    Raises:
        InputError: With the nearest setting, or the algorithms that do have one of that name.
    """
    choices = set(known)
    for name in names:
        if name not in choices:
            owners = [other for other in ALGORITHMS.builtin if name in algorithm_options(other)]
            whose = f"it belongs to {', '.join(owners)}. " if owners else ""
            raise InputError(f"unknown setting {name!r}; {whose}{nearest(name, choices)}")


def resolve_again(
    stored: Mapping[str, Any], objects: Mapping[str, Any], data_dir: str | None = None
) -> tuple[Config, Components]:
    """Turns the stored settings of a run into what they were.

    Args:
        stored: The settings of a complete configuration.
        objects: Objects for ``dataset``, ``algorithm``, ``model`` or ``loss``; those are used that have no importable
            name, or one of the user's own, which then needn't be imported. A data set is always used, so that it
            needn't be loaded again, or not from where it once was.
        data_dir: The folder of the official data files, if they have moved.

    Raises:
        InputError: If an object is missing, or isn't the one that the run began with.
    """
    used, names = {}, {}
    for key, value in objects.items():
        name = str(stored.get(key, ""))
        if is_object_name(name):
            used[key] = value
        elif _is_object(objects, key) and (isinstance(value, Dataset) or is_own_name(name)):
            used[key], names[key] = _same_object(key, value, name), name
    settings = {**stored, **used} | ({} if data_dir is None else {"data_dir": data_dir})
    if "algorithm" in used:
        settings = {name: value for name, value in settings.items() if name in CONFIG_OPTIONS}
    config, components = resolve(settings, names=names)
    now = config.flat()
    changed = {name for name, value in stored.items() if now.get(name) != value and name != "data_dir"}
    if changed:
        raise InputError(
            f"this isn't what the run began with: {', '.join(sorted(changed))} differs from its configuration"
        )
    return config, components


def _same_object(key: str, value: Any, specification: str) -> Any:
    """An object in place of a name in a stored configuration.

    Raises:
        InputError: If it isn't what the name says. A data set is told by its fingerprint, when the run goes on.
    """
    if key == "dataset":
        return value
    name, options = split_specification(specification)
    plain = value.func if isinstance(value, functools.partial) else value
    meant = [type(value)] if key == "algorithm" else [value, plain, type(plain)] if key == "model" else [value]
    if not any(stands_for(name, thing) for thing in meant):
        raise InputError(f"this isn't what the run began with: its {key} is {name}, not {_name_of(value)}")
    if key == "model" and options and not isinstance(value, nn.Module):
        checked = check_options(f"model {name!r}", options, options_of(plain, skip=2))
        return functools.partial(plain, **checked)
    return value


def _names_of(objects: Mapping[str, Any], dataset: Dataset) -> dict[str, str]:
    """Names that stand in for objects; an algorithm that can be found by its own has that one."""
    names = {key: _OBJECT + _name_of(thing) for key, thing in objects.items()}
    if "dataset" in objects:
        names["dataset"] = _OBJECT + dataset.name
    if "algorithm" in objects:
        names["algorithm"] = _name_of_algorithm(objects["algorithm"])
    return names


def _complete(config: Config, dataset: Dataset, algorithm: Algorithm, names: Mapping[str, str]) -> Config:
    """Fills in what was left to defaults, and gives objects their names."""
    defaults = dataset.defaults
    values = _hyperparameters(algorithm)
    partition = config.partition or default_partition(dataset.clients is not None)
    clients, held_out = _counts(config, partition, dataset)
    return dataclasses.replace(
        config,
        dataset=names["dataset"] if "dataset" in names else findable(config.dataset),
        data_dir=config.data_dir and str(absolute(f"data_dir = {config.data_dir}", config.data_dir)),
        algorithm=names.get("algorithm", config.algorithm),
        model=names.get("model") or config.model or defaults.model,
        loss=names.get("loss", config.loss),
        clients=clients,
        validation_clients=held_out,
        partition=partition,
        batch_size=defaults.batch_size if config.batch_size is None else config.batch_size,
        weight_decay=defaults.weight_decay if config.weight_decay is None else config.weight_decay,
        augmentation=defaults.augmentation if config.augmentation is None else config.augmentation,
        partition_seed=config.seed if config.partition_seed is None else config.partition_seed,
        precision=config.precision or ("bf16" if config.runs_kernels() else "float32"),
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


def _hyperparameters(algorithm: Algorithm) -> dict[str, Any]:
    values: dict[str, Any] = dataclasses.asdict(algorithm) if dataclasses.is_dataclass(algorithm) else {}
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}


def is_plain(value: Any) -> bool:
    """Whether a value survives a TOML file."""
    return isinstance(value, bool | int | float | str) or (
        isinstance(value, list | tuple) and all(map(is_plain, value))
    )


def _is_object(settings: Mapping[str, Any], key: str) -> bool:
    return settings.get(key) is not None and not isinstance(settings[key], str)


def _name_of_algorithm(algorithm: Algorithm) -> str:
    kind = type(algorithm)
    path = f"{kind.__module__}:{kind.__qualname__}"
    if kind.__module__ == "__main__" or "<locals>" in path or not _can_be_rebuilt(algorithm):
        return _OBJECT + kind.__name__
    return next((name for name, builtin in ALGORITHMS.builtin.items() if kind is builtin), path)


def _can_be_rebuilt(algorithm: Algorithm) -> bool:
    """Whether an algorithm is nothing but its hyper-parameters, all of which can be written to a file."""
    values = _hyperparameters(algorithm)
    return values.keys() == vars(algorithm).keys() and all(map(is_plain, values.values()))


def _name_of(thing: Any) -> str:
    return str(getattr(thing, "__name__", type(thing).__name__))


def is_object_name(name: str) -> bool:
    """Whether a name only stands in for a Python object."""
    return name.startswith(_OBJECT)


def _refuse_placeholder(key: str, name: str) -> str:
    if is_object_name(name):
        raise InputError(
            f"the {key} of this run was a Python object ({name.removeprefix(_OBJECT)}) that has no importable name; "
            f"pass it again, as in adabest.resume(folder, {key}=...)"
        )
    return name


def _check_ranges(config: Config) -> None:
    least = {"rounds": 1, "evaluate_every": 1, "epochs": 1, "batch_size": 1, "checkpoint_every": 0, "threads": 1}
    least |= {"stop_after": 1, "clients_in_parallel": 1}
    for name, low in least.items():
        value = getattr(config, name)
        if value is not None and value < low:
            raise InputError(f"{name} = {value}: it must be at least {low}")
    for name in ("seed", "partition_seed"):
        if not 0 <= getattr(config, name) < 2**63:
            raise InputError(f"{name} = {getattr(config, name)}: it must be at least 0 and below 2⁶³")
    if config.average_from is not None and not 0 <= config.average_from < 1:
        raise InputError(f"average_from = {config.average_from}: a part of the run is at least 0 and below 1")
    if config.stop_at is not None and not 0 < config.stop_at <= 1:
        raise InputError(f"stop_at = {config.stop_at}: an accuracy is above 0 and at most 1")
    for name in _SIZES:
        if getattr(config, name) is not None:
            parse_size(name, getattr(config, name))
    AUGMENTATIONS.find(str(config.augmentation))


def _refuse_absurd(config: Config, dataset: Dataset) -> None:
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
        largest=largest,
        clients=1,
        inputs=inputs,
        held_out=samples * max(held_out, 0) // everyone * inputs * dataset.x_train.dtype.itemsize,
    ).refuse_absurd()


def merge(file: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a run from a file and from a call, each of which may have an algorithm with options in its name.

    The call wins over the file. Within the file the algorithm's options win over other settings; within the call it is
    the other way round, so that an option of its own always counts.
    """
    file_name, file_options = _split_algorithm(file)
    call_name, call_options = _split_algorithm(call)
    algorithm = file_name if call_name is None else call_name
    merged = dict(file)
    if algorithm == file_name:
        merged |= file_options
    merged |= {**call_options, **call}
    if algorithm is not None:
        merged["algorithm"] = algorithm
    return merged


def _split_algorithm(settings: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The algorithm's name, or the object or None in its place, and the options behind the name."""
    algorithm = settings.get("algorithm")
    return specified(algorithm) if isinstance(algorithm, str) else (algorithm, {})


def read_toml(path: Path) -> dict[str, Any]:
    """Reads settings from a TOML file.

    Raises:
        InputError: If the file can't be read, isn't TOML, or is larger or deeper than settings ever are.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise InputError(
                f"the configuration {path} has more than {_LARGEST_FILE:,} bytes; settings take a few lines"
            )
        text = content.decode("utf-8").replace("\r\n", "\n")
        if any(_DEEP_KEY.match(line) for line in text.splitlines()):
            raise InputError(f"the configuration {path} has a key of over {_DEEPEST} parts; names of settings have one")
        return tomllib.loads(text)
    except OSError as error:
        raise InputError(f"can't read the configuration {path}: {error.strerror or error}") from error
    except RecursionError as error:
        raise InputError(
            f"the configuration {path} isn't valid TOML: it is nested too deeply; settings are flat"
        ) from error
    except ValueError as error:  # bad TOML, text that isn't UTF-8, or a number that is longer than Python takes
        raise InputError(f"the configuration {path} isn't valid TOML: {error}") from error


def to_toml(settings: Mapping[str, Any]) -> str:
    """Settings as the text of a TOML file."""
    return tomli_w.dumps({name: value for name, value in settings.items() if value is not None})
