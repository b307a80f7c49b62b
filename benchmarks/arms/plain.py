"""A careful loop in plain torch: one client after another, everything that can be prepared prepared.

Data lie in memory as standardised float32, batches are picked by index, parameters of a client are loaded into one
module, and gradients are cleared by dropping them.
"""

import argparse
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.arms import torch_model
from benchmarks.arms.worker import serve
from benchmarks.tasks import TASKS, Task


@dataclass
class Federation:
    """A server, its clients' data, and the module that is trained on them in turn."""

    task: Task
    x: Tensor
    y: Tensor
    module: nn.Module
    server: list[Tensor]


def prepare(arguments: argparse.Namespace) -> Federation:
    """Everything that a round needs."""
    task = TASKS[arguments.task].with_cohort(arguments.clients)
    module = torch_model.build(task)
    x, y = torch.from_numpy(task.inputs()), torch.from_numpy(task.labels())
    return Federation(task, x, y, module, [p.detach().clone() for p in module.parameters()])


def train(federation: Federation, round_number: int) -> None:
    """One round of FedAvg."""
    train_clients(federation, federation.task.cohort_of(round_number).tolist())


def train_clients(federation: Federation, cohort: list[int]) -> None:
    """One round with the given clients."""
    parameters = list(federation.module.parameters())
    sums = [torch.zeros_like(p) for p in federation.server]
    for client in cohort:
        with torch.no_grad():
            torch._foreach_copy_(parameters, federation.server)
        train_client(federation, client)
        with torch.no_grad():
            torch._foreach_add_(sums, parameters)
    federation.server = [total / len(cohort) for total in sums]


def train_client(federation: Federation, client: int) -> None:
    """All local steps of a client."""
    task, x, y = federation.task, federation.x[client], federation.y[client]
    optimizer = torch.optim.SGD(federation.module.parameters(), lr=task.learning_rate, foreach=True)
    for _ in range(task.epochs):
        for batch in torch.randperm(task.samples).split(task.batch_size):
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(federation.module(x[batch]), y[batch]).backward()
            optimizer.step()


if __name__ == "__main__":
    serve(prepare, train, warm_up=lambda federation: train_clients(federation, [0]), packages=("torch", "numpy"))
