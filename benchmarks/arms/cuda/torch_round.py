"""What the torch arms on a GPU share: data that stay on the device, batches by index, captured steps.

Everything here runs on a CPU as well, without the graph, so that it can be checked there.
"""

import argparse
import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from benchmarks.arms.worker import resident_memory
from benchmarks.tasks import MEAN, STD, TASKS, Task

Precision = Literal["float32", "tf32", "bf16"]


@dataclass
class Data:
    """All clients' samples on the device, as bytes.

    Attributes:
        task: What is trained.
        x: Inputs, ``[population × samples, *input_shape]``.
        y: Labels.
    """

    task: Task
    x: Tensor
    y: Tensor

    def batches(self, round_number: int) -> Tensor:
        """The places of a round's samples, ``[steps, cohort, batch size]``, shuffled anew in every epoch."""
        task, device = self.task, self.x.device
        cohort = torch.from_numpy(task.cohort_of(round_number)).to(device)
        order = torch.rand(task.epochs, task.cohort, task.samples, device=device).argsort(-1)
        places = order + (cohort * task.samples)[:, None]
        steps = places.view(task.epochs, task.cohort, -1, task.batch_size).movedim(2, 1)
        return steps.reshape(task.steps, task.cohort, task.batch_size)

    def inputs(self, places: Tensor, dtype: torch.dtype) -> Tensor:
        """Standardised inputs. Bytes and their distance to the mean are exact in bfloat16, too."""
        return self.x[places].to(dtype).sub_(float(MEAN)).mul_(float(1 / STD))


def load(arguments: argparse.Namespace, *, channels_last: bool = False) -> Data:
    """A task's data, on the device."""
    task = task_of(arguments)
    device = torch.device(arguments.device)
    x = torch.from_numpy(task.images()).flatten(0, 1).to(device)
    if channels_last and x.ndim == 4:
        x = x.permute(0, 2, 3, 1).contiguous()
    return Data(task, x, torch.from_numpy(task.labels()).flatten().to(device))


def task_of(arguments: argparse.Namespace) -> Task:
    """The task at the wanted number of clients in a round."""
    task = TASKS[arguments.task].with_cohort(arguments.clients)
    if task.samples % task.batch_size != 0:
        raise SystemExit(f"{task.name}: batches of {task.batch_size} don't divide {task.samples} samples")
    return task


def add_precision(parser: argparse.ArgumentParser) -> None:
    """The option ``--precision``."""
    parser.add_argument("--precision", choices=("float32", "tf32", "bf16"), default="tf32")


def set_precision(precision: Precision) -> torch.dtype:
    """Lets matrices be multiplied so, and says which type activations have."""
    tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    return torch.bfloat16 if precision == "bf16" else torch.float32


def descend(parameters: Sequence[Tensor], gradients: Sequence[Tensor], task: Task) -> None:
    """One step of SGD for each client, in place: the gradient is clipped to its norm, then the decay is added.

    Args:
        parameters: Those of all clients, ``[clients, ...]`` each.
        gradients: Their gradients.
        task: Learning rate, weight decay and largest norm.
    """
    factor = None
    if task.clip > 0:
        norms = [torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients]
        norm = torch.linalg.vector_norm(torch.stack(norms), dim=0)
        factor = (task.clip / norm).clamp_(max=1.0)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if task.weight_decay > 0:
            parameter.mul_(1 - task.learning_rate * task.weight_decay)
        if factor is None:
            parameter.sub_(gradient, alpha=task.learning_rate)
        else:
            wide = factor.reshape(-1, *[1] * (gradient.ndim - 1))
            parameter.addcmul_(gradient, wide, value=-task.learning_rate)


@dataclass
class Round:
    """A round of FedAvg for all clients of a cohort at once.

    Attributes:
        data: The clients' data.
        server: The server's parameters.
        clients: Those of the clients, ``[cohort, ...]`` each.
        places: Which samples the round's steps take.
        step: Trains all clients one step further. It counts the steps itself, on the device.
        number: That count.
    """

    data: Data
    server: list[Tensor]
    clients: list[Tensor]
    places: Tensor
    number: Tensor
    step: Callable[[], None] = lambda: None

    def train(self, round_number: int) -> None:
        """One round of FedAvg."""
        self.train_clients(self.data.batches(round_number))

    @torch.no_grad()
    def train_clients(self, places: Tensor) -> None:
        """One round with the given samples, ``[steps, clients, batch size]``; waits for its end."""
        self.begin(places)
        self.run()
        self.server = [parameter.mean(dim=0) for parameter in self.clients]
        wait(places.device)

    def run(self) -> None:
        """All local steps."""
        with torch.enable_grad():
            for _ in range(len(self.places)):
                self.step()

    @torch.no_grad()
    def begin(self, places: Tensor) -> None:
        """Sends out the server's model, with the samples that clients are to train on."""
        self.places.copy_(places)
        self.number.zero_()
        for mine, theirs in zip(self.clients, self.server, strict=True):
            mine.copy_(theirs)

    def batch(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """This step's inputs and labels; the next call gives those of the next step."""
        places = self.places.index_select(0, self.number).squeeze(0)
        self.number.add_(1)
        return self.data.inputs(places, dtype), self.data.y[places]


def stack(data: Data, server: list[Tensor], clients: int | None = None) -> Round:
    """A round's buffers, still without a step; for all clients of a cohort, or for so many."""
    task, device = data.task, data.x.device
    count = clients or task.cohort
    server = [parameter.detach().to(device) for parameter in server]
    stacked = [parameter.expand(count, *parameter.shape).clone() for parameter in server]
    places = torch.zeros(task.steps, count, task.batch_size, dtype=torch.int64, device=device)
    return Round(data, server, stacked, places, torch.zeros(1, dtype=torch.int64, device=device))


def capture(step: Callable[[], None], begin: Callable[[], object], device: torch.device) -> Callable[[], None]:
    """The step as a CUDA graph. On a CPU, the step itself.

    Args:
        step: Does its work in buffers that stay where they are.
        begin: Called before each trial of the step, so that what it counts stays in range.
        device: Where it runs.
    """
    if device.type != "cuda":
        return step
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(3):
            begin()
            step()
    torch.cuda.current_stream(device).wait_stream(side)
    begin()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    wait(device)
    return graph.replay


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Waits for other arms that start now: cuDNN tries its algorithms out, and should find the GPU free."""
    path = os.environ.get("BENCHMARKS_LOCK")
    if not path:
        yield
        return
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def wait(device: torch.device) -> None:
    """Until all that was queued is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory() -> int:
    """The largest number of bytes in use so far: on the GPU, if one is used."""
    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else resident_memory()
