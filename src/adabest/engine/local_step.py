"""The local step that all algorithms share, and the settings of local training.

The step is w ← w − η_t (clip(s ∇L + o + ρ w) + (λ + ρ′) w). It is spelt five times, since every place that executes it
is fastest with operations of its own:

1. ``local_step`` below, on whole vectors: the truth, which the reference engine, cost tables and drawings use. Held by
   numbers worked out by hand (``tests/engine/test_local_step.py``) and by plain SGD of torch
   (``tests/engine/test_reference.py``).
2. ``engine.cpu.linear_steps.local_steps``, for linear layers on a CPU core, in place and as TorchScript.
3. ``engine.cpu.autograd._Replica._descend``, for all other models on a CPU core, on lists of parameters. The second and
   the third are held against the first by ``tests/engine/test_cpu_trainer.py``, and the second as TorchScript against
   itself in Python.
4. ``engine.gpu.kernels.twins``: ``correct`` and ``update``, for all clients of a program, in plain torch. Held against
   the first by ``tests/engine/test_batched.py``.
5. ``engine.gpu.kernels.updates``: ``corrected`` and ``update``, as Triton kernels. Held against the fourth by
   ``tests/engine/test_kernels.py``, operator by operator and in whole rounds.

A norm that is too large for a number makes the factor of clipping NaN in all five, which ends the run. A factor of zero
would let the run go on without its gradients.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Correction, Scalar
from adabest.engine.step_numbers import UniformSteps
from adabest.errors import InputError, nearest
from adabest.registry import check_options, options_of, split_specification


@dataclass(frozen=True)
class Adam:
    """Adam as the local optimiser: Kingma & Ba, *Adam: a method for stochastic optimization*, 2015.

    Its state is zero at the start of local training in every phase. With m the direction of plain descent, clipped and
    with the algorithm's momentum, and k the number of the step from 1::

        a ← β₁ a + (1 − β₁) m
        v ← β₂ v + (1 − β₂) m²
        w ← w − η (a / (1 − β₁ᵏ) / (√(v / (1 − β₂ᵏ)) + ε) + (λ + ρ′) w)

    The decay isn't part of the moments, as in AdamW.

    Attributes:
        beta1: β₁.
        beta2: β₂.
        eps: ε.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0 <= value < 1):
                raise InputError(f"{name} = {value}: it must be finite, at least 0 and below 1")
        if not (math.isfinite(self.eps) and self.eps > 0):
            raise InputError(f"eps = {self.eps}: it must be finite and above 0")


@dataclass(frozen=True)
class LocalTraining:
    """The settings of local training.

    Attributes:
        learning_rate: η of the first round.
        learning_rate_decay: The factor of η from one round to the next.
        weight_decay: λ.
        clip: The largest norm of the corrected gradient; 0 for none.
        optimizer: What descends along the corrected gradient; None for plain gradient descent.
        steps: How the number of local steps is drawn; None for each client's own number.
    """

    learning_rate: float = 0.1
    learning_rate_decay: float = 0.998
    weight_decay: float = 0.0
    clip: float = 10.0
    optimizer: Adam | None = None
    steps: UniformSteps | None = None

    def __post_init__(self) -> None:
        ranges = {
            "learning_rate": self.learning_rate > 0,
            "learning_rate_decay": 0 < self.learning_rate_decay <= 1,
            "weight_decay": self.weight_decay >= 0,
            "clip": self.clip >= 0,
        }
        rules = {
            "learning_rate": "above 0",
            "learning_rate_decay": "above 0 and at most 1",
            "weight_decay": "at least 0",
            "clip": "at least 0 (0 means no clipping)",
        }
        for name, fits in ranges.items():
            value = getattr(self, name)
            if not (math.isfinite(value) and fits):
                raise InputError(f"{name} = {value}: it must be finite and {rules[name]}")

    def eta(self, round_number: int) -> float:
        """η_t."""
        return float(self.learning_rate * self.learning_rate_decay ** (round_number - 1))


def parse_optimizer(text: str) -> Adam | None:
    """The optimiser that ``sgd``, ``adam`` or ``adam,beta1=0.8`` stand for; None for plain gradient descent.

    Raises:
        InputError: If it is something else.
    """
    name, given = split_specification(text)
    if name not in ("sgd", "adam"):
        raise InputError(f"local_optimizer = {text!r} isn't one of its values; {nearest(name, ['sgd', 'adam'])}")
    checked = check_options(f"local_optimizer {name!r}", given, options_of(Adam) if name == "adam" else {})
    return Adam(**checked) if name == "adam" else None


