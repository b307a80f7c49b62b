"""The store of what clients keep between rounds.

One row a client, in pages: a page holds some rows of every field and lies in one tier of the memory. Pages are added,
never moved or enlarged, so growing copies nothing. A row's bytes are the same wherever its page lies.
"""

import bisect
import functools
import math
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from adabest.engine.memory_tiers import Memory, Tier
from adabest.errors import InputError
from adabest.machine import size_in_words

_PAGE = 128 * 2**20  # bytes that a page may always have
_PART = 16  # or a page may have a sixteenth of all rows: a mapped page keeps a file open, so pages must stay few
_IDS = "ids"

T = TypeVar("T")


@dataclass(frozen=True)
class Pieces:
    """A tensor that is given out piece by piece along its first dimension.

    Attributes:
        dtype: Its type.
        shape: Its shape.
        parts: Gives the pieces in order, as views of what changes in the next round.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    parts: Callable[[], Iterator[Tensor]]

    @classmethod
    def of(cls, tensor: Tensor) -> "Pieces":
        """A tensor in one piece."""
        return cls(tensor.dtype, tuple(tensor.shape), lambda: iter([tensor]))

    def copy(self) -> Tensor:
        """The whole tensor, in the machine's memory; nothing changes it any more."""
        whole = torch.empty(self.shape, dtype=self.dtype)
        done = 0
        for part in self.parts():
            target = whole[done : done + len(part)] if self.shape else whole
            target.copy_(part)
            done += len(target) if self.shape else 0
        return whole


class OneByOne(Mapping[int, T]):
    """A mapping from clients to values, each of which is made when it is asked for and not kept."""

    def __init__(self, clients: Collection[int], make: Callable[[int], T]) -> None:
        self._clients, self._make = clients, make

    def __getitem__(self, client: int) -> T:
        if client not in self._clients:
            raise KeyError(client)
        return self._make(client)

    def __iter__(self) -> Iterator[int]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)


@dataclass(frozen=True)
class _Field:
    """The shape and type of one field's rows."""

    shape: torch.Size
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class _Page:
    """Some rows of every field.

    Attributes:
        start: The first row.
        count: How many there are.
        rows: The rows by field, ``[count, *shape]``.
        taken: The bytes that they take, by the setting that limits them.
    """

    def __init__(self, start: int, count: int) -> None:
        self.start, self.count = start, count
        self.rows: dict[str, Tensor] = {}
        self.taken: Counter[str] = Counter()

    def add(self, fields: Mapping[str, _Field], tier: Tier) -> bool:
        """Allocates fields in a tier; False if its memory turns out to be used up."""
        size = self.count * _row_bytes(fields)
        try:
            buffer = tier.zeros(max(size, 1))
        except torch.OutOfMemoryError:
            tier.budget.exhaust()  # others use that memory, too: what was allowed isn't there
            return False
        tier.budget.take(size)
        weakref.finalize(self, tier.budget.give_back, size).atexit = False
        self.taken[tier.setting] += size
        begin = 0
        for name in sorted(fields, key=lambda name: -fields[name].dtype.itemsize):  # so that each is aligned
            end = begin + self.count * fields[name].bytes
            self.rows[name] = buffer[begin:end].view(fields[name].dtype).view(self.count, *fields[name].shape)
            begin = end
        return True


class ClientStore:
    """One row per client that has taken part: memory never grows with the population."""

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory or Memory()
        self._rows: dict[int, int] = {}
        self._fields: dict[str, _Field] = {}
        self._pages: list[_Page] = []

    def __contains__(self, client: int) -> bool:
        return client in self._rows

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, client: int) -> dict[str, Tensor]:
        """A client's fields, on the device; where they lie there, as views that the client's next ``write`` changes."""
        page, place = self._find(self._rows[client])
        return {name: page.rows[name][place].to(self._memory.device) for name in self._fields}

    def write(self, changes: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Stores the fields of several clients.

        Raises:
            InputError: If no tier has memory left for them; then nothing was changed.
        """
        kinds = {name: _Field(value.shape, value.dtype) for row in changes.values() for name, value in row.items()}
        new = [client for client in changes if client not in self._rows]
        self._allocate(len(self) + len(new), kinds | self._fields)
        for client in new:
            self._rows[client] = len(self._rows)
        rows, given = list[Tensor](), list[Tensor]()
        for client, values in changes.items():
            page, place = self._find(self._rows[client])
            rows += [page.rows[name][place] for name in values]
            given += values.values()
        if rows:
            torch._foreach_copy_(rows, given)  # a GPU gets many at once

    def bytes(self) -> dict[str, int]:
        """The allocated bytes, by the setting that limits them."""
        taken = Counter({tier.setting: 0 for tier in self._memory.tiers})
        for page in self._pages:
            taken.update(page.taken)
        return dict(taken)

    def pieces(self) -> dict[str, Pieces]:
        """All rows as tensors in pieces: the clients' numbers, in the order of their first rounds, and each field."""
        ids = torch.tensor(list(self._rows), dtype=torch.int64)
        fields = {
            name: Pieces(kind.dtype, (len(self), *kind.shape), functools.partial(self._parts, name))
            for name, kind in self._fields.items()
        }
        return {_IDS: Pieces.of(ids), **fields}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor], memory: Memory | None = None) -> "ClientStore":
        """The store whose ``pieces`` were as given; rows go to their places page by page.

        Raises:
            InputError: If no tier has memory left for them.
        """
        store = cls(memory)
        fields = {name: value for name, value in state.items() if name != _IDS}
        ids = state[_IDS].tolist()
        store._allocate(len(ids), {name: _Field(value.shape[1:], value.dtype) for name, value in fields.items()})
        store._rows = {client: row for row, client in enumerate(ids)}
        for name, value in fields.items():
            done = 0
            for part in store._parts(name):
                part.copy_(value[done : done + len(part)])
                done += len(part)
        return store

    def _parts(self, name: str) -> Iterator[Tensor]:
        for page in self._pages:
            yield page.rows[name][: max(len(self) - page.start, 0)]

    def _find(self, row: int) -> tuple[_Page, int]:
        page = self._pages[bisect.bisect_right(self._pages, row, key=lambda page: page.start) - 1]
        return page, row - page.start

    def _allocate(self, rows: int, fields: Mapping[str, _Field]) -> None:
        for page in self._pages:
            later = {name: kind for name, kind in fields.items() if name not in page.rows}
            while later and not page.add(later, self._find_tier(later, least=page.count, most=page.count)[0]):
                pass  # the next tier, then
        there = sum(page.count for page in self._pages)
        while there < rows:
            # As many as there are already, so that pages stay few, but no more: memory is for those who took part.
            largest = max(_PAGE // max(_row_bytes(fields), 1), there // _PART, 1)
            tier, count = self._find_tier(fields, least=1, most=min(max(rows - there, there), largest))
            page = _Page(there, count)
            if page.add(fields, tier):
                self._pages.append(page)
                there += count
        self._fields = dict(fields)

    def _find_tier(self, fields: Mapping[str, _Field], *, least: int, most: int) -> tuple[Tier, int]:
        """The first tier that has memory left for rows, and for how many."""
        size = max(_row_bytes(fields), 1)
        for tier in self._memory.tiers:
            count = min(most, tier.budget.free // size)
            if count >= least:
                return tier, count
        raise InputError(
            f"there is no memory left for what more clients keep: {len(self)} have taken part, each keeps "
            f"{size_in_words(size)}, and there is {self._memory.limits()}; allow more of one of them"
        )


def _row_bytes(fields: Mapping[str, _Field]) -> int:
    return sum(kind.bytes for kind in fields.values())
