"""One client after another, each operation launched by itself: what simulators do at best with one process.

Options: ``--precision`` tf32 (what torch does by default on a GPU: convolutions in TF32, products of matrices in
float32) or bf16 (autocast).
"""

import argparse
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.arms import torch_model
from benchmarks.arms.cuda import torch_round
from benchmarks.arms.worker import serve


@dataclass
class Federation:
    """A server, its clients' data, and the module that is trained on them in turn."""

    data: torch_round.Data
    module: nn.Module
    server: list[Tensor]
    half: bool

    def train(self, round_number: int) -> None:
        """One round of FedAvg."""
        self.train_clients(self.data.batches(round_number))

    @torch.no_grad()
    def train_clients(self, places: Tensor) -> None:
        """One round with the given samples, ``[steps, clients, batch size]``."""
        parameters: list[Tensor] = list(self.module.parameters())
        sums = [torch.zeros_like(parameter) for parameter in self.server]
        for client in range(places.shape[1]):
            torch._foreach_copy_(parameters, self.server)
            with torch.enable_grad():
                self._train_client(places[:, client])
            torch._foreach_add_(sums, parameters)
        self.server = list(torch._foreach_div(sums, places.shape[1]))
        torch_round.wait(places.device)

    def _train_client(self, places: Tensor) -> None:
        task = self.data.task
        parameters = list(self.module.parameters())
        # One kernel for the whole update, where there is one.
        update = {"fused": True} if places.is_cuda else {"foreach": True}
        optimizer = torch.optim.SGD(parameters, task.learning_rate, weight_decay=task.weight_decay, **update)
        for batch in places:
            optimizer.zero_grad(set_to_none=True)
            x, y = self.data.inputs(batch, torch.float32), self.data.y[batch]
            with torch.autocast(batch.device.type, torch.bfloat16, enabled=self.half):
                loss = functional.cross_entropy(self.module(x), y)
            torch.autograd.backward(loss)
            if task.clip > 0:
                nn.utils.clip_grad_norm_(parameters, task.clip, foreach=True)
            optimizer.step()


def prepare(arguments: argparse.Namespace) -> Federation:
    """Everything that a round needs."""
    torch.backends.cudnn.benchmark = True
    data = torch_round.load(arguments)
    module = torch_model.build(data.task).to(data.x.device)
    server = [parameter.detach().clone() for parameter in module.parameters()]
    return Federation(data, module, server, arguments.precision == "bf16")


def warm_up(federation: Federation) -> None:
    """One client is enough to have everything loaded."""
    with torch_round.alone():
        federation.train_clients(federation.data.batches(0)[:, :1])


if __name__ == "__main__":
    serve(
        prepare,
        Federation.train,
        warm_up=warm_up,
        packages=("torch", "numpy"),
        peak_memory=torch_round.peak_memory,
        options=torch_round.add_precision,
    )
