"""Keyed noise for algorithms: random numbers that are a function of (seed, round, client, phase, draw, place).

Numbers from a global generator would depend on the order in which clients are computed, on the engine and on where a
run was interrupted. These don't, and they are the same bits on a CPU and on a GPU.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from adabest import random
from adabest.errors import InputError
from adabest.random import Purpose

SERVER = -1  # in the place of a client's number

_NORMAL, _UNIFORM = 0, 1
_MANTISSA_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
_AT_ONCE = 1 << 22  # numbers: each takes some ten words of 8 bytes while it is made

# The words that stand for functions are part of every result: never renumber, only append. 0 is for numbered draws.
_FUNCTIONS = {
    "downlink": 1,
    "client_start": 2,
    "client_finish": 3,
    "server_step": 4,
    "client_model": 5,
    "client_estimate": 6,
    "common_steps": 7,
    "personal_model": 8,
}
_OUTSIDE = -1  # in a context that no engine has given to a function, as in a test


class _Counter:
    """The number of draws that one call of a function has made."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self) -> int:
        self.taken += 1
        return self.taken - 1


@dataclass(frozen=True)
class NoiseKey:
    """The words that name the noise of a server or of clients, beside round and phase.

    Attributes:
        seed: The run's seed, or those of several runs whose steps are stacked.
        client: The client's number, or those of several that are computed at once; ``SERVER`` for the server.
        function: The word of the algorithm's function that the context is for.
    """

    seed: int | tuple[int, ...] = 0
    client: int | tuple[int, ...] = SERVER
    function: int = _OUTSIDE
    _counter: _Counter = field(default_factory=_Counter, compare=False, repr=False)

    def in_function(self, name: str) -> Self:
        """The key for one call of a function of an algorithm, whose draws are counted from 0."""
        return replace(self, function=_FUNCTIONS[name], _counter=_Counter())

    def normal(self, like: Tensor, words: tuple[int, int], draw: int | None) -> Tensor:
        """Numbers of the standard normal distribution, in the shape and type of a tensor; see ``_numbers``."""
        return self._numbers(like, words, draw, _NORMAL, random.normal)

    def uniform(self, like: Tensor, words: tuple[int, int], draw: int | None) -> Tensor:
        """Numbers that are evenly spread over [0, 1), in the shape and type of a tensor; see ``_numbers``."""

        def of_bits(bits: Tensor) -> Tensor:
            steps = 2.0 ** _MANTISSA_BITS[like.dtype]
            return (random.uniform(bits) * steps).floor() / steps  # rounding to a shorter type might give 1

        return self._numbers(like, words, draw, _UNIFORM, of_bits)

    def _numbers(
        self, like: Tensor, words: tuple[int, int], draw: int | None, kind: int, of_bits: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Numbers in the shape and type of a tensor.

        Args:
            like: The tensor. Where several runs or clients are computed at once, its first dimension is theirs, unless
                it has at most one dimension: then it is the same for all of them, but the noise isn't.
            words: Round and phase.
            draw: The number of the draw, for one that other functions of the phase make, too; None for the next draw of
                this call of a function.
            kind: The word of the distribution.
            of_bits: Makes float64 numbers of random bits, each by itself.
        """
        if not isinstance(like, Tensor) or like.dtype not in _MANTISSA_BITS:
            given = str(like.dtype).removeprefix("torch.") if isinstance(like, Tensor) else f"a {type(like).__name__}"
            raise InputError(f"noise is like a tensor of a float type, not {given}")
        if draw is not None and not (type(draw) is int and 0 <= draw < 2**63):
            raise InputError(f"draw = {draw!r} should be a whole number from 0: the number of the draw in this phase")
        several = [len(word) for word in (self.seed, self.client) if isinstance(word, tuple)]
        if several and like.ndim > 1 and len(like) != several[0]:
            raise InputError(
                f"noise like a tensor of the shape {list(like.shape)}: where {several[0]} clients or runs are computed "
                f"at once, it should be a vector, or its first dimension theirs: {[several[0], *like.shape[1:]]}"
            )
        own = like.shape if not several or like.ndim <= 1 else like.shape[1:]
        size = math.prod(own)

        def column(word: int | tuple[int, ...]) -> Any:
            if not isinstance(word, tuple):
                return int(word)
            return torch.tensor([random.signed(int(one)) for one in word], device=like.device).reshape(-1, 1)

        seed, client = column(self.seed), column(self.client)
        round_number, phase = words
        name = (phase, kind, self.function, self._counter.take()) if draw is None else (phase, kind, 0, draw)
        found = torch.empty((*several, size), dtype=like.dtype, device=like.device)
        step = max(1, _AT_ONCE // max([1, *several]))
        for first in range(0, size, step):
            places = torch.arange(first, min(first + step, size), device=like.device)
            bits = random.bits(seed, Purpose.ALGORITHM_NOISE, round_number, client, *name, places)
            found[..., first : first + step] = of_bits(bits)
        return found.reshape(*several, *own)
