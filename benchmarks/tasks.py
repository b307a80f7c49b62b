"""What every arm trains: sizes, models and data, the same for all. Needs NumPy only, as arms live in many environments.

Data are noise, drawn from a fixed seed: speed doesn't depend on what the pixels show, so nothing is downloaded.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

SEED = 0


class Convolution(NamedTuple):
    """A square convolution of stride 1, without padding, with bias."""

    size: int
    channels: int


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


Layer = Convolution | Linear | Relu | Pool | Dropout | Flatten
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
        shape = self.input_shape
        for layer in self.layers:
            before = shape
            if isinstance(layer, Convolution):
                shape = (layer.channels, *(size - layer.size + 1 for size in before[1:]))
            elif isinstance(layer, Pool):
                shape = (before[0], *(size // layer.size for size in before[1:]))
            elif isinstance(layer, Flatten):
                shape = (math.prod(before),)
            elif isinstance(layer, Linear):
                shape = (layer.width,)
            yield layer, before, shape

    @property
    def parameters(self) -> int:
        """The size of the model."""
        return sum(_fan_in(layer, before) * after[0] + after[0] for layer, before, after in self._products())

    @property
    def flops_a_sample(self) -> int:
        """Multiplications and additions of a training step per sample: forward, and both gradients of each layer.

        The first layer needs no gradient of its input. Everything but convolutions and linear layers is left out.
        """
        total = 0
        for number, (layer, before, after) in enumerate(self._products()):
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

    def _products(self) -> list[tuple[Layer, Shape, Shape]]:
        return [entry for entry in self.shapes() if isinstance(entry[0], Convolution | Linear)]


MEAN, STD = np.float32(127.5), np.float32(73.9)  # those of bytes drawn uniformly


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
TASKS = {task.name: task for task in (MLP, CNN, PFL_CIFAR, PAPER)}
