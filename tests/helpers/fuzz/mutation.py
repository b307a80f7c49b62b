"""Damage to valid inputs, drawn from a generator that the input's number keys, so that each can be made again."""

import random
import re
from collections.abc import Sequence

_NUMBERS = (
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
_TEXTS = (
    b"-1",
    b"0",
    b"1e999",
    b"nan",
    b"-inf",
    b"9" * 30,
    b"9" * 5000,
    b"0x" + b"f" * 5000,
    b"1_000",
    b"0.5",
    b"-0.0",
)
_TOKEN = re.compile(rb"[A-Za-z_]+|[0-9.]+|\s+|.", re.DOTALL)
_MOST = 2**18  # bytes that an input may grow to


def damaged(seeds: Sequence[bytes], words: Sequence[bytes], generator: random.Random) -> bytes:
    """One of the seeds, damaged in one to five ways.

    Args:
        seeds: Valid inputs.
        words: What means something in inputs of this kind.
        generator: Draws what is done.
    """
    data = bytearray(generator.choice(seeds))
    for _ in range(generator.choice((1, 1, 1, 2, 2, 3, 5))):
        data = generator.choice(_WAYS)(data, seeds, words, generator)
    return bytes(data[:_MOST])


def _flip_bit(data: bytearray, seeds: Sequence[bytes], words: Sequence[bytes], generator: random.Random) -> bytearray:
    if data:
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
    return data


def _set_byte(data: bytearray, seeds: Sequence[bytes], words: Sequence[bytes], generator: random.Random) -> bytearray:
    if data:
        data[generator.randrange(len(data))] = generator.choice((0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256)))
    return data


def _set_number(data: bytearray, seeds: Sequence[bytes], words: Sequence[bytes], generator: random.Random) -> bytearray:
    """Writes a binary number that readers may believe to be a size."""
    width, order = generator.choice((2, 4, 8)), generator.choice(("little", "big"))
    number = generator.choice(_NUMBERS) % 2 ** (8 * width)
    place = generator.randrange(len(data) + 1)
    data[place : place + width] = number.to_bytes(width, "little" if order == "little" else "big")
    return data


def _cut(data: bytearray, seeds: Sequence[bytes], words: Sequence[bytes], generator: random.Random) -> bytearray:
    return data[: generator.randrange(len(data) + 1)]


def _remove(data: bytearray, seeds: Sequence[bytes], words: Sequence[bytes], generator: random.Random) -> bytearray:
    start = generator.randrange(len(data) + 1)
    del data[start : start + generator.choice((1, 2, 4, 8, 64, 1024))]
    return data


def _repeat(data: bytearray, seeds: Sequence[bytes], words: Sequence[bytes], generator: random.Random) -> bytearray:
    start = generator.randrange(len(data) + 1)
    piece = data[start : start + generator.choice((1, 2, 8, 64))]
    data[start:start] = piece * generator.choice((1, 2, 10, 1000))
    return data


def _splice(data: bytearray, seeds: Sequence[bytes], words: Sequence[bytes], generator: random.Random) -> bytearray:
    other = generator.choice(seeds)
    return data[: generator.randrange(len(data) + 1)] + other[generator.randrange(len(other) + 1) :]


def _insert_word(
    data: bytearray, seeds: Sequence[bytes], words: Sequence[bytes], generator: random.Random
) -> bytearray:
    place = generator.randrange(len(data) + 1)
    data[place:place] = generator.choice(words)
    return data


def _swap_token(data: bytearray, seeds: Sequence[bytes], words: Sequence[bytes], generator: random.Random) -> bytearray:
    """Replaces a word or a number of a text by another."""
    tokens = _TOKEN.findall(bytes(data[:4096]))
    if tokens:
        place = generator.randrange(len(tokens))
        tokens[place] = generator.choice((*words, *_TEXTS, *tokens[:50]))
    return bytearray(b"".join(tokens) + data[4096:])


_WAYS = (
    _flip_bit,
    _set_byte,
    _set_number,
    _cut,
    _remove,
    _repeat,
    _splice,
    _insert_word,
    _swap_token,
    _swap_token,
)
