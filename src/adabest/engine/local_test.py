"""Local tests: models judged on what each training client has held out, client by client."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from adabest.engine.simulation import Simulation
from adabest.tasks.classification import ClassificationTask, summarised
from adabest.tasks.objectives.metric import Metric

GLOBAL, OWN = "global", "own"


class HeldOut(NamedTuple):
    """How many samples clients train on and hold out; those that hold some out.

    Attributes:
        clients: The clients, ascending.
        samples: How many samples each trains on.
        held_out: How many each holds out.
    """

    clients: np.ndarray
    samples: np.ndarray
    held_out: np.ndarray


Judge = Callable[[], dict[str, np.ndarray]]
"""Gives the metrics of each client with the global model and with its own, ``[clients, metrics]`` by ``GLOBAL`` and
``OWN``; NaN where there is none."""


class LocalTests:
    """Judges two models of each training client on the samples that it has held out.

    One is the model that is told of, the same for all. The other is the client's own: its personal one if the algorithm
    has such models, else the one that it trained last. It is there once the client has taken part; where the models of
    clients can't be told from their replies, and none is personal, nobody has one.
    """

    def __init__(self, metrics: Sequence[Metric], held_out: HeldOut, judge: Judge) -> None:
        """Sets the tests up.

        Args:
            metrics: What models are judged by.
            held_out: The clients.
            judge: Judges their models.
        """
        self._metrics, self._held_out, self._judge = metrics, held_out, judge

    def metrics(self) -> dict[str, float | None]:
        """What a row of metrics has of local tests: for each model the first metric's mean over clients and so on."""
        first = self._metrics[0]
        found: dict[str, float | None] = {}
        for name, values in self._judge().items():
            told = summarised(values[:, 0], first)
            best = summarised(-values[:, 0], first)  # the worst of the opposites
            numbers = {
                f"local_{name}_{first.name}": told.mean,
                f"local_{name}_spread": told.spread,
                f"local_{name}_worst_tenth": told.worst_tenth,
                f"local_{name}_best_tenth": -best.worst_tenth,
            }
            found |= {key: value if np.isfinite(value) else None for key, value in numbers.items()}
        return found

    def table(self) -> dict[str, list[Any]]:
        """A column for each of the clients' numbers, the first client first."""
        clients, samples, held_out = self._held_out
        table: dict[str, list[Any]] = {
            "client": clients.tolist(),
            "samples": samples.tolist(),
            "held_out": held_out.tolist(),
        }
        for name, values in self._judge().items():
            for metric, column in zip(self._metrics, values.T, strict=True):
                table[f"{name}_{metric.name}"] = [value if np.isfinite(value) else None for value in column.tolist()]
        return table


def local_tests_here(task: ClassificationTask, simulation: Simulation, score: str) -> LocalTests | None:
    """Local tests of clients whose samples are here; None if they hold nothing out.

    Args:
        task: The objectives of the clients.
        simulation: The run.
        score: The model that is told of.
    """
    partition, held_out = task.partition, task.partition.held_out
    if held_out is None:
        return None
    clients = partition.training[held_out.samples[partition.training] > 0]

    def judged(model: Tensor, of: np.ndarray) -> np.ndarray:
        samples = np.concatenate([held_out.of(client) for client in of.tolist()])
        return task.values_by_client(model, samples, held_out.samples[of])

    def judge() -> dict[str, np.ndarray]:
        own = np.full((len(clients), len(task.metrics)), np.nan)
        place = {client: number for number, client in enumerate(clients.tolist())}
        for client in simulation.clients_with_models():
            if client in place:
                own[place[client]] = judged(simulation.personal_model(client), np.array([client]))[0]
        return {GLOBAL: judged(told_model(simulation, score), clients), OWN: own}

    return LocalTests(task.metrics, HeldOut(clients, partition.samples[clients], held_out.samples[clients]), judge)


def told_model(simulation: Simulation, score: str) -> Tensor:
    """The model that is told of; the aggregate where there is none of that name yet."""
    models = {
        "scored": simulation.scored_model(),
        "averaged": simulation.averaged_model(),
        "cloud": simulation.state.cloud,
    }
    told = models.get(score)
    return simulation.state.aggregate if told is None else told
