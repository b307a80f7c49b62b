"""Data sets as tensors.

A data set of your own is an ``.npz`` file, a ``Dataset``, or a function ``module:name`` that returns one; other
packages may offer some in the entry-point group ``adabest.datasets``.
"""

from collections.abc import Callable
from pathlib import Path

from adabest.data.augmentation import AUGMENTATIONS
from adabest.data.dataset import Dataset, Defaults, from_arrays, from_npz
from adabest.data.digits import digits
from adabest.errors import InputError
from adabest.registry import Registry

DATASETS: Registry[Callable[[], Dataset]] = Registry(
    kind="data set",
    group="adabest.datasets",
    builtin={"digits": digits},
)


def load_dataset(name: str) -> Dataset:
    """Loads a data set by name: a registered one, a path that ends in ``.npz``, or ``module:function``.

    Raises:
        InputError: If there is no such data set.
    """
    if name.endswith(".npz"):
        return from_npz(Path(name))
    found = DATASETS.find(name)
    dataset = found() if callable(found) else found
    if not isinstance(dataset, Dataset):
        raise InputError(f"data set {name!r} gave a {type(dataset).__name__}, not an adabest Dataset")
    return dataset


__all__ = ["AUGMENTATIONS", "DATASETS", "Dataset", "Defaults", "from_arrays", "from_npz", "load_dataset"]
