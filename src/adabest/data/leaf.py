"""LEAF's format: data split by client, as JSON.

S. Caldas et al.: *LEAF: A Benchmark for Federated Settings* (2018), arXiv:1812.01097. Its scripts write two folders,
``train`` and ``test``, of files with ``users``, ``num_samples`` and, in ``user_data``, lists x and y for each user. It
is told by what x and y hold which data they are: numbers, as in FEMNIST; texts and the letter that follows each, as in
Shakespeare; or tweets and their sentiments, as in Sent140.
"""

import dataclasses
import json
import math
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from adabest.data.dataset import Dataset, from_arrays
from adabest.data.labels import Labels, check_labels_option
from adabest.data.sheet import dataset_of_texts
from adabest.data.text import read_texts, text_options
from adabest.errors import InputError
from adabest.machine import refuse_beyond_memory

# The 80 letters of LEAF's models for Shakespeare, in their order.
LETTERS = "\n !\"&'(),-." + string.digits + ":;>?" + string.ascii_uppercase + "[]" + string.ascii_lowercase + "}"

_OBJECTS = 12  # bytes in memory per byte of JSON: "0.5, " is 5 bytes and takes 32; "[]," is 3 and takes 64
_LARGEST = 2**53  # from here on, float64 doesn't hold every whole number
_TWEET = 4  # where the text is in a sample of Sent140: id, date, query, user, text
_LETTER_NAMES = {"\n": "newline", " ": "space"}
_POSITION = {letter: number for number, letter in enumerate(LETTERS)}

Kind = Literal["numbers", "letters", "tweets"]


@dataclasses.dataclass(frozen=True)
class _Split:
    """The samples of a split: arrays of inputs, or the texts of tweets; labels, and users."""

    kind: Kind
    inputs: Any
    labels: np.ndarray
    users: list[str]


def leaf(
    path: Path,
    shape: tuple[int, ...] | None = None,
    *,
    length: int | None = None,
    tokenizer: str | None = None,
    labels: Labels = "count",
    classes: int | None = None,
) -> Dataset:
    """A data set in LEAF's format, whose users are the clients.

    In Shakespeare an input is as many letters as in the files, 80, and the class is the letter that follows, of LEAF's
    own 80. LEAF gives any other letter the position −1, which is the last letter where the class is made of it; here
    that is so for inputs, too. In Sent140 an input is the text of a tweet.

    Args:
        path: The folder with ``train`` and ``test``, or the one above it.
        shape: The shape of an input, as in ``1x28x28`` for FEMNIST. By default as it is in the files, where images are
            flat.
        length: How many tokens of a tweet are taken. By default 80.
        tokenizer: ``module:function`` of a function from a tweet to a list of ids, or of an object that has one called
            ``encode``. By default, the characters of a tweet are its tokens.
        labels: ``count`` if labels have to count the classes from 0; ``map`` to map any; ``numbers`` if they are
            quantities.
        classes: How many classes there are, where some have no sample, such as 62 in FEMNIST.

    Raises:
        InputError: If a file can't be read or used.
    """
    if not path.is_dir():
        raise InputError(
            f"{path} doesn't exist, or is no folder; it should be the one with LEAF's folders train and test"
        )
    root = path / "data" if (path / "data" / "train").is_dir() else path
    check_labels_option(str(root), labels, classes)
    training, testing = _read(root / "train", shape), _read(root / "test", shape)
    if training.kind != testing.kind:
        raise InputError(
            f"{root}: train holds {training.kind}, but test {testing.kind}; both should be of the same data"
        )
    _refuse_options(str(root), training.kind, shape=shape, length=length, tokenizer=tokenizer)
    numbers = {user: number for number, user in enumerate(sorted(set(training.users)))}
    # Numbers, since an array of names would take the longest name's bytes per sample.
    clients = np.array([numbers[user] for user in training.users])
    name = path.resolve().name
    try:
        if training.kind == "tweets":
            texts = [*training.inputs, *testing.inputs]
            test = np.arange(len(texts)) >= len(training.inputs)
            options = text_options(str(root), "tweets", length=length, tokenizer=tokenizer, next_token=False)
            assert options is not None
            read = read_texts(str(root), texts, test, options, lambda row: f"tweet {row} from 0")
            y = np.concatenate([training.labels, testing.labels])
            return dataset_of_texts(name, read, y, test, clients, names=(), labels=labels, classes=classes)
        letters = training.kind == "letters"
        if letters and (labels != "count" or classes is not None):
            raise InputError(f"labels of Shakespeare are LEAF's {len(LETTERS)} letters; leave labels= and classes= out")
        return from_arrays(
            training.inputs,
            training.labels,
            testing.inputs,
            testing.labels,
            clients=clients,
            name=name,
            names=tuple(_LETTER_NAMES.get(letter, letter) for letter in LETTERS) if letters else (),
            labels=labels,
            classes=classes,
        )
    except InputError as error:
        raise InputError(f"{root}: {error}") from error


