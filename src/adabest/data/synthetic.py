"""Synthetic samples, computed from their numbers instead of stored, for experiments with large populations."""

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from adabest import random
from adabest.data.dataset import Dataset, Defaults, pixel_statistics
from adabest.errors import InputError
from adabest.machine import refuse_beyond_memory
from adabest.random import Purpose

_SEED = 0
_LABELS, _PROTOTYPES, _NOISE = range(3)  # purposes of draws; part of every sample: never renumber, only append
_AT_ONCE = 4096  # samples that are computed at a time
_WORDS = 6 * 8  # bytes per draw: about six words of 8 bytes are in memory at a time
_TESTED = 3  # bytes per pixel of the test set: the parts, the whole, and a copy for statistics


@dataclasses.dataclass(frozen=True)
class SyntheticInputs:
    """Images of bytes: a quarter is the prototype of the sample's class, the rest is noise, both uniform.

    Attributes:
        samples: How many there are.
        prototypes: One image per class, ``[classes, *shape]``, already divided by four.
    """

    samples: int
    prototypes: Tensor

    @property
    def shape(self) -> torch.Size:
        """Samples first."""
        return torch.Size((self.samples, *self.prototypes.shape[1:]))

    @property
    def dtype(self) -> torch.dtype:
        """Bytes."""
        return torch.uint8

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, samples: Any) -> Tensor:
        """The samples of a slice or of an int64 tensor; the test set has the numbers after the last training sample."""
        if isinstance(samples, slice):
            samples = torch.arange(*samples.indices(self.samples), device=self.prototypes.device)
        made = [self._make(part) for part in torch.split(samples.reshape(-1), _AT_ONCE)]
        return torch.cat(made).reshape(*samples.shape, *self.shape[1:])

    def to(self, place: Any) -> "SyntheticInputs":
        """The same samples, for sample numbers on a device."""
        return dataclasses.replace(self, prototypes=self.prototypes.to(place))

    @property
    def stored_bytes(self) -> int:
        """The size of all samples, if they were stored."""
        return math.prod(self.shape)

    def made(self) -> Tensor:
        """All samples as a tensor, made a few at a time."""
        whole = torch.empty(self.shape, dtype=self.dtype, device=self.prototypes.device)
        for start in range(0, self.samples, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            whole[part] = self[part]
        return whole

    def fingerprint(self) -> bytes:
        """The prototypes' bytes, which determine all samples."""
        return self.prototypes.cpu().numpy().tobytes()

    def _make(self, samples: Tensor) -> Tensor:
        size = math.prod(self.shape[1:])
        words = torch.arange(-(-size // 8), device=samples.device)
        drawn: Tensor = random.bits(_SEED, Purpose.SYNTHETIC, _NOISE, samples[:, None], words)
        noise = drawn.view(torch.uint8)[:, :size].reshape(-1, *self.shape[1:])  # eight bytes a word
        return self.prototypes[labels_of(samples, len(self.prototypes))] + (noise - (noise >> 2))


def labels_of(samples: Tensor, classes: int) -> Tensor:
    """The classes of samples, by their numbers."""
    labels: Tensor = random.below(random.bits(_SEED, Purpose.SYNTHETIC, _LABELS, samples), classes)
    return labels


def synthetic(
    samples: int = 10_000, shape: tuple[int, ...] = (3, 32, 32), classes: int = 10, test: int = 1000
) -> Dataset:
    """A prototype image per class, under noise. Sample i is a function of i and the shape, and isn't stored.

    Args:
        samples: The number of training samples.
        shape: The shape of an image.
        classes: The number of classes.
        test: The number of test samples, which are stored.

    Raises:
        InputError: If a number is too small.
    """
    least = {"samples": (samples, 1), "classes": (classes, 2), "test": (test, 1), "shape": (min(shape, default=0), 1)}
    for name, (value, low) in least.items():
        if value < low:
            raise InputError(f"data set synthetic: {name} = {value}: it must be at least {low}")
    size = math.prod(shape)
    refuse_beyond_memory(
        "data set synthetic",
        {
            f"labels of {samples:,} samples": _WORDS * samples,
            f"prototypes of {classes:,} classes": _WORDS * classes * size,
            f"{test:,} samples to test with": _TESTED * test * size,
        },
        "take fewer samples or classes, or a smaller shape",
    )
    pixels = torch.arange(classes)[:, None], torch.arange(size)
    drawn = random.below(random.bits(_SEED, Purpose.SYNTHETIC, _PROTOTYPES, *pixels), 64)
    inputs = SyntheticInputs(samples, drawn.to(torch.uint8).reshape(classes, *shape))
    tested = torch.arange(samples, samples + test)
    x_test = inputs[tested]
    mean, std = pixel_statistics(x_test)
    return Dataset(
        name="synthetic",
        x_train=inputs,
        y_train=labels_of(torch.arange(samples), classes),
        x_test=x_test,
        y_test=labels_of(tested, classes),
        classes=classes,
        mean=mean,
        std=std,
        defaults=Defaults(model="cnn" if len(shape) == 3 and min(shape[1:]) >= 16 else Defaults.model),
    )
