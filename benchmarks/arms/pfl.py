"""pfl-research: its federated averaging and simulated backend, in one process, with data that are tensors already."""

import argparse
import dataclasses

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.arms import torch_model
from benchmarks.arms.worker import serve
from benchmarks.tasks import TASKS, Task


class Classifier(nn.Module):
    """A module with what pfl asks for: a loss, and metrics that are never asked for here."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean cross-entropy of a batch."""
        return functional.cross_entropy(self.layers(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, object]:
        """None."""
        return {}


class Federation:
    """pfl's algorithm, whose loop is run for one more iteration at a time."""

    def __init__(self, task: Task) -> None:
        self._task = task
        x, y = torch.from_numpy(task.inputs()), torch.from_numpy(task.labels())
        self._turns: list[int] = []
        users = FederatedDataset(lambda user: Dataset((x[user], y[user])), lambda: self._turns.pop(0))
        self._backend = SimulatedBackend(training_data=users, val_data=users, postprocessors=[WeightByUser()])
        module = Classifier(torch_model.build(task))
        self._model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), 1.0))
        self._algorithm = FederatedAveraging()
        # The first iteration would evaluate, so counting begins with the second.
        self._algorithm._current_central_iteration = 1
        self._parameters = NNAlgorithmParams(
            central_num_iterations=1, evaluation_frequency=10**9, train_cohort_size=task.cohort, val_cohort_size=0
        )
        torch_model.use_fastest_threads(task)

    def train(self, cohort: list[int]) -> None:
        """One round with the given clients."""
        self._turns = cohort
        iterations = self._parameters.central_num_iterations + 1
        self._parameters = dataclasses.replace(
            self._parameters, central_num_iterations=iterations, train_cohort_size=len(cohort)
        )
        local = NNTrainHyperParams(
            local_learning_rate=self._task.learning_rate,
            local_num_epochs=self._task.epochs,
            local_batch_size=self._task.batch_size,
        )
        self._algorithm.run(self._parameters, self._backend, self._model, local, send_metrics_to_platform=False)

    def train_round(self, round_number: int) -> None:
        """One round with the clients whose turn it is."""
        self.train(self._task.cohort_of(round_number).tolist())

    def warm_up(self) -> None:
        """One client."""
        self.train([0])


def prepare(arguments: argparse.Namespace) -> Federation:
    """Everything that a round needs."""
    return Federation(TASKS[arguments.task].with_cohort(arguments.clients))


if __name__ == "__main__":
    serve(prepare, Federation.train_round, warm_up=Federation.warm_up, packages=("pfl", "torch", "numpy"))