def _refuse_options(title: str, kind: Kind, **options: Any) -> None:
    """Refuses options that say nothing about a kind of data."""
    taken = {"numbers": ("shape",), "letters": (), "tweets": ("length", "tokenizer")}[kind]
    for option, value in options.items():
        if value is not None and option not in taken:
            raise InputError(
                f"{title}: {option}=... says nothing about {kind}, which the files hold; leave it out"
                + (f". Options for them are {' and '.join(taken)}" if taken else "")
            )


def _read(folder: Path, shape: tuple[int, ...] | None) -> _Split:
    """All samples of a split."""
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise InputError(f"{folder} has no .json file; LEAF's data are a folder train and a folder test of such files")
    kinds: list[Kind] = []
    inputs: list[Any] = []
    labels: list[np.ndarray] = []
    users: list[str] = []
    for path in paths:
        for user, kind, x, y in _users(path):
            if kinds and kind != kinds[0]:
                raise InputError(f"{path}, user {user}: x and y hold {kind}, but those before {kinds[0]}")
            inputs.append(_shaped(f"{path}, user {user}", x, shape) if kind == "numbers" else x)
            kinds.append(kind)
            labels.append(y)
            users += [user] * len(y)
            if kind != "tweets" and inputs[-1].shape[1:] != inputs[0].shape[1:]:
                found, before = inputs[-1].shape[1:], inputs[0].shape[1:]
                raise InputError(f"{path}, user {user}: inputs of shape {found}, but those before have {before}")
    if not inputs:
        raise InputError(f"{folder} has no samples")
    joined = [text for own in inputs for text in own] if kinds[0] == "tweets" else np.concatenate(inputs)
    return _Split(kinds[0], joined, np.concatenate(labels), users)


def _shaped(where: str, x: np.ndarray, shape: tuple[int, ...] | None) -> np.ndarray:
    if shape is None:
        return x
    if x[0].size != math.prod(shape):
        raise InputError(f"{where}: inputs of {x[0].size} numbers can't have the shape {shape}")
    return x.reshape(-1, *shape)


def _users(path: Path) -> Iterator[tuple[str, Kind, Any, np.ndarray]]:
    """The users of a file who have samples, with the kind of them, their inputs and labels."""
    try:
        refuse_beyond_memory(f"{path} as JSON", {"its objects": _OBJECTS * path.stat().st_size}, "split it into files")
        content = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise InputError(
            f"{path} can't be read as JSON: it is nested too deeply; LEAF's files are four deep"
        ) from error
    except (OSError, ValueError) as error:  # text that isn't UTF-8 is a ValueError, too
        raise InputError(f"{path} can't be read as JSON: {error}") from error
    if not (
        isinstance(content, dict)
        and isinstance(content.get("users"), list)
        and isinstance(content.get("user_data"), dict)
    ):
        raise InputError(f"{path} isn't a file of LEAF's: it should hold a list users and an object user_data")
    if not all(isinstance(user, str) for user in content["users"]):
        raise InputError(f"{path}: users should be texts, the keys of user_data")
    counts = content.get("num_samples", [None] * len(content["users"]))
    if not isinstance(counts, list) or len(counts) != len(content["users"]):
        raise InputError(f"{path}: num_samples should have one number for each of {len(content['users'])} users")
    for user, count in zip(content["users"], counts, strict=True):
        kind, x, y = _samples(f"{path}, user {user}", content["user_data"].get(user))
        if count not in (None, len(y)):
            raise InputError(f"{path}, user {user}: num_samples says {count}, but there are {len(y)}")
        if len(y):
            yield user, kind, x, y


