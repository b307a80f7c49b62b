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
``normal``     the quantile of the standard normal distribution at (upper 52 bits + ½) / 2⁵²
=============  ======================================================================================

Draws that are made once, on the CPU, by a library's method (Dirichlet priors, torch's initial weights) use a generator
of that library, keyed by ``numpy_generator`` or ``torch_seed``. Fingerprints of their outcomes are stored with the run.
"""

import enum
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

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
    LOCAL_STEPS = 13
    ALGORITHM_NOISE = 16


_ROUNDS = 40  # bits for a round's number


def round_word(round_number: int, trainings_before: int) -> int:
    """The word for a round in the draws of local training: batches, flips, crops and dropout.

    Args:
        round_number: t.
        trainings_before: How many times clients have trained in this round before. The word for the first training is
            t itself.
    """
    return round_number + (trainings_before << _ROUNDS)


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


def normal(random_bits: Tensor) -> Tensor:
    """Float64 numbers of the standard normal distribution out of bits: the same on every device.

    The quantiles are those of Wichura's algorithm AS241 (1988), about 15 digits. Only +, −, × and ÷ are used, which
    IEEE 754 defines to the last bit. Logarithms, cosines and even square roots of libraries differ between devices.
    """
    probability = (_shift_right(random_bits, 12).to(torch.float64) + 0.5) * 2.0**-52  # never 0 or 1
    away = probability - 0.5
    centre = _quotient(_CENTRE, 0.180625 - away * away) * away
    distance = _root(-_logarithm(torch.minimum(probability, 1.0 - probability)))
    tail = torch.where(distance <= 5.0, _quotient(_TAIL, distance - 1.6), _quotient(_FAR_TAIL, distance - 5.0))
    return torch.where(away.abs() <= 0.425, centre, torch.where(away < 0, -tail, tail))


def _quotient(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Tensor) -> Tensor:
    """A quotient of two polynomials, whose coefficients begin with the highest power."""
    numerator, denominator = (_polynomial(one, x) for one in coefficients)
    return numerator / denominator


def _polynomial(coefficients: Sequence[float], x: Tensor) -> Tensor:
    total = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x  # not in one operation with the sum, which some devices would round once and others twice
        total = total + coefficient
    return total


def _logarithm(x: Tensor) -> Tensor:
    """The logarithm of numbers above 0: for m in [√½, √2) with x = m 2ᵉ the series of 2 artanh((m − 1) / (m + 1))."""
    mantissa, exponent = torch.frexp(x)
    is_low = mantissa < math.sqrt(0.5)
    mantissa = torch.where(is_low, 2.0 * mantissa, mantissa)
    power = exponent.to(torch.float64) - is_low.to(torch.float64)
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    series = _polynomial([1.0 / odd for odd in range(21, 0, -2)], ratio * ratio)
    of_mantissa = 2.0 * ratio * series
    return power * 0.6931471805599453 + of_mantissa


def _root(x: Tensor) -> Tensor:
    """The square root of numbers between ½ and 40, by Heron's method.

    torch's own rounds correctly on GPUs, but on CPUs it depends on the library that torch was built with.
    """
    root = 0.16 * x + 0.9  # wrong by a quarter at most; each step squares the error and halves it
    for _ in range(5):
        root = 0.5 * (root + x / root)
    return root


# The coefficients of AS241, numerator and denominator: for the centre, the tails, and what lies beyond them.
_CENTRE = (
    (
        2509.0809287301227,
        33430.57558358813,
        67265.7709270087,
        45921.95393154987,
        13731.69376550946,
        1971.5909503065513,
        133.14166789178438,
        3.3871328727963665,
    ),
    (
        5226.495278852854,
        28729.085735721943,
        39307.89580009271,
        21213.794301586597,
        5394.196021424751,
        687.1870074920579,
        42.31333070160091,
        1.0,
    ),
)
_TAIL = (
    (
        0.0007745450142783414,
        0.022723844989269184,
        0.2417807251774506,
        1.2704582524523684,
        3.6478483247632045,
        5.769497221460691,
        4.630337846156546,
        1.4234371107496835,
    ),
    (
        1.0507500716444169e-09,
        0.0005475938084995345,
        0.015198666563616457,
        0.14810397642748008,
        0.6897673349851,
        1.6763848301838038,
        2.053191626637759,
        1.0,
    ),
)
_FAR_TAIL = (
    (
        2.0103343992922881e-07,
        2.7115555687434876e-05,
        0.0012426609473880784,
        0.026532189526576124,
        0.29656057182850487,
        1.7848265399172913,
        5.463784911164114,
        6.657904643501103,
    ),
    (
        2.0442631033899397e-15,
        1.421511758316446e-07,
        1.8463183175100548e-05,
        0.0007868691311456133,
        0.014875361290850615,
        0.1369298809227358,
        0.599832206555888,
        1.0,
    ),
)


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
