"""Linear layers in a row, with a backward pass of their own: autograd would take as long as the arithmetic.

A client's parameters, their gradient and the offset should fit the cache of a core, so only as many clients are stacked
as do: one with the paper's MLP, dozens with a tiny one.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from adabest.data.augmentation import none
from adabest.engine.cpu.aligned import aligned
from adabest.engine.cpu.client_rows import ClientRow, TrainedRow, batch, place_in_errors
from adabest.engine.cpu.linear_steps import scripted_pass, scripted_steps
from adabest.engine.cpu.whole_steps import Pieces, Walk
from adabest.engine.layer_plan import LinearLayer
from adabest.models.vector import VectorModel
from adabest.tasks.base import Heartbeat

_CACHE = 2**20  # bytes of a core's own cache, about
_VECTORS = 3  # parameters, gradient, offset
_STEPS_PER_CALL = 10  # of the TorchScript function, and so between heartbeats


class Chain:
    """Trains clients whose model is a chain of linear layers, with cross-entropy.

    The weights of a layer lie as ``[inputs + 1, outputs]``, the bias being the last row, and its inputs have a last
    column of ones: one product gives the outputs, another the gradients of weights and bias. (Torch's own order,
    ``[outputs, inputs]``, takes twice as long in the forward pass.)

    Attributes:
        way: What this is in a few words.
        clients_at_a_time: How many clients are best stacked.
        sides: Rows and columns of each layer's weights and bias.
        relus: Whether a relu follows each layer.
        biases: Whether each layer has a bias.
    """

    way = "scripted chain"

    def __init__(self, layers: Sequence[LinearLayer], model: VectorModel) -> None:
        shapes = model.shapes
        self._layers, self._model = layers, model
        self.sides = [(shapes[layer.weight][1] + (layer.bias is not None), shapes[layer.weight][0]) for layer in layers]
        self.relus = [layer.shape.relu for layer in layers]
        self.biases = [layer.bias is not None for layer in layers]
        self._sizes = [rows * columns for rows, columns in self.sides]
        scripted_steps()  # compiles them before there are threads
        scripted_pass()
        self.clients_at_a_time = max(1, _CACHE // (_VECTORS * model.vector.nbytes))

    @torch.no_grad()
    def train(self, rows: Sequence[ClientRow], heartbeat: Heartbeat) -> list[TrainedRow]:
        """The local training of a few clients, whose steps have the same parts."""
        # Those with the most steps first, so that the clients that still train are always at the beginning.
        order = sorted(range(len(rows)), key=lambda place: len(rows[place].chosen), reverse=True)
        ordered = [rows[place] for place in order]
        w = self.packed([row.start for row in ordered])
        offsets = self._offsets(ordered, w)
        stack: _Stack | _WholeStack = _Stack(self, ordered, w, offsets)
        if ordered[0].parts is not None:
            stack = _WholeStack(self, ordered, w, offsets)
        counts, scores, done = [len(row.chosen) for row in ordered], list[Tensor](), 0
        with place_in_errors(ordered) as at:
            while done < counts[0]:
                active = sum(count > done for count in counts)
                for at.step, until in stack.spans(done, counts[active - 1]):
                    heartbeat()
                    scores.append(stack.advance(active, at.step, until))
                done = counts[active - 1]
        models = self._unpacked(w)
        velocities: list[Tensor | None] = [None] * len(rows)
        if isinstance(stack, _WholeStack):
            velocities = [self._unpacked(one[0][None])[0] if one else None for one in stack.velocities()]
        trained = [
            TrainedRow(model, *_judged(place, row, scores), velocity)
            for place, (row, model, velocity) in enumerate(zip(ordered, models, velocities, strict=True))
        ]
        return [trained[order.index(place)] for place in range(len(rows))]

    def matrices(self, packed: Tensor) -> list[Tensor]:
        """Views ``[clients, inputs + 1, outputs]`` of packed vectors."""
        pieces = torch.split(packed, self._sizes, dim=1)
        return [piece.view(len(packed), *sides) for piece, sides in zip(pieces, self.sides, strict=True)]

    def packed(self, vectors: Sequence[Tensor]) -> Tensor:
        """Vectors in the order of the model's parameters, stacked and packed."""
        stacked = torch.stack(list(vectors)) if len(vectors) > 1 else vectors[0][None]
        packed = aligned(stacked, *stacked.shape)
        for part, own in zip(self._parts(packed), self._plain(stacked), strict=True):
            part.copy_(own)
        return packed

    def _unpacked(self, packed: Tensor) -> Tensor:
        """Packed vectors in the order of the model's parameters."""
        vectors = packed.new_empty(packed.shape)
        for own, part in zip(self._plain(vectors), self._parts(packed), strict=True):
            own.copy_(part)
        return vectors

    def _offsets(self, rows: Sequence[ClientRow], w: Tensor) -> Tensor:
        """The offsets of all clients, packed; empty if no client has one."""
        if all(row.offset is None for row in rows):
            return w[:, :0]
        nothing = torch.full_like(rows[0].start, -0.0)  # which added to any number, zeros included, leaves its bits
        return self.packed([nothing if row.offset is None else row.offset for row in rows])

    def _parts(self, packed: Tensor) -> list[Tensor]:
        """Weights and biases of all clients in torch's shapes, layer by layer, as views of packed vectors."""
        parts = []
        for layer, matrix in zip(self._layers, self.matrices(packed), strict=True):
            inputs = self._model.shapes[layer.weight][1]
            parts += [matrix[:, :inputs].transpose(1, 2), *([] if layer.bias is None else [matrix[:, inputs]])]
        return parts

    def _plain(self, vectors: Tensor) -> list[Tensor]:
        """Weights and biases as ``_parts`` has them, as views of vectors in the order of the model's parameters."""
        shapes = self._model.shapes
        pieces = torch.split(vectors, [math.prod(shape) for shape in shapes.values()], dim=1)
        named = dict(zip(shapes, pieces, strict=True))
        names = [name for layer in self._layers for name in (layer.weight, layer.bias) if name is not None]
        return [named[name].view(-1, *shapes[name]) for name in names]


