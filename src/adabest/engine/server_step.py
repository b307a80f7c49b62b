"""Server steps of several runs: those of runs that agree in all but their vectors are one operation on a GPU."""

import dataclasses
import math
import warnings
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, Replies, ServerContext, Update
from adabest.engine.algorithm_calls import server_step
from adabest.noise import NoiseKey

_PLAIN = (bool, int, float, str, type(None))
_ROUND = 512  # elements: whatever their type, a multiple of the bytes that allocators align to


class ServerStep(NamedTuple):
    """A server step that a run asks for; the fields are the arguments of ``Algorithm.server_step``."""

    algorithm: Algorithm
    server: Any
    cloud: Tensor
    replies: Replies
    context: ServerContext

    def alone(self) -> Update | Exception:
        """The result, by itself, or the exception that ends this run."""
        try:
            return server_step(self.algorithm, self.server, self.cloud, self.replies, self.context)
        except Exception as error:  # is raised in the run that asked
            return error


def take_server_steps(steps: Sequence[ServerStep]) -> list[Update | Exception]:
    """The results of several runs' server steps, or the exceptions that end them.

    On a GPU, where every operation has to be launched, those that may be stacked are. A CPU gains nothing by it.
    """
    alike: dict[Hashable, list[int]] = {}
    for number, step in enumerate(steps):
        stacks = step.cloud.is_cuda and may_be_stacked(step.algorithm)
        alike.setdefault(_kind(step) if stacks else number, []).append(number)
    results: dict[int, Update | Exception] = {}
    for numbers in alike.values():
        results |= zip(numbers, _results([steps[number] for number in numbers]), strict=True)
    return [results[number] for number in range(len(steps))]


def _results(steps: Sequence[ServerStep]) -> Sequence[Update | Exception]:
    """The results of steps of one kind."""
    if len(steps) > 1:
        try:
            return take_stacked(steps)
        except Exception as error:  # one by one, it is known whose it is
            found = [step.alone() for step in steps]
            if not any(isinstance(result, Exception) for result in found):
                warnings.warn(
                    f"{type(steps[0].algorithm).__name__} says that its server steps may be stacked, but that fails: "
                    f"{error}; its steps go one by one, which is slower",
                    stacklevel=2,
                )
            return found
    return [step.alone() for step in steps]


def may_be_stacked(algorithm: Algorithm) -> bool:
    """Whether an algorithm says that its server step may be stacked, and says it of that very step.

    A subclass with a server step of its own doesn't inherit what another class says of another step.
    """
    says, step = (
        next(place for place, kind in enumerate(type(algorithm).__mro__) if name in vars(kind))
        for name in ("stackable", "server_step")
    )
    return says <= step and algorithm.stackable and _hyper_parameters(algorithm) is not None


def _hyper_parameters(algorithm: Algorithm) -> Hashable | None:
    """The hyper-parameters of an algorithm, to be compared; None if some aren't plain numbers and words."""
    if not dataclasses.is_dataclass(algorithm):
        return None
    values = tuple((field.name, getattr(algorithm, field.name)) for field in dataclasses.fields(algorithm))
    return values if all(type(value) in _PLAIN for _, value in values) else None


def take_stacked(steps: Sequence[ServerStep]) -> list[Update]:
    """The results of steps of one kind, as one operation on vectors with a first dimension for the runs."""
    first = steps[0]
    server = type(first.server)(*map(torch.stack, zip(*(step.server for step in steps), strict=True)))
    cloud = torch.stack([step.cloud for step in steps])
    together = server_step(first.algorithm, server, cloud, _StackedReplies(steps), _stacked_context(steps))
    rows: dict[int, Sequence[Tensor]] = {}  # by id: what is one tensor in the result stays one tensor in each run's

    def own(field: Tensor, run: int) -> Tensor:
        if id(field) not in rows:
            rows[id(field)] = aligned_rows(field)
        return rows[id(field)][run]

    return [
        Update(
            server=type(together.server)(*(own(field, run) for field in together.server)),
            aggregate=own(together.aggregate, run),
            cloud=own(together.cloud, run),
            h=None if together.h is None else own(together.h, run),
        )
        for run in range(len(steps))
    ]


def _stacked_context(steps: Sequence[ServerStep]) -> ServerContext:
    """The context of several steps, which differ in nothing but their seeds."""
    context = steps[0].context
    seeds = [seed for step in steps for seed in _seeds(step.context.noise)]
    return dataclasses.replace(context, noise=dataclasses.replace(context.noise, seed=tuple(seeds)))


def _seeds(noise: NoiseKey) -> tuple[int, ...]:
    return (noise.seed,) if isinstance(noise.seed, int) else noise.seed


def aligned_rows(stacked: Tensor) -> Sequence[Tensor]:
    """The rows of a tensor ``[runs, ...]``, each at an address as round as that of a tensor of its own.

    The last bits of a sum over a row may depend on where the row begins.
    """
    length = math.prod(stacked.shape[1:])
    if length <= 1:
        return stacked.unbind()
    apart = stacked.new_empty((len(stacked), -(-length // _ROUND) * _ROUND))[:, :length]
    apart.copy_(stacked.flatten(1))
    return [row.view(stacked.shape[1:]) for row in apart]


class _StackedReplies(Replies):
    """The replies to several runs, of which each got the same number."""

    def __init__(self, steps: Sequence[ServerStep]) -> None:
        self._replies = [step.replies for step in steps]
        self.count = self._replies[0].count

    def mean(self, field: str, weight: str = "one") -> Tensor:
        """The means of a field, one row a run."""
        return torch.stack([replies.mean(field, weight) for replies in self._replies])

    def total(self, field: str) -> Tensor:
        """The sums of a field of counts, one row a run."""
        return torch.stack([replies.total(field) for replies in self._replies])


def _kind(step: ServerStep) -> Hashable:
    """Equal for steps that differ in nothing but their vectors."""
    shapes = tuple((field.shape, field.dtype) for field in (step.cloud, *step.server))
    chosen = _hyper_parameters(step.algorithm)
    return type(step.algorithm), chosen, step.context, step.replies.count, step.cloud.device, shapes
