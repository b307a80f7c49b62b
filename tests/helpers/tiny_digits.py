"""A small federation on the real digits, for what must hold beyond quadratics."""

import functools

import torch

from adabest.algorithms.base import Algorithm
from adabest.data.dataset import Dataset
from adabest.data.loading import load_dataset
from adabest.engine.local_step import LocalTraining
from adabest.engine.simulation import Simulation
from adabest.federation.partition import Scheme, cut
from adabest.federation.roster import Attendance
from adabest.models.factory import build_model
from adabest.tasks.classification import ClassificationTask

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
