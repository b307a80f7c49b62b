"""The task of a single client, made of its own samples alone, as the nodes of a real federation have them."""

import functools
import operator
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from adabest.data.augmentation import Augmentation, none
from adabest.data.dataset import Dataset, as_tensor
from adabest.data.inputs import Inputs
from adabest.errors import InputError
from adabest.federation.batches import Batching
from adabest.federation.partition import Partition
from adabest.models.factory import Factory, build_model
from adabest.models.group_norm import BatchNorm
from adabest.tasks.classification import ClassificationTask, Loss
from adabest.tasks.objectives.base import Objective
from adabest.tasks.objectives.catalog import CLASSIFICATION

_CLIENTS = 2**63  # a client's number is an int64


class OneClientPartition(Partition):
    """A partition in which one client has all samples, in their order.

    Its arrays have one row, whatever the client's number. Methods take that number, and refuse all others.
    """

    @classmethod
    def of_labels(cls, client: int, labels: np.ndarray, classes: int) -> "OneClientPartition":
        """The partition of a client whose samples have these labels."""
        return cls(
            indices=np.arange(len(labels)),
            offsets=np.array([0, len(labels)]),
            training=np.array([client]),
            validation=np.array([], dtype=np.int64),
            label_counts=np.bincount(labels, minlength=classes)[None],
        )

    @property
    def training_samples(self) -> np.ndarray:
        """n_i of the client."""
        return self.samples

    def of(self, client: int) -> np.ndarray:
        """All sample indices.

        Raises:
            InputError: If another client is asked for.
        """
        own = int(self.training[0])
        if client != own:
            raise InputError(f"this task has the samples of client {own} alone, not those of client {client}")
        return self.indices

    def spans(self, clients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the samples of some clients start in ``indices``, and how many they are.

        Raises:
            InputError: If one of them is another client.
        """
        samples = np.array([len(self.of(client)) for client in clients.tolist()], dtype=np.int64)
        return np.zeros_like(samples), samples


class _UntestedDataset(Dataset):
    """A data set whose ``x_test`` and ``y_test`` are empty."""

    def __post_init__(self) -> None:
        inputs: Any = self.x_train
        # For its checks.
        Dataset(self.name, inputs, self.y_train, inputs, self.y_train, self.classes, self.mean, self.std)


def one_client_task(
    client: int,
    x_train: Any,
    y_train: Any,
    model: str | nn.Module | Factory,
    *,
    classes: int,
    x_test: Any = None,
    y_test: Any = None,
    mean: Any = 0.0,
    std: Any = 1.0,
    batch_norm: BatchNorm = "refuse",
    objective: Objective = CLASSIFICATION,
    loss: Loss | None = None,
    augmentation: Augmentation = none,
    epochs: int = 5,
    batch_size: int = 45,
    batching: Batching = "top-up",
    local_steps: Literal["own", "mean"] = "own",
    steps: int | None = None,
    seed: int = 0,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> ClassificationTask:
    """Makes the task of one client out of its own samples, without those of others.

    The client trains bit for bit as in a simulation of all clients in which it has the same number, samples in the same
    order, and settings.

    Args:
        client: The client's number in the federation, which names its random draws; any from 0.
        x_train: Its training inputs, samples first: an array, a tensor, or ``Inputs`` that are made on access.
        y_train: Its training labels, whole numbers from 0.
        model: A model specification, a module, or a function of (input_shape, classes).
        classes: How many classes the whole federation has.
        x_test: Test inputs, if models are to be tested here.
        y_test: Test labels.
        mean: The mean that everyone subtracts from inputs: a number, or one per channel ``[channels, 1, 1]``. A tensor
            keeps its type, anything else becomes float32.
        std: The deviation by which everyone then divides them, of the same shapes.
        batch_norm: Whether BatchNorm is refused, or replaced by GroupNorm.
        objective: What the model is trained for.
        loss: Of (outputs, targets), in place of the objective's own.
        augmentation: Of training inputs.
        epochs: Passes over the samples in a round.
        batch_size: Samples in a batch.
        batching: How an epoch's batches are made: ``top-up``, ``short`` or ``replacement``, as in the run.
        local_steps: Whether the client makes as many steps as its own samples take, or the mean of everyone.
        steps: K, for the mean of everyone, which no client can know by itself.
        seed: The run's seed.
        device: Where the client trains; by default the CPU.
        dtype: The type of the model's numbers, float32 or float64.

    Raises:
        InputError: If anything can't be used. The task raises it, too, if it is asked for another client, or for a
            test without test samples.
    """
    number = _checked_number(client)
    if dtype not in (torch.float32, torch.float64):
        raise InputError(f"dtype = {dtype}: a model's numbers are torch.float32 or torch.float64")
    dataset = _dataset(
        f"of client {number}",
        classes,
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        mean=mean,
        std=std,
    )
    objective.check_data(dataset)
    module = build_model(
        model,
        dataset.example(),
        objective.outputs(dataset),
        seed,
        batch_norm,
        check_output=functools.partial(objective.check_output, dataset=dataset),
    )
    return ClassificationTask(
        dataset,
        OneClientPartition.of_labels(number, *dataset.strata()),
        module,
        objective=objective,
        loss=loss,
        augmentation=augmentation,
        epochs=epochs,
        batch_size=batch_size,
        batching=batching,
        local_steps=_number_of_steps(local_steps, steps),
        seed=seed,
        device=device,
        dtype=dtype,
    )


def _checked_number(client: Any) -> int:
    try:
        number = operator.index(client)
    except TypeError as error:
        raise InputError(f"client = {client!r}: a client's number is a whole number from 0") from error
    if not 0 <= number < _CLIENTS:
        raise InputError(f"client = {number}: a client's number is at least 0 and below 2⁶³")
    return number


def _number_of_steps(local_steps: str, steps: int | None) -> Literal["own"] | int:
    if local_steps not in ("own", "mean"):
        raise InputError(f"local_steps = {local_steps!r}: it is 'own' or 'mean'")
    if local_steps == "mean" and steps is None:
        raise InputError(
            "local_steps = 'mean': one client can't know the mean of everyone; give the number of steps as steps=K"
        )
    if local_steps == "own" and steps is not None:
        raise InputError(f"steps = {steps}: the client's samples decide that, unless local_steps is 'mean'")
    return "own" if steps is None else steps


def _dataset(name: str, classes: int, *, mean: Any, std: Any, x_test: Any, y_test: Any, **train: Any) -> Dataset:
    """A client's samples as a data set, checked as any other."""
    if (x_test is None) != (y_test is None):
        raise InputError(f"data set {name}: x_test and y_test come together; give both of them, or none")
    x = train["x_train"] if isinstance(train["x_train"], Inputs) else as_tensor("x_train", train["x_train"])
    y = as_tensor("y_train", train["y_train"])
    mean, std = (_normalisation(name, key, value, x.shape[1:]) for key, value in (("mean", mean), ("std", std)))
    if not bool((std > 0).all()):
        raise InputError(f"data set {name}: inputs are divided by std, and must be above 0")
    if x_test is None:
        nothing = torch.empty(0, *x.shape[1:], dtype=x.dtype), torch.empty(0, *y.shape[1:], dtype=y.dtype)
        return _UntestedDataset(name, x, y, *nothing, classes, mean, std)
    return Dataset(name, x, y, as_tensor("x_test", x_test), as_tensor("y_test", y_test), classes, mean, std)


def _normalisation(name: str, key: str, value: Any, shape: torch.Size) -> Tensor:
    """A mean or a deviation as a tensor that fits inputs of a shape."""
    right = f"it should be a finite number, or one per channel [channels, 1, 1], for inputs of shape {tuple(shape)}"
    try:
        tensor = value.detach().cpu() if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float32)
        finite = tensor.expand(shape).isfinite()
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"data set {name}: {key} can't be used: {error}; {right}") from error
    if not bool(finite.all()):
        raise InputError(f"data set {name}: {key} isn't finite; {right}")
    return tensor
