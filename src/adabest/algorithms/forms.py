"""Forms of fields: what a state, a message or a reply is made of, so that whoever receives one can check it.

An algorithm declares its NamedTuples with these types::

    class Reply(NamedTuple):
        model: Model
        samples: Number

A field that is declared as a plain ``Tensor`` may have any shape and type.
"""

import enum
import functools
from typing import Annotated, Any, get_type_hints

import torch
from torch import Tensor


class Form(enum.Enum):
    """The shape, the type and the meaning of a field."""

    MODEL = "a model: as many numbers as the model has, in its type"
    VECTOR = "a vector that isn't a model: of the model's shape and type"
    NUMBER = "one number, in the model's type"
    COUNT = "one whole number, int64"
    TOTAL = "one number in float64, in which sums of counts are exact"

    @property
    def is_vector(self) -> bool:
        """Whether it has as many numbers as the model."""
        return self in (Form.MODEL, Form.VECTOR)

    def dtype(self, like: Tensor) -> torch.dtype:
        """The type of such a field beside a model."""
        return _OWN_TYPES.get(self, like.dtype)

    def length(self, like: Tensor) -> int:
        """The length of such a field's last dimension beside a model."""
        return like.shape[-1] if self.is_vector else 1


_OWN_TYPES = {Form.COUNT: torch.int64, Form.TOTAL: torch.float64}

Model = Annotated[Tensor, Form.MODEL]
"""A field that is a model: as many numbers as the model has, in its type."""
Vector = Annotated[Tensor, Form.VECTOR]
"""A field that is a vector but no model, a gradient for instance: of the model's shape and type."""
Number = Annotated[Tensor, Form.NUMBER]
"""A field that is one number, in the model's type."""
Count = Annotated[Tensor, Form.COUNT]
"""A field that is one whole number, int64."""
Total = Annotated[Tensor, Form.TOTAL]
"""A field that is one number in float64, in which sums of counts are exact."""


def forms_of(kind: Any) -> dict[str, Form | None]:
    """The form of every field of a NamedTuple; None for one that may have any."""
    return _forms_of(kind)


@functools.cache
def _forms_of(kind: Any) -> dict[str, Form | None]:
    hints = get_type_hints(kind, include_extras=True)
    declared = {name: getattr(hints.get(name), "__metadata__", ()) for name in kind._fields}
    return {name: next((one for one in found if isinstance(one, Form)), None) for name, found in declared.items()}


def find_fault(kind: type[Any], given: Any, like: Tensor, *, leading: tuple[int, ...] = ()) -> str | None:
    """What is wrong with the names, shapes or types of a state, a message or a reply; None if nothing is.

    Args:
        kind: The NamedTuple that the algorithm declares.
        given: What was given in its place.
        like: A model, ``[P]``.
        leading: The dimensions before those of a single one, as ``(clients,)`` where several are stacked.
    """
    forms = forms_of(kind)
    there = getattr(given, "_fields", None)
    if there is None:
        return f"it is a {type(given).__name__}; it should be a {kind.__name__} of {_listed(forms)}"
    if tuple(there) != tuple(forms):
        return f"it has the fields {_listed(there)}; they should be {_listed(forms)}"
    for name, value in zip(forms, given, strict=True):
        fault = fault_of_field(forms[name], value, like, leading)
        if fault is not None:
            return f"its field {name} {fault}"
    return None


def blank(kind: type[Any], like: Tensor) -> Any:
    """A NamedTuple of zeros in the declared forms, to stand in the place of one that can't be used."""
    forms = forms_of(kind)
    return kind(
        *(like.new_zeros(1 if f is None else f.length(like), dtype=f and f.dtype(like)) for f in forms.values())
    )


def fault_of_field(form: Form | None, value: Any, like: Tensor, leading: tuple[int, ...] = ()) -> str | None:
    """What is wrong with the shape or the type of a field; None if nothing is. See ``find_fault``."""
    if not isinstance(value, Tensor):
        return f"is a {type(value).__name__}; it should be a tensor"
    if form is None:
        return None
    shape, dtype = (*leading, form.length(like)), form.dtype(like)
    if tuple(value.shape) != shape:
        return f"has the shape {list(value.shape)}; it should be {list(shape)}"
    if value.dtype != dtype:
        return f"is of type {_short(value.dtype)}; it should be {_short(dtype)}"
    return None


def _listed(names: Any) -> str:
    return ", ".join(names) or "nothing"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
