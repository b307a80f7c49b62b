"""Local steps with more than an affine correction, of one client, in place (see ``engine.local_step.whole_step``).

A step is a generator: it yields the points at which it needs the gradient of the batch, and is sent the gradients. So
it doesn't know how they are computed, and the steps of several clients may go on in turn.
"""

from collections.abc import Callable, Generator
from typing import NamedTuple

import torch
from torch import Tensor

from adabest.engine.local_step import Adam

Pieces = list[Tensor]
"""A vector as the tensors it consists of: a model's parameters, or all numbers in one."""


class StepParts(NamedTuple):
    """What a client's steps have beside the affine correction; what is None is absent.

    Attributes:
        diagonal: s of each number, ``[P]``.
        shift: e, ``[P]``.
        radius: r.
        anchor: The point whose gradient is subtracted, ``[P]``.
        previous: Whether the anchor is the point before the last step.
        momentum: b.
        velocity: m before the first step, ``[P]``.
        adam: The optimiser.
    """

    diagonal: Tensor | None = None
    shift: Tensor | None = None
    radius: float | None = None
    anchor: Tensor | None = None
    previous: bool = False
    momentum: float | None = None
    velocity: Tensor | None = None
    adam: Adam | None = None

    @property
    def kind(self) -> tuple[bool, ...]:
        """Which of them there are: clients of the same kind need gradients at the same times."""
        return tuple(part is not None and part is not False for part in self)


class Affine(NamedTuple):
    """The numbers of the affine correction and of the step; o is among the pieces that ``Walk`` is given.

    Attributes:
        scale: s, where it isn't a diagonal.
        rho: ρ.
        eta: η_t.
        clip: The largest norm of the corrected gradient; 0 for none.
        decay: λ + ρ′.
    """

    scale: float
    rho: float
    eta: float
    clip: float
    decay: float


class Walk:
    """The steps of one client.

    Attributes:
        w: The current point, which each step moves.
        velocity: m; None without momentum.
    """

    def __init__(
        self,
        w: Pieces,
        offset: Pieces | None,
        numbers: Affine,
        parts: StepParts,
        laid_out: Callable[[Tensor], Pieces],
    ) -> None:
        """Prepares the first step.

        Args:
            w: The start; steps write into it.
            offset: o; None for none.
            numbers: The numbers of the affine correction.
            parts: What there is beside it.
            laid_out: A copy of a vector ``[P]`` as such pieces.
        """

        def copied(vector: Tensor | None) -> Pieces | None:
            return None if vector is None else laid_out(vector)

        self.w, self._offset, self._numbers, self._parts = w, offset, numbers, parts
        self._diagonal, self._shift = copied(parts.diagonal), copied(parts.shift)
        self._anchor = copied(parts.anchor)
        if parts.previous and self._anchor is None:
            self._anchor = _copies(w)
        self._minus = None if self._anchor is None else _zeros(w)
        self._point = None if parts.shift is None and parts.radius is None else _zeros(w)
        self.velocity = copied(parts.velocity)
        if parts.momentum is not None and self.velocity is None:
            self.velocity = _zeros(w)
        self._moments = None if parts.adam is None else (_zeros(w), _zeros(w), _zeros(w))
        self._made = 0

    def step(self) -> Generator[Pieces, Pieces, None]:
        """One step. Gradients that it is sent are its own until it asks for the next, and it changes them."""
        if self._anchor is not None and self._minus is not None:
            of_anchor = yield self._anchor
            torch._foreach_copy_(self._minus, of_anchor)
        point = self.w
        if self._point is not None:
            point = self._point
            torch._foreach_copy_(point, self.w)
            if self._shift is not None:
                torch._foreach_add_(point, self._shift)
        if self._parts.radius is not None:
            ascent = yield point
            torch._foreach_add_(point, ascent, alpha=_ascent_factor(self._parts.radius, _norm(ascent)))
        g = yield point
        if self._minus is not None:
            torch._foreach_sub_(g, self._minus)
        self._correct(g)
        if self._parts.previous and self._anchor is not None:
            torch._foreach_copy_(self._anchor, self.w)
        self._descend(g)
        self._made += 1

    def _correct(self, g: Pieces) -> None:
        """Makes s ⊙ u + o + ρ w of u."""
        if self._diagonal is not None:
            torch._foreach_mul_(g, self._diagonal)
        elif self._numbers.scale != 1:
            torch._foreach_mul_(g, self._numbers.scale)
        if self._offset is not None:
            torch._foreach_add_(g, self._offset)
        if self._numbers.rho != 0:
            torch._foreach_add_(g, self.w, alpha=self._numbers.rho)

    def _descend(self, g: Pieces) -> None:
        """The step along a corrected gradient."""
        eta, clip, decay = self._numbers.eta, self._numbers.clip, self._numbers.decay
        direction, factor, momentum = g, 1.0, self._parts.momentum
        if self.velocity is not None and momentum == 1:
            torch._foreach_add_(self.velocity, g)
            direction = self.velocity
        if clip > 0:
            factor = clip_factor(_norm(direction), clip)
        if self.velocity is not None and momentum is not None and momentum != 1:
            torch._foreach_mul_(self.velocity, momentum)
            torch._foreach_add_(self.velocity, g, alpha=factor)
            direction, factor = self.velocity, 1.0
        if decay != 0:
            torch._foreach_mul_(self.w, 1 - eta * decay)
        if self._parts.adam is None or self._moments is None:
            torch._foreach_add_(self.w, direction, alpha=-eta * factor)
            return
        adam, steps, (first, second, root) = self._parts.adam, self._made + 1, self._moments
        torch._foreach_mul_(first, adam.beta1)
        torch._foreach_add_(first, direction, alpha=(1 - adam.beta1) * factor)
        torch._foreach_mul_(second, adam.beta2)
        torch._foreach_addcmul_(second, direction, direction, value=(1 - adam.beta2) * factor**2)
        torch._foreach_copy_(root, second)
        torch._foreach_div_(root, 1 - adam.beta2**steps)
        torch._foreach_sqrt_(root)
        torch._foreach_add_(root, adam.eps)
        torch._foreach_addcdiv_(self.w, first, root, value=-eta / (1 - adam.beta1**steps))


def clip_factor(norm: float, clip: float) -> float:
    """What a direction of a norm is multiplied by; NaN, which ends the run, where the norm is too large."""
    if norm <= clip or clip == 0:
        return 1.0
    return clip / norm if norm < float("inf") else float("nan")


def _ascent_factor(radius: float, norm: float) -> float:
    """What a gradient of a norm is multiplied by to be of a length; a gradient of zero has no direction."""
    if norm == 0:
        return 0.0
    return radius / norm if norm < float("inf") else float("nan")


def _norm(pieces: Pieces) -> float:
    norms = torch.stack(torch._foreach_norm(pieces))
    return float(torch.linalg.vector_norm(norms))


def _zeros(like: Pieces) -> Pieces:
    return [torch.zeros_like(piece) for piece in like]


def _copies(pieces: Pieces) -> Pieces:
    return [piece.clone() for piece in pieces]
