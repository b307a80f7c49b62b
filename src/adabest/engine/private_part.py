"""The private part of a run's models, which never leaves its client."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, Update
from adabest.algorithms.forms import Form, fault_of_field, forms_of
from adabest.errors import InputError
from adabest.tasks.base import Task


@dataclass(frozen=True)
class PrivatePart:
    """The private part of the models of a task.

    Attributes:
        mask: Which of a model's numbers it has, bool ``[P]``.
        size: How many these are.
    """

    mask: Tensor
    size: int

    @classmethod
    def of(cls, algorithm: Algorithm, task: Task) -> "PrivatePart | None":
        """The private part that an algorithm asks for; None if it shares whole models.

        Raises:
            InputError: If the task's model has no such part.
        """
        part = algorithm.private_part()
        if part is None:
            return None
        try:
            mask = task.mask_of(part)
        except InputError as error:
            raise InputError(f"the private part of {type(algorithm).__name__}: {error}") from None
        return cls(mask, int(mask.sum()))

    def bytes_in(self, kind: type[Any], like: Tensor) -> int:
        """The bytes that it would have in a message or a reply, and that aren't sent."""
        vectors = [form for form in forms_of(kind).values() if form is not None and form.is_vector]
        return self.size * sum(form.dtype(like).itemsize for form in vectors)

    def kept(self, update: Update, cloud: Tensor) -> Update:
        """The result of a server step that leaves the private numbers of the cloud model as they are."""
        aggregate, moved = (torch.where(self.mask, cloud, model) for model in (update.aggregate, update.cloud))
        return update._replace(aggregate=aggregate, cloud=moved)


def without_private(reply: Any, cloud: Tensor, mask: Tensor, leading: tuple[int, ...] = ()) -> Any:
    """A reply whose models have θ's numbers in the private part, and whose other vectors have zeros there.

    Fields of a wrong form stay as they are, for whoever looks for them.

    Args:
        reply: The reply, of one client or of several.
        cloud: θ.
        mask: Which numbers are private.
        leading: The dimensions before those of a single reply.
    """
    if not hasattr(reply, "_fields"):
        return reply
    hidden = {}
    for name, form in forms_of(type(reply)).items():
        value = getattr(reply, name, None)
        if form is None or not form.is_vector or not isinstance(value, Tensor):
            continue
        if fault_of_field(form, value, cloud, leading if value.ndim > 1 else ()) is None:
            hidden[name] = torch.where(mask, cloud if form is Form.MODEL else torch.zeros_like(value), value)
    return reply._replace(**hidden)


def private_bytes(private: PrivatePart | None, kind: type[Any], like: Tensor) -> int:
    """The bytes of the private part in a message or a reply; 0 without one."""
    return 0 if private is None else private.bytes_in(kind, like)
