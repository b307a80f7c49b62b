"""A careful loop in plain torch: one client after another, everything that can be prepared prepared.

Data lie in memory as standardised float32, batches are picked by index, all clients train in one module, and the
optimizer updates all parameters in one call. ``--channels-last`` lays images out as convolutions like them best.
``--processes N`` has the clients dealt among so many processes that share data and models.
"""

import argparse
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor, multiprocessing
from torch.nn import functional

from benchmarks.arms import torch_model
from benchmarks.arms.worker import serve
from benchmarks.tasks import TASKS, Task


class Loop:
    """A module that is trained on one client's data after another's."""

    def __init__(self, task: Task, x: Tensor, y: Tensor, channels_last: bool) -> None:
        self._task, self._x, self._y = task, x, y
        layout: dict[str, Any] = {"memory_format": torch.channels_last} if channels_last else {}
        self._module = torch_model.build(task).to(**layout)
        self._parameters: list[Tensor] = list(self._module.parameters())
        self._optimizer = torch.optim.SGD(self._parameters, lr=task.learning_rate, foreach=True)

    def initial(self) -> list[Tensor]:
        """The model before the first round."""
        return [p.detach().clone() for p in self._parameters]

    @torch.no_grad()
    def total(self, server: list[Tensor], cohort: Sequence[int]) -> list[Tensor]:
        """The sum of the clients' models after their training."""
        sums = [torch.zeros_like(p) for p in self._parameters]
        for client in cohort:
            torch._foreach_copy_(self._parameters, server)
            with torch.enable_grad():
                self._train(self._x[client], self._y[client])
            torch._foreach_add_(sums, self._parameters)
        return sums

    def _train(self, x: Tensor, y: Tensor) -> None:
        for _ in range(self._task.epochs):
            for batch in torch.randperm(self._task.samples).split(self._task.batch_size):
                self._optimizer.zero_grad(set_to_none=True)
                functional.cross_entropy(self._module(x[batch]), y[batch]).backward()
                self._optimizer.step()


class Federation:
    """The server, and who works for it: this process, or several others."""

    def __init__(self, task: Task, channels_last: bool, processes: int) -> None:
        self._task = task
        x, y = torch.from_numpy(task.inputs()), torch.from_numpy(task.labels())
        if channels_last and x.ndim == 5:
            x = x.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)
        loop = Loop(task, x, y, channels_last)
        self._server = loop.initial()
        self._total: Callable[[list[Tensor], Sequence[int]], list[Tensor]] = loop.total
        if processes > 1:
            self._workers = [_start(task, x.share_memory_(), y, channels_last) for _ in range(processes)]
            self._total = self._together
        else:
            torch_model.use_fastest_threads(task)

    def train(self, cohort: Sequence[int]) -> None:
        """One round of FedAvg."""
        self._server = [total / len(cohort) for total in self._total(self._server, cohort)]

    def train_round(self, round_number: int) -> None:
        """One round with the clients whose turn it is."""
        self.train(self._task.cohort_of(round_number).tolist())

    def warm_up(self) -> None:
        """One client for each process."""
        self.train(list(range(len(getattr(self, "_workers", [1])))))

    def _together(self, server: list[Tensor], cohort: Sequence[int]) -> list[Tensor]:
        for number, worker in enumerate(self._workers):
            worker.send((server, cohort[number :: len(self._workers)]))
        sums = [worker.recv() for worker in self._workers]
        return [sum(parts[1:], parts[0]) for parts in zip(*sums, strict=True)]


def _start(task: Task, x: Tensor, y: Tensor, channels_last: bool) -> "Connection":
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_work, args=(theirs, task, x, y, channels_last), daemon=True
    )
    process.start()
    return ours


def _work(parent: "Connection", task: Task, x: Tensor, y: Tensor, channels_last: bool) -> None:
    torch.set_num_threads(1)
    loop = Loop(task, x, y, channels_last)
    while True:
        server, cohort = parent.recv()
        parent.send(loop.total(server, cohort))


def prepare(arguments: argparse.Namespace) -> Federation:
    """Everything that a round needs."""
    task = TASKS[arguments.task].with_cohort(arguments.clients)
    return Federation(task, arguments.channels_last, arguments.processes)


def options(parser: argparse.ArgumentParser) -> None:
    """How the loop is run."""
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--processes", type=int, default=1)


if __name__ == "__main__":
    serve(prepare, Federation.train_round, warm_up=Federation.warm_up, packages=("torch", "numpy"), options=options)
