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
from dataclasses import dataclass

import torch
from torch import Tensor

from adabest.algorithms.base import Correction, Scalar
from adabest.errors import InputError


@dataclass(frozen=True)
class LocalTraining:
    """The settings of local training.

    Attributes:
        learning_rate: η of the first round.
        learning_rate_decay: The factor of η from one round to the next.
        weight_decay: λ.
        clip: The largest norm of the corrected gradient; 0 for none.
    """

    learning_rate: float = 0.1
    learning_rate_decay: float = 0.998
    weight_decay: float = 0.0
    clip: float = 10.0

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


def local_step(w: Tensor, gradient: Tensor, correction: Correction, eta: Scalar, training: LocalTraining) -> Tensor:
    """One step: w − η_t (clip(s ∇L + o + ρ w) + (λ + ρ′) w), for any leading batch dimensions."""
    direction = gradient if _is_number(correction.scale, 1.0) else correction.scale * gradient
    if correction.offset is not None:
        direction = direction + correction.offset
    if not _is_number(correction.rho, 0.0):
        direction = direction + correction.rho * w
    if training.clip > 0:
        norm = torch.linalg.vector_norm(direction, dim=-1, keepdim=True)
        # A norm too large for a number must end the run, not shrink the step to nothing.
        factor = torch.where(torch.isinf(norm), torch.nan, (training.clip / norm).clamp(max=1.0))
        direction = direction * factor
    decay = training.weight_decay + correction.rho_prime
    if not _is_number(decay, 0.0):
        direction = direction + decay * w
    return w - eta * direction


def _is_number(value: float | Tensor, number: float) -> bool:
    return not isinstance(value, Tensor) and value == number
