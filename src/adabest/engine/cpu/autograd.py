"""Local training of any model by autograd, one client after another, with the layout that is fastest on a CPU."""

import collections
import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from adabest.engine.cpu.client_rows import ClientRow, TrainedRow, batch, cut_to_samples, place_in_errors
from adabest.engine.cpu.whole_steps import Pieces, Walk, clip_factor
from adabest.engine.layer_plan import Obstacle, first_line
from adabest.models.keyed import set_dropout_key
from adabest.models.vector import VectorModel
from adabest.tasks.base import Heartbeat


class Replicas:
    """Trains clients with copies of a model: as many as there are threads that train at the same time.

    Attributes:
        way: What this is in a few words.
        clients_at_a_time: How many clients are best stacked: a step of one keeps a core busy.
        why_not_channels_last: Why images don't lie channels last; None if they do, or if there are none.
    """

    way = "autograd on each core"

    def __init__(self, model: VectorModel, example: Tensor) -> None:
        self.clients_at_a_time = 1
        self._model = model
        has_images = example.ndim == 4 and example.is_floating_point()
        self.why_not_channels_last = _why_not_channels_last(model, example) if has_images else None
        is_last = has_images and self.why_not_channels_last is None
        self._layout = torch.channels_last if is_last else torch.contiguous_format
        self._idle: collections.deque[_Replica] = collections.deque()

    def train(self, rows: Sequence[ClientRow], heartbeat: Heartbeat) -> list[TrainedRow]:
        """The local training of a few clients, one after another."""
        try:
            replica = self._idle.pop()
        except IndexError:
            replica = _Replica(self._model, self._layout)
        try:
            return [replica.train(row, heartbeat) for row in rows]
        finally:
            self._idle.append(replica)


