"""What the calls of the package share: where settings come from, what they name, and where files go."""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from adabest.data.dataset import Dataset
from adabest.registry import naming
from adabest.runs.settings.algorithm_specification import merge
from adabest.runs.settings.config import Config
from adabest.runs.settings.object_names import named_in
from adabest.runs.settings.toml_file import read_toml

ROOT = Path("runs")


@contextlib.contextmanager
def asked_for(config: str | Path | None, settings: Mapping[str, Any], **arguments: Any) -> Iterator[dict[str, Any]]:
    """The file's settings, overridden by those given in Python; what wasn't given doesn't count.

    While entered, what they name may be imported: the person who makes the call named it, there or in the file that
    they named. So this is only for what a person gives, never for settings that were read from a folder of runs.
    """
    from_file = read_toml(Path(config)) if config is not None else {}
    given = {name: value for name, value in arguments.items() if value is not None and value is not False}
    called = {**settings, **given}
    with naming(named_in(from_file), named_in(called)):
        yield merge(from_file, called)


def findable(settings: Mapping[str, Any], config: Config) -> dict[str, str]:
    """Where data lie, as it is found from any working directory."""
    return {name: getattr(config, name) for name in ("dataset", "data_dir") if isinstance(settings.get(name), str)}


def slug(name: str) -> str:
    """A name as a part of a folder's."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")


def digest(*what: Any) -> str:
    """A short name of things."""
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=_describe).encode()).hexdigest()[:8]


def _describe(thing: Any) -> str:
    """What tells an object from another of its kind, as far as that can be read off it."""
    if isinstance(thing, Dataset):
        return thing.fingerprint()
    if isinstance(thing, nn.Module):
        weights = [tensor.detach().cpu().numpy().tobytes() for tensor in thing.state_dict().values()]
        return hashlib.sha256(b"|".join([repr(thing).encode(), *weights])).hexdigest()
    return str(getattr(thing, "__qualname__", repr(thing)))
