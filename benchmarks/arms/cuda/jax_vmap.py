"""JAX by hand: ``vmap`` over the clients, ``scan`` over their steps, a whole round in one compiled program.

Options: ``--precision`` tf32 (what JAX does with float32 on a GPU) or bf16; ``--im2col`` makes convolutions products.
"""

import argparse
from typing import Any

import jax

from benchmarks.arms.cuda import jax_round
from benchmarks.arms.cuda.jax_round import Data, Federation, Parameters, ServerRound
from benchmarks.arms.worker import serve
from benchmarks.tasks import Task


def round_of(task: Task, half: bool, im2col: bool) -> ServerRound:
    """From data, server's parameters, and all clients' places and keys to the mean of their models."""
    train = jax.vmap(jax_round.client_round(task, half, im2col), in_axes=(None, None, 0, 0))

    def run(data: Data, server: Parameters, places: Any, keys: Any) -> Parameters:
        return jax.tree.map(lambda models: models.mean(axis=0), train(data, server, places, keys))

    return run


def prepare(arguments: argparse.Namespace) -> Federation:
    """Everything that a round needs."""
    task = jax_round.task_of(arguments)
    run = round_of(task, arguments.precision == "bf16", arguments.im2col)
    return Federation(task, jax_round.load(task), run)


if __name__ == "__main__":
    serve(
        prepare,
        Federation.train,
        packages=("jax", "jaxlib", "numpy"),
        peak_memory=jax_round.peak_memory,
        options=jax_round.options,
    )
