"""Clients with quadratic objectives, on which what an algorithm does can be worked out on paper.

Also an example of a task of your own: whatever has these seven functions can be simulated.
"""

import numpy as np
import torch
from torch import Tensor

from adabest import Algorithm
from adabest.engine import LocalPass, LocalTraining, Scores, Simulation
from adabest.engine.task import Heartbeat, no_heartbeat
from adabest.federation import Attendance


class QuadraticClients:
    """Client i has the objective f_i(w) = ½ (w − c_i)ᵀ A_i (w − c_i); curvatures lie between ½ and 2.

    Args:
        number: How many clients there are.
        local_steps: K, the same for all.
        dimensions: How many parameters a model has.
        seed: Draws A_i, c_i and the initial model.
    """

    def __init__(self, number: int = 4, *, local_steps: int = 3, dimensions: int = 3, seed: int = 1) -> None:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        rotations = torch.linalg.qr(normal(number, dimensions, dimensions)).Q
        eigenvalues = 0.5 + 1.5 * torch.rand(number, dimensions, generator=generator, dtype=torch.float64)
        self.curvatures = rotations * eigenvalues[:, None, :] @ rotations.mT
        self.centres = normal(number, dimensions)
        self.origin = normal(dimensions)
        self.number, self.local_steps = number, local_steps

    def initial_model(self) -> Tensor:
        """θ_0."""
        return self.origin.clone()

    def samples(self, client: int) -> int:
        """n_i, the same for all."""
        return 1

    def steps(self, client: int) -> int:
        """K_i."""
        return self.local_steps

    def local_pass(self, w: Tensor, client: int, round_number: int, step: int) -> LocalPass:
        """The gradient is always the full one."""
        nothing = torch.zeros((), dtype=w.dtype)
        return LocalPass(self.full_gradient(w, client), loss=nothing, accuracy=nothing)

    def full_gradient(self, w: Tensor, client: int) -> Tensor:
        """∇f_i(w)."""
        return self.curvatures[client] @ (w - self.centres[client])

    def test(self, w: Tensor, heartbeat: Heartbeat = no_heartbeat) -> Scores:
        """There is nothing to classify."""
        return Scores(loss=0.0, accuracy=0.0)

    def validate(self, w: Tensor, heartbeat: Heartbeat = no_heartbeat) -> None:
        """There are no validation clients."""

    def gradient(self, w: Tensor) -> Tensor:
        """∇f(w), f being the mean of all f_i."""
        return torch.stack([self.full_gradient(w, client) for client in range(self.number)]).mean(dim=0)

    def minimiser(self, pull: float = 0.0) -> Tensor:
        """Of f(θ) + (pull / 2) ‖θ − θ_0‖²."""
        curvature = self.curvatures.mean(dim=0) + pull * torch.eye(len(self.origin), dtype=torch.float64)
        right = (self.curvatures @ self.centres[..., None]).squeeze(-1).mean(dim=0) + pull * self.origin
        return torch.linalg.solve(curvature, right)


def federation(
    algorithm: Algorithm, clients: QuadraticClients, *, participation: float = 1.0, learning_rate: float = 0.2
) -> Simulation:
    """An algorithm on these clients: a constant learning rate, no weight decay, no clipping."""
    training = LocalTraining(learning_rate, learning_rate_decay=1.0, weight_decay=0.0, clip=0.0)
    everyone = np.arange(clients.number)
    attendance = Attendance(participation=participation)
    return Simulation(algorithm, clients, everyone, training=training, attendance=attendance)
