"""A task's model and a client's local training in JAX, for the arms that use it. Images have their channels last."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.tasks import (
    SEED,
    Convolution,
    Dropout,
    Flatten,
    GroupNorm,
    Layer,
    Linear,
    Mean,
    Pool,
    Relu,
    Residual,
    Task,
)

How = Literal["direct", "im2col"]
Parameters = list[tuple[Any, Any]]


def initial(task: Task) -> Parameters:
    """Weights and biases of all layers that have some, drawn as torch draws them."""
    random = np.random.default_rng(SEED)
    parameters = []
    for layer, before, after in task.leaves():
        if isinstance(layer, Convolution | Linear):
            shape = (layer.size, layer.size, before[0]) if isinstance(layer, Convolution) else before
            bound = 1 / math.sqrt(math.prod(shape))
            weight = jnp.asarray(random.uniform(-bound, bound, (*shape, after[0])).astype(np.float32))
            has_bias = isinstance(layer, Linear) or layer.bias
            bias = jnp.asarray(random.uniform(-bound, bound, after[0]), jnp.float32) if has_bias else None
            parameters.append((weight, bias))
        elif isinstance(layer, GroupNorm):
            parameters.append((jnp.ones(before[0]), jnp.zeros(before[0])))
    return parameters


def images(task: Task) -> np.ndarray:
    """The task's inputs with the channels last."""
    x = task.inputs()
    return np.ascontiguousarray(np.moveaxis(x, 2, -1)) if len(task.input_shape) == 3 else x


def loss(task: Task, how: How, parameters: Parameters, samples: tuple[Any, Any], key: Any) -> Any:
    """The mean cross-entropy of a batch of inputs and labels."""
    x, y = samples
    z = _scores(task.layers, how, iter(parameters), x, key)
    return -jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], axis=1).mean()


def _scores(layers: Sequence[Layer], how: How, left: Iterator[tuple[Any, Any]], x: Any, key: Any) -> Any:
    """What a chain of layers makes of a batch, with the next of the parameters that are left."""
    for layer in layers:
        if isinstance(layer, Convolution):
            x = _convolution(x, *next(left), layer, how)
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
        elif isinstance(layer, GroupNorm):
            x = _group_norm(x, *next(left), layer.channels)
        elif isinstance(layer, Mean):
            x = x.mean(axis=(1, 2))
        elif isinstance(layer, Residual):
            key, first, second = jax.random.split(key, 3)
            body = _scores(layer.body, how, left, x, first)
            x = body + _scores(layer.shortcut, how, left, x, second)
    return x


def _group_norm(x: Any, scale: Any, shift: Any, channels: int) -> Any:
    groups = x.reshape(*x.shape[:-1], -1, channels)
    centred = groups - groups.mean(axis=(1, 2, 4), keepdims=True)
    variance = jnp.square(centred).mean(axis=(1, 2, 4), keepdims=True)
    return (centred * jax.lax.rsqrt(variance + 1e-5)).reshape(x.shape) * scale + shift


def _convolution(x: Any, weight: Any, bias: Any, layer: Convolution, how: How) -> Any:
    """Directly, or as a matrix product over the patches of the images."""
    size, stride, around = layer.size, layer.stride, (layer.padding, layer.padding)
    if how == "direct":
        numbers = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, weight, (stride, stride), (around, around), dimension_numbers=numbers)
    else:
        x = jnp.pad(x, ((0, 0), around, around, (0, 0))) if layer.padding else x
        rows, columns = (length - size + 1 for length in x.shape[1:3])
        shifted = [x[:, i : i + rows : stride, j : j + columns : stride] for i in range(size) for j in range(size)]
        y = jnp.concatenate(shifted, axis=-1) @ weight.reshape(-1, weight.shape[-1])
    return y if bias is None else y + bias


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
