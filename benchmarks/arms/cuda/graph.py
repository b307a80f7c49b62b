"""One client after another, but each step is a CUDA graph: no time is lost between operations.

Options: ``--precision`` tf32 (float32 elsewhere) or bf16 (autocast).
"""

import argparse

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.arms import torch_model
from benchmarks.arms.cuda import torch_round
from benchmarks.arms.cuda.torch_round import Round
from benchmarks.arms.worker import serve


class Loop:
    """Clients in turn, through a round's buffers for one client."""

    def __init__(self, data: torch_round.Data, half: bool) -> None:
        self.data = data
        module = torch_model.build(data.task).to(data.x.device)
        self.server = [parameter.detach().clone() for parameter in module.parameters()]
        self._round = torch_round.stack(data, self.server, clients=1)
        parameters = list(module.parameters())
        for parameter, mine in zip(parameters, self._round.clients, strict=True):
            parameter.data = mine[0]
        trained: Round = self._round

        def step() -> None:
            x, y = trained.batch(torch.float32)
            with torch.autocast(x.device.type, torch.bfloat16, enabled=half, cache_enabled=False):
                loss = functional.cross_entropy(module(x[0]), y[0])
            gradients = torch.autograd.grad(loss, parameters)
            torch_round.descend(trained.clients, [gradient[None] for gradient in gradients], data.task)

        with torch_round.alone():
            trained.step = torch_round.capture(step, trained.number.zero_, data.x.device)

    def train(self, round_number: int) -> None:
        """One round of FedAvg."""
        self.train_clients(self.data.batches(round_number))

    def train_clients(self, places: Tensor) -> None:
        """One round with the given samples, ``[steps, clients, batch size]``."""
        sums = [torch.zeros_like(parameter) for parameter in self.server]
        self._round.server = self.server
        for client in range(places.shape[1]):
            self._round.begin(places[:, client : client + 1])
            self._round.run()
            torch._foreach_add_(sums, [parameter[0] for parameter in self._round.clients])
        self.server = list(torch._foreach_div(sums, places.shape[1]))
        torch_round.wait(places.device)


def prepare(arguments: argparse.Namespace) -> Loop:
    """Data on the device, and the step as a graph."""
    torch_round.set_precision(arguments.precision)
    return Loop(torch_round.load(arguments), arguments.precision == "bf16")


def warm_up(loop: Loop) -> None:
    """One client is enough to have everything loaded."""
    loop.train_clients(loop.data.batches(0)[:, :1])


if __name__ == "__main__":
    serve(
        prepare,
        Loop.train,
        warm_up=warm_up,
        packages=("torch", "numpy"),
        peak_memory=torch_round.peak_memory,
        options=torch_round.add_precision,
    )
