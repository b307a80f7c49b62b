"""JAX by hand: local steps as a scan, clients as a vmap over it (or one after another), one compiled call a round."""

import argparse
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.arms import jax_model
from benchmarks.arms.worker import serve
from benchmarks.tasks import TASKS, Task


class Federation:
    """The server, all clients' data, and the round as a compiled program."""

    def __init__(self, task: Task, how: jax_model.How, clients: str) -> None:
        self._task = task
        self._server = jax_model.initial(task)
        self._data = jnp.asarray(jax_model.images(task)), jnp.asarray(task.labels())
        self._key = jax.random.key(0)

        def train(server: jax_model.Parameters, x: Any, y: Any, key: Any) -> jax_model.Parameters:
            return jax_model.train_client(task, how, server, (x, y), key)

        def round_of_all(server: jax_model.Parameters, x: Any, y: Any, cohort: Any, key: Any) -> jax_model.Parameters:
            keys = jax.random.split(key, task.cohort)
            if clients == "vmap":
                trained = jax.vmap(train, in_axes=(None, 0, 0, 0))(server, x[cohort], y[cohort], keys)
            else:
                trained = jax.lax.map(lambda one: train(server, x[one[0]], y[one[0]], one[1]), (cohort, keys))
            return jax.tree.map(lambda stacked: stacked.mean(axis=0), trained)

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
    task = TASKS[arguments.task].with_cohort(arguments.clients)
    return Federation(task, arguments.convolution, arguments.over_clients)


def options(parser: argparse.ArgumentParser) -> None:
    """How convolutions are computed, and whether clients are batched."""
    parser.add_argument("--convolution", choices=("direct", "im2col"), default="im2col")
    parser.add_argument("--over-clients", choices=("vmap", "map"), default="vmap")


if __name__ == "__main__":
    packages = ("jax", "jaxlib", "numpy")
    serve(prepare, Federation.train_round, warm_up=Federation.warm_up, packages=packages, options=options)
