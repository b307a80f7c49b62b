"""Published data sets: found or downloaded, read and checked."""

import dataclasses

import numpy as np
import torch
from torch import Tensor

from adabest.data.dataset import Dataset, pixel_statistics
from adabest.data.download import fetch
from adabest.data.files import damaged
from adabest.data.location import Found, data_folder
from adabest.data.spec import Spec, Split
from adabest.data.synthetic import synthetic

_HIGHEST = 255  # published means and deviations are of pixels from 0 to 1; here they are bytes


def load_official(spec: Spec, data_dir: str | None = None) -> Dataset:
    """Loads a published data set.

    Args:
        spec: Its specification.
        data_dir: The data folder. By default that of ``data_folder``.

    Raises:
        InputError: If it isn't on this disk and can't be downloaded, or if a file isn't the published one.
    """
    found = fetch(spec, data_folder(data_dir))
    arrays = read_splits(spec, found)
    (x_train, y_train), (x_test, y_test) = arrays["train"], arrays["test"]
    if spec.mean is None or spec.std is None:
        mean, std = pixel_statistics(x_train)
    else:
        mean, std = (_per_channel(values) for values in (spec.mean, spec.std))
    return Dataset(spec.name, x_train, y_train, x_test, y_test, spec.classes, mean, std, spec.defaults)


def stand_in(spec: Spec, samples: int | None = None) -> Dataset:
    """Synthetic images of a published data set's shape, with its name and defaults, for what needs no real ones.

    Args:
        spec: Its specification.
        samples: How many there are to train with, and to test with. By default as many as in the data set.
    """
    sizes = {split: count if samples is None else samples for split, count in spec.samples.items()}
    made = synthetic(sizes["train"], spec.shape, spec.classes, sizes["test"])
    return dataclasses.replace(made, name=spec.name, defaults=spec.defaults)


def read_splits(spec: Spec, found: Found) -> dict[Split, tuple[Tensor, Tensor]]:
    """Images as bytes and labels from 0, of the classes that are kept.

    Raises:
        InputError: If a file isn't the published one.
    """
    layout = found.layout
    files = found.read()
    splits: dict[Split, tuple[Tensor, Tensor]] = {}
    names: dict[Split, tuple[str, ...]] = {"train": layout.train, "test": layout.test}
    for split, wanted in names.items():
        images, labels = layout.read([files[name] for name in wanted], spec, split)
        classes = labels.astype(np.int64) - spec.labels.start
        kept = classes < spec.classes
        if int(kept.sum()) != spec.samples[split]:
            raise damaged(
                found.path,
                f"holds {int(kept.sum()):,} {split} samples of the {spec.classes} classes of {spec.name}",
                f"{spec.samples[split]:,} were",
            )
        splits[split] = torch.from_numpy(np.ascontiguousarray(images[kept])), torch.from_numpy(classes[kept])
    return splits


def _per_channel(values: tuple[float, ...]) -> Tensor:
    return (torch.tensor(values, dtype=torch.float64) * _HIGHEST).float().reshape(-1, 1, 1)
