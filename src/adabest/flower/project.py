"""A project: what a user declares of a federation, the same on the server and on every node.

The server needs neither the samples of clients nor a data set: two made-up samples say how inputs and targets look. A
node needs the samples of its own clients alone.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adabest.algorithms.base import Algorithm
from adabest.data.dataset import Dataset, Defaults, as_tensor
from adabest.errors import InputError
from adabest.models.factory import Factory
from adabest.registry import own_names
from adabest.runs.build import cut_partition
from adabest.runs.settings.config import COMPONENTS, SETTINGS, Config
from adabest.runs.settings.resolution import Components, resolve
from adabest.tasks.classification import Loss
from adabest.tasks.objectives.base import Objective

NodeConfig = Mapping[str, bool | int | float | str]
"""What a node was started with, as in ``--node-config 'partition-id=0'``."""

MOST_CLIENTS = 10_000_000  # arrays of the server have a place for each number of a client

# What a federation decides by itself: who has which samples, and where they are trained.
_NOT_HERE = (
    "dataset",
    "data_dir",
    "clients",
    "validation_clients",
    "partition",
    "alpha",
    "shards",
    "unbalance",
    "engine",
    "device",
    "backend",
    "clients_in_parallel",
    "client_device_memory",
)
# What must be the same on the server and on all nodes, or clients would train in another way than the server believes.
_SHARED = (
    "algorithm",
    "model",
    "task",
    "loss",
    "batch_norm",
    "local_test",
    "epochs",
    "batch_size",
    "batching",
    "learning_rate",
    "learning_rate_decay",
    "weight_decay",
    "clip",
    "augmentation",
    "local_steps",
    "local_optimizer",
    "metrics",
    "seed",
    "partition_seed",
    "precision",
    "state_commit",
)


@dataclass(frozen=True)
class ClientData:
    """The samples of one client.

    Attributes:
        x: Training inputs, samples first: an array or a tensor.
        y: Training targets.
        x_test: Inputs that models are tested with, if the client holds some out. ``local_test`` takes a share of the
            training samples where they are left out.
        y_test: Their targets.
    """

    x: Any
    y: Any
    x_test: Any = None
    y_test: Any = None


def no_test() -> None:
    """No test samples on the server."""


@dataclass(frozen=True)
class Project:
    """A federation as its user declares it.

    Attributes:
        clients: Called on a node with what it was started with; gives the samples of its clients by their numbers. No
            two nodes have a client of the same number.
        example: Inputs and targets of two made-up samples, in the shapes and types of real ones. Where inputs are ids,
            they contain the lowest and the highest that there are.
        classes: How many classes the whole federation has; of floating-point targets, how many numbers one has.
        model: A model's name with options, or a function of (input_shape, classes) that makes one.
        test: Gives inputs and targets that the server tests models with; by default it has none, and nodes test them on
            what their clients hold out.
        mean: The mean that everyone subtracts from inputs.
        std: The deviation by which everyone then divides them.
        defaults: What settings are by default.
        algorithm: An algorithm of your own; else the setting ``algorithm`` names one of the package.
        task: A task of your own; else the setting ``task`` names one of the package.
        loss: A loss of your own, in place of the task's.
    """

    clients: Callable[[NodeConfig], Mapping[int, ClientData]]
    example: tuple[Any, Any]
    classes: int
    model: str | nn.Module | Factory | None = None
    test: Callable[[], tuple[Any, Any] | None] = no_test
    mean: Any = 0.0
    std: Any = 1.0
    defaults: Defaults = field(default_factory=Defaults)
    algorithm: Algorithm | None = None
    task: Objective | None = None
    loss: Loss | None = None

    def plan(
        self,
        run_config: Mapping[str, Any],
        *,
        clients: int = 1,
        tested: bool = False,
        machine: Mapping[str, Any] | None = None,
    ) -> "Plan":
        """The complete settings of a federation.

        Args:
            run_config: Settings by name, with dashes or underscores, and the terms of the federation.
            clients: How many clients there are, where that is known.
            tested: Whether the test samples are needed.
            machine: A node's own ``engine`` and ``device``; by default the reference engine on the CPU.

        Raises:
            InputError: If a setting is unknown, isn't for federations, or names code that isn't part of the package.
        """
        settings, terms = _sorted_out(run_config)
        x, y = (as_tensor(f"example[{place}]", value) for place, value in enumerate(self.example))
        test = self.test() if tested else None
        has_test = test is not None
        x_test, y_test = (x, y) if test is None else (as_tensor("x_test", test[0]), as_tensor("y_test", test[1]))
        dataset = Dataset(
            "federation",
            x,
            y,
            x_test,
            y_test,
            self.classes,
            mean=_scale("mean", self.mean),
            std=_scale("std", self.std),
            defaults=self.defaults,
        )
        objects = {name: own for name in COMPONENTS if (own := getattr(self, name, None)) is not None}
        if objects.get("model") is not None and "model" in settings:
            del settings["model"]
        for name in ("algorithm", "task", "loss"):
            if name in objects:
                settings.pop(name, None)
        given = {**settings, **objects, "dataset": dataset, "clients": clients}
        fixed = {"validation_clients": 0, "partition": "iid"}
        config, components = resolve({**given, **fixed, "engine": "reference", "device": "cpu", **(machine or {})})
        return Plan(config, components, terms, has_test)


@dataclass(frozen=True)
class Terms:
    """The terms of a federation that no result depends on.

    Attributes:
        nodes: How many nodes must be there before the first round.
        deadline: The seconds after which a phase goes on without those that haven't answered.
        out: The folder of the run, on the server.
    """

    nodes: int = 2
    deadline: float = 600.0
    out: str = "runs/federation"

    def __post_init__(self) -> None:
        if not (type(self.nodes) is int and self.nodes >= 1):
            raise InputError(f"nodes = {self.nodes!r}: it should be a whole number from 1")
        if type(self.deadline) not in (int, float) or not 0 < self.deadline < float("inf"):
            raise InputError(f"deadline = {self.deadline!r}: it should be a number of seconds above 0")
        if not (isinstance(self.out, str) and self.out):
            raise InputError(f"out = {self.out!r}: it should be the path of a folder")


@dataclass(frozen=True)
class Plan:
    """The complete settings of a federation, and the objects that they name.

    Attributes:
        config: The configuration.
        components: The objects.
        terms: The terms of the federation.
        has_test: Whether the server has test samples.
    """

    config: Config
    components: Components
    terms: Terms
    has_test: bool

    def digest(self) -> str:
        """A digest of what must be the same on the server and on all nodes."""
        settings = self.config.flat()
        shared = {name: settings.get(name) for name in (*_SHARED, *self.config.hyperparameters)}
        dataset, algorithm = self.components.dataset, self.components.algorithm
        shape = [list(dataset.input_shape), str(dataset.x_train.dtype), dataset.classes, self.components.outputs]
        scale = [dataset.mean.tolist(), dataset.std.tolist()]
        version = importlib.metadata.version("adabest")
        text = json.dumps([version, shared, repr(algorithm), shape, scale], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


def checked_clients(given: Any) -> dict[int, ClientData]:
    """The clients of a node, by ascending number.

    Raises:
        InputError: If they aren't clients by number.
    """
    if not isinstance(given, Mapping):
        raise InputError(f"clients gave a {type(given).__name__}; it should give a dict of ClientData by client number")
    for client, data in given.items():
        if isinstance(client, bool) or not isinstance(client, int | np.integer) or not 0 <= client < MOST_CLIENTS:
            raise InputError(f"clients gave the number {client!r}; it should be a whole number from 0 to 9,999,999")
        if not isinstance(data, ClientData):
            raise InputError(f"clients gave a {type(data).__name__} for client {client}; it should be a ClientData")
    return {int(client): given[client] for client in sorted(given)}


def simulated(settings: Mapping[str, Any], **changes: Any) -> Project:
    """The project of a simulation, whose nodes share out its clients: with the same settings it has the same numbers.

    A node says which one it is with ``partition-id``, its number from 0, and ``num-partitions``, how many there are.

    Args:
        settings: The settings by which a simulation loads its data set and deals it to clients, such as ``dataset``,
            ``clients``, ``alpha`` and ``partition_seed``.
        changes: Other fields of the project, such as ``model``.

    Raises:
        InputError: If a setting can't be used.
    """
    config, components = resolve({"validation_clients": 0, **settings})
    dataset = components.dataset
    inputs: Any = dataset.x_train
    if config.validation_clients:
        raise InputError("a federation has no validation clients; leave validation_clients out")

    def clients(node: NodeConfig) -> dict[int, ClientData]:
        place, places = _place(node)
        partition = cut_partition(config, components)
        own = partition.training[place::places].tolist()
        return {
            client: ClientData(inputs[partition.of(client)], dataset.y_train[partition.of(client)]) for client in own
        }

    two = torch.arange(2) % len(dataset.y_train)
    fields: dict[str, Any] = {
        "clients": clients,
        "example": (dataset.example() if dataset.holds_ids else inputs[two], dataset.y_train[two]),
        "classes": dataset.classes,
        "test": lambda: (dataset.x_test, dataset.y_test),
        "mean": dataset.mean,
        "std": dataset.std,
        "defaults": dataset.defaults,
    }
    return Project(**{**fields, **changes})


def _place(node: NodeConfig) -> tuple[int, int]:
    """The number of a node, and how many there are.

    Raises:
        InputError: If it doesn't say so.
    """
    try:
        place, places = int(node["partition-id"]), int(node["num-partitions"])
    except (KeyError, ValueError) as error:
        raise InputError(
            "this node doesn't say which one it is; start it with --node-config 'partition-id=0 num-partitions=3'"
        ) from error
    if not 0 <= place < places:
        raise InputError(
            f"partition-id = {place}: it should be from 0 to {places - 1}, since num-partitions = {places}"
        )
    return place, places


def _scale(name: str, given: Any) -> Tensor:
    """The mean or the deviation of inputs, in float32."""
    return as_tensor(f"x_{name}", np.asarray(given, dtype=np.float32) if isinstance(given, int | float) else given)


def _sorted_out(run_config: Mapping[str, Any]) -> tuple[dict[str, Any], Terms]:
    """The settings of the run, and the terms of the federation."""
    named = {str(name).replace("-", "_"): value for name, value in run_config.items()}
    of_terms = {one.name for one in dataclasses.fields(Terms)}
    terms = Terms(**{name: value for name, value in named.items() if name in of_terms})
    settings = {name: _listed(name, value) for name, value in named.items() if name not in of_terms}
    for name in settings:
        if name in _NOT_HERE:
            raise InputError(
                f"{name} isn't a setting of a federation, whose nodes have their own data and machines; remove it from "
                "[tool.flwr.app.config]"
            )
    foreign = own_names(settings)
    if foreign:
        raise InputError(
            f"{foreign[0]} names code, and settings travel over the network; give the object itself to the Project"
        )
    return settings, terms


def _listed(name: str, value: Any) -> Any:
    """A setting's value; what is a list elsewhere is one text here, since Flower has no lists."""
    declared = SETTINGS.get(name)
    if isinstance(value, str) and declared is not None and isinstance(declared.default, tuple):
        return value.split()
    return value
