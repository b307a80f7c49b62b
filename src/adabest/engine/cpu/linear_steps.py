"""Local steps of linear layers in a row, as one function that TorchScript can run without Python.

Steps of a small model are so short that Python takes a fifth of their time, and that threads wait for Python's lock
most of theirs. Where there is no TorchScript, the function runs as ordinary Python, with the same results.
"""

import functools
import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor


def one_pass(  # noqa: PLR0917 - TorchScript can't take classes of ours
    source: Tensor,
    chosen: Tensor,
    labels: Tensor,
    mean: Tensor,
    std: Tensor,
    buffer: Tensor,
    outputs: list[Tensor],
    of_outputs: list[Tensor],
    relus: list[bool],
    minus_one: Tensor,
    divisors: Tensor,
    scores: Tensor,
    forward: list[list[tuple[Tensor, Tensor, Tensor]]],
    backward: list[list[tuple[Tensor, Tensor, Tensor]]],
    through: list[list[tuple[Tensor, Tensor, Tensor]]],
) -> None:
    """Computes the gradients of a few clients' parameters on one batch each.

    The arguments are those of ``local_steps``, of one step where they have a dimension for steps.
    """
    depth = len(outputs)
    if source.numel() > 0:
        buffer.copy_(source.index_select(0, chosen)).sub_(mean).div_(std)
    for layer in range(depth):
        for left, right, product in forward[layer]:
            torch.mm(left, right, out=product)
        if relus[layer]:
            outputs[layer].relu_()
    scores.copy_(outputs[depth - 1])
    wrong = torch.softmax(outputs[depth - 1], 2).scatter_add_(2, labels, minus_one)
    torch.div(wrong, divisors, out=of_outputs[depth - 1])
    for behind in range(depth):
        layer = depth - 1 - behind
        for left, right, product in backward[layer]:
            torch.mm(left, right, out=product)
        for left, right, product in through[layer]:
            torch.mm(left, right, out=product)
        if layer > 0 and relus[layer - 1]:
            of_outputs[layer - 1].mul_(outputs[layer - 1].sign())


def local_steps(  # noqa: PLR0917 - TorchScript can't take classes of ours
    steps: int,
    source: Tensor,
    chosen: Tensor,
    labels: Tensor,
    mean: Tensor,
    std: Tensor,
    buffer: Tensor,
    outputs: list[Tensor],
    of_outputs: list[Tensor],
    relus: list[bool],
    minus_one: Tensor,
    divisors: Tensor,
    scores: Tensor,
    forward: list[list[tuple[Tensor, Tensor, Tensor]]],
    backward: list[list[tuple[Tensor, Tensor, Tensor]]],
    through: list[list[tuple[Tensor, Tensor, Tensor]]],
    all_w: Tensor,
    all_g: Tensor,
    offsets: Tensor,
    shrinking: Tensor,
    w: list[Tensor],
    g: list[Tensor],
    numbers: list[list[float]],
) -> None:
    """Makes local steps of a few clients (see ``engine.local_step``), all in place.

    What rounds each number by itself, or each row of class scores, is done for all clients at once. What sums over more
    than that, and may do so in an order that depends on what else there is, is done client by client, on matrices
    that lie alike for all of them (see ``engine.cpu.aligned``).

    Args:
        steps: The number of steps.
        source: All training inputs; empty if the inputs of the only step are in ``buffer`` already.
        chosen: The samples of each step, ``[steps, clients * batch]``.
        labels: Their labels, ``[steps, clients, batch, 1]``.
        mean: What is subtracted from inputs.
        std: What they are then divided by.
        buffer: The inputs of the first layer, in the shape of samples.
        outputs: Of each layer, ``[clients, batch, outputs]``; the last are the class scores.
        of_outputs: The gradients of ``outputs``, of the same shapes.
        relus: Whether a relu follows each layer.
        minus_one: −1 for each sample, ``[clients, batch, 1]``.
        divisors: How many samples each batch has, ``[steps, clients, batch or 1, 1]``; infinite in the places of those
            that it lacks, which makes their gradients zero.
        scores: Where the class scores are to be, ``[steps, clients, batch, classes]``.
        forward: Of each layer, for each client: two matrices and where their product is to be: inputs, weights,
            outputs.
        backward: As ``forward``: inputs, transposed; gradient of the outputs; gradient of the weights.
        through: As ``forward``: gradient of the outputs; weights, transposed; gradient of the inputs, which are the
            outputs of the layer before. Empty for the first layer.
        all_w: All parameters, ``[clients, P]``: the memory of the weights.
        all_g: Their gradients, ``[clients, P]``.
        offsets: o of each client, ``[clients, P]``; empty for none.
        shrinking: 1 − η (λ + ρ′) of each client, ``[clients, 1]``; empty if that is 1 for all.
        w: Each client's parameters, by themselves.
        g: Each client's gradients, by themselves.
        numbers: s, ρ, η and the clip (0 for none) of each client.
    """
    for step in range(steps):
        one_pass(
            source,
            chosen[step],
            labels[step],
            mean,
            std,
            buffer,
            outputs,
            of_outputs,
            relus,
            minus_one,
            divisors[step],
            scores[step],
            forward,
            backward,
            through,
        )
        for client in range(len(numbers)):
            scale = numbers[client][0]
            if scale != 1.0:
                g[client].mul_(scale)
        if offsets.numel() > 0:
            all_g.add_(offsets)
        for client in range(len(numbers)):
            rho = numbers[client][1]
            if rho != 0.0:
                g[client].add_(w[client], alpha=rho)
        if shrinking.numel() > 0:
            all_w.mul_(shrinking)
        for client in range(len(numbers)):
            eta, clip = numbers[client][2], numbers[client][3]
            factor = 1.0
            if clip > 0.0:
                norm = math.sqrt(float(torch.dot(g[client], g[client])))
                if not norm <= clip:
                    # A norm too large for a number must end the run, not shrink the step to nothing.
                    factor = clip / norm if norm < math.inf else math.nan
            w[client].add_(g[client], alpha=-eta * factor)


@functools.cache
def scripted_steps() -> Callable[..., None]:
    """``local_steps`` as TorchScript; as Python where there is no TorchScript."""
    return _scripted(local_steps)


@functools.cache
def scripted_pass() -> Callable[..., None]:
    """``one_pass`` as TorchScript; as Python where there is no TorchScript."""
    return _scripted(one_pass)


def _scripted(function: Callable[..., None]) -> Callable[..., None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather have models compiled, which takes a C++ compiler
        try:
            scripted: Callable[..., None] = torch.jit.script(function)
        except Exception:  # a later version may raise anything
            return function
    return scripted
