"""pfl-research: its simulated backend, one user after another, in one process or in several that share the device.

Users' samples lie on the device, standardised, and are cut into batches in their order, as pfl does.

Options: ``--precision`` tf32 (torch's defaults) or bf16 (autocast); ``--processes N``.
"""

import argparse
import functools
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.arms import torch_model
from benchmarks.arms.cuda import torch_round
from benchmarks.arms.worker import serve
from benchmarks.tasks import Task

_END = -1


class Network(nn.Module):
    """The task's model with the two methods that pfl asks for."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.layers = torch_model.build(task)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """What a user minimises."""
        return functional.cross_entropy(self.layers(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        """Asked for in the first round only."""
        from pfl.metrics import Weighted

        return {"loss": Weighted(float(self.loss(x, y).detach()) * len(x), len(x))}


class Simulation:
    """A federation in pfl.

    Args:
        task: What is trained.
        device: Where.
        half: Whether autocast to bfloat16 is on.
    """

    def __init__(self, task: Task, device: str, half: bool) -> None:
        from pfl.aggregate.simulate import SimulatedBackend
        from pfl.algorithm.federated_averaging import FederatedAveraging
        from pfl.data.dataset import Dataset
        from pfl.hyperparam import NNTrainHyperParams
        from pfl.model.pytorch import PyTorchModel

        self._task, self._device = task, torch.device(device)
        x = torch.from_numpy(task.inputs()).to(self._device)
        y = torch.from_numpy(task.labels()).to(self._device)
        self._users = [Dataset((x[user], y[user]), user_id=str(user)) for user in range(task.population)]
        self._cohort = np.empty(0, dtype=np.int64)
        network = Network(task)
        self._model = PyTorchModel(
            model=network,
            local_optimizer_create=functools.partial(torch.optim.SGD, weight_decay=task.weight_decay),
            central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
            amp_dtype=torch.bfloat16 if half else None,
        )
        self._algorithm: Any = FederatedAveraging()
        self._backend = SimulatedBackend(training_data=_users_of(self), val_data=_users_of(self))
        self._training = NNTrainHyperParams(
            local_batch_size=task.batch_size,
            local_num_epochs=task.epochs,
            local_learning_rate=task.learning_rate,
            local_max_grad_norm=task.clip or None,
        )
        self._rounds = 0

    @property
    def server(self) -> list[Tensor]:
        """The server's parameters."""
        return [parameter.detach() for parameter in self._model.pytorch_model.parameters()]

    def train_clients(self, cohort: np.ndarray) -> None:
        """One round with the given users."""
        from pfl.algorithm.base import NNAlgorithmParams

        self._cohort = cohort
        self._rounds += 1
        parameters = NNAlgorithmParams(
            central_num_iterations=self._rounds,
            evaluation_frequency=10**9,
            train_cohort_size=len(cohort),
            val_cohort_size=None,
        )
        self._algorithm.run(parameters, self._backend, self._model, self._training, send_metrics_to_platform=False)
        torch_round.wait(self._device)

    def cohort(self, rank: int, processes: int) -> Iterator[tuple[Any, int]]:
        """Those users of the round that one of the processes trains, each with a seed."""
        for user in self._cohort[rank::processes]:
            yield self._users[user], int(user)


def _users_of(simulation: Simulation) -> Any:
    """Users by the benchmark's own draws, so that all arms train the same ones."""
    from pfl.data.federated_dataset import FederatedDatasetBase
    from pfl.internal.ops.selector import get_default_framework_module

    class Users(FederatedDatasetBase):  # type: ignore[misc]
        def __next__(self) -> tuple[Any, int]:
            raise NotImplementedError("users come by the cohort")

        def get_cohort(self, cohort_size: int) -> Iterator[tuple[Any, int]]:
            context = get_default_framework_module().distributed
            return simulation.cohort(context.global_rank, context.world_size)

    return Users()


class Federation:
    """The first of the processes, which tells the others what to train."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._task = torch_round.task_of(arguments)
        self._processes: int = arguments.processes
        if self._processes > 1 and arguments.rank == 0:
            port = _free_port()
            command = [sys.executable, "-m", "benchmarks.arms.cuda.pfl_simulation", *sys.argv[1:]]
            for rank in range(1, self._processes):
                subprocess.Popen([*command, "--rank", str(rank), "--port", str(port)], stdin=subprocess.DEVNULL)
            arguments.port = port
        if self._processes > 1:
            _meet(arguments.rank, self._processes, arguments.port)
        os.environ["PFL_PYTORCH_DEVICE"] = arguments.device
        torch.backends.cudnn.benchmark = True
        self._simulation = Simulation(self._task, arguments.device, arguments.precision == "bf16")

    def warm_up(self) -> None:
        """One round, with the GPU to itself."""
        with torch_round.alone():
            self.train(0)

    def train(self, round_number: int) -> None:
        """One round of FedAvg."""
        self._tell(round_number)
        self._simulation.train_clients(self._task.cohort_of(round_number))

    def follow(self) -> None:
        """What the others do: train their part of each round, until it ends."""
        while (round_number := self._tell(_END)) != _END:
            self._simulation.train_clients(self._task.cohort_of(round_number))

    def end(self) -> None:
        """Sends the others home."""
        self._tell(_END)

    def peak_memory(self) -> int:
        """The first process's peak on the GPU, times their number, as all do the same."""
        return torch_round.peak_memory() * (self._processes if torch.cuda.is_available() else 1)

    def _tell(self, round_number: int) -> int:
        """Passes a number on from the first process to all."""
        if self._processes == 1:
            return round_number
        number = torch.tensor([round_number])
        torch.distributed.broadcast(number, src=0)
        return int(number)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _meet(rank: int, processes: int, port: int) -> None:
    """Names the processes to each other as torchrun does, all with the first device.

    pfl takes NCCL wherever there is a GPU, but NCCL refuses two processes on one; Gloo adds up what they have.
    """
    os.environ |= {
        "TORCHELASTIC_RUN_ID": "benchmark",
        "RANK": str(rank),
        "WORLD_SIZE": str(processes),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    meet = torch.distributed.init_process_group
    setattr(torch.distributed, "init_process_group", lambda backend: meet(backend="gloo"))  # noqa: B010


def options(parser: argparse.ArgumentParser) -> None:
    """This arm's own; the last two are for processes that it starts itself."""
    torch_round.add_precision(parser)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--port", type=int)


def main() -> None:
    """Serves the parent, or follows the process that does."""
    if "--rank" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--task")
        parser.add_argument("--device")
        parser.add_argument("--clients-in-parallel", dest="clients", type=int)
        options(parser)
        Federation(parser.parse_known_args()[0]).follow()
        return
    first: list[Federation] = []

    def prepare(arguments: argparse.Namespace) -> Federation:
        first.append(Federation(arguments))
        return first[0]

    def peak_memory() -> int:
        return first[0].peak_memory()

    packages = ("pfl", "torch", "numpy")
    serve(
        prepare,
        Federation.train,
        warm_up=Federation.warm_up,
        packages=packages,
        peak_memory=peak_memory,
        options=options,
    )
    first[0].end()


if __name__ == "__main__":
    main()
