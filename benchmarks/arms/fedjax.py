"""FedJAX: its federated averaging, with its default backend, on the model that is fastest here in JAX."""

import argparse
from typing import Any

import jax

from benchmarks.arms import jax_model
from benchmarks.arms.worker import serve
from benchmarks.tasks import TASKS, Task

jax.tree_map = jax.tree.map  # the name that FedJAX calls it by, and that JAX has dropped

import fedjax  # noqa: E402
from fedjax.algorithms import fed_avg  # noqa: E402


class Federation:
    """FedJAX's algorithm and its state."""

    def __init__(self, task: Task) -> None:
        self._task = task
        x, y = jax_model.images(task), task.labels()
        self._clients = fedjax.InMemoryFederatedData(
            {number: {"x": x[number], "y": y[number]} for number in range(task.population)}
        )

        def gradients(parameters: Any, batch: Any, key: Any) -> Any:
            return jax.grad(lambda w: jax_model.loss(task, "im2col", w, (batch["x"], batch["y"]), key))(parameters)

        self._algorithm = fed_avg.federated_averaging(
            gradients,
            fedjax.optimizers.sgd(task.learning_rate),
            fedjax.optimizers.sgd(1.0),
            fedjax.ShuffleRepeatBatchHParams(batch_size=task.batch_size, num_epochs=task.epochs),
        )
        self._state = self._algorithm.init(jax_model.initial(task))

    def train(self, cohort: list[int], round_number: int) -> None:
        """One round with the given clients."""
        keys = jax.random.split(jax.random.PRNGKey(round_number), len(cohort))
        clients = [(client, self._clients.get_client(client), key) for client, key in zip(cohort, keys, strict=True)]
        self._state, _ = self._algorithm.apply(self._state, clients)
        jax.block_until_ready(self._state.params)

    def train_round(self, round_number: int) -> None:
        """One round with the clients whose turn it is."""
        self.train(self._task.cohort_of(round_number).tolist(), round_number)

    def warm_up(self) -> None:
        """One client, for whom everything is compiled."""
        self.train([0], 0)


def prepare(arguments: argparse.Namespace) -> Federation:
    """Everything that a round needs."""
    return Federation(TASKS[arguments.task].with_cohort(arguments.clients))


if __name__ == "__main__":
    packages = ("fedjax", "jax", "jaxlib", "numpy")
    serve(prepare, Federation.train_round, warm_up=Federation.warm_up, packages=packages)
