"""Packages that only some runs need, each an extra of this one."""

import importlib.util

from adabest.errors import InputError


def require(what: str, extra: str, *packages: str) -> None:
    """Makes sure that packages are installed, without importing them.

    Args:
        what: What needs them, for the message.
        extra: The extra of this package that brings them along.
        *packages: Their names.

    Raises:
        InputError: If one isn't.
    """
    if not all(map(is_installed, packages)):
        raise InputError(f'{what} needs a package that isn\'t installed: pip install "adabest[{extra}]"')


def is_installed(package: str) -> bool:
    """Whether a package is there; a folder of that name, as W&B leaves one behind, is no package."""
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None
