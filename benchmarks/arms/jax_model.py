"""A task's model and a client's local training in JAX, for the arms that use it. Images have their channels last."""

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.tasks import SEED, Convolution, Dropout, Flatten, Linear, Pool, Relu, Task

How = Literal["direct", "im2col"]
Parameters = list[tuple[Any, Any]]


def initial(task: Task) -> Parameters:
    """Weights and biases of convolutions and linear layers, drawn as torch draws them."""
    random = np.random.default_rng(SEED)
    parameters = []
    for layer, before, after in task.shapes():
        if isinstance(layer, Convolution | Linear):
            shape = (layer.size, layer.size, before[0]) if isinstance(layer, Convolution) else before
            bound = 1 / math.sqrt(math.prod(shape))
            weight = random.uniform(-bound, bound, (*shape, after[0])).astype(np.float32)
            parameters.append((jnp.asarray(weight), jnp.asarray(random.uniform(-bound, bound, after[0]), jnp.float32)))
    return parameters


def images(task: Task) -> np.ndarray:
    """The task's inputs with the channels last."""
    x = task.inputs()
    return np.ascontiguousarray(np.moveaxis(x, 2, -1)) if len(task.input_shape) == 3 else x


def loss(task: Task, how: How, parameters: Parameters, samples: tuple[Any, Any], key: Any) -> Any:
    """The mean cross-entropy of a batch of inputs and labels."""
    x, y = samples
    left = iter(parameters)
    for layer in task.layers:
        if isinstance(layer, Convolution):
            x = _convolution(x, *next(left), how)
        elif isinstance(layer, Linear):
            weight, bias = next(left)
            x = x @ weight + bias
        elif isinstance(layer, Relu):
            x = jnp.maximum(x, 0)
        elif isinstance(layer, Pool):
            count, rows, columns, channels = x.shape
            squares = (count, rows // layer.size, layer.size, columns // layer.size, layer.size, channels)
            x = x.reshape(squares).max(axis=(2, 4))
        elif isinstance(layer, Flatten):
            x = x.reshape(len(x), -1)
        elif isinstance(layer, Dropout):
            key, own = jax.random.split(key)
            x = x * jax.random.bernoulli(own, 1 - layer.probability, x.shape) / (1 - layer.probability)
    return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], axis=1).mean()


def _convolution(x: Any, weight: Any, bias: Any, how: How) -> Any:
    """Directly, or as a matrix product over the patches of the images."""
    if how == "direct":
        y = jax.lax.conv_general_dilated(x, weight, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return y + bias
    size = len(weight)
    rows, columns = x.shape[1] - size + 1, x.shape[2] - size + 1
    shifted = [x[:, i : i + rows, j : j + columns] for i in range(size) for j in range(size)]
    return jnp.concatenate(shifted, axis=-1) @ weight.reshape(-1, weight.shape[-1]) + bias


def train_client(task: Task, how: How, parameters: Parameters, samples: tuple[Any, Any], key: Any) -> Parameters:
    """All local steps of one client on its inputs and labels, as one scan."""
    x, y = samples
    order_key, key = jax.random.split(key)
    orders = jax.vmap(lambda own: jax.random.permutation(own, task.samples))(jax.random.split(order_key, task.epochs))
    batches = orders.reshape(task.steps, task.batch_size)

    def step(w: Parameters, batch_and_key: tuple[Any, Any]) -> tuple[Parameters, None]:
        batch, own = batch_and_key
        gradients = jax.grad(lambda w: loss(task, how, w, (x[batch], y[batch]), own))(w)
        return jax.tree.map(lambda p, g: p - task.learning_rate * g, w, gradients), None

    return jax.lax.scan(step, parameters, (batches, jax.random.split(key, task.steps)))[0]
