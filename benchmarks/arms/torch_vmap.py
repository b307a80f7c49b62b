"""``torch.func``: the gradients of all clients of a round by one ``vmap(grad)`` on stacked parameters."""

import argparse

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from benchmarks.arms import torch_model
from benchmarks.arms.worker import serve
from benchmarks.tasks import TASKS, Task


class Federation:
    """The server, and all clients' data."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._x, self._y = torch.from_numpy(task.inputs()), torch.from_numpy(task.labels())
        self._module = torch_model.build(task)
        self._server = {name: p.detach().clone() for name, p in self._module.named_parameters()}
        self._gradients = vmap(grad(self._loss), randomness="different")

    def _loss(self, parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(self._module, parameters, (x,)), y)

    @torch.no_grad()
    def train(self, cohort: Tensor, steps: int) -> None:
        """One round, or its first steps."""
        task, chosen = self._task, cohort[:, None]
        stacked = {name: p.expand(len(cohort), *p.shape).clone() for name, p in self._server.items()}
        order = torch.rand(len(cohort), task.epochs, task.samples).argsort(dim=2).reshape(len(cohort), -1)
        for batch in order.split(task.batch_size, dim=1)[:steps]:
            gradients = self._gradients(stacked, self._x[chosen, batch], self._y[chosen, batch])
            torch._foreach_add_(list(stacked.values()), list(gradients.values()), alpha=-task.learning_rate)
        self._server = {name: p.mean(dim=0) for name, p in stacked.items()}

    def train_round(self, round_number: int) -> None:
        """One round with the clients whose turn it is."""
        self.train(torch.from_numpy(self._task.cohort_of(round_number)), self._task.steps)

    def warm_up(self) -> None:
        """One step of a round."""
        self.train(torch.from_numpy(self._task.cohort_of(0)), 1)


def prepare(arguments: argparse.Namespace) -> Federation:
    """Everything that a round needs."""
    return Federation(TASKS[arguments.task].with_cohort(arguments.clients))


if __name__ == "__main__":
    serve(prepare, Federation.train_round, warm_up=Federation.warm_up, packages=("torch", "numpy"))
