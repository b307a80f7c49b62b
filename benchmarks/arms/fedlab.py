"""FedLab: its serial trainer and synchronous server, in one process, with the data loaders of its examples."""

import argparse

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.arms import torch_model
from benchmarks.arms.torchvision_parts import make_importable
from benchmarks.arms.worker import serve
from benchmarks.tasks import TASKS, Task

make_importable()

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer  # noqa: E402
from fedlab.contrib.algorithm.basic_server import SyncServerHandler  # noqa: E402


class Clients:
    """All clients' data, as FedLab asks for them."""

    def __init__(self, task: Task) -> None:
        self._x, self._y = torch.from_numpy(task.inputs()), torch.from_numpy(task.labels())

    def get_dataloader(self, client: int, batch_size: int) -> DataLoader[tuple[Tensor, ...]]:
        """One client's batches."""
        return DataLoader(TensorDataset(self._x[client], self._y[client]), batch_size, shuffle=True)


class Federation:
    """FedLab's server and its trainer of clients."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._server = SyncServerHandler(torch_model.build(task), global_round=10**9, sample_ratio=1.0)
        self._trainer = SGDSerialClientTrainer(torch_model.build(task), task.population)
        self._trainer.setup_dataset(Clients(task))
        self._trainer.setup_optim(task.epochs, task.batch_size, task.learning_rate)
        torch_model.use_fastest_threads(task)

    def train(self, cohort: list[int]) -> None:
        """One round with the given clients: what FedLab's standalone pipeline does, without its evaluation."""
        self._server.num_clients = len(cohort)
        self._trainer.local_process(self._server.downlink_package, cohort)
        for package in self._trainer.uplink_package:
            self._server.load(package)

    def train_round(self, round_number: int) -> None:
        """One round with the clients whose turn it is."""
        self.train(self._task.cohort_of(round_number).tolist())

    def warm_up(self) -> None:
        """One client."""
        self.train([0])


def prepare(arguments: argparse.Namespace) -> Federation:
    """Everything that a round needs."""
    return Federation(TASKS[arguments.task].with_cohort(arguments.clients))


if __name__ == "__main__":
    serve(prepare, Federation.train_round, warm_up=Federation.warm_up, packages=("fedlab", "torch", "numpy"))
