"""DrJAX: the same training as by hand in JAX, its clients mapped and their models averaged by DrJAX's operators."""

import argparse
from typing import Any

import drjax
import jax
import jax.numpy as jnp

from benchmarks.arms import jax_model
from benchmarks.arms.worker import serve
from benchmarks.tasks import TASKS, Task


class Federation:
    """The server, all clients' data, and the round as a compiled program."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._server = jax_model.initial(task)
        self._data = jnp.asarray(jax_model.images(task)), jnp.asarray(task.labels())
        self._key = jax.random.key(0)

        def train(server: jax_model.Parameters, x: Any, y: Any, key: Any) -> jax_model.Parameters:
            return jax_model.train_client(task, "im2col", server, (x, y), key)

        @drjax.program(clients=task.cohort)
        def round_of_all(server: jax_model.Parameters, x: Any, y: Any, cohort: Any, key: Any) -> Any:
            keys = jax.random.split(key, task.cohort)
            return drjax.reduce_mean(drjax.map_fn(train, (drjax.broadcast(server), x[cohort], y[cohort], keys)))

        self._round = jax.jit(round_of_all).lower(self._server, *self._data, self._cohort(0), self._key).compile()

    def _cohort(self, round_number: int) -> Any:
        return jnp.asarray(self._task.cohort_of(round_number))

    def train_round(self, round_number: int) -> None:
        """One round."""
        key = jax.random.fold_in(self._key, round_number)
        self._server = jax.block_until_ready(self._round(self._server, *self._data, self._cohort(round_number), key))

    def warm_up(self) -> None:
        """Nothing is left to do: the program is compiled."""


def prepare(arguments: argparse.Namespace) -> Federation:
    """Everything that a round needs."""
    return Federation(TASKS[arguments.task].with_cohort(arguments.clients))


if __name__ == "__main__":
    packages = ("drjax", "jax", "jaxlib", "numpy")
    serve(prepare, Federation.train_round, warm_up=Federation.warm_up, packages=packages)
