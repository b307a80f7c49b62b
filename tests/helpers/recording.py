"""Short federations whose algorithm's functions are recorded, so that every call can be examined or made again."""

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from quadratics import random_quadratics, simulate
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Population, Replies
from adabest.algorithms.catalog import ALGORITHMS, CORE
from adabest.engine.simulation import Simulation
from adabest.registry import check_options, options_of, split_specification

CLIENTS = 5
DIM = 3
COHORTS = [[0, 2, 3], [1, 2], [0, 3, 4]]  # some clients come back, after one round or two, and the sizes differ

NAMES = ALGORITHMS.names()
# Algorithms whose options change what is kept or sent are examined with these options, too.
CORE_VARIANTS = [
    *sorted(CORE),
    "adabest,beta=auto",
    "adabest,beta_decay=0.5,patience=1",
    "feddyn,clip_proximal=false",
    "feddyn,sample_mean=progressive",
    "feddyn,spring=0.5",
    "scaffold,control_rate=undecayed",
    "scaffold,sample_mean=progressive",
    "scaffold-m,sample_mean=progressive",
    "scaffold-gradient,sample_mean=progressive",
]
OTHER_VARIANTS = [
    *(name for name in NAMES if name not in CORE),
    "aide,tau=0.5,q=0",
    "dane,share=0.5",
    "fedpd,begin=own",
    "fsvrg,own_rate=by_steps",
]
VARIANTS = [*CORE_VARIANTS, *OTHER_VARIANTS]
# One of each kind that the core lacks: a state of three fields, replies that don't tell models, gradients sent.
REPRESENTATIVES = ["vrl-sgd", "mifa", "feddane"]
DTYPES = [torch.float32, torch.float64]
FUNCTIONS = (
    "server_init",
    "client_init",
    "downlink",
    "client_start",
    "client_finish",
    "server_step",
    "client_estimate",
)

every_algorithm = pytest.mark.parametrize("name", NAMES)
every_variant = pytest.mark.parametrize("name", VARIANTS)
# In float64 nothing differs but what float32 shows as well: a number of another type. The core has both.
every_typed_variant = pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, dtype) for name in CORE_VARIANTS for dtype in DTYPES),
        *((name, torch.float32) for name in OTHER_VARIANTS),
    ],
    ids=str,
)
core_and_representatives = pytest.mark.parametrize("name", [*CORE_VARIANTS, *REPRESENTATIVES])


def make(specification: str) -> Algorithm:
    name, options = split_specification(specification)
    kind = ALGORITHMS.find(name)
    return kind(**check_options(name, options, options_of(kind)))


class Call(NamedTuple):
    """One call of one of an algorithm's functions.

    Attributes:
        function: Which.
        given: What it was given. A copy: the engine may reuse the memory of a client's state after the round.
        result: What it returned. Likewise.
        untouched: Whether what it was given was still the same when it returned.
    """

    function: str
    given: tuple[Any, ...]
    result: Any
    untouched: bool

    @property
    def context(self) -> Any:
        return self.given[-1]


class Recording(NamedTuple):
    """A short federation and all that was asked of its algorithm."""

    algorithm: Algorithm
    simulation: Simulation
    calls: list[Call]

    def of(self, function: str) -> list[Call]:
        return [call for call in self.calls if call.function == function]

    def exchanges(self, function: str) -> Iterator[list[Call]]:
        """The calls of a client function, those of the same round and phase together."""
        groups: dict[tuple[int, int], list[Call]] = {}
        for call in self.of(function):
            groups.setdefault((call.context.round, call.context.phase), []).append(call)
        yield from groups.values()


@functools.cache
def record(name: str, *, dtype: torch.dtype = torch.float64, seed: int = 0) -> Recording:
    """Runs three rounds on unbalanced quadratics, once: nobody may change what is recorded."""
    return record_anew(name, dtype=dtype, seed=seed)


def record_anew(name: str, *, dtype: torch.dtype = torch.float64, seed: int = 0) -> Recording:
    """Runs three rounds on unbalanced quadratics."""
    algorithm = make(name)
    calls: list[Call] = []
    recorded = copy.copy(algorithm)
    for function in FUNCTIONS:
        # Hyper-parameters are frozen, so the functions are replaced behind the dataclass's back.
        object.__setattr__(recorded, function, _recorder(function, getattr(algorithm, function), calls))
    task = random_quadratics(seed, CLIENTS, dim=DIM, unbalanced=True, dtype=dtype)
    simulation = simulate(recorded, task, decay=0.9)
    for cohort in COHORTS:
        simulation.step(cohort=np.array(cohort), evaluate=True)
    return Recording(algorithm, simulation, calls)


def _recorder(name: str, function: Callable[..., Any], calls: list[Call]) -> Callable[..., Any]:
    def call(*given: Any) -> Any:
        copies = copy.deepcopy(given)
        result = function(*given)
        pairs = zip(tensors_in(given), tensors_in(copies), strict=True)
        untouched = all(torch.equal(now, before) for now, before in pairs)
        calls.append(Call(name, copies, copy.deepcopy(result), untouched))
        return result

    return call


def tensors_in(thing: Any) -> list[Tensor]:
    """All tensors of a (nested) tuple, dataclass or mapping."""
    if isinstance(thing, Tensor):
        return [thing]
    if isinstance(thing, ClientContext):
        return [thing.steps, thing.samples, *tensors_in(thing.velocity)]
    if isinstance(thing, Replies):
        return tensors_in(vars(thing))
    if isinstance(thing, dict):
        return [tensor for value in thing.values() for tensor in tensors_in(value)]
    if isinstance(thing, tuple):
        return [tensor for value in thing for tensor in tensors_in(value)]
    return []


def assert_equal(found: Any, expected: Any) -> None:
    """Every tensor and every number is the same to the last bit."""
    assert type(found) is type(expected)
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    elif isinstance(expected, Tensor):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
    else:
        assert found == expected


def stacked(things: list[Any]) -> Any:
    """NamedTuples (or tensors) of one client each as one of all clients, with a leading dimension."""
    first = things[0]
    if isinstance(first, Tensor):
        return torch.stack(things)
    if isinstance(first, tuple):
        parts = [stacked([thing[i] for thing in things]) for i in range(len(first))]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    assert all(thing == first for thing in things), "a plain number can't differ between clients"
    return first


def unstacked(thing: Any, index: int, count: int) -> Any:
    """One client of ``stacked``; what has no leading dimension is the same for all."""
    if isinstance(thing, Tensor):
        return thing[index] if thing.ndim == 2 and len(thing) == count else thing
    if isinstance(thing, tuple):
        parts = [unstacked(value, index, count) for value in thing]
        return type(thing)(*parts) if hasattr(thing, "_fields") else tuple(parts)
    return thing


def stacked_context(calls: list[Call]) -> ClientContext:
    contexts: list[ClientContext] = [call.context for call in calls]
    return dataclasses.replace(
        contexts[0],
        steps=torch.stack([context.steps for context in contexts]),
        samples=torch.stack([context.samples for context in contexts]),
        velocity=stacked([context.velocity for context in contexts]),
    )


def without_population(call: Call, known: Population | None) -> tuple[Any, ...]:
    """What a server function was given, with other knowledge of the population."""
    return (*call.given[:-1], dataclasses.replace(call.context, known_population=known))
