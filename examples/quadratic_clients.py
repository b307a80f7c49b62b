"""Clients with quadratic objectives, on which what an algorithm does can be worked out on paper."""

import numpy as np
import torch
from torch import Tensor

from adabest import Algorithm
from adabest.engine.local_step import LocalTraining
from adabest.engine.simulation import Simulation
from adabest.federation.roster import Attendance
from adabest.tasks.quadratic import QuadraticTask


class QuadraticClients(QuadraticTask):
    """Client i has the objective f_i(w) = ½ (w − c_i)ᵀ A_i (w − c_i); curvatures lie between ½ and 2.

    Args:
        number: How many clients there are, all with the same number of samples.
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
        super().__init__(
            curvatures=rotations * eigenvalues[:, None, :] @ rotations.mT,
            centres=normal(number, dimensions),
            counts=[1] * number,
            paces=[local_steps] * number,
            origin=normal(dimensions),
        )

    def gradient(self, w: Tensor) -> Tensor:
        """∇f(w), f being the mean of all f_i."""
        return torch.stack([self.full_gradient(w, client) for client in range(len(self.counts))]).mean(dim=0)

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
    everyone = np.arange(len(clients.counts))
    return Simulation(
        algorithm, clients, everyone, training=training, attendance=Attendance(participation=participation)
    )
