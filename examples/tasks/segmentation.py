"""Segmentation: which pixels of a noisy image are ink, light or dark? 40 clients learn it on handwritten digits."""

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

import adabest

ink = load_digits().images
classes = np.digitize(ink, [4, 11])  # paper, light ink, dark ink
noisy = (ink / 16 + np.random.default_rng(0).normal(0, 0.15, ink.shape)).astype(np.float32)[:, None]
dataset = adabest.from_arrays(noisy[:1400], classes[:1400], noisy[1400:], classes[1400:], name="noisy ink")


def pixels(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A convolutional network that gives scores for every pixel, ``[batch, classes, height, width]``."""
    layers = [nn.Conv2d(input_shape[0], 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(16, classes, 1))


if __name__ == "__main__":
    comparison = adabest.compare(
        algorithms=["fedavg", "adabest"],
        dataset=dataset,
        task="segmentation",
        model=pixels,
        clients=40,
        batch_size=20,
        rounds=20,
        out="runs/segmentation",
        overwrite=True,
    )
    print(comparison.table.markdown())