def _judged(place: int, row: ClientRow, scores: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The loss and the accuracy of each step of a client, which is at this place in the class scores."""
    own, labels = torch.cat([part[:, place] for part in scores if place < part.shape[1]]), row.labels
    logarithms, right = torch.log_softmax(own, 2).gather(2, labels[:, :, None]), own.argmax(dim=2) == labels
    if row.counts is not None:
        missing = _missing(row.counts, labels.shape[1])
        losses = logarithms[..., 0].masked_fill(missing, 0.0).sum(dim=1).neg() / row.counts
        return losses.to(torch.float64), (right & ~missing).sum(dim=1).to(torch.float64) / row.counts
    losses, accuracies = logarithms.mean(dim=(1, 2)).neg(), right.to(torch.float64).mean(dim=1)
    return losses.to(torch.float64), accuracies


def _missing(counts: Tensor, size: int) -> Tensor:
    """Which places of batches have no sample of their own, ``[steps, size]``."""
    return torch.arange(size) >= counts[:, None]


class _Stack:
    """A few clients, with the buffers of what their steps compute."""

    def __init__(self, chain: Chain, rows: Sequence[ClientRow], w: Tensor, offsets: Tensor) -> None:
        self._rows, task = rows, rows[0].task
        clients, size, g = len(rows), rows[0].chosen.shape[1], aligned(w, *w.shape)
        inputs = [aligned(w, clients, size, width).fill_(1.0) for width, _ in chain.sides]
        written = [x[..., : x.shape[2] - biased] for x, biased in zip(inputs, chain.biases, strict=True)]
        weights, gradients = chain.matrices(w), chain.matrices(g)
        unbiased = [m[:, : m.shape[1] - biased] for m, biased in zip(weights, chain.biases, strict=True)]
        self._samples = written[0]
        self._outputs = [*written[1:], aligned(w, clients, size, chain.sides[-1][1])]
        self._of_outputs = [aligned(w, *y.shape) for y in self._outputs]
        self._forward = _products(inputs, weights, self._outputs)
        self._backward = _products([x.transpose(1, 2) for x in inputs], self._of_outputs, gradients)
        transposed = [m.transpose(1, 2) for m in unbiased[1:]]
        self._through = [[], *_products(self._of_outputs[1:], transposed, self._of_outputs[:-1])]
        self._relus = chain.relus
        self._minus_one = w.new_full((clients, size, 1), -1.0)
        self._divisors = [_divisors(row, w) for row in rows]
        self._whole = isinstance(task.data.x_train, Tensor) and task.augmentation is none
        self._normal = [value.to(w) for value in (task.data.dataset.mean, task.data.dataset.std)]
        shrinking = w.new_tensor([[1.0 - row.eta * row.decay] for row in rows])
        self._vectors: list[Any] = [
            w,
            g,
            offsets,
            shrinking[:, : any(row.decay != 0 for row in rows)],
            w.unbind(),
            g.unbind(),
        ]
        self._g = g
        self._numbers = [[row.scale, row.rho, row.eta, row.clip] for row in rows]

    def gradients(self, active: int, step: int, *, is_first: bool) -> tuple[Tensor, Tensor]:
        """The class scores, ``[1, clients, batch, classes]``, and the gradients, ``[clients, P]``, on a batch.

        Args:
            active: How many clients.
            step: Whose batch.
            is_first: Whether it is the first pass of this step; else the batch is there already.
        """
        rows, data = self._rows[:active], self._rows[0].task.data
        buffer = self._samples[:active].view(-1, *data.x_train.shape[1:])
        if is_first and not self._whole:
            batch(rows, step, buffer)
        chosen = torch.cat([row.chosen[step] for row in rows])
        outputs = [y[:active] for y in self._outputs]
        scores = buffer.new_empty(1, *outputs[-1].shape)
        scripted_pass()(
            data.x_train if is_first and self._whole else chosen[:0],
            chosen,
            torch.stack([row.labels[step] for row in rows])[..., None],
            *self._normal,
            buffer,
            outputs,
            [dy[:active] for dy in self._of_outputs],
            self._relus,
            self._minus_one[:active],
            torch.stack([divisors[step] for divisors in self._divisors[:active]]),
            scores[0],
            *([layer[:active] for layer in way] for way in (self._forward, self._backward, self._through)),
        )
        return scores, self._g[:active]

    def spans(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Steps that are made in one go, from one to before another."""
        length = _STEPS_PER_CALL if self._whole else 1
        return ((start, min(start + length, last)) for start in range(first, last, length))

    def advance(self, active: int, first: int, last: int) -> Tensor:
        """Makes steps of the first few clients; returns the class scores, ``[steps, clients, batch, classes]``."""
        rows, data = self._rows[:active], self._rows[0].task.data
        chosen = torch.cat([row.chosen[first:last] for row in rows], dim=1)
        labels = torch.stack([row.labels[first:last] for row in rows], dim=1)[..., None]
        buffer = self._samples[:active].view(-1, *data.x_train.shape[1:])
        if not self._whole:
            batch(rows, first, buffer)
        outputs = [y[:active] for y in self._outputs]
        scores = buffer.new_empty(last - first, *outputs[-1].shape)
        scripted_steps()(
            last - first,
            data.x_train if self._whole else chosen[:0],
            chosen,
            labels,
            *self._normal,
            buffer,
            outputs,
            [dy[:active] for dy in self._of_outputs],
            self._relus,
            self._minus_one[:active],
            torch.stack([divisors[first:last] for divisors in self._divisors[:active]], dim=1),
            scores,
            *([layer[:active] for layer in way] for way in (self._forward, self._backward, self._through)),
            *(vectors[:active] for vectors in self._vectors),
            self._numbers[:active],
        )
        return scores


class _WholeStack:
    """A few clients whose steps have more than an affine correction, all of them the same parts.

    The gradients of all of them are computed at the same time, at points that each client names for itself.
    """

    def __init__(self, chain: Chain, rows: Sequence[ClientRow], w: Tensor, offsets: Tensor) -> None:
        self._points = aligned(w, *w.shape)
        self._stack = _Stack(chain, rows, self._points, offsets)

        def laid_out(vector: Tensor) -> Pieces:
            return [chain.packed([vector])[0]]

        self._walks = [
            Walk([own], None if row.offset is None else [offset], row.affine, row.parts, laid_out)
            for row, own, offset in zip(rows, w, offsets, strict=True)
            if row.parts is not None
        ]

    def spans(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Steps one by one."""
        return ((step, step + 1) for step in range(first, last))

    def advance(self, active: int, step: int, _last: int) -> Tensor:
        """Makes a step of the first few clients; returns the class scores, ``[1, clients, batch, classes]``."""
        passes = [walk.step() for walk in self._walks[:active]]
        wanted, is_first = [next(own) for own in passes], True
        while True:
            for point, (own,) in zip(self._points, wanted, strict=False):
                point.copy_(own)
            scores, gradients = self._stack.gradients(active, step, is_first=is_first)
            is_first = False
            wanted = [
                point for own, g in zip(passes, gradients, strict=False) if (point := _sent(own, [g])) is not None
            ]
            if not wanted:
                return scores

    def velocities(self) -> list[Pieces | None]:
        """The last m of each client; None without momentum."""
        return [walk.velocity for walk in self._walks]


def _sent(passes: Generator[Pieces, Pieces, None], gradient: Pieces) -> Pieces | None:
    """The next point of a step that is sent a gradient; None if it has come to its end."""
    try:
        return passes.send(gradient)
    except StopIteration:
        return None


def _divisors(row: ClientRow, like: Tensor) -> Tensor:
    """What the gradient of each sample is divided by, ``[K_i, batch or 1, 1]``; infinite for a missing one."""
    steps, size = row.chosen.shape
    if row.counts is None:
        return like.new_full((1, 1, 1), size).expand(steps, 1, 1)
    counts = row.counts.to(like.dtype)[:, None].expand(steps, size)
    return counts.masked_fill(_missing(row.counts, size), torch.inf)[..., None]


def _products(*operands: Sequence[Tensor]) -> list[list[tuple[Tensor, ...]]]:
    """The matrices of each layer's products, client by client, from stacks of each layer's."""
    return [list(zip(*(stack.unbind() for stack in layer), strict=True)) for layer in zip(*operands, strict=True)]
