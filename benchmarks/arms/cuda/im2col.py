"""All clients of a round at once by hand: convolutions become batched products of matrices, as a CUDA graph.

Images are kept channels-last, and each client's weights as the matrices that patches are multiplied with.

Options: ``--precision`` float32, tf32 or bf16; ``--compile`` lets ``torch.compile`` fuse what lies between products.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from benchmarks.arms import torch_model
from benchmarks.arms.cuda import torch_round
from benchmarks.arms.cuda.order import pooled_first
from benchmarks.arms.cuda.torch_round import Data, Precision, Round
from benchmarks.arms.worker import serve
from benchmarks.tasks import Convolution, Dropout, Flatten, Linear, Pool, Relu, Task


class Patches(torch.autograd.Function):
    """All squares of an image, ``[n, h, w, channels]``, as rows: ``[n, places, size × size × channels]``."""

    @staticmethod
    def forward(context: Any, x: Tensor, size: int) -> Tensor:
        """Copies them; the view of them costs nothing."""
        context.size, context.shape = size, x.shape
        squares = x.unfold(1, size, 1).unfold(2, size, 1).permute(0, 1, 2, 4, 5, 3)
        return squares.flatten(3).flatten(1, 2)

    @staticmethod
    @once_differentiable
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Adds up what belongs to a pixel: first along the width, then along the height."""
        size, (n, height, width, channels) = context.size, context.shape
        rows, columns = height - size + 1, width - size + 1
        squares = gradients[0].reshape(n, rows, columns, size, size, channels)
        strips = squares.new_zeros(n, rows, width, size, channels)
        for place in range(size):
            strips[:, :, place : place + columns] += squares[:, :, :, :, place]
        image = squares.new_zeros(n, height, width, channels)
        for place in range(size):
            image[:, place : place + rows] += strips[:, :, :, place]
        return image, None


_patches: Callable[[Tensor, int], Tensor] = Patches.apply


def matrices(parameters: Sequence[Tensor]) -> list[Tensor]:
    """A torch module's parameters as this arm keeps them: weights as ``[inputs, outputs]``, in the order of patches."""
    result = []
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        wide = weight.permute(2, 3, 1, 0).flatten(0, 2) if weight.ndim == 4 else weight.t()
        result += [wide.contiguous(), bias]
    return result


def parameters(task: Task, kept: Sequence[Tensor]) -> list[Tensor]:
    """The way back: what ``matrices`` was given."""
    result, stored = list[Tensor](), iter(kept)
    for layer, before, _ in task.shapes():
        if isinstance(layer, Convolution):
            wide = next(stored).view(layer.size, layer.size, before[0], layer.channels)
            result += [wide.permute(3, 2, 0, 1), next(stored)]
        elif isinstance(layer, Linear):
            result += [next(stored).t(), next(stored)]
    return result


def scores(task: Task, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
    """Class scores of all clients, ``[clients, batch, classes]``.

    Args:
        task: The model.
        parameters: ``[clients, ...]`` each.
        x: Inputs, ``[clients, batch, ...]``, images channels-last.
    """
    clients, batch = x.shape[:2]
    weights = iter(parameters)
    for layer in pooled_first(task):
        if isinstance(layer, Convolution):
            height, width = (size - layer.size + 1 for size in x.shape[2:4])
            rows = _patches(x.flatten(0, 1), layer.size).view(clients, batch * height * width, -1)
            x = _product(rows, next(weights), next(weights)).view(clients, batch, height, width, layer.channels)
        elif isinstance(layer, Linear):
            x = _product(x, next(weights), next(weights))
        elif isinstance(layer, Relu):
            x = functional.relu(x)
        elif isinstance(layer, Pool):
            images = functional.max_pool2d(x.flatten(0, 1).permute(0, 3, 1, 2), layer.size)
            x = images.permute(0, 2, 3, 1).reshape(clients, batch, *images.shape[2:], images.shape[1])
        elif isinstance(layer, Dropout):
            x = functional.dropout(x, layer.probability)
        elif isinstance(layer, Flatten):
            x = x.permute(0, 1, 4, 2, 3).flatten(2)
    return x


def _product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.baddbmm(bias[:, None], x, weight)


def federation(data: Data, precision: Precision, compiled: bool = False) -> Round:
    """A round whose step trains all clients.

    Args:
        data: Channels-last.
        precision: What products are done in.
        compiled: Whether ``torch.compile`` goes over forward, backward and update.
    """
    dtype = torch_round.set_precision(precision)
    task = data.task
    trained = torch_round.stack(data, matrices(list(torch_model.build(task).parameters())))
    leaves = [parameter.requires_grad_() for parameter in trained.clients]

    def loss(x: Tensor, y: Tensor) -> Tensor:
        z = scores(task, [leaf.to(dtype) for leaf in leaves], x)
        # The clients' losses are added up, so each client's gradient is that of its own mean.
        return functional.cross_entropy(z.float().flatten(0, 1), y.flatten(), reduction="sum") / task.batch_size

    forward = torch.compile(loss, fullgraph=True, dynamic=False) if compiled else loss

    def step() -> None:
        x, y = trained.batch(dtype)
        gradients = torch.autograd.grad(forward(x, y), leaves)
        with torch.no_grad():
            torch_round.descend(leaves, gradients, task)

    trained.step = torch_round.capture(step, trained.number.zero_, data.x.device)
    return trained


def prepare(arguments: argparse.Namespace) -> Round:
    """Data on the device, and the step as a graph."""
    return federation(torch_round.load(arguments, channels_last=True), arguments.precision, arguments.compile)


def options(parser: argparse.ArgumentParser) -> None:
    """This arm's own."""
    torch_round.add_precision(parser)
    parser.add_argument("--compile", action="store_true")


if __name__ == "__main__":
    serve(prepare, Round.train, packages=("torch", "numpy"), peak_memory=torch_round.peak_memory, options=options)
