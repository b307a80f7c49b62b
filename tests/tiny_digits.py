"""A small federation on the real digits, for what must hold beyond quadratics."""

import functools

import torch

from adabest.algorithms import Algorithm
from adabest.data import Dataset, load_dataset
from adabest.engine import ClassificationTask, LocalTraining, Simulation
from adabest.federation import Attendance, Scheme, cut
from adabest.models import build_model

CLIENTS = 12


@functools.cache
def dataset() -> Dataset:
    """The digits, read once."""
    return load_dataset("digits")


def digits_task(*, unbalance: float = 0.0, dtype: torch.dtype = torch.float64, seed: int = 0) -> ClassificationTask:
    """Logistic regression on skewed digits, two epochs of batches of 40."""
    data = dataset()
    scheme = Scheme(
        clients=CLIENTS,
        validation_clients=2,
        partitioner="dirichlet",
        alpha=0.3,
        unbalance=unbalance,
        seed=seed,
    )
    partition = cut(data.y_train.numpy(), data.classes, scheme)
    example = (data.x_train[:2].to(torch.float32) - data.mean) / data.std
    module = build_model("logistic", example, data.classes, seed)
    return ClassificationTask(data, partition, module, epochs=2, batch_size=40, seed=seed, dtype=dtype)


def simulate_digits(algorithm: Algorithm, task: ClassificationTask, *, participation: float = 0.34) -> Simulation:
    """The protocol of the paper's table: decaying rate, weight decay, clipping."""
    return Simulation(
        algorithm,
        task,
        task.partition.training,
        training=LocalTraining(weight_decay=1e-4),
        attendance=Attendance(participation=participation),
    )