class Carried(NamedTuple):
    """What a client carries from one local step to the next.

    Attributes:
        steps: How many steps it has made.
        velocity: m; None without momentum.
        previous: The point before the last step; None if it isn't an anchor.
        first: Adam's a; None without Adam.
        second: Adam's v; None without Adam.
    """

    steps: int = 0
    velocity: Tensor | None = None
    previous: Tensor | None = None
    first: Tensor | None = None
    second: Tensor | None = None

    @classmethod
    def at_start(cls, correction: Correction, training: LocalTraining) -> "Carried":
        """What there is before the first step."""
        start = correction.start
        velocity = correction.velocity
        if correction.has_momentum and velocity is None:
            velocity = torch.zeros_like(start)
        previous = None
        if correction.previous:
            previous = start if correction.anchor is None else correction.anchor
        moment = torch.zeros_like(start) if training.optimizer is not None else None
        return cls(0, velocity, previous, moment, moment)


GradientAt = Callable[[Tensor], Tensor]
"""∇L at a point, on the batch of the step; valid until the next call."""


def local_step(w: Tensor, gradient: Tensor, correction: Correction, eta: Scalar, training: LocalTraining) -> Tensor:
    """A step of an affine correction by plain descent: w − η_t (clip(s ∇L + o + ρ w) + (λ + ρ′) w).

    For any leading batch dimensions.
    """
    direction = clipped(corrected(gradient, w, correction), training.clip)
    return _moved(w, direction, correction, eta, training)


def whole_step(
    w: Tensor,
    gradient_at: GradientAt,
    correction: Correction,
    eta: Scalar,
    training: LocalTraining,
    *,
    carried: Carried,
) -> tuple[Tensor, Carried]:
    """A step of any correction by any optimiser: the point after it, and what is carried to the next step."""
    anchor = carried.previous if correction.previous else correction.anchor
    gradient = difference(w, gradient_at, correction, anchor)
    direction = corrected(gradient, w, correction)
    velocity, before = None, carried.velocity
    if before is None:
        direction = clipped(direction, training.clip)
    else:
        velocity, direction = _with_momentum(before, direction, correction.momentum, training.clip)
    first, second, steps = carried.first, carried.second, carried.steps + 1
    if training.optimizer is not None:
        assert first is not None
        assert second is not None
        adam = training.optimizer
        first = adam.beta1 * first + (1 - adam.beta1) * direction
        second = adam.beta2 * second + (1 - adam.beta2) * direction.square()
        root = (second / (1 - adam.beta2**steps)).sqrt() + adam.eps
        direction = first / (1 - adam.beta1**steps) / root
    after = _moved(w, direction, correction, eta, training)
    return after, Carried(steps, velocity, w if correction.previous else None, first, second)


def _with_momentum(before: Tensor, direction: Tensor, b: Scalar, clip: float) -> tuple[Tensor, Tensor]:
    """The next m, and the direction of the step."""
    if isinstance(b, Tensor):
        sums, heavy = _with_momentum(before, direction, 1.0, clip), b * before + clipped(direction, clip)
        return torch.where(b == 1.0, sums[0], heavy), torch.where(b == 1.0, sums[1], heavy)
    if b == 1.0:
        total = before + direction
        return total, clipped(total, clip)
    velocity = b * before + clipped(direction, clip)
    return velocity, velocity


def difference(w: Tensor, gradient_at: GradientAt, correction: Correction, anchor: Tensor | None) -> Tensor:
    """U: ∇L(w + e), without ∇L(anchor) if there is one. The pass at w + e is the last."""
    minus = None if anchor is None else gradient_at(anchor).clone()
    point = w if correction.shift is None else w + correction.shift
    if correction.has_radius:
        ascent = gradient_at(point)
        norm = torch.linalg.vector_norm(ascent, dim=-1, keepdim=True)
        # A gradient of zero has no direction. A norm too large for a number must end the run.
        factor = torch.where(norm == 0, 0.0, torch.where(torch.isinf(norm), torch.nan, correction.radius / norm))
        point = point + factor * ascent
    gradient = gradient_at(point)
    return gradient if minus is None else gradient - minus


def corrected(gradient: Tensor, w: Tensor, correction: Correction) -> Tensor:
    """The sum s ⊙ u + o + ρ w."""
    direction = gradient if _is_number(correction.scale, 1.0) else correction.scale * gradient
    if correction.offset is not None:
        direction = direction + correction.offset
    if not _is_number(correction.rho, 0.0):
        direction = direction + correction.rho * w
    return direction


def clipped(direction: Tensor, clip: float) -> Tensor:
    """A direction, shortened where it is longer than the clip."""
    if clip > 0:
        norm = torch.linalg.vector_norm(direction, dim=-1, keepdim=True)
        # A norm too large for a number must end the run, not shrink the step to nothing.
        factor = torch.where(torch.isinf(norm), torch.nan, (clip / norm).clamp(max=1.0))
        direction = direction * factor
    return direction


def _moved(w: Tensor, direction: Tensor, correction: Correction, eta: Scalar, training: LocalTraining) -> Tensor:
    """The point after a step: w − η (direction + (λ + ρ′) w)."""
    decay = training.weight_decay + correction.rho_prime
    if not _is_number(decay, 0.0):
        direction = direction + decay * w
    return w - eta * direction


def _is_number(value: float | Tensor, number: float) -> bool:
    return not isinstance(value, Tensor) and value == number
