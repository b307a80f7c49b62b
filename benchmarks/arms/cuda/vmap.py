"""All clients of a round at once by ``torch.func``: ``vmap(grad)``, which makes grouped convolutions, as a CUDA graph.

Options: ``--precision`` float32, tf32 or bf16.
"""

import argparse

from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from benchmarks.arms import torch_model
from benchmarks.arms.cuda import torch_round
from benchmarks.arms.cuda.torch_round import Data, Precision, Round
from benchmarks.arms.worker import serve


def federation(data: Data, precision: Precision) -> Round:
    """A round whose step trains all clients."""
    dtype = torch_round.set_precision(precision)
    module = torch_model.build(data.task).to(data.x.device)
    names = [name for name, _ in module.named_parameters()]
    trained = torch_round.stack(data, list(module.parameters()))

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        cast = {name: parameter.to(dtype) for name, parameter in parameters.items()}
        return functional.cross_entropy(functional_call(module, cast, (x,)).float(), y)

    gradient = vmap(grad(loss), randomness="different")

    def step() -> None:
        x, y = trained.batch(dtype)
        gradients = gradient(dict(zip(names, trained.clients, strict=True)), x, y)
        torch_round.descend(trained.clients, [gradients[name] for name in names], data.task)

    with torch_round.alone():
        trained.step = torch_round.capture(step, trained.number.zero_, data.x.device)
    return trained


def prepare(arguments: argparse.Namespace) -> Round:
    """Data on the device, and the step as a graph."""
    return federation(torch_round.load(arguments), arguments.precision)


if __name__ == "__main__":
    serve(
        prepare,
        Round.train,
        packages=("torch", "numpy"),
        peak_memory=torch_round.peak_memory,
        options=torch_round.add_precision,
    )
