"""A task's model in torch, and the number of threads that suits it, for the arms that use torch."""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from benchmarks.tasks import (
    Convolution,
    Dropout,
    Flatten,
    GroupNorm,
    Layer,
    Linear,
    Mean,
    Pool,
    Residual,
    Shape,
    Task,
    shapes,
)


class Sum(nn.Module):
    """A residual block before its ReLU: the sum of two chains of layers with the same input."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut = body, shortcut

    def forward(self, x: Tensor) -> Tensor:
        """The sum."""
        total: Tensor = self.body(x) + self.shortcut(x)
        return total


def build(task: Task) -> nn.Sequential:
    """The model, from a fixed seed."""
    torch.manual_seed(0)
    return _chain(task.layers, task.input_shape)


def _chain(layers: Sequence[Layer], shape: Shape) -> nn.Sequential:
    modules: list[nn.Module] = []
    for layer, before, _ in shapes(layers, shape):
        if isinstance(layer, Convolution):
            size, channels, padding, stride, bias = layer
            modules.append(nn.Conv2d(before[0], channels, size, stride, padding, bias=bias))
        elif isinstance(layer, Linear):
            modules.append(nn.Linear(before[0], layer.width))
        elif isinstance(layer, Pool):
            modules.append(nn.MaxPool2d(layer.size))
        elif isinstance(layer, Dropout):
            modules.append(nn.Dropout(layer.probability))
        elif isinstance(layer, Flatten):
            modules.append(nn.Flatten())
        elif isinstance(layer, GroupNorm):
            modules.append(nn.GroupNorm(before[0] // layer.channels, before[0]))
        elif isinstance(layer, Mean):
            modules += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        elif isinstance(layer, Residual):
            modules.append(Sum(_chain(layer.body, before), _chain(layer.shortcut, before)))
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
