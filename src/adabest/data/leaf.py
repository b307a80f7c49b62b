"""LEAF's format: data split by client, as JSON.

S. Caldas et al.: *LEAF: A Benchmark for Federated Settings* (2018), arXiv:1812.01097. Its scripts write two folders,
``train`` and ``test``, of files with ``users``, ``num_samples`` and, in ``user_data``, lists x and y for each user.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from adabest.data.dataset import Dataset, from_arrays
from adabest.errors import InputError
from adabest.machine import refuse_beyond_memory

_OBJECTS = 12  # bytes in memory per byte of JSON: "0.5, " is 5 bytes and takes 32; "[]," is 3 and takes 64
_LARGEST = 2**53  # from here on, float64 doesn't hold every whole number


def leaf(path: Path, shape: tuple[int, ...] | None = None) -> Dataset:
    """A data set in LEAF's format, whose users are the clients.

    Args:
        path: The folder with ``train`` and ``test``, or the one above it.
        shape: The shape of an input, as in ``1x28x28`` for FEMNIST. By default as it is in the files, where images are
            flat.

    Raises:
        InputError: If a file can't be read or used.
    """
    root = path / "data" if (path / "data" / "train").is_dir() else path
    x_train, y_train, users = _read(root / "train", shape)
    x_test, y_test, _ = _read(root / "test", shape)
    numbers = {user: number for number, user in enumerate(sorted(set(users)))}
    clients = [numbers[user] for user in users]  # an array of names would take the longest name's bytes per sample
    try:
        return from_arrays(x_train, y_train, x_test, y_test, clients=clients, name=path.resolve().name)
    except InputError as error:
        raise InputError(f"{root}: {error}") from error


def _read(folder: Path, shape: tuple[int, ...] | None) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Inputs, labels and users of all samples of a split."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise InputError(f"{folder} has no .json file; LEAF's data are a folder train and a folder test of such files")
    inputs: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    users: list[str] = []
    for path in paths:
        for user, x, y in _users(path):
            inputs.append(_shaped(f"{path}, user {user}", x, shape))
            labels.append(y)
            users += [user] * len(y)
            if inputs[-1].shape[1:] != inputs[0].shape[1:]:
                found, before = inputs[-1].shape[1:], inputs[0].shape[1:]
                raise InputError(f"{path}, user {user}: inputs of shape {found}, but those before have {before}")
    if not inputs:
        raise InputError(f"{folder} has no samples")
    return np.concatenate(inputs), np.concatenate(labels), users


def _shaped(where: str, x: np.ndarray, shape: tuple[int, ...] | None) -> np.ndarray:
    if shape is None:
        return x
    if x[0].size != math.prod(shape):
        raise InputError(f"{where}: inputs of {x[0].size} numbers can't have the shape {shape}")
    return x.reshape(-1, *shape)


def _users(path: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The users of a file who have samples, with their inputs and labels."""
    try:
        refuse_beyond_memory(f"{path} as JSON", {"its objects": _OBJECTS * path.stat().st_size}, "split it into files")
        content = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise InputError(
            f"{path} can't be read as JSON: it is nested too deeply; LEAF's files are four deep"
        ) from error
    except (OSError, ValueError) as error:  # text that isn't UTF-8 is a ValueError, too
        raise InputError(f"{path} can't be read as JSON: {error}") from error
    if not (
        isinstance(content, dict)
        and isinstance(content.get("users"), list)
        and isinstance(content.get("user_data"), dict)
    ):
        raise InputError(f"{path} isn't a file of LEAF's: it should hold a list users and an object user_data")
    if not all(isinstance(user, str) for user in content["users"]):
        raise InputError(f"{path}: users should be texts, the keys of user_data")
    counts = content.get("num_samples", [None] * len(content["users"]))
    if not isinstance(counts, list) or len(counts) != len(content["users"]):
        raise InputError(f"{path}: num_samples should have one number for each of {len(content['users'])} users")
    for user, count in zip(content["users"], counts, strict=True):
        x, y = _samples(f"{path}, user {user}", content["user_data"].get(user))
        if count not in (None, len(y)):
            raise InputError(f"{path}, user {user}: num_samples says {count}, but there are {len(y)}")
        if len(y):
            yield user, x, y


def _samples(where: str, data: Any) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(data, Mapping) or not {"x", "y"} <= data.keys():
        raise InputError(f"{where}: user_data should hold x and y")
    try:
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite, and ``Dataset`` refuses them
            x, y = np.asarray(data["x"], dtype=np.float32), np.asarray(data["y"], dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{where}: x and y should be numbers, and inputs of one shape: {error}") from error
    if x.ndim < 1 or y.ndim != 1:
        raise InputError(f"{where}: x should be a list of inputs and y one of labels")
    if len(x) != len(y) or not bool(((y == np.floor(y)) & (np.abs(y) < _LARGEST)).all()):
        raise InputError(f"{where}: x has {len(x)} inputs and y {len(y)} labels, which should be whole numbers")
    return x, y.astype(np.int64)
