"""Placeholders in settings: names that stand in for Python objects, which a later process can't find by name."""

from adabest.errors import InputError
from adabest.runs.settings.config import COMPONENTS, Config

OBJECT = "python-object:"


def is_object_name(name: str) -> bool:
    """Whether a name only stands in for a Python object."""
    return name.startswith(OBJECT)


def has_objects(config: Config) -> bool:
    """Whether a configuration names a Python object that a later process can't find by its name."""
    names = [*(str(getattr(config, key)) for key in COMPONENTS), *config.callbacks, *config.metrics]
    return any(map(is_object_name, names))


def refuse_placeholder(key: str, name: str) -> str:
    """A name that something can be found by.

    Raises:
        InputError: If it only stands in for a Python object.
    """
    if is_object_name(name):
        raise InputError(
            f"the {key} of this run was a Python object ({name.removeprefix(OBJECT)}) that has no importable name; "
            f"pass it again, as in adabest.resume(folder, {key}=...)"
        )
    return name
