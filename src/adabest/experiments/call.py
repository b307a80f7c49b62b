"""Common parts of the public calls: settings from a file and from Python, and names of folders."""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from adabest.data.dataset import Dataset
from adabest.errors import InputError
from adabest.registry import naming
from adabest.runs.settings.algorithm_specification import merge
from adabest.runs.settings.config import Config
from adabest.runs.settings.object_names import named_in
from adabest.runs.settings.toml_file import read_toml

ROOT = Path("runs")


def refuse_callback_objects(settings: Mapping[str, Any]) -> None:
    """Refuses callbacks that are objects in a call that makes several runs.

    Raises:
        InputError: If there is one.
    """
    if not all(isinstance(one, str) for one in settings.get("callbacks", ())):
        raise InputError(
            "callbacks: in a comparison, a sweep or a tuning a callback is named, as in 'my_module:MyCallback', so "
            "that each run has one of its own"
        )


@contextlib.contextmanager
def asked_for(config: str | Path | None, settings: Mapping[str, Any], **arguments: Any) -> Iterator[dict[str, Any]]:
    """The file's settings, overridden by those given in Python. Arguments that are None or False count as not given.

    While entered, the code that these settings name may be imported, since the caller named it, in the call or in the
    file. Settings that were read from a folder of runs must never come this way: anyone may have written them.
    """
    from_file = read_toml(Path(config)) if config is not None else {}
    given = {name: value for name, value in arguments.items() if value is not None and value is not False}
    called = {**settings, **given}
    with naming(named_in(from_file), named_in(called)):
        yield merge(from_file, called)


def data_locations(settings: Mapping[str, Any], config: Config) -> dict[str, str]:
    """``dataset`` and ``data_dir`` as they are found from any working directory."""
    return {name: getattr(config, name) for name in ("dataset", "data_dir") if isinstance(settings.get(name), str)}


def slug(name: str) -> str:
    """A name as part of a folder's name: letters, digits, hyphens and underscores."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")


def digest(*values: Any) -> str:
    """A digest of values, 8 hexadecimal digits."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=_describe).encode()).hexdigest()[:8]


def _describe(thing: Any) -> str:
    """A text that tells an object from others of its kind: a fingerprint, a checksum of weights, or its name."""
    if isinstance(thing, Dataset):
        return thing.fingerprint()
    if isinstance(thing, nn.Module):
        weights = [tensor.detach().cpu().numpy().tobytes() for tensor in thing.state_dict().values()]
        return hashlib.sha256(b"|".join([repr(thing).encode(), *weights])).hexdigest()
    return str(getattr(thing, "__qualname__", repr(thing)))
