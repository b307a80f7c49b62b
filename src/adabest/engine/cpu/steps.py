"""Local steps of linear layers in a row, as one function that TorchScript can run without Python.

Steps of a small model are so short that Python takes a fifth of their time, and that threads wait for Python's lock
most of theirs. Where TorchScript can't be had, the function is what it is: ordinary Python, with the same results.
"""

import functools
import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor


def local_steps(  # noqa: PLR0917 - TorchScript knows no classes of ours
    steps: int,
    source: Tensor,
    chosen: Tensor,
    labels: Tensor,
    mean: Tensor,
    std: Tensor,
    room: Tensor,
    inputs: list[Tensor],
    written: list[Tensor],
    weights: list[Tensor],
    unbiased: list[Tensor],
    gradients: list[Tensor],
    of_inputs: list[Tensor],
    relus: list[bool],
    outputs: Tensor,
    minus_one: Tensor,
    scores: Tensor,
    w: list[Tensor],
    g: list[Tensor],
    offsets: list[Tensor],
    numbers: list[list[float]],
) -> None:
    """Makes local steps of a few clients (see ``engine.local``), all in place.

    Args:
        steps: How many.
        source: All training inputs; empty if the inputs of the (single) step are in their room already.
        chosen: The samples of each step, ``[steps, clients * batch]``.
        labels: Their labels, ``[steps, clients, batch, 1]``.
        mean: What is subtracted from inputs.
        std: What they are then divided by.
        room: The inputs of the first layer as samples.
        inputs: The inputs of each layer, ``[clients, batch, inputs + 1]``, if it has a bias with a column of ones.
        written: The same without that column.
        weights: Of each layer, ``[clients, inputs + 1, outputs]``, the bias being the last row.
        unbiased: The same without that row.
        gradients: Where those of ``weights`` are to be.
        of_inputs: Room for the gradients of ``written``.
        relus: Whether a relu follows each layer.
        outputs: Room for the class scores.
        minus_one: −1 for each sample, ``[clients, batch, 1]``.
        scores: Where the logarithms of probabilities are to be, ``[steps, clients, batch, classes]``.
        w: Each client's parameters: the memory of ``weights``.
        g: Each client's gradient: the memory of ``gradients``.
        offsets: o of each client, empty for none.
        numbers: s, ρ, η, the clip (0 for none) and λ + ρ′ of each client.
    """
    depth = len(weights)
    for step in range(steps):
        if source.numel() > 0:
            room.copy_(source.index_select(0, chosen[step])).sub_(mean).div_(std)
        for layer in range(depth - 1):
            torch.bmm(inputs[layer], weights[layer], out=written[layer + 1])
            if relus[layer]:
                written[layer + 1].relu_()
        torch.bmm(inputs[depth - 1], weights[depth - 1], out=outputs)
        logarithms = torch.log_softmax(outputs, 2)
        scores[step].copy_(logarithms)
        of_outputs = logarithms.exp_().scatter_add_(2, labels[step], minus_one).div_(minus_one.size(1))
        for behind in range(depth):
            layer = depth - 1 - behind
            torch.bmm(inputs[layer].transpose(1, 2), of_outputs, out=gradients[layer])
            if layer > 0:
                torch.bmm(of_outputs, unbiased[layer].transpose(1, 2), out=of_inputs[layer])
                of_outputs = of_inputs[layer]
                if relus[layer - 1]:
                    of_outputs.mul_(written[layer].sign())
        for client in range(len(w)):
            scale, rho, eta, clip, decay = numbers[client]
            if scale != 1.0:
                g[client].mul_(scale)
            if offsets[client].numel() > 0:
                g[client].add_(offsets[client])
            if rho != 0.0:
                g[client].add_(w[client], alpha=rho)
            factor = 1.0
            if clip > 0.0:
                norm = math.sqrt(float(torch.dot(g[client], g[client])))
                if not norm <= clip:
                    # A norm too large for a number must end the run, not shrink the step to nothing.
                    factor = clip / norm if norm < math.inf else math.nan
            if decay != 0.0:
                w[client].mul_(1.0 - eta * decay)
            w[client].add_(g[client], alpha=-eta * factor)


@functools.cache
def without_python() -> Callable[..., None]:
    """``local_steps`` as TorchScript, or as it is where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather have models compiled, which takes a C++ compiler
        try:
            scripted: Callable[..., None] = torch.jit.script(local_steps)
        except Exception:  # whatever a later version may say
            return local_steps
    return scripted
