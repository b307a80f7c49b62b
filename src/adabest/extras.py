"""Optional packages, each an extra of this one."""

import importlib.util

from adabest.errors import InputError


def require(what: str, extra: str, *packages: str) -> None:
    """Makes sure that packages are installed, without importing them.

    Args:
        what: What needs them, for the message.
        extra: The extra of this package that brings them along.
        *packages: Their names.

    Raises:
        InputError: If one isn't installed.
    """
    if not all(map(is_installed, packages)):
        raise InputError(f'{what} needs a package that isn\'t installed: pip install "adabest[{extra}]"')


def is_installed(package: str) -> bool:
    """Whether a package is installed. A plain folder of that name, such as W&B leaves, doesn't count."""
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None
