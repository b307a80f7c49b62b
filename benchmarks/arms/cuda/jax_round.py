"""A client's local round in JAX, for the arms that map it over all clients of a round."""

import argparse
import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

# Other processes use the same GPU; this must be set before JAX is imported.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.arms.cuda.order import pooled_first
from benchmarks.arms.worker import resident_memory
from benchmarks.tasks import MEAN, STD, TASKS, Convolution, Dropout, Flatten, Linear, Pool, Relu, Task

Parameters = list[tuple[Any, Any]]


class Data(NamedTuple):
    """All clients' samples on the device: bytes, images channels-last, and labels."""

    x: Any
    y: Any


def task_of(arguments: argparse.Namespace) -> Task:
    """The task at the wanted number of clients in a round."""
    if jax.default_backend() != {"cpu": "cpu", "cuda": "gpu"}[arguments.device]:
        raise SystemExit(f"JAX runs on {jax.default_backend()}, not on {arguments.device}")
    return TASKS[arguments.task].with_cohort(arguments.clients)


def load(task: Task) -> Data:
    """A task's data, on the device."""
    x = task.images().reshape(-1, *task.input_shape)
    if x.ndim == 4:
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    return Data(jnp.asarray(x), jnp.asarray(task.labels().reshape(-1).astype(np.int32)))


def initial(task: Task) -> Parameters:
    """The model before the first round: weights uniform within one over the root of their inputs, as torch has them."""
    draws, result = np.random.default_rng(0), []
    for layer, before, after in task.shapes():
        if isinstance(layer, Convolution | Linear):
            square = (layer.size, layer.size) if isinstance(layer, Convolution) else ()
            shape = (*square, before[0], after[0])
            bound = np.prod(shape[:-1]) ** -0.5
            weight, bias = draws.uniform(-bound, bound, shape), draws.uniform(-bound, bound, after[0])
            result.append((jnp.asarray(weight, jnp.float32), jnp.asarray(bias, jnp.float32)))
    return result


def batches(task: Task, key: Any, cohort: Any) -> Any:
    """The places of a round's samples, ``[cohort, steps, batch size]``, shuffled anew in every epoch."""
    order = jnp.argsort(jax.random.uniform(key, (task.cohort, task.epochs, task.samples)), axis=-1)
    return (order + cohort[:, None, None] * task.samples).reshape(task.cohort, task.steps, task.batch_size)


def scores(task: Task, parameters: Parameters, x: Any, key: Any, im2col: bool) -> Any:
    """Class scores of one client's batch."""
    weights = iter(parameters)
    for layer in pooled_first(task):
        if isinstance(layer, Convolution):
            weight, bias = next(weights)
            x = (_patches(x, weight) if im2col else _convolve(x, weight)) + bias
        elif isinstance(layer, Linear):
            weight, bias = next(weights)
            x = x @ weight + bias
        elif isinstance(layer, Relu):
            x = jax.nn.relu(x)
        elif isinstance(layer, Pool):
            x = _pool(x, layer.size)
        elif isinstance(layer, Dropout):
            key, own = jax.random.split(key)
            kept = jax.random.bernoulli(own, 1 - layer.probability, x.shape)
            x = jnp.where(kept, x / (1 - layer.probability), 0).astype(x.dtype)
        elif isinstance(layer, Flatten):
            x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    return x


def _convolve(x: Any, weight: Any) -> Any:
    return lax.conv_general_dilated(x, weight, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _patches(x: Any, weight: Any) -> Any:
    """A convolution as one product: the squares of the image, as rows, with the weights as a matrix."""
    size, channels = weight.shape[0], weight.shape[-1]
    height, width = (length - size + 1 for length in x.shape[1:3])
    squares = [x[:, row : row + height, column : column + width] for row in range(size) for column in range(size)]
    return jnp.concatenate(squares, axis=-1) @ weight.reshape(-1, channels)


def _pool(x: Any, size: int) -> Any:
    """The largest of each square; a plain maximum, as the gradient of XLA's window operator is slow."""
    n, height, width, channels = x.shape
    x = x[:, : height // size * size, : width // size * size]
    return x.reshape(n, height // size, size, width // size, size, channels).max(axis=(2, 4))


def client_round(task: Task, half: bool, im2col: bool) -> Callable[[Data, Parameters, Any, Any], Parameters]:
    """What one client does in a round: from data, server's parameters, batches' places and a key to its model."""
    dtype = jnp.bfloat16 if half else jnp.float32

    def loss(parameters: Parameters, x: Any, y: Any, key: Any) -> Any:
        cast = jax.tree.map(lambda parameter: parameter.astype(dtype), parameters)
        logarithms = jax.nn.log_softmax(scores(task, cast, x, key, im2col).astype(jnp.float32))
        return -jnp.take_along_axis(logarithms, y[:, None], axis=1).mean()

    def step(data: Data, parameters: Parameters, drawn: tuple[Any, Any]) -> tuple[Parameters, None]:
        places, key = drawn
        x = (data.x[places].astype(dtype) - dtype(MEAN)) * dtype(1 / STD)
        gradient = jax.grad(loss)(parameters, x, data.y[places], key)
        if task.clip > 0:
            squares = [jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(gradient)]
            factor = jnp.minimum(1.0, task.clip / jnp.sqrt(sum(squares)))
            gradient = jax.tree.map(lambda leaf: factor * leaf, gradient)
        eta, decay = task.learning_rate, task.weight_decay
        return jax.tree.map(lambda w, g: w - eta * (g + decay * w), parameters, gradient), None

    def train(data: Data, server: Parameters, places: Any, key: Any) -> Parameters:
        keys = jax.random.split(key, len(places))
        trained: Parameters = lax.scan(functools.partial(step, data), server, (places, keys))[0]
        return trained

    return train


def options(parser: argparse.ArgumentParser) -> None:
    """The options of JAX arms."""
    parser.add_argument("--precision", choices=("tf32", "bf16"), default="tf32")
    parser.add_argument("--im2col", action="store_true")


def peak_memory() -> int:
    """The largest number of bytes in use so far: on the GPU, if one is used."""
    statistics = jax.local_devices()[0].memory_stats()
    return int(statistics["peak_bytes_in_use"]) if statistics else resident_memory()


ServerRound = Callable[[Data, Parameters, Any, Any], Parameters]


class Federation:
    """A server whose round is one compiled program.

    Args:
        task: What is trained.
        data: Its data.
        server_round: From data, server's parameters, and all clients' places and keys to the mean of their models.
    """

    def __init__(self, task: Task, data: Data, server_round: ServerRound) -> None:
        self._task, self._data = task, data
        self.server = initial(task)

        def run(data: Data, server: Parameters, cohort: Any, key: Any) -> Parameters:
            shuffle, dropout = jax.random.split(key)
            places = batches(task, shuffle, cohort)
            return server_round(data, server, places, jax.random.split(dropout, task.cohort))

        self._run = jax.jit(run)

    def train(self, round_number: int) -> None:
        """One round of FedAvg."""
        cohort, key = jnp.asarray(self._task.cohort_of(round_number)), jax.random.key(round_number)
        self.server = jax.block_until_ready(self._run(self._data, self.server, cohort, key))
