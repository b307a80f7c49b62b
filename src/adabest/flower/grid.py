"""Flower's network: parcels as its messages, over a grid."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from adabest.errors import InputError
from adabest.flower.network import Failure
from adabest.flower.orders import parsed, written
from adabest.flower.parcels import Parcel

_FACTS, _NUMBERS, _VECTORS = "facts", "numbers", "vectors"
_TYPES = ("float16", "float32", "float64", "int64")
# Flower's codes of errors that asking again can't mend: the app can't be loaded, it or a mod raised, it isn't an app.
_FINAL = (1, 2, 6, 7)


class FlowerNetwork:
    """Reaches SuperNodes over Flower's grid.

    Attributes:
        pause: Seconds between two looks for answers.
    """

    pause = 0.5

    def __init__(self, grid: Grid) -> None:
        """Takes the grid of a ServerApp."""
        self._grid = grid

    def present(self) -> list[int]:
        """The ids of the SuperNodes that are connected."""
        return sorted(self._grid.get_node_ids())

    def send(self, kind: str, parcels: Mapping[int, Parcel], seconds: float) -> dict[str, int]:
        """Sends each SuperNode a message."""
        messages = [
            Message(to_records(parcel), dst_node_id=node, message_type=kind, ttl=math.ceil(seconds))
            for node, parcel in parcels.items()
        ]
        taken = set(self._grid.push_messages(messages))  # a grid leaves out what it can't take, or has None there
        return {
            one.metadata.message_id: one.metadata.dst_node_id for one in messages if one.metadata.message_id in taken
        }

    def collect(self, tickets: Collection[str]) -> dict[str, Parcel | Failure]:
        """The answers that have come since, by their tickets.

        An error comes from the SuperLink and doesn't say whose it is, so the ticket does.
        """
        found = dict[str, Parcel | Failure]()
        if not tickets:
            return found
        for message in self._grid.pull_messages(list(tickets)):
            ticket = message.metadata.reply_to_message_id
            if ticket not in tickets:
                continue
            if message.has_error():
                last = (message.error.reason or "no reason given").strip().splitlines()[-1:]
                words = f"Flower's error {message.error.code}: {''.join(last)}"
                found[ticket] = Failure(words, is_final=message.error.code in _FINAL)
                continue
            try:
                found[ticket] = to_parcel(message.content)
            except InputError as error:
                found[ticket] = Failure(str(error), is_final=True)
        return found


def to_records(parcel: Parcel) -> RecordDict:
    """A parcel as the content of a message."""
    records = RecordDict({_FACTS: ConfigRecord({_FACTS: written(parcel.facts)})})
    if parcel.vectors:
        arrays = {str(number): Array(vector.numpy()) for number, vector in enumerate(parcel.vectors)}
        records[_VECTORS] = ArrayRecord(arrays)
    if parcel.numbers:
        records[_NUMBERS] = ConfigRecord({name: list(values) for name, values in parcel.numbers.items()})
    return records


def to_parcel(records: RecordDict) -> Parcel:
    """The content of a message as a parcel.

    Raises:
        InputError: If it isn't one.
    """
    try:
        facts = records.config_records[_FACTS][_FACTS]
        arrays = records.array_records.get(_VECTORS, {})
        vectors = [_vector(arrays[str(number)]) for number in range(len(arrays))]
        numbers = {name: _numbers(name, values) for name, values in records.config_records.get(_NUMBERS, {}).items()}
    except KeyError as error:
        raise InputError(f"the message lacks {error}; it isn't of adabest") from error
    return Parcel(parsed("the message", facts), vectors, numbers)


def _vector(array: Array) -> torch.Tensor:
    """An array as a tensor.

    Raises:
        InputError: If it isn't of numbers.
    """
    try:
        values = array.numpy()  # never unpickles
    except Exception as error:  # whatever NumPy has against bytes that aren't an array
        raise InputError(f"a vector can't be read: {error}") from error
    if not isinstance(values, np.ndarray):
        raise InputError("a vector is an archive of arrays; it should be one array")
    if values.dtype.name not in _TYPES:
        raise InputError(f"a vector is of type {values.dtype}, which no model has")
    return torch.from_numpy(values.astype(values.dtype.newbyteorder("="), order="C"))


def _numbers(name: str, values: Any) -> list[float]:
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise InputError(f"{name} should be a list of numbers")
    return values
