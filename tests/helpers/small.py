"""A small federation that trains in milliseconds, for the tests of models, engine and simulation."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from adabest.algorithms.base import Algorithm
from adabest.data.dataset import Dataset, from_arrays
from adabest.engine.local_step import LocalTraining
from adabest.engine.simulation import Rules, Simulation
from adabest.engine.state import Snapshot
from adabest.federation.batches import batch_table, batches_per_epoch
from adabest.federation.partition import Partition, Scheme, cut
from adabest.federation.roster import Attendance
from adabest.models.keyed import prepare
from adabest.tasks.base import no_heartbeat
from adabest.tasks.classification import ClassificationTask

SEED = 7
BATCH_SIZE = 8
EPOCHS = 2


def make_dataset() -> Dataset:
    """Byte images of 1×6×6 whose brightest third tells the class, with noise."""
    generator = np.random.default_rng(0)

    def split(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = generator.integers(3, size=count)
        images = generator.integers(0, 160, size=(count, 1, 6, 6))
        for label in range(3):
            images[labels == label, :, 2 * label : 2 * label + 2] += 60
        return images.astype(np.uint8), labels

    return from_arrays(*split(241), *split(60), name="stripes")


def make_partition(dataset: Dataset, *, unbalance: float = 0.0, seed: int = 0, validation: int = 4) -> Partition:
    scheme = Scheme(10, validation, "dirichlet", alpha=0.5, unbalance=unbalance, seed=seed)
    return cut(dataset.y_train.numpy(), dataset.classes, scheme)


def make_network(dropout: float = 0.0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        layers = [nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3)]
        return nn.Sequential(*layers)


def make_task(
    *,
    dataset: Dataset | None = None,
    unbalance: float = 0.0,
    partition_seed: int = 0,
    validation: int = 4,
    dropout: float = 0.0,
    **options: Any,
) -> ClassificationTask:
    dataset = dataset or make_dataset()
    partition = make_partition(dataset, unbalance=unbalance, seed=partition_seed, validation=validation)
    module = prepare(make_network(dropout), torch.zeros(2, 1, 6, 6))
    settings = {"epochs": EPOCHS, "batch_size": BATCH_SIZE, "seed": SEED, **options}
    return ClassificationTask(dataset, partition, module, **settings)


def make_simulation(
    algorithm: Algorithm,
    task: ClassificationTask,
    *,
    training: LocalTraining | None = None,
    heartbeat: Callable[[], None] = no_heartbeat,
    rules: Rules | None = None,
    **attendance: Any,
) -> Simulation:
    return Simulation(
        algorithm,
        task,
        task.partition.training,
        training=training or LocalTraining(weight_decay=1e-3),
        attendance=Attendance(**{"participation": 0.3, "seed": SEED, **attendance}),
        rules=rules,
        heartbeat=heartbeat,
    )


def plain_network(w: Tensor, dtype: torch.dtype = torch.float64) -> nn.Module:
    """The network of ``make_network`` with the given weights, as plain torch has it."""
    module = make_network().to(dtype)
    nn.utils.vector_to_parameters(w.to(dtype).clone(), module.parameters())  # they become views
    return module


def plain_inputs(x: Tensor) -> Tensor:
    """Standardised by hand, in float64."""
    pixels = make_dataset().x_train[:].double()
    mean, std = pixels.mean().float().double(), pixels.std(correction=0).float().double()
    return (x.double() - mean) / std


def plain_batches(partition: Partition, client: int, round_number: int) -> list[Tensor]:
    """The training samples of every step of a client."""
    own = partition.of(client)
    table = batch_table(
        SEED, round_number, np.array([client]), np.array([len(own)]), epochs=EPOCHS, batch_size=BATCH_SIZE
    )
    assert table.shape[2] == batches_per_epoch(len(own), BATCH_SIZE)
    return [torch.from_numpy(own[batch]) for epoch in table[0] for batch in epoch]


def plain_sgd(
    partition: Partition, start: Tensor, client: int, round_number: int, training: LocalTraining
) -> tuple[Tensor, list[float], list[float]]:
    """A client's local training with torch's own optimiser: its model, and loss and accuracy of every step."""
    dataset = make_dataset()
    module = plain_network(start)
    rate = training.learning_rate * training.learning_rate_decay ** (round_number - 1)
    optimiser = torch.optim.SGD(module.parameters(), lr=rate, weight_decay=training.weight_decay)
    losses, accuracies = [], []
    for batch in plain_batches(partition, client, round_number):
        optimiser.zero_grad()
        scores, y = module(plain_inputs(dataset.x_train[batch])), dataset.y_train[batch]
        loss = functional.cross_entropy(scores, y)
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        norm = torch.sqrt(torch.stack([(g**2).sum() for g in gradients]).sum())
        if training.clip > 0 and norm > training.clip:
            for gradient in gradients:
                gradient.mul_(training.clip / norm)
        optimiser.step()
        losses.append(loss.item())
        accuracies.append((scores.argmax(1) == y).double().mean().item())
    return nn.utils.parameters_to_vector(module.parameters()).detach(), losses, accuracies


def frozen(snapshot: Snapshot) -> Snapshot:
    """A copy that nothing can change any more."""
    return Snapshot({name: t.clone() for name, t in snapshot.tensors.items()}, dict(snapshot.numbers))


def assert_same(a: Snapshot, b: Snapshot) -> None:
    """Two states are equal to the last bit."""
    assert a.numbers == b.numbers
    assert list(a.tensors) == list(b.tensors)
    for name, tensor in a.tensors.items():
        assert tensor.dtype == b.tensors[name].dtype, name
        assert torch.equal(_with_zeros(tensor), _with_zeros(b.tensors[name])), name
        assert torch.equal(tensor.isnan(), b.tensors[name].isnan()), name


def _with_zeros(tensor: Tensor) -> Tensor:
    """A tensor with zeros in place of what isn't a number, which equals nothing."""
    return tensor.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf)


# What is measured of an evaluated round, in the order of the file.
METRICS = (
    "round",
    "scored_accuracy",
    "scored_loss",
    "aggregate_accuracy",
    "aggregate_loss",
    "cloud_accuracy",
    "cloud_loss",
    "train_accuracy",
    "train_loss",
    "validation_accuracy",
    "validation_spread",
    "validation_worst_tenth",
    "cloud_norm",
    "h_norm",
    "client_h_norm",
    "h_cosine",
    "present",
    "cohort",
    "bytes_down",
    "bytes_up",
    "local_steps",
)
