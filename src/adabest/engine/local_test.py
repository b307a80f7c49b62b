"""Local tests: models judged on what each training client has held out, client by client."""

from typing import Any

import numpy as np
from torch import Tensor

from adabest.engine.simulation import Simulation
from adabest.tasks.classification import ClassificationTask, summarised

GLOBAL, OWN = "global", "own"


class LocalTest:
    """Judges two models of each training client on the samples that it has held out.

    One is the model that is told of, the same for all. The other is the client's own: its personal one if the algorithm
    has such models, else the one that it trained last. It is there once the client has taken part; where the models of
    clients can't be told from their replies, and none is personal, nobody has one.
    """

    def __init__(self, task: ClassificationTask, simulation: Simulation, score: str) -> None:
        assert task.partition.held_out is not None
        self._task, self._simulation, self._score = task, simulation, score
        self._held_out = task.partition.held_out
        self._clients = task.partition.training[self._held_out.samples[task.partition.training] > 0]

    def metrics(self) -> dict[str, float | None]:
        """What a row of metrics has of local tests: for each model the first metric's mean over clients and so on."""
        first = self._task.metrics[0]
        found: dict[str, float | None] = {}
        for name, values in self._values().items():
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
        partition, clients = self._task.partition, self._clients
        table: dict[str, list[Any]] = {
            "client": clients.tolist(),
            "samples": partition.samples[clients].tolist(),
            "held_out": self._held_out.samples[clients].tolist(),
        }
        for name, values in self._values().items():
            for metric, column in zip(self._task.metrics, values.T, strict=True):
                table[f"{name}_{metric.name}"] = [value if np.isfinite(value) else None for value in column.tolist()]
        return table

    def _values(self) -> dict[str, np.ndarray]:
        """The metrics of each client with either model, ``[clients, metrics]``; NaN where there is none."""
        return {GLOBAL: self._judged(self._told_model(), self._clients), OWN: self._of_own_models()}

    def _of_own_models(self) -> np.ndarray:
        values = np.full((len(self._clients), len(self._task.metrics)), np.nan)
        place = {client: number for number, client in enumerate(self._clients.tolist())}
        for client in self._simulation.clients_with_models():
            if client in place:
                model = self._simulation.personal_model(client)
                values[place[client]] = self._judged(model, np.array([client]))[0]
        return values

    def _told_model(self) -> Tensor:
        simulation = self._simulation
        models = {
            "scored": simulation.scored_model(),
            "averaged": simulation.averaged_model(),
            "cloud": simulation.state.cloud,
        }
        told = models.get(self._score)
        return simulation.state.aggregate if told is None else told

    def _judged(self, model: Tensor, clients: np.ndarray) -> np.ndarray:
        samples = np.concatenate([self._held_out.of(client) for client in clients.tolist()])
        return self._task.values_by_client(model, samples, self._held_out.samples[clients])
