"""Texts as ids of tokens: by their characters, or by a tokenizer of the user's.

By characters, 0 is padding, 1 a character that no training text has, and from 2 on the characters of the training texts
follow, sorted by their code points. A tokenizer is a function from a text to a list of whole numbers, or an object that
has such a function called ``encode``, as those of Hugging Face, tiktoken and SentencePiece have. Its ids are used as
they are.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adabest.errors import AdabestError, InputError, told
from adabest.machine import refuse_beyond_memory
from adabest.registry import Registry, shown

TOKENIZERS: Registry[Any] = Registry(kind="tokenizer", group="adabest.tokenizers", builtin={})

PADDING, UNKNOWN = 0, 1
UNCOUNTED = -100  # as a target: padding, which neither loss nor metrics count
_NAMES = ("padding", "unknown")
_LENGTH = 80
_LARGEST = 2**63 - 1

Place = Callable[[int], str]


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """How texts become ids.

    Attributes:
        length: How many ids an input has. What a text has beyond them is cut off, and a shorter one is padded.
        tokenizer: A function, an object with ``encode``, or the name of one of them; None for characters.
        next_token: Whether texts are cut into windows of ``length``, whose targets are the ids that follow.
    """

    length: int = _LENGTH
    tokenizer: Any = None
    next_token: bool = False


def text_options(
    title: str, text: str | None, *, length: int | None, tokenizer: Any, next_token: bool
) -> TextOptions | None:
    """The options of a column of texts; None if there is none.

    Raises:
        InputError: If one can't be used, or is given without such a column.
    """
    given = {"length": length is not None, "tokenizer": tokenizer is not None, "next_token": next_token}
    if text is None:
        for option, is_given in given.items():
            if is_given:
                raise InputError(f"{title}: {option}=... is for texts; name their column, too, as in text=body")
        return None
    if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 1):
        raise InputError(f"{title}: length = {shown(length)} should be a number of tokens, as in length={_LENGTH}")
    return TextOptions(_LENGTH if length is None else length, tokenizer, next_token)


@dataclasses.dataclass(frozen=True)
class TextSamples:
    """Samples made of texts.

    Attributes:
        inputs: Their ids, int64 ``[samples, length]``.
        following: The id that follows each, −100 where there is none; None unless the next token is to be predicted.
        rows: The text that each sample is from.
        vocabulary: What ids stand for, if they are those of characters.
    """

    inputs: np.ndarray
    following: np.ndarray | None
    rows: np.ndarray
    vocabulary: tuple[str, ...]


def read_texts(title: str, texts: Sequence[str], test: np.ndarray, options: TextOptions, place: Place) -> TextSamples:
    """Makes samples of texts: one of each, or, to predict the next token, as many windows as each has.

    Args:
        title: The data, for messages.
        texts: The texts.
        test: A mask of those that are tested with, whose characters don't count for the vocabulary.
        options: How they become ids.
        place: Where a text is, in words, as in ``line 7``.

    Raises:
        InputError: If the tokenizer can't be used, or too little is left.
    """
    tokens, padding, vocabulary = _tokens(title, texts, test, options, place)
    length = options.length
    if not options.next_token:
        _refuse_beyond_memory(title, len(tokens), length)
        inputs = np.full((len(tokens), length), padding, np.int64)
        for row, ids in enumerate(tokens):
            inputs[row, : len(ids)] = ids[:length]
        return TextSamples(inputs, None, np.arange(len(tokens)), vocabulary)
    counts = np.array([-(-max(len(ids) - 1, 0) // length) for ids in tokens], np.int64)
    for split, mask in (("train", ~test), ("test", test)):
        if not counts[mask].any():
            raise InputError(
                f"{title}: no text to {split} with has two tokens or more; the next token of shorter ones isn't known"
            )
    _refuse_beyond_memory(title, 2 * int(counts.sum()), length)
    inputs = np.full((int(counts.sum()), length), padding, np.int64)
    following = np.full_like(inputs, UNCOUNTED)
    start = 0
    for ids, count in zip(tokens, counts.tolist(), strict=True):
        if count:
            inputs[start : start + count].reshape(-1)[: len(ids) - 1] = ids[:-1]
            following[start : start + count].reshape(-1)[: len(ids) - 1] = ids[1:]
        start += count
    return TextSamples(inputs, following, np.repeat(np.arange(len(tokens)), counts), vocabulary)


def _refuse_beyond_memory(title: str, rows: int, length: int) -> None:
    needed = {f"{rows:,} rows of {length:,} ids": 16 * rows * length}  # they are copied once
    refuse_beyond_memory(f"{title} as ids of tokens", needed, "choose a smaller length=...")


def _tokens(
    title: str, texts: Sequence[str], test: np.ndarray, options: TextOptions, place: Place
) -> tuple[list[np.ndarray], int, tuple[str, ...]]:
    """The ids of each text, the one of padding, and what ids stand for, if that is known."""
    if options.tokenizer is None:
        points = [np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32) for text in texts]
        training = [own for own, is_test in zip(points, test.tolist(), strict=True) if not is_test]
        known = np.unique(np.concatenate([np.unique(own) for own in training]))
        return [_numbered(own, known) for own in points], PADDING, (*_NAMES, *map(chr, known.tolist()))
    encode, padding = _encoder(title, options.tokenizer)
    return [_checked(f"{title}, {place(row)}", text, encode) for row, text in enumerate(texts)], padding, ()


def _numbered(points: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Code points as ids."""
    if not len(known):
        return np.full(len(points), UNKNOWN, np.int64)
    where = np.searchsorted(known, points).clip(max=len(known) - 1)
    return np.where(known[where] == points, where + len(_NAMES), UNKNOWN)


def _encoder(title: str, tokenizer: Any) -> tuple[Callable[[str], Any], int]:
    """A tokenizer's function, and the id of its padding."""
    found = TOKENIZERS.find(tokenizer) if isinstance(tokenizer, str) else tokenizer
    encode = getattr(found, "encode", None)
    if not callable(encode):
        encode = found
    if not callable(encode) or isinstance(found, type):
        raise InputError(
            f"{title}: tokenizer = {shown(tokenizer)} is a {type(found).__name__}; it should be a function from a text "
            "to a list of whole numbers, or an object that has one called encode"
        )
    padding = getattr(found, "pad_token_id", None)
    if isinstance(padding, int) and not isinstance(padding, bool) and padding >= 0:
        return encode, padding
    return encode, PADDING


def _checked(where: str, text: str, encode: Callable[[str], Any]) -> np.ndarray:
    """The ids that a tokenizer gives for a text."""
    try:
        given = encode(text)
        given = getattr(given, "ids", given)  # tokenizers of the package tokenizers give an object that has them
    except AdabestError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"{where}: the tokenizer raised {told(error)}") from error
    with contextlib.suppress(TypeError, ValueError, OverflowError, RuntimeError):
        ids = np.asarray(given)
        if ids.shape == (0,):
            return np.empty(0, np.int64)
        if ids.ndim == 1 and ids.dtype.kind in "iu" and ids.min() >= 0 and ids.max() <= _LARGEST:
            return ids.astype(np.int64)
    raise InputError(
        f"{where}: the tokenizer gave {shown(given)}; it should give a list of ids, whole numbers from 0, for each text"
    )
