"""Linear layers in a row, with a backward pass of their own: autograd would take as long as the arithmetic.

A client's parameters, their gradient and the offset should fit the cache of a core, so only as many clients are stacked
as do: one with the paper's MLP, dozens with a tiny one.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from adabest.engine.cpu.job import Done, Job, batch, clip_factor, told_where
from adabest.engine.plan import LinearLayer
from adabest.engine.task import Heartbeat
from adabest.models import VectorModel

_CACHE = 2**20  # bytes that a core has at hand, about
_VECTORS = 3  # parameters, gradient, offset


class Chain:
    """Trains clients whose model is a chain of linear layers, with cross-entropy.

    The weights of a layer lie as ``[inputs + 1, outputs]``, the bias being the last row, and its inputs have a last
    column of ones: one product gives the outputs, another the gradients of weights and bias. (Torch's own order,
    ``[outputs, inputs]``, takes twice as long in the forward pass.)

    Attributes:
        at_a_time: How many clients are best stacked.
        sides: Rows and columns of each layer's weights and bias.
        relus: Whether a relu follows each layer.
        biases: Whether each layer has a bias.
    """

    def __init__(self, layers: Sequence[LinearLayer], model: VectorModel) -> None:
        shapes = model.shapes
        self._layers, self._model = layers, model
        self.sides = [(shapes[layer.weight][1] + (layer.bias is not None), shapes[layer.weight][0]) for layer in layers]
        self.relus = [layer.shape.relu for layer in layers]
        self.biases = [layer.bias is not None for layer in layers]
        self._sizes = [rows * columns for rows, columns in self.sides]
        self.at_a_time = max(1, _CACHE // (_VECTORS * model.vector.nbytes))

    @torch.no_grad()
    def train(self, jobs: Sequence[Job], heartbeat: Heartbeat) -> list[Done]:
        """The local training of a few clients."""
        # Those with the most steps first: who still trains is always at the beginning.
        order = sorted(range(len(jobs)), key=lambda place: len(jobs[place].chosen), reverse=True)
        ordered = [jobs[place] for place in order]
        w = self._packed([job.start for job in ordered])
        g = torch.empty_like(w)
        offsets = [None if job.offset is None else self._packed([job.offset])[0] for job in ordered]
        scores: list[Tensor] = []
        counts, stack = [len(job.chosen) for job in ordered], None
        with told_where(ordered) as at:
            for at.step in range(counts[0]):
                heartbeat()
                active = sum(count > at.step for count in counts)
                if stack is None or stack.clients != active:
                    stack = _Stack(self, w[:active], g[:active], ordered[0])
                _, labels = batch(ordered[:active], at.step, stack.room)
                scores.append(stack.gradient(labels))
                for place in range(active):
                    _descend(ordered[place], w[place], g[place], offsets[place])
        trained = [
            self._trained(job, w[place : place + 1], [of_step[place] for of_step in scores[: len(job.chosen)]])
            for place, job in enumerate(ordered)
        ]
        return [trained[order.index(place)] for place in range(len(jobs))]

    def matrices(self, packed: Tensor) -> list[Tensor]:
        """Views ``[clients, inputs + 1, outputs]`` of packed vectors."""
        pieces = torch.split(packed, self._sizes, dim=1)
        return [piece.view(len(packed), *sides) for piece, sides in zip(pieces, self.sides, strict=True)]

    def _packed(self, vectors: Sequence[Tensor]) -> Tensor:
        """Vectors in the order of the model's parameters, stacked and packed."""
        packed = vectors[0].new_empty(len(vectors), sum(self._sizes))
        for place, vector in enumerate(vectors):
            for part, own in zip(self._parts(packed[place : place + 1]), self._plain(vector), strict=True):
                part.copy_(own)
        return packed

    def _trained(self, job: Job, packed: Tensor, log_probabilities: list[Tensor]) -> Done:
        model = torch.empty_like(job.start)
        for own, part in zip(self._plain(model), self._parts(packed), strict=True):
            own.copy_(part)
        scores, labels = torch.stack(log_probabilities), job.labels
        losses = scores.gather(2, labels[:, :, None]).mean(dim=(1, 2)).neg()
        accuracies = (scores.argmax(dim=2) == labels).to(torch.float64).mean(dim=1)
        return Done(model, losses.to(torch.float64), accuracies)

    def _parts(self, packed: Tensor) -> list[Tensor]:
        """Weights and biases of one client in torch's shapes, layer by layer, as views of its packed vector."""
        parts = []
        for layer, matrix in zip(self._layers, self.matrices(packed), strict=True):
            inputs = self._model.shapes[layer.weight][1]
            parts += [matrix[0, :inputs].t(), *([] if layer.bias is None else [matrix[0, inputs]])]
        return parts

    def _plain(self, vector: Tensor) -> list[Tensor]:
        """The same as views of a vector in the order of the model's parameters."""
        named = self._model.unflatten(vector)
        return [named[name] for layer in self._layers for name in (layer.weight, layer.bias) if name is not None]


