"""What every arm trains: sizes, models and data, the same for all. Needs NumPy only, as arms live in many environments.

Data are noise, drawn from a fixed seed: speed doesn't depend on what the pixels show, so nothing is downloaded.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

SEED = 0


class Convolution(NamedTuple):
    """A square convolution; images are padded with zeros on all sides."""

    size: int
    channels: int
    padding: int = 0
    stride: int = 1
    bias: bool = True


class Linear(NamedTuple):
    """A linear layer with bias."""

    width: int


class Relu(NamedTuple):
    """max(x, 0)."""


class Pool(NamedTuple):
    """Max-pooling of squares that don't overlap."""

    size: int


class Dropout(NamedTuple):
    """Zeroes entries with a probability and scales the others up."""

    probability: float


class Flatten(NamedTuple):
    """An image becomes a vector, channels first."""


class GroupNorm(NamedTuple):
    """Normalises so many neighbouring channels together over all pixels, then scales and shifts each channel."""

    channels: int


class Mean(NamedTuple):
    """An image becomes a vector: the mean of each channel over all pixels."""


class Residual(NamedTuple):
    """The sum of two chains of layers with the same input; a chain without layers gives the input itself."""

    body: "tuple[Layer, ...]"
    shortcut: "tuple[Layer, ...]" = ()


