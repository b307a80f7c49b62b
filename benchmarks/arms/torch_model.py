"""A task's model in torch, and the number of threads that suits it, for the arms that use torch."""

import time
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.tasks import Convolution, Dropout, Flatten, Linear, Pool, Task


def build(task: Task) -> nn.Sequential:
    """The model, from a fixed seed."""
    torch.manual_seed(0)
    modules: list[nn.Module] = []
    for layer, before, _ in task.shapes():
        if isinstance(layer, Convolution):
            modules.append(nn.Conv2d(before[0], layer.channels, layer.size))
        elif isinstance(layer, Linear):
            modules.append(nn.Linear(before[0], layer.width))
        elif isinstance(layer, Pool):
            modules.append(nn.MaxPool2d(layer.size))
        elif isinstance(layer, Dropout):
            modules.append(nn.Dropout(layer.probability))
        elif isinstance(layer, Flatten):
            modules.append(nn.Flatten())
        else:
            modules.append(nn.ReLU())
    return nn.Sequential(*modules)


def use_fastest_threads(task: Task) -> None:
    """Gives torch one thread or as many as it likes, whichever makes local steps faster: small models need one."""
    module = build(task)
    x = torch.zeros(task.batch_size, *task.input_shape)
    y = torch.zeros(task.batch_size, dtype=torch.int64)

    def steps() -> None:
        for _ in range(3):
            nn.functional.cross_entropy(module(x), y).backward()
            module.zero_grad()

    times = {threads: _best_time(steps, threads) for threads in (torch.get_num_threads(), 1)}
    torch.set_num_threads(min(times, key=times.__getitem__))


def _best_time(work: Callable[[], None], threads: int) -> float:
    torch.set_num_threads(threads)
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)