class _Replica:
    """A copy of a model for one client at a time.

    The channels of images, and of the weights that meet them, lie side by side in memory ("channels last") if the model
    can do with that, and max-pooling comes before the relu that it followed: the same numbers from a quarter of the
    work.
    """

    def __init__(self, model: VectorModel, layout: torch.memory_format) -> None:
        self._layout = layout
        self._module = _pool_first(copy.deepcopy(model.module).train())
        self._parameters = [p for p in self._module.parameters() if p.requires_grad]
        for parameter in self._parameters:
            parameter.grad = None

    def train(self, row: ClientRow, heartbeat: Heartbeat) -> TrainedRow:
        """The local training of one client."""
        w = self._laid_out(row.start)
        offset = None if row.offset is None else self._laid_out(row.offset)
        walk = None if row.parts is None else Walk(w, offset, row.affine, row.parts, self._laid_out)
        self._move_to(w)
        losses, values = [], []
        with place_in_errors([row]) as at:
            for at.step in range(len(row.chosen)):
                heartbeat()
                x, y = self._batch(row, at.step)
                if walk is None:
                    loss, value = self._pass(row, at.step, x, y)
                    self._descend(row, w, offset)
                else:
                    loss, value = self._whole_step(walk, row, at.step, x, y)
                losses.append(loss)
                values.append(value)
        velocity = None if walk is None or walk.velocity is None else _flat(walk.velocity)
        return TrainedRow(_flat(w), torch.stack(losses).to(torch.float64), torch.stack(values), velocity)

    def _batch(self, row: ClientRow, step: int) -> tuple[Tensor, Tensor]:
        """The inputs and the targets of a step."""
        x, y = batch([cut_to_samples(row, step)], step)
        return (x.contiguous(memory_format=self._layout) if x.ndim == 4 else x), y

    def _whole_step(self, walk: Walk, row: ClientRow, step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """A step with more than an affine correction: the loss and the first metric of its last pass."""
        passes = walk.step()
        point = next(passes)
        while True:
            self._move_to(point)
            loss, value = self._pass(row, step, x, y)
            gradient = self._taken_gradient()
            try:
                with torch.no_grad():
                    point = passes.send(gradient)
            except StopIteration:
                return loss, value

    def _move_to(self, point: Pieces) -> None:
        """Has the module compute at a point, whose memory it shares."""
        for parameter, value in zip(self._parameters, point, strict=True):
            parameter.data = value

    def _taken_gradient(self) -> Pieces:
        """The gradients of the last pass, which the parameters let go."""
        # Autograd hands over memory of its own where there was no gradient; where there still is none, it is zero.
        g = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        return g

    def _pass(self, row: ClientRow, step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Forward and backward: the loss and the first metric."""
        set_dropout_key(self._module, row.task.seed, row.round_word, row.client, step)
        outputs = self._module(x)
        loss = row.task.loss(outputs, y)
        torch.autograd.backward(loss)
        return loss.detach(), row.task.objective.batch_value(outputs.detach(), y)

    @torch.no_grad()
    def _descend(self, row: ClientRow, w: list[Tensor], offset: list[Tensor] | None) -> None:
        """A local step (see ``engine.local_step``) in place."""
        g = self._taken_gradient()
        if row.scale != 1:
            torch._foreach_mul_(g, row.scale)
        if offset is not None:
            torch._foreach_add_(g, offset)
        if row.rho != 0:
            torch._foreach_add_(g, w, alpha=row.rho)
        factor = 1.0
        if row.clip > 0:
            norms = torch.stack(torch._foreach_norm(g))
            factor = clip_factor(float(torch.linalg.vector_norm(norms)), row.clip)
        if row.decay != 0:
            torch._foreach_mul_(w, 1 - row.eta * row.decay)
        torch._foreach_add_(w, g, alpha=-row.eta * factor)

    def _laid_out(self, vector: Tensor) -> list[Tensor]:
        """A copy of a vector in the parameters' shapes."""
        pieces = torch.split(vector, [parameter.numel() for parameter in self._parameters])
        return [
            piece.view(parameter.shape).clone(
                memory_format=self._layout if parameter.ndim == 4 else torch.contiguous_format
            )
            for piece, parameter in zip(pieces, self._parameters, strict=True)
        ]


def _flat(pieces: Pieces) -> Tensor:
    """Parameters as one vector."""
    return torch.cat([piece.reshape(-1) for piece in pieces])


def _why_not_channels_last(model: VectorModel, images: Tensor) -> str | None:
    """Why a model can't do with images whose channels lie last: it may view them as their memory then doesn't allow."""
    module = copy.deepcopy(model.module).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    try:
        with _NormWatch() as watch:
            scores = module(images.contiguous(memory_format=torch.channels_last))
        if watch.has_seen_data:
            return "a group norm comes before the first trained layer"
        scores.sum().backward()
    except RuntimeError as error:
        return first_line(error)
    return None


class _NormWatch(TorchFunctionMode):
    """Sees whether a group norm gets images that need no gradient, such as the data or what frozen layers make of them.

    In torch 2.13, the backward pass of its weights then ends the process if the images lie channels last.
    """

    has_seen_data = False

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = {**(kwargs or {})}
        if func in (functional.group_norm, torch.group_norm):
            images = args[0] if args else given["input"]
            self.has_seen_data |= not images.requires_grad
        return func(*args, **given)


def why_not_pool_first(module: nn.Module) -> Obstacle | None:
    """Why a relu stays before the max-pooling right after it; None if they are swapped."""
    if type(module) is not nn.Sequential:
        return Obstacle("the model isn't one nn.Sequential", "write it as one")
    if any(_is_watched(part) for part in module.modules()):
        return Obstacle("hooks may look at what lies between layers", "take them off")
    return None


def _pool_first(module: nn.Module) -> nn.Module:
    """Swaps every relu with the max-pooling right after it: the larger of two numbers stays the larger.

    Only in a model that is one plain row of layers: elsewhere something may look at what lies between them.
    """
    if not isinstance(module, nn.Sequential) or why_not_pool_first(module) is not None:
        return module
    for place in range(len(module) - 1):
        first, second = module[place], module[place + 1]
        if type(first) is nn.ReLU and type(second) is nn.MaxPool2d and not second.return_indices:
            module[place], module[place + 1] = second, first
    return module


def _is_watched(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)