Layer = Convolution | Linear | Relu | Pool | Dropout | Flatten | GroupNorm | Mean | Residual
Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Task:
    """A federation's work in a round.

    Attributes:
        name: What the command line calls it.
        title: What tables call it.
        input_shape: The shape of one input, channels first.
        layers: The model.
        population: How many clients there are.
        samples: How many samples each of them has.
        cohort: How many of them take part in a round.
        epochs: Passes of a client over its samples.
        batch_size: Samples in a local step.
        learning_rate: That of the clients' plain SGD. The server takes the mean of their models.
        classes: How many classes there are.
        weight_decay: Of the clients' SGD.
        clip: The largest norm of a gradient, before the decay; 0 for none.
    """

    name: str
    title: str
    input_shape: Shape
    layers: tuple[Layer, ...]
    population: int
    samples: int
    cohort: int
    epochs: int
    batch_size: int
    learning_rate: float
    classes: int = 10
    weight_decay: float = 0.0
    clip: float = 0.0

    def with_cohort(self, clients: int) -> "Task":
        """The same task with another number of clients in a round; the population grows if it must."""
        return dataclasses.replace(self, cohort=clients, population=max(self.population, clients))

    @property
    def steps(self) -> int:
        """Local steps of a client in a round."""
        return self.epochs * -(-self.samples // self.batch_size)

    @property
    def samples_a_round(self) -> int:
        """Samples that all clients of a round train on, each as often as it is passed over."""
        return self.cohort * self.epochs * self.samples

    def shapes(self) -> Iterator[tuple[Layer, Shape, Shape]]:
        """Each layer, with the shapes of what goes in and what comes out."""
        return shapes(self.layers, self.input_shape)

    def leaves(self) -> Iterator[tuple[Layer, Shape, Shape]]:
        """The same, with the layers of residual blocks in the place of the blocks."""
        return _leaves(self.layers, self.input_shape)

    @property
    def is_plain(self) -> bool:
        """Whether it does without GroupNorm, residual blocks, means, padding and strides."""
        return not any(
            isinstance(layer, GroupNorm | Residual | Mean)
            or (isinstance(layer, Convolution) and layer != Convolution(layer.size, layer.channels))
            for layer in self.layers
        )

    @property
    def parameters(self) -> int:
        """The size of the model."""
        return sum(_parameters(layer, before, after) for layer, before, after in self.leaves())

    @property
    def flops_a_sample(self) -> int:
        """Multiplications and additions of a training step per sample: forward, and both gradients of each layer.

        The first layer needs no gradient of its input. Everything but convolutions and linear layers is left out.
        """
        products = [entry for entry in self.leaves() if isinstance(entry[0], Convolution | Linear)]
        total = 0
        for number, (layer, before, after) in enumerate(products):
            total += (2 if number == 0 else 3) * 2 * _fan_in(layer, before) * math.prod(after)
        return total

    def images(self) -> np.ndarray:
        """All clients' inputs as bytes, ``[population, samples, *input_shape]``."""
        shape = (self.population, self.samples, *self.input_shape)
        return np.random.default_rng(SEED).integers(0, 256, shape, dtype=np.uint8)

    def inputs(self) -> np.ndarray:
        """The same, standardised, in float32."""
        images = self.images().astype(np.float32)
        images -= MEAN
        images /= STD
        return images

    def labels(self) -> np.ndarray:
        """All clients' labels, ``[population, samples]``, int64."""
        return np.random.default_rng(SEED + 1).integers(0, self.classes, (self.population, self.samples))

    def cohort_of(self, round_number: int) -> np.ndarray:
        """Who takes part in a round, ascending: the same clients in every arm. Round 0 is the warm-up."""
        drawn = np.random.default_rng([SEED, round_number]).choice(self.population, self.cohort, replace=False)
        return np.sort(drawn)


MEAN, STD = np.float32(127.5), np.float32(73.9)  # those of bytes drawn uniformly


def shapes(layers: Sequence[Layer], shape: Shape) -> Iterator[tuple[Layer, Shape, Shape]]:
    """Each layer of a chain, with the shapes of what goes in and what comes out.

    Args:
        layers: The chain.
        shape: What goes into its first layer.
    """
    for layer in layers:
        before, shape = shape, _shape_after(layer, shape)
        yield layer, before, shape


def _shape_after(layer: Layer, before: Shape) -> Shape:
    if isinstance(layer, Convolution):
        return (layer.channels, *((size + 2 * layer.padding - layer.size) // layer.stride + 1 for size in before[1:]))
    if isinstance(layer, Pool):
        return (before[0], *(size // layer.size for size in before[1:]))
    if isinstance(layer, Flatten):
        return (math.prod(before),)
    if isinstance(layer, Mean):
        return before[:1]
    if isinstance(layer, Linear):
        return (layer.width,)
    if isinstance(layer, Residual):
        for inner in layer.body:
            before = _shape_after(inner, before)
    return before


def _leaves(layers: Sequence[Layer], shape: Shape) -> Iterator[tuple[Layer, Shape, Shape]]:
    for layer, before, after in shapes(layers, shape):
        if isinstance(layer, Residual):
            for chain in (layer.body, layer.shortcut):
                yield from _leaves(chain, before)
        else:
            yield layer, before, after


def _parameters(layer: Layer, before: Shape, after: Shape) -> int:
    if isinstance(layer, GroupNorm):
        return 2 * before[0]
    if isinstance(layer, Convolution | Linear):
        bias = after[0] if isinstance(layer, Linear) or layer.bias else 0
        return _fan_in(layer, before) * after[0] + bias
    return 0


def _fan_in(layer: Layer, before: Shape) -> int:
    """How many inputs each output of a layer is the weighted sum of."""
    return before[0] * layer.size**2 if isinstance(layer, Convolution) else before[0]


MLP = Task(
    name="mlp",
    title="MLP 784-100-100-10",
    input_shape=(784,),
    layers=(Linear(100), Relu(), Linear(100), Relu(), Linear(10)),
    population=100,
    samples=500,
    cohort=10,
    epochs=5,
    batch_size=50,
    learning_rate=0.1,
)
CNN = dataclasses.replace(
    MLP,
    name="cnn",
    title="CNN of the paper",
    input_shape=(3, 32, 32),
    layers=(
        *(Convolution(5, 64), Relu(), Pool(2), Convolution(5, 64), Relu(), Pool(2)),
        *(Flatten(), Linear(384), Relu(), Linear(192), Relu(), Linear(10)),
    ),
)
PFL_CIFAR = Task(
    name="pfl-cifar",
    title="pfl-research's CIFAR10 task",
    input_shape=(3, 32, 32),
    layers=(
        *(Convolution(3, 32), Relu(), Convolution(3, 64), Relu(), Pool(2), Dropout(0.25)),
        *(Flatten(), Linear(128), Relu(), Dropout(0.5), Linear(10)),
    ),
    population=1000,
    samples=50,
    cohort=50,
    epochs=1,
    batch_size=10,
    learning_rate=0.1,
)
PAPER = dataclasses.replace(
    CNN, name="paper", title="CNN of the paper, batch 45", samples=450, batch_size=45, weight_decay=1e-3, clip=10.0
)
GROUPNORM_CNN = dataclasses.replace(
    MLP,
    name="groupnorm-cnn",
    title="CNN with GroupNorm",
    input_shape=(3, 32, 32),
    layers=(
        *(Convolution(3, 32, padding=1), GroupNorm(8), Relu(), Pool(2)),
        *(Convolution(3, 64, padding=1), GroupNorm(8), Relu(), Pool(2)),
        *(Flatten(), Linear(10)),
    ),
    samples=500,
    epochs=1,
)


def _block(channels: int, stride: int = 1) -> tuple[Layer, ...]:
    """A block of the ResNet; a stage that begins with a stride has a convolution as its first shortcut."""
    body = (
        *(Convolution(3, channels, padding=1, stride=stride, bias=False), GroupNorm(8), Relu()),
        *(Convolution(3, channels, padding=1, bias=False), GroupNorm(8)),
    )
    shortcut = (Convolution(1, channels, stride=stride, bias=False),) if stride > 1 else ()
    return Residual(body, shortcut), Relu()


RESNET = dataclasses.replace(
    MLP,
    name="resnet",
    title="ResNet with GroupNorm",
    input_shape=(3, 32, 32),
    layers=(
        *(Convolution(3, 16, padding=1, bias=False), GroupNorm(8), Relu()),
        *(*_block(16), *_block(32, stride=2), *_block(64, stride=2), Mean(), Linear(10)),
    ),
    samples=450,
    epochs=1,
    batch_size=45,
)
VGG = dataclasses.replace(
    MLP,
    name="vgg",
    title="VGG-like CNN",
    input_shape=(3, 32, 32),
    layers=(
        *(Convolution(3, 32, padding=1), Relu(), Convolution(3, 32, padding=1), Relu(), Pool(2)),
        *(Convolution(3, 64, padding=1), Relu(), Convolution(3, 64, padding=1), Relu(), Pool(2)),
        *(Flatten(), Linear(128), Relu(), Linear(10)),
    ),
    samples=200,
    epochs=1,
)
FEMNIST_CNN = dataclasses.replace(
    MLP,
    name="femnist-cnn",
    title="CNN of FEMNIST",
    input_shape=(1, 28, 28),
    layers=(
        *(Convolution(5, 32, padding=2), Relu(), Pool(2), Convolution(5, 64, padding=2), Relu(), Pool(2)),
        *(Flatten(), Linear(512), Relu(), Linear(62)),
    ),
    samples=200,
    epochs=1,
    batch_size=20,
    classes=62,
)
TASKS = {task.name: task for task in (MLP, CNN, PFL_CIFAR, PAPER, GROUPNORM_CNN, RESNET, VGG, FEMNIST_CNN)}
