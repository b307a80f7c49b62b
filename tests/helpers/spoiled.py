"""Algorithms whose clients send bad replies in some rounds.

A client is known by its number of samples, the only thing that tells an algorithm who it is; so the clients of a task
must differ in it.
"""

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext
from adabest.algorithms.fedavg import FedAvg
from adabest.tasks.base import Task


class Harm(NamedTuple):
    """A way to spoil what a client sends.

    Attributes:
        model: Changes a model before the client's finish, which then keeps what follows from it.
        reply: Changes a reply.
        reason: What the gate says of it.
        one_by_one: Whether it is told of single clients only where they answer one by one.
    """

    model: Callable[[Tensor], Tensor] = lambda model: model
    reply: Callable[[Any], Any] = lambda reply: reply
    reason: str = ""
    one_by_one: bool = False


def number_replaced(value: float) -> Callable[[Tensor], Tensor]:
    """Replaces the third number of each model."""

    def replaced(model: Tensor) -> Tensor:
        changed = model.clone()
        changed[..., 2] = value
        return changed

    return replaced


class Renamed(NamedTuple):
    """A reply under another name."""

    weights: Tensor


def first_changed(change: Callable[[Tensor], Any]) -> Callable[[Any], Any]:
    """Changes the first field of a reply."""
    return lambda reply: reply._replace(**{reply._fields[0]: change(reply[0])})


HARMS: Mapping[str, Harm] = {
    "nan": Harm(model=number_replaced(float("nan")), reason="its field model isn't finite"),
    "inf": Harm(model=number_replaced(float("-inf")), reason="its field model isn't finite"),
    "far": Harm(model=lambda model: model + 1e6, reason="its field model has the norm "),
    "renamed": Harm(reply=lambda reply: Renamed(reply[0]), reason="it has the fields weights; ", one_by_one=True),
    "no tuple": Harm(reply=lambda reply: "sorry", reason="it is a str; it should be a ", one_by_one=True),
    "no tensor": Harm(reply=first_changed(lambda field: "sorry"), reason="its field model is a str", one_by_one=True),
    "too short": Harm(
        reply=first_changed(lambda field: field[..., :-1]), reason="its field model has the shape [", one_by_one=True
    ),
    "half": Harm(
        reply=first_changed(lambda field: field.half()), reason="its field model is of type float16", one_by_one=True
    ),
}


def negative(name: str) -> Harm:
    """Makes a number of a reply negative."""
    return Harm(reply=lambda reply: reply._replace(**{name: -getattr(reply, name)}), reason=f"its weight {name} is -")


def spoiled(
    algorithm: Algorithm, task: Task, harm: Harm, bad: Mapping[int, Collection[int]], *, phase: int = 0
) -> Algorithm:
    """An algorithm some of whose clients send bad replies.

    Args:
        algorithm: The algorithm.
        task: The task, whose clients differ in their numbers of samples.
        harm: What is wrong with them.
        bad: The clients that send them, by round.
        phase: The phase in which they do.
    """
    finish = algorithm.client_finish

    def client_finish(client: Any, message: Any, model: Tensor, context: ClientContext) -> tuple[Any, Any]:
        state, reply = finish(client, message, model, context)
        numbers = model.new_tensor([task.samples(one) for one in bad.get(context.round, ())])
        is_bad = torch.isin(context.samples, numbers)
        if context.phase != phase or not bool(is_bad.any()):
            return state, reply
        worse, bad_reply = finish(client, message, harm.model(model), context)
        bad_reply = harm.reply(bad_reply)
        if is_bad.numel() == 1 or harm.one_by_one:
            return worse, bad_reply

        def chosen(new: Any, old: Any) -> Any:
            return type(old)(*(torch.where(is_bad, one, two) for one, two in zip(new, old, strict=True)))

        return chosen(worse, state), chosen(bad_reply, reply)

    other = copy.copy(algorithm)
    object.__setattr__(other, "client_finish", client_finish)  # hyper-parameters are frozen
    return other


@dataclass(frozen=True)
class Sour(FedAvg):
    """FedAvg whose smaller clients send NaN in some rounds.

    Attributes:
        first: The first of these rounds.
        last: The last of them.
        below: The number of samples below which a client is one of them.
    """

    first: int = 2
    last: int = 3
    below: int = 20

    def client_finish(self, client: Any, message: Any, model: Tensor, context: ClientContext) -> tuple[Any, Any]:
        state, reply = super().client_finish(client, message, model, context)
        if not self.first <= context.round <= self.last:
            return state, reply
        lost = torch.where(context.samples < self.below, torch.nan, 0.0).to(model.dtype)
        return state, reply._replace(model=reply.model + lost)
