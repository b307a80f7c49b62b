"""Parcels: what travels between a server and its nodes, whatever network carries it.

Messages and replies of algorithms travel as what they are declared to be: vectors as arrays, numbers as numbers, by
place and name. What is private to clients is left out, and filled in again where a parcel arrives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm
from adabest.algorithms.forms import Form, find_fault, forms_of
from adabest.engine.private_part import PrivatePart
from adabest.errors import InputError

Numbers = Mapping[str, Sequence[float]]
"""Numbers by the name of their field, one for each client."""


@dataclass(frozen=True)
class Parcel:
    """What is sent in one direction.

    Attributes:
        facts: What it is about, as JSON.
        vectors: Vectors, ``[P]`` or ``[clients, P]``.
        numbers: Numbers by name.
    """

    facts: Mapping[str, Any]
    vectors: Sequence[Tensor] = ()
    numbers: Numbers = field(default_factory=dict)


class Contents(NamedTuple):
    """The vectors and numbers of a message, or of the replies of several clients."""

    vectors: list[Tensor]
    numbers: dict[str, list[float]]

    def bytes(self) -> int:
        """The bytes of the vectors."""
        return sum(vector.nbytes for vector in self.vectors)


def packed(given: Any, private: PrivatePart | None) -> Contents:
    """The fields of a message, or of replies with a first dimension for the clients, without what is private."""
    forms = forms_of(type(given))
    vectors = [getattr(given, name) for name, form in forms.items() if form is not None and form.is_vector]
    if private is not None:
        vectors = [vector[..., ~private.mask] for vector in vectors]
    numbers = {
        name: getattr(given, name).flatten().tolist()
        for name, form in forms.items()
        if form is not None and not form.is_vector
    }
    return Contents([vector.detach().cpu().contiguous() for vector in vectors], numbers)


def unpacked(
    kind: type[Any],
    vectors: Sequence[Tensor],
    numbers: Numbers,
    like: Tensor,
    *,
    private: PrivatePart | None = None,
    clients: int | None = None,
) -> Any:
    """A message, or the replies of clients with a first dimension for them.

    Args:
        kind: What the algorithm declares.
        vectors: The vectors that came.
        numbers: The numbers that came.
        like: A model, whose numbers stand in the private part of models; zeros stand there in other vectors.
        private: The part of models that wasn't sent.
        clients: How many clients' replies it is; None for a message.

    Raises:
        InputError: If what came isn't of the declared form, with what is wrong.
    """
    forms, rest = forms_of(kind), list(vectors)
    leading = () if clients is None else (clients,)
    fields: list[Tensor] = []
    wanted = sum(form is not None and form.is_vector for form in forms.values())
    if len(rest) != wanted:
        raise InputError(f"it has {len(rest)} vectors; {kind.__name__} has {wanted}")
    if numbers.keys() != {name for name, form in forms.items() if form is not None and not form.is_vector}:
        raise InputError(f"it has the numbers {', '.join(sorted(numbers)) or 'none'}, which aren't {kind.__name__}'s")
    for name, form in forms.items():
        assert form is not None, "what has no declared form is refused before the first round"
        if form.is_vector:
            fields.append(_whole(rest.pop(0), form, like, private, leading))
        else:
            fields.append(_of_numbers(name, numbers[name], form, like, leading))
    found = kind(*fields)
    fault = find_fault(kind, found, like, leading=leading)
    if fault is not None:
        raise InputError(fault)
    return found


def _whole(vector: Tensor, form: Form, like: Tensor, private: PrivatePart | None, leading: tuple[int, ...]) -> Tensor:
    """A vector on the model's device, with numbers in the place of what is private."""
    vector = vector.to(like.device)
    if private is None:
        return vector
    public = len(like) - private.size
    if vector.shape != (*leading, public):
        raise InputError(f"a vector has the shape {list(vector.shape)}; it should be {[*leading, public]}")
    rest = like.to(vector.dtype) if form is Form.MODEL else torch.zeros_like(like, dtype=vector.dtype)
    whole = rest.expand(*leading, len(like)).clone()
    whole[..., ~private.mask] = vector
    return whole


def whole_models(vectors: Sequence[Tensor], like: Tensor, private: PrivatePart | None) -> list[Tensor]:
    """Models that came without what is private, with a model's numbers there.

    Raises:
        InputError: If one isn't a model.
    """
    models = [_whole(vector, Form.MODEL, like, private, ()) for vector in vectors]
    for model in models:
        if model.shape != like.shape or model.dtype != like.dtype:
            raise InputError(f"a model has the shape {list(model.shape)}; it should be {list(like.shape)}")
    return models


def _of_numbers(name: str, values: Sequence[float], form: Form, like: Tensor, leading: tuple[int, ...]) -> Tensor:
    if len(values) != (leading[0] if leading else 1):
        raise InputError(f"its field {name} has {len(values)} numbers")
    try:
        return torch.tensor(values, dtype=form.dtype(like), device=like.device).reshape(*leading, 1)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"its field {name} can't be read: {error}") from error


def refuse_undeclared(algorithm: Algorithm) -> None:
    """Refuses an algorithm whose messages or replies have fields of which nobody can tell what they are.

    Raises:
        InputError: With the fields, and what would be right.
    """
    for phase in range(len(algorithm.phases)):
        for kind in (algorithm.message_type(phase), algorithm.reply_type(phase)):
            undeclared = [name for name, form in forms_of(kind).items() if form is None]
            if undeclared:
                raise InputError(
                    f"algorithm {type(algorithm).__name__} doesn't say what {', '.join(undeclared)} of its "
                    f"{kind.__name__} is, so it can't be sent; declare it as Model, Vector, Number, Count or Total of "
                    "adabest"
                )
