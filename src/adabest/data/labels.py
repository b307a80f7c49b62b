"""Labels of classes: texts and numbers as numbers from 0, and the refusal of labels with gaps."""

import contextlib
import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from adabest.errors import InputError
from adabest.registry import shown

Labels = Literal["count", "map", "numbers"]

IF_QUANTITIES = "if these are quantities, give them as floating-point numbers, or say labels=numbers"

# The most classes of a data set with fewer samples; no published one has as many. A larger label is damage or an
# identifier: without this limit, each client would get a table with a count of every class below it.
_MOST_UNSEEN_CLASSES = 100_000
_SHOWN = 5  # labels in a message
_LARGEST = 2**53  # from here on, float64 doesn't hold every whole number
_LARGEST_FLOAT = float(np.finfo(np.float32).max)


def check_labels_option(title: str, labels: Any, classes: Any) -> None:
    """Checks what was said about the labels of a data set.

    Raises:
        InputError: If ``labels`` isn't one of its words, or ``classes`` is no number of classes.
    """
    words = get_args(Labels)
    if labels not in words:
        raise InputError(
            f"{title}: labels = {shown(labels)} should be {', '.join(map(repr, words[:-1]))} or {words[-1]!r}"
        )
    if classes is None:
        return
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 1:
        raise InputError(f"{title}: classes = {shown(classes)} should be the number of classes, as in classes=10")
    if labels != "count":
        raise InputError(
            f"{title}: classes = {classes} says how many classes labels count, and labels={labels} counts none; leave "
            "one of the two out"
        )


def number_texts(title: str, y_train: Any, y_test: Any) -> tuple[Any, Any, tuple[str, ...]]:
    """Labels that are texts as numbers from 0, in sorted order, and the names of classes; others as they are."""
    texts = [as_texts(labels) for labels in (y_train, y_test)]
    if texts[0] is None and texts[1] is None:
        return y_train, y_test, ()
    if texts[0] is None or texts[1] is None:
        raise InputError(f"{title}: only one of y_train and y_test holds texts; labels of both should be alike")
    names = sorted({*texts[0], *texts[1]})
    number = {text: position for position, text in enumerate(names)}
    mapped = [np.array([number[text] for text in split], np.int64) for split in texts if split is not None]
    return mapped[0], mapped[1], tuple(names)


def as_texts(values: Any) -> list[str] | None:
    """The texts in a list, an array or a column of a frame; None if it holds anything else."""
    if isinstance(values, Tensor):
        return None
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None  # whoever needs numbers says what is wrong with it
    if array.ndim != 1 or array.dtype.kind not in "UOT" or not len(array):
        return None
    texts = array.tolist()
    return texts if all(isinstance(text, str) for text in texts) else None


def warn_of_test_only(where: str, y_train: Any, y_test: Any, names: Sequence[str]) -> None:
    """Warns of classes that have test samples, but none to train with, as a typing mistake in a label makes one.

    Args:
        where: The test samples: their file, folder or split.
        y_train: The labels of training samples, numbers from 0.
        y_test: Those of test samples.
        names: What the labels were: texts, or any numbers.
    """
    only = np.setdiff1d(np.asarray(y_test), np.asarray(y_train)).tolist()
    if only:
        some = ", ".join(repr(names[label]) for label in only[:_SHOWN]) + (", …" if len(only) > _SHOWN else "")
        which = (
            f"the label {some}, which no training sample has"
            if len(only) == 1
            else (f"{len(only):,} labels that no training sample has: {some}")
        )
        warnings.warn(
            f"{where} has {which}. It counts as a class that can't be learnt; if it is a typing mistake, correct it, "
            "else add training samples or leave those test samples out",
            stacklevel=2,
        )


def map_numbers(
    title: str, y_train: Tensor, y_test: Tensor, names: tuple[str, ...]
) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Labels that are any numbers as numbers from 0 without gaps, in their order, and the names of classes.

    Args:
        title: The data set, for messages.
        y_train: The labels of training samples.
        y_test: Those of test samples, of the same type.
        names: The names that labels count already, of which those are kept that occur; else labels are their own names.

    Raises:
        InputError: If a sample has several labels, or a label no name.
    """
    if y_train.ndim != 1 or y_test.ndim != 1:
        raise InputError(
            f"{title}: labels=map takes one label a sample, not y_train {tuple(y_train.shape)} and y_test "
            f"{tuple(y_test.shape)}; leave it out"
        )
    values, mapped = torch.unique(torch.cat([y_train, y_test]), return_inverse=True)
    kept = values.tolist()
    if names and not all(isinstance(value, int) and 0 <= value < len(names) for value in kept):
        raise InputError(
            f"{title}: labels should count the {len(names)} names from 0; there are {kept[0]} to {kept[-1]}"
        )
    return (
        mapped[: len(y_train)],
        mapped[len(y_train) :],
        tuple(names[value] if names else str(value) for value in kept),
    )


def refuse_gaps(title: str, y_train: Tensor, y_test: Tensor) -> None:
    """Refuses labels, whole numbers from 0, that leave a number out below the highest.

    Raises:
        InputError: If they do; the message names the first that is left out.
    """
    together = torch.cat([y_train, y_test])
    if int(together.max()) >= max(_MOST_UNSEEN_CLASSES, len(together)):
        return  # ``refuse_many_classes`` says what is wrong with it
    counts = torch.bincount(together)
    absent = torch.nonzero(counts == 0).flatten().tolist()
    if absent:
        more = f" and {len(absent) - 1:,} more" if len(absent) > 1 else ""
        raise InputError(
            f"{title}: no sample of y_train or y_test has the label {absent[0]}{more}, but some have "
            f"{len(counts) - 1}; labels should count the classes from 0 without gaps. labels=map maps those that there "
            f"are, in their order; if a class really has no sample, say how many there are, as in classes={len(counts)}"
            f"; {IF_QUANTITIES}"
        )


def refuse_many_classes(title: str, classes: int, samples: int) -> None:
    """Refuses more classes than samples could show.

    Raises:
        InputError: If there are.
    """
    most = max(_MOST_UNSEEN_CLASSES, samples)
    if classes > most:
        raise InputError(
            f"{title}: {classes:,} classes are more than its {samples:,} samples could show (up to {most:,} "
            "are taken); labels should count the classes from 0, so number them anew"
        )


def whole_number(text: str) -> int | None:
    """The whole number that a text is, as in ``3`` or ``3.0``; None if it is none."""
    value = finite_number(text)
    return int(value) if value is not None and value.is_integer() and abs(value) < _LARGEST else None


def finite_number(text: str) -> float | None:
    """The number that a text is, finite in float32; None if it is none."""
    with contextlib.suppress(ValueError):
        value = float(text)
        if "_" not in text and abs(value) <= _LARGEST_FLOAT:
            return value
    return None
