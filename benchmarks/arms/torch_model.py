"""A task's model in torch, for the arms that use it."""

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