class _Stack:
    """Room for the activations of a few clients.

    Attributes:
        clients: How many.
        room: Where their inputs are to be, ``[clients * batch, ...]``.
    """

    def __init__(self, chain: Chain, w: Tensor, g: Tensor, job: Job) -> None:
        size = job.chosen.shape[1]
        self.clients = len(w)
        self._relus = chain.relus[:-1]
        self._inputs = [w.new_ones(self.clients, size, rows) for rows, _ in chain.sides]
        # Without the column of ones: what the layer before writes.
        self._written = [x[..., : x.shape[2] - biased] for x, biased in zip(self._inputs, chain.biases, strict=True)]
        self._turned = [x.transpose(1, 2) for x in self._inputs]
        self._weights, self._gradients = chain.matrices(w), chain.matrices(g)
        self._back = [
            m[:, : m.shape[1] - biased].transpose(1, 2) for m, biased in zip(self._weights, chain.biases, strict=True)
        ]
        self._of_inputs = [w.new_empty(written.shape) for written in self._written]
        self.room = self._written[0].flatten(0, 1).view(-1, *job.task.data.x_train.shape[1:])
        self._scores = w.new_empty(self.clients, size, chain.sides[-1][1])
        self._minus_one = w.new_full((self.clients, size, 1), -1.0)
        self._size = size

    def gradient(self, labels: Tensor) -> Tensor:
        """Forward and backward: the gradient is where it was to be; returns the logarithms of probabilities."""
        last = len(self._weights) - 1
        for place in range(last):
            torch.bmm(self._inputs[place], self._weights[place], out=self._written[place + 1])
            if self._relus[place]:
                self._written[place + 1].relu_()
        torch.bmm(self._inputs[last], self._weights[last], out=self._scores)
        scores = torch.log_softmax(self._scores, dim=2)
        of_labels = labels.view(self.clients, self._size, 1)
        of_outputs = scores.exp().scatter_add_(2, of_labels, self._minus_one).div_(self._size)
        for place in range(last, -1, -1):
            torch.bmm(self._turned[place], of_outputs, out=self._gradients[place])
            if place > 0:
                of_outputs = torch.bmm(of_outputs, self._back[place], out=self._of_inputs[place])
                if self._relus[place - 1]:
                    of_outputs.mul_(self._written[place].sign())
        return scores


def _descend(job: Job, w: Tensor, g: Tensor, offset: Tensor | None) -> None:
    """A local step (see ``engine.local``) in place."""
    if job.scale != 1:
        g.mul_(job.scale)
    if offset is not None:
        g.add_(offset)
    if job.rho != 0:
        g.add_(w, alpha=job.rho)
    factor = clip_factor(float(torch.dot(g, g)) ** 0.5, job.clip) if job.clip > 0 else 1.0
    if job.decay != 0:
        w.mul_(1 - job.eta * job.decay)
    w.add_(g, alpha=-job.eta * factor)
