"""Every random draw of a simulation, as a pure function of what the draw is for.

A draw is named by words, ``(seed, purpose, round, client, step, ...)``, and its 64 bits are a hash of that name. There
is no stream to advance, so a result can't depend on the order in which clients are trained, on how they are batched, on
the number of processes, or on where a run was interrupted.

The hash is integer arithmetic on 64-bit words with wrap-around, written once for NumPy arrays and torch tensors alike:
both give the same bits, on any device and in any batch shape. Words that are arrays broadcast against each other.

=============  ======================================================================================
draw           definition
=============  ======================================================================================
``bits``       the hash: for each word, ``state <- mix((state ^ word) + γ)``, ``mix`` being a bijection
``uniform``    the upper 53 bits, divided by 2⁵³: exact in float64
``below``      the upper 32 bits times n, divided by 2³² (bias under n/2³²)
``order``      a permutation: the stable argsort of one 64-bit key per item
=============  ======================================================================================

Draws that are made once, on the CPU, by a library's method (Dirichlet priors, torch's initial weights) use a generator
of that library, keyed by ``numpy_generator`` or ``torch_seed``. Fingerprints of their outcomes are stored with the run.
"""

import enum
import math
from typing import Any, TypeVar

import numpy as np
import torch

Words = TypeVar("Words", np.ndarray, torch.Tensor)

# The kernels of ``engine.gpu.kernels.tables`` compute the hash by themselves, with these numbers: change both together.
GAMMA = 0x9E3779B97F4A7C15  # 2⁶⁴ / golden ratio, the increment of splitmix64
FIRST_FACTOR = 0xBF58476D1CE4E5B9  # the multipliers and shifts of splitmix64's finaliser (Stafford's variant 13)
SECOND_FACTOR = 0x94D049BB133111EB


class Purpose(enum.IntEnum):
    """The purpose of a draw. The numbers are part of every result: never renumber, only append."""

    COHORT = 1
    BATCH_ORDER = 2
    BATCH_TOP_UP = 3
    AUGMENTATION = 4
    DROPOUT = 5
    PARTITION = 6
    ROLES = 7
    INITIAL_MODEL = 8
    TEST_SPLIT = 9
    POPULATION = 10
    SYNTHETIC = 11
    LOCAL_TEST = 12


def signed(word: int) -> int:
    """The same 64 bits as a signed integer: NumPy and torch both compute in int64."""
    word &= 0xFFFF_FFFF_FFFF_FFFF
    return word - (1 << 64) if word >> 63 else word


def _shift_right(x: Words, by: int) -> Words:
    """Logical shift: the shift of int64 would copy the sign bit."""
    shifted = x >> by
    shifted &= (1 << (64 - by)) - 1
    return shifted


def _mix(x: Words) -> Words:
    """The finaliser of splitmix64, in place: for large arrays of draws, memory traffic is what costs time."""
    x ^= _shift_right(x, 30)
    x *= signed(FIRST_FACTOR)
    x ^= _shift_right(x, 27)
    x *= signed(SECOND_FACTOR)
    x ^= _shift_right(x, 31)
    return x


def bits(seed: Any, purpose: Purpose, *words: Any) -> Any:
    """The 64 random bits of a draw.

    Args:
        seed: The run's seed, any Python integer (its lower 64 bits count); or int64 seeds of several runs.
        purpose: The purpose of the draw.
        *words: The other words of its name: integers, int64 NumPy arrays or int64 tensors, which broadcast.

    Returns:
        int64 bits in the broadcast shape of the words: a tensor if a word is one, else a NumPy array (of one element
        when all words are integers).
    """
    state: Any = np.zeros(1, dtype=np.int64)
    for word in (seed, int(purpose), *words):
        if isinstance(word, torch.Tensor) and isinstance(state, np.ndarray):
            state = int(state[0]) if state.shape == (1,) else torch.from_numpy(state).to(word.device)
        number = signed(word) if isinstance(word, int) else word
        state = state ^ number
        state += signed(GAMMA)
        state = _mix(state)
    return state


def uniform(random_bits: Words) -> Words:
    """Float64 numbers in [0, 1) out of bits."""
    upper = _shift_right(random_bits, 11)
    if isinstance(upper, torch.Tensor):
        return upper.to(torch.float64) * 2.0**-53
    return upper * 2.0**-53


def at_least(random_bits: Words, bound: float) -> Words:
    """Whether ``uniform`` of bits is at least a bound between 0 and 1, without making the numbers."""
    smallest = math.ceil(bound * 2.0**53) << 11  # the smallest bits, as an unsigned number, that reach the bound
    # With its first bit flipped, a signed number compares as the unsigned one does.
    reached: Words = (random_bits ^ signed(1 << 63)) >= smallest - (1 << 63)
    return reached


def below(random_bits: Words, bound: Any) -> Words:
    """Integers in [0, bound) out of bits; ``bound`` is under 2³¹ and may be an array."""
    if not isinstance(bound, torch.Tensor) and np.max(bound) >= 2**31:
        raise ValueError(f"a bound of {np.max(bound)} is too large for 32 random bits")
    product: Words = _shift_right(random_bits, 32) * bound
    return _shift_right(product, 32)


def below_any(word: int, bound: int) -> int:
    """An integer in [0, bound) out of one word of bits, for a bound of any size (bias under bound/2⁶⁴)."""
    return ((word & 0xFFFF_FFFF_FFFF_FFFF) * bound) >> 64


def order(random_bits: Words) -> Words:
    """A permutation of each row: the stable argsort of its keys along the last axis."""
    if isinstance(random_bits, torch.Tensor):
        return torch.argsort(random_bits, dim=-1, stable=True)
    return np.argsort(random_bits, axis=-1, kind="stable")


def numpy_generator(seed: int, purpose: Purpose, *words: int) -> np.random.Generator:
    """A NumPy generator for draws that are made once on the CPU, keyed like all other draws."""
    keys = [int(bits(seed, purpose, *words, half)[0]) & 0xFFFF_FFFF_FFFF_FFFF for half in (0, 1)]
    return np.random.Generator(np.random.Philox(key=np.array(keys, dtype=np.uint64)))


def torch_seed(seed: int, purpose: Purpose) -> int:
    """A seed for torch's generator, from which torch's modules draw their initial weights."""
    return int(bits(seed, purpose)[0])
