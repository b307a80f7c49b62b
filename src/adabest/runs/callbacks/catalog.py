"""Callbacks by name: a user's own, as ``module:Class``, with options as in ``my_module:Patience,most=3``."""

from collections.abc import Sequence
from typing import Any

from adabest.errors import InputError
from adabest.registry import Registry, check_options, options_of, split_specification
from adabest.runs.callbacks.base import Callback
from adabest.runs.settings.placeholders import OBJECT, is_object_name

CALLBACKS: Registry[type[Callback]] = Registry(kind="callback", group="adabest.callbacks", builtin={})


def check_callbacks(names: Sequence[str], objects: Sequence[Callback]) -> None:
    """Makes sure that callbacks can be made, without making them.

    Args:
        names: Their names, with options, and placeholders for objects.
        objects: The objects, in the order of their placeholders.

    Raises:
        InputError: If a name isn't that of a callback, it has no such option, or an object is missing.
    """
    expected = [name.removeprefix(OBJECT) for name in names if is_object_name(name)]
    given = [type(one).__name__ for one in objects]
    if expected != given:
        raise InputError(
            f"this run was given the callbacks {', '.join(expected) or 'none'} as objects, not "
            f"{', '.join(given) or 'none'}; give it those again, as in adabest.resume(folder, callbacks=[...])"
        )
    for name in names:
        if not is_object_name(name):
            _find(name)


def make_callbacks(names: Sequence[str], objects: Sequence[Callback]) -> list[Callback]:
    """Callbacks in the order of their names: made of names such as ``my_module:Patience,most=3``, or given as objects.

    Raises:
        InputError: As ``check_callbacks``.
    """
    check_callbacks(names, objects)
    given, made = iter(objects), list[Callback]()
    for name in names:
        if is_object_name(name):
            made.append(next(given))
        else:
            kind, options = _find(name)
            made.append(kind(**options))
    return made


def callback_names(callbacks: Any) -> list[str]:
    """The names of callbacks that a call was given: a name as it is, a placeholder for an object.

    Raises:
        InputError: If one is neither a name nor a callback.
    """
    if not isinstance(callbacks, list | tuple):
        raise InputError(f"callbacks should be a list, as in [MyCallback()], not {callbacks!r}")
    for one in callbacks:
        if not isinstance(one, str | Callback):
            right = f"{one.__name__}()" if isinstance(one, type) else "MyCallback()"
            raise InputError(
                f"callbacks: {one!r} should be the name of a callback, as in 'my_module:MyCallback', or an object of a "
                f"subclass of adabest.Callback, as in {right}"
            )
    return [one if isinstance(one, str) else OBJECT + type(one).__name__ for one in callbacks]


def _find(specification: str) -> tuple[type[Callback], dict[str, Any]]:
    name, options = split_specification(specification)
    kind = CALLBACKS.find(name)
    if not (isinstance(kind, type) and issubclass(kind, Callback)):
        raise InputError(f"callback {name!r} should be a subclass of adabest.Callback, not {kind!r}")
    return kind, check_options(f"callback {name!r}", options, options_of(kind))
