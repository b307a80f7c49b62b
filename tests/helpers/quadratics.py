"""Quadratic clients, on which every algorithm can be worked out exactly, and small ways to drive algorithms on them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from replies import reduce_pairs
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Population, ServerContext, Update
from adabest.engine.local_step import LocalTraining
from adabest.engine.simulation import Rules, Simulation
from adabest.engine.state import State
from adabest.engine.step_numbers import UniformSteps
from adabest.federation.roster import Attendance
from adabest.tasks.quadratic import QuadraticTask


def random_quadratics(
    seed: int, clients: int, *, dim: int = 3, unbalanced: bool = False, dtype: torch.dtype = torch.float64
) -> QuadraticTask:
    """Clients that differ in curvature (eigenvalues between ½ and 2) and centre; unbalanced ones in n_i and K_i too."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    rotations = torch.linalg.qr(normal(clients, dim, dim)).Q
    eigenvalues = 0.5 + 1.5 * torch.rand(clients, dim, generator=generator, dtype=torch.float64)
    curvatures = rotations * eigenvalues[:, None, :] @ rotations.mT
    counts, paces = [7] * clients, [3] * clients
    if unbalanced:
        counts = [1 + (5 * client + seed) % 8 for client in range(clients)]
        paces = [1 + (3 * client + seed) % 4 for client in range(clients)]
    return QuadraticTask(
        curvatures=curvatures.to(dtype),
        centres=normal(clients, dim).to(dtype),
        counts=counts,
        paces=paces,
        origin=normal(dim).to(dtype),
    )


def round_quadratics(
    centres: Sequence[Sequence[float]], counts: Sequence[int] | None = None, steps: int = 1
) -> QuadraticTask:
    """Clients of curvature one that start at the origin, for arithmetic by hand: their gradient is w − c_i."""
    points = torch.tensor(centres, dtype=torch.float64)
    clients, dim = points.shape
    return QuadraticTask(
        curvatures=torch.eye(dim, dtype=torch.float64).expand(clients, dim, dim),
        centres=points,
        counts=[1] * clients if counts is None else counts,
        paces=[steps] * clients,
        origin=torch.zeros(dim, dtype=torch.float64),
    )


def regularised_optimum(task: QuadraticTask, strength: float) -> Tensor:
    """The minimiser of f + (strength / 2) ‖θ − θ_0‖²: the pull to θ_0 is one more client, as large as all others."""
    pull = strength * torch.eye(len(task.origin), dtype=torch.float64)
    return replace(
        task,
        curvatures=torch.cat([task.curvatures, pull[None]]),
        centres=torch.cat([task.centres, task.origin[None]]),
        counts=[*task.counts, sum(task.counts)],
    ).optimum()


def simulate(
    algorithm: Algorithm,
    task: QuadraticTask,
    *,
    clients: int | None = None,
    eta: float = 0.1,
    decay: float = 1.0,
    clip: float = 0.0,
    weight_decay: float = 0.0,
    participation: float = 1.0,
    server_rate: float = 1.0,
    seed: int = 0,
    steps: UniformSteps | None = None,
) -> Simulation:
    """A federation of the task's first ``clients`` clients, all of them by default."""
    return Simulation(
        algorithm,
        task,
        np.arange(len(task.counts) if clients is None else clients),
        training=LocalTraining(
            learning_rate=eta, learning_rate_decay=decay, weight_decay=weight_decay, clip=clip, steps=steps
        ),
        attendance=Attendance(participation=participation, seed=seed),
        rules=Rules(server_rate=server_rate),
    )


def run(simulation: Simulation, rounds: int) -> list[State]:
    """The state at the start and after each round. They share what clients keep, so only the last one's is true."""
    states = [simulation.state]
    for _ in range(rounds):
        simulation.step()
        states.append(simulation.state)
    return states


def run_cohorts(simulation: Simulation, cohorts: Iterable[Sequence[int]]) -> list[State]:
    """Like ``run``, with the clients of each round prescribed."""
    states = [simulation.state]
    for cohort in cohorts:
        simulation.step(cohort=np.array(cohort))
        states.append(simulation.state)
    return states


def draw_cohorts(seed: int, clients: int, size: int, rounds: int) -> list[list[int]]:
    """Random cohorts of one size."""
    generator = np.random.default_rng(seed)
    return [sorted(generator.choice(clients, size=size, replace=False).tolist()) for _ in range(rounds)]


def estimate(state: State) -> Tensor:
    """h, which is zero before the first round."""
    return torch.zeros_like(state.cloud) if state.h is None else state.h


def pseudo_gradients(states: Sequence[State]) -> list[Tensor]:
    """ḡ_t = θ_{t−1} − θ̄_t of every round."""
    return [before.cloud - after.aggregate for before, after in pairwise(states)]


def serve(
    algorithm: Algorithm, origin: Tensor, rounds: Iterable[Mapping[int, Tensor]], population: Population
) -> list[Update]:
    """Plays prescribed client models to a server, as {client: model} for each round, in the order of arrival."""
    server, cloud = algorithm.server_init(origin), origin
    kept: dict[int, Any] = {}
    updates = []
    one = torch.ones_like(origin[:1])
    for number, models in enumerate(rounds, start=1):
        known = population if algorithm.needs_population else None
        at_server = ServerContext(round=number, phase=0, eta=0.1, base_eta=0.1, known_population=known)
        at_client = ClientContext(round=number, phase=0, eta=0.1, base_eta=0.1, steps=2 * one, samples=7 * one)
        message = algorithm.downlink(server, cloud, at_server)
        replies = []
        for client, model in models.items():
            state = kept.get(client, algorithm.client_init(origin))
            kept[client], reply = algorithm.client_finish(state, message, model, at_client)
            replies.append((client, reply))
        update = algorithm.server_step(server, cloud, reduce_pairs(algorithm.means, replies), at_server)
        server, cloud = update.server, update.cloud
        updates.append(update)
    return updates


def norm(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector))


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    """Equal up to rounding in float64, relative to the largest entry."""
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * max(1.0, float(expected.abs().max())))


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
