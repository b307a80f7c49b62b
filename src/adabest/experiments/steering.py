"""Paths of algorithms: runs of two parameters on three quadratic clients, recorded step by step.

The runs are ordinary ones, of the package's own simulation and algorithms. Only the task is made for the eye: clients
pull in different directions, and their common objective is a valley, so that an algorithm that follows it has to turn.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, Correction
from adabest.engine.local_step import LocalTraining, local_step
from adabest.engine.simulation import Simulation
from adabest.errors import Diverged, InputError
from adabest.federation.roster import Attendance
from adabest.registry import convert
from adabest.runs.settings.algorithm_specification import check_algorithms, make_algorithm
from adabest.runs.settings.run_plan import labelled
from adabest.tasks.base import LocalPass
from adabest.tasks.quadratic import QuadraticTask

_TRAINING = LocalTraining(learning_rate=0.25, learning_rate_decay=1.0, weight_decay=0.0, clip=0.0)
_STEPS = 5
_MOST_ROUNDS = 1000  # all are drawn, and more can't be told apart


@dataclass(frozen=True)
class Leg:
    """A client's path in a round.

    Attributes:
        path: Where it was after each local step, from its start to θ_i, ``[K + 1, 2]``.
        plain: Where it would have been after each uncorrected gradient step, ``[K + 1, 2]``.
    """

    path: Tensor
    plain: Tensor


@dataclass(frozen=True)
class Move:
    """A round.

    Attributes:
        start: θ of the round before, which the clients were sent.
        legs: What each client of the cohort did.
        aggregate: θ̄.
        cloud: θ; where an algorithm subtracts its h from θ̄, that is the difference between the two.
    """

    start: Tensor
    legs: Mapping[int, Leg]
    aggregate: Tensor
    cloud: Tensor


@dataclass(frozen=True)
class _RecordedTask(QuadraticTask):
    """A task that remembers where it was asked for a gradient in this round, client by client."""

    visited: dict[int, list[Tensor]] = field(default_factory=dict)

    def local_pass(self, w: Tensor, client: int, round_number: int, step: int) -> LocalPass:
        if step == 0:
            self.visited[client] = []
        self.visited[client].append(w)
        return super().local_pass(w, client, round_number, step)


def plane() -> QuadraticTask:
    """Three clients of equal size in the plane."""
    return QuadraticTask(
        curvatures=torch.stack([_curvature(1.0, 0.15, 110), _curvature(1.0, 0.15, 70), _curvature(0.5, 0.2, 90)]),
        centres=torch.tensor([[4.1, 2.1], [0.3, 2.7], [3.2, -0.7]], dtype=torch.float64),
        counts=[1, 1, 1],
        paces=[_STEPS] * 3,
        origin=torch.tensor([-2.5, -1.5], dtype=torch.float64),
    )


def steer(
    algorithms: Sequence[str | Algorithm], task: QuadraticTask, *, rounds: int, participation: float, seed: int
) -> dict[str, list[Move]]:
    """Runs algorithms on the same clients and the same cohorts, and tells all their moves.

    Args:
        algorithms: Specifications such as ``adabest,beta=0.5``, or Algorithm objects.
        task: The clients.
        rounds: How many rounds.
        participation: The share of the clients that takes part in a round.
        seed: Keys the draw of the cohorts.

    Returns:
        The moves of each algorithm, by its label.

    Raises:
        InputError: If anything can't be used, or an algorithm diverges.
    """
    check_algorithms(algorithms)
    count = convert("rounds", rounds, int, text=False)
    if not 1 <= count <= _MOST_ROUNDS:
        raise InputError(f"rounds = {rounds}: at least 1 and at most {_MOST_ROUNDS:,} are drawn")
    share = convert("participation", participation, float, text=False)
    attendance = Attendance(participation=share, seed=convert("seed", seed, int, text=False))
    made = {label: make_algorithm(algorithm) for label, algorithm in labelled(algorithms).items()}
    return {label: _moves_of(label, algorithm, task, count, attendance) for label, algorithm in made.items()}


def _moves_of(label: str, algorithm: Algorithm, task: QuadraticTask, rounds: int, attendance: Attendance) -> list[Move]:
    recorded = _RecordedTask(**vars(task))
    simulation = Simulation(algorithm, recorded, np.arange(len(task.counts)), training=_TRAINING, attendance=attendance)
    moves = []
    for number in range(1, rounds + 1):
        start = simulation.state.cloud
        recorded.visited.clear()
        try:
            simulation.step()
        except Diverged as error:
            raise InputError(f"{label} diverges in round {number} of the illustration: {error}") from error
        legs = {
            client: Leg(
                torch.stack([*points, simulation.client_model(client)]), _uncorrected_path(task, client, points[0])
            )
            for client, points in recorded.visited.items()
        }
        moves.append(Move(start, legs, simulation.state.aggregate, simulation.state.cloud))
    return moves


def _uncorrected_path(task: QuadraticTask, client: int, start: Tensor) -> Tensor:
    """The path of a client whose gradients aren't corrected."""
    points = [start]
    for _ in range(task.steps(client)):
        gradient = task.full_gradient(points[-1], client)
        points.append(local_step(points[-1], gradient, Correction(start), _TRAINING.learning_rate, _TRAINING))
    return torch.stack(points)


def _curvature(steep: float, flat: float, degrees: float) -> Tensor:
    """The matrix with these eigenvalues, the steep direction turned by an angle from the first axis."""
    angle = math.radians(degrees)
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64)
    return turn @ torch.diag(torch.tensor([steep, flat], dtype=torch.float64)) @ turn.T
