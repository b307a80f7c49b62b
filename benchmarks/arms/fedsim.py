"""fedsim: its federated averaging, in one process, without scores."""

import argparse
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from benchmarks.arms import torch_model
from benchmarks.arms.torchvision_parts import make_importable
from benchmarks.arms.worker import serve
from benchmarks.tasks import TASKS, Task

make_importable()

from fedsim.distributed.centralized.training import FedAvg  # noqa: E402
from fedsim.losses import CrossEntropyLoss  # noqa: E402


class Classifier(nn.Module):
    """The model as a class of its own, which fedsim asks for."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.layers = torch_model.build(task)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        scores: Tensor = self.layers(x)
        return scores


class Clients:
    """All clients' data, as fedsim asks for them."""

    def __init__(self, task: Task) -> None:
        self._x, self._y = torch.from_numpy(task.inputs()), torch.from_numpy(task.labels())

    def get_local_dataset(self, client: int) -> dict[str, TensorDataset]:
        """One client's samples."""
        return {"train": TensorDataset(self._x[client], self._y[client])}

    def get_local_splits_names(self) -> list[str]:
        """There are only training samples."""
        return ["train"]

    def get_global_dataset(self) -> dict[str, TensorDataset]:
        """The server has nothing to be judged on."""
        return {}

    def get_oracle_dataset(self) -> None:
        """Nor has anybody else."""


class Federation:
    """fedsim's algorithm, run for one round at a time."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._algorithm = self._made(task.cohort)
        torch_model.use_fastest_threads(task)

    def _made(self, cohort: int) -> FedAvg:
        task = self._task
        return FedAvg(
            Clients(task),
            None,
            num_clients=task.population,
            sample_scheme="uniform",
            sample_rate=(cohort + 0.5) / task.population,
            model_def=partial(Classifier, task),
            epochs=task.epochs,
            criterion_def=partial(CrossEntropyLoss, log_freq=10**9),
            local_optimizer_def=partial(torch.optim.SGD, lr=task.learning_rate),
            batch_size=task.batch_size,
        )

    def train_round(self, round_number: int) -> None:
        """One round; fedsim draws its clients itself, and makes one round more than it is asked for."""
        self._algorithm.train(rounds=0)

    def warm_up(self) -> None:
        """One client, of another federation."""
        self._made(1).train(rounds=0)


def prepare(arguments: argparse.Namespace) -> Federation:
    """Everything that a round needs."""
    return Federation(TASKS[arguments.task].with_cohort(arguments.clients))


if __name__ == "__main__":
    serve(prepare, Federation.train_round, warm_up=Federation.warm_up, packages=("fedsim", "torch", "numpy"))