def _samples(where: str, data: Any) -> tuple[Kind, Any, np.ndarray]:
    """What a user's samples are, their inputs and their labels."""
    if not isinstance(data, Mapping) or not {"x", "y"} <= data.keys():
        raise InputError(f"{where}: user_data should hold x and y")
    x, y = data["x"], data["y"]
    if not (isinstance(x, list) and isinstance(y, list) and x):
        return "numbers", *_arrays(where, x, y)
    if isinstance(x[0], str) and y and isinstance(y[0], str):
        return "letters", *_letters(where, x, y)
    if isinstance(x[0], list) and len(x[0]) > _TWEET and isinstance(x[0][_TWEET], str):
        tweets = [sample[_TWEET] if isinstance(sample, list) and len(sample) > _TWEET else None for sample in x]
        wrong = next((number for number, text in enumerate(tweets) if not isinstance(text, str)), None)
        if wrong is not None:
            raise InputError(
                f"{where}: sample {wrong} of x isn't a tweet of Sent140: id, date, query, user and text, all of them "
                "texts"
            )
        return "tweets", tweets, _labels(where, len(x), y)
    return "numbers", *_arrays(where, x, y)


def _letters(where: str, x: Sequence[Any], y: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Texts and the letters that follow them, as positions in LEAF's letters."""
    if len(x) != len(y):
        raise InputError(f"{where}: x has {len(x)} texts and y {len(y)} letters; each text should have the next one")
    length = len(x[0])
    for number, (text, letter) in enumerate(zip(x, y, strict=True)):
        if not isinstance(text, str) or len(text) != length or not length:
            raise InputError(
                f"{where}: sample {number} of x should be a text of {length or 80} letters, as the first one is, or "
                "all of 80 as LEAF writes them"
            )
        if not isinstance(letter, str) or len(letter) != 1:
            raise InputError(f"{where}: sample {number} of y should be one letter, the one that follows the text")
    unknown = len(LETTERS) - 1  # LEAF's position −1
    together = "".join(x)
    positions = np.fromiter((_POSITION.get(letter, unknown) for letter in together), np.int16, len(together))
    return positions.reshape(len(x), length), np.array([_POSITION.get(letter, unknown) for letter in y], np.int64)


def _arrays(where: str, x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels that are numbers."""
    try:
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite, and ``Dataset`` refuses them
            inputs = np.asarray(x, dtype=np.float32)
            np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(
            f"{where}: x and y should be numbers, and inputs of one shape; or texts and the letters that follow, as in "
            f"Shakespeare; or tweets and their sentiments, as in Sent140: {error}"
        ) from error
    if inputs.ndim < 1:
        raise InputError(f"{where}: x should be a list of inputs and y one of labels")
    return inputs, _labels(where, len(inputs), y)


def _labels(where: str, samples: int, y: Any) -> np.ndarray:
    """Labels that are whole numbers."""
    try:
        labels = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{where}: y should hold a whole number for each of {samples} inputs: {error}") from error
    if labels.ndim != 1:
        raise InputError(f"{where}: x should be a list of inputs and y one of labels")
    if samples != len(labels) or not bool(((labels == np.floor(labels)) & (np.abs(labels) < _LARGEST)).all()):
        raise InputError(f"{where}: x has {samples} inputs and y {len(labels)} labels, which should be whole numbers")
    return labels.astype(np.int64)
