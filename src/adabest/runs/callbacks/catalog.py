"""Callbacks by name: a user's own, as ``module:Class``, with options as in ``my_module:Patience,most=3``."""

from collections.abc import Iterable
from typing import Any

from adabest.errors import InputError
from adabest.registry import Registry, check_options, options_of, split_specification
from adabest.runs.callbacks.base import Callback

CALLBACKS: Registry[type[Callback]] = Registry(kind="callback", group="adabest.callbacks", builtin={})


def check_callbacks(specifications: Iterable[str]) -> None:
    """Makes sure that callbacks can be made, without making them.

    Raises:
        InputError: If there is no such callback, or it has no such option.
    """
    for specification in specifications:
        _find(specification)


def make_callbacks(specifications: Iterable[str]) -> list[Callback]:
    """Makes callbacks from specifications such as ``my_module:Patience,most=3``.

    Raises:
        InputError: As ``check_callbacks``.
    """
    found = [_find(specification) for specification in specifications]
    return [kind(**options) for kind, options in found]


def _find(specification: str) -> tuple[type[Callback], dict[str, Any]]:
    name, options = split_specification(specification)
    kind = CALLBACKS.find(name)
    if not (isinstance(kind, type) and issubclass(kind, Callback)):
        raise InputError(f"callback {name!r} should be a subclass of adabest.Callback, not {kind!r}")
    return kind, check_options(f"callback {name!r}", options, options_of(kind))
