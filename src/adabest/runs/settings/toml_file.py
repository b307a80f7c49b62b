"""TOML files of settings: read within limits, and written."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from adabest.errors import InputError

_LARGEST_FILE = 2**20  # bytes of a configuration
_DEEPEST = 100  # parts of a key: the time that tomllib takes for a key grows with the square of them
_DEEP_KEY = re.compile(rf"(?:[^.=,]*\.){{{_DEEPEST}}}")


def read_toml(path: Path) -> dict[str, Any]:
    """Reads settings from a TOML file.

    Raises:
        InputError: If the file can't be read, isn't TOML, or is larger or deeper than settings ever are.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise InputError(
                f"the configuration {path} has more than {_LARGEST_FILE:,} bytes; settings take a few lines"
            )
        text = content.decode("utf-8").replace("\r\n", "\n")
        if any(_DEEP_KEY.match(line) for line in text.splitlines()):
            raise InputError(f"the configuration {path} has a key of over {_DEEPEST} parts; names of settings have one")
        return tomllib.loads(text)
    except OSError as error:
        raise InputError(f"can't read the configuration {path}: {error.strerror or error}") from error
    except RecursionError as error:
        raise InputError(
            f"the configuration {path} isn't valid TOML: it is nested too deeply; settings are flat"
        ) from error
    except ValueError as error:  # bad TOML, text that isn't UTF-8, or a number that is longer than Python takes
        raise InputError(f"the configuration {path} isn't valid TOML: {error}") from error


def to_toml(settings: Mapping[str, Any]) -> str:
    """Settings as the text of a TOML file."""
    return tomli_w.dumps({name: value for name, value in settings.items() if value is not None})
