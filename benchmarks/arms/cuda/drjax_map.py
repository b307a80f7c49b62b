"""DrJAX: the local round is mapped over its placement of clients, and the models are reduced to their mean.

Options: ``--precision`` tf32 or bf16; ``--im2col`` makes convolutions products of matrices.
"""

import argparse
import functools
from typing import Any

import drjax

from benchmarks.arms.cuda import jax_round
from benchmarks.arms.cuda.jax_round import Data, Federation, Parameters, ServerRound
from benchmarks.arms.worker import serve
from benchmarks.tasks import Task


def round_of(task: Task, half: bool, im2col: bool) -> ServerRound:
    """From data, server's parameters, and all clients' places and keys to the mean of their models."""
    train = jax_round.client_round(task, half, im2col)

    @drjax.program(placements={"clients": task.cohort})
    def run(data: Data, server: Parameters, places: Any, keys: Any) -> Any:
        client = functools.partial(train, data)
        return drjax.reduce_mean(drjax.map_fn(client, (drjax.broadcast(server), places, keys)))

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
        packages=("drjax", "jax", "jaxlib", "numpy"),
        peak_memory=jax_round.peak_memory,
        options=jax_round.options,
    )
