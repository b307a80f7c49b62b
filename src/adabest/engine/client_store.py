"""The store of what clients keep between rounds.

One row a client, in pages: a page holds some rows of every field and lies in one tier of the memory. Pages are added,
never moved or enlarged, so growing copies nothing. A row's bytes are the same wherever its page lies.
"""

import bisect
import functools
import math
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from adabest.engine.arrival import send
from adabest.engine.memory_tiers import Memory, Tier
from adabest.errors import InputError
from adabest.machine import size_in_words

_PAGE = 128 * 2**20  # bytes that a page may always have
_PART = 16  # or a page may have a sixteenth of all rows: a mapped page keeps a file open, so pages must stay few
_CHUNK = 32 * 2**20  # bytes of rows that are gathered, or fetched from a GPU, at a time
_IDS, _ROWS = "ids", "rows"

T = TypeVar("T")


@dataclass(frozen=True)
class Pieces:
    """A tensor that is given out piece by piece along its first dimension.

    Attributes:
        dtype: Its type.
        shape: Its shape.
        parts: Gives the pieces in order, as views of what changes in the next round.
        fresh: Whether the pieces are made when they are asked for, so that nothing changes them any more.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    parts: Callable[[], Iterator[Tensor]]
    fresh: bool = False

    @classmethod
    def of(cls, tensor: Tensor) -> "Pieces":
        """A tensor in one piece."""
        return cls(tensor.dtype, tuple(tensor.shape), lambda: iter([tensor]))

    @property
    def bytes(self) -> int:
        """The bytes of the whole tensor."""
        return math.prod(self.shape) * self.dtype.itemsize

    def held(self) -> "Pieces":
        """A copy that lies where the tensor lies, and that another thread may read while rounds go on.

        On a GPU nothing waits for the copy. The reader waits, and fetches it to the machine's memory piece by piece;
        each piece is valid until the next.
        """
        copies = [part if self.fresh else part.clone() for part in self.parts()]
        on_gpu = [copy.device for copy in copies if copy.is_cuda]
        if not on_gpu:
            return Pieces(self.dtype, self.shape, lambda: iter(copies))
        copied = torch.cuda.current_stream(on_gpu[0]).record_event()
        return Pieces(self.dtype, self.shape, lambda: _fetched(copies, copied))

    def copy(self) -> Tensor:
        """The whole tensor, in the machine's memory; nothing changes it any more."""
        whole = torch.empty(self.shape, dtype=self.dtype)
        done = 0
        for part in self.parts():
            target = whole[done : done + len(part)] if self.shape else whole
            target.copy_(part)
            done += len(target) if self.shape else 0
        return whole


def _fetched(tensors: list[Tensor], copied: torch.cuda.Event) -> Iterator[Tensor]:
    """Tensors in the machine's memory, in pieces that each overwrite the one before.

    They are fetched on a stream of their own. On the training thread's stream they would wait for the rounds that are
    enqueued there, and hold up those to come.
    """
    for tensor in tensors:
        if not tensor.is_cuda:
            yield tensor
            continue
        stream = torch.cuda.Stream(tensor.device)
        stream.wait_event(copied)
        rows = tensor.reshape(1) if tensor.dim() == 0 else tensor
        most = max(_CHUNK // max(rows[:1].nbytes, 1), 1)
        with torch.cuda.device(tensor.device):
            buffer = torch.empty((min(most, len(rows)), *rows.shape[1:]), dtype=rows.dtype, pin_memory=True)
        for piece in torch.split(rows, most):
            with torch.cuda.stream(stream):
                buffer[: len(piece)].copy_(piece, non_blocking=True)
            stream.synchronize()
            yield buffer[: len(piece)].reshape(piece.shape if tensor.dim() else ())


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


class RowNumbers:
    """The numbers of clients' rows, in the order of their first rounds, and when each was written last.

    Attributes:
        rows: The number of each client's row.
        writes: How often rows were written.
    """

    def __init__(self, clients: Iterable[int] = ()) -> None:
        """Numbers the rows of clients, which count as written at once, if there are any."""
        self.rows: dict[int, int] = {}
        self.writes = 0
        self._written = np.zeros(0, dtype=np.int64)  # for each row, the number of its last write
        known = list(clients)
        if known:
            self.mark(known)

    def mark(self, clients: Sequence[int]) -> None:
        """Notes that the rows of clients are written; those that are new get numbers."""
        for client in clients:
            self.rows.setdefault(client, len(self.rows))
        self.writes += 1
        if len(self.rows) > len(self._written):
            more = np.zeros(2 * len(self.rows) - len(self._written), dtype=np.int64)
            self._written = np.concatenate([self._written, more])
        self._written[[self.rows[client] for client in clients]] = self.writes

    def changed_since(self, writes: int) -> np.ndarray:
        """The numbers of the rows that were written since ``writes`` had a value, ascending."""
        return np.flatnonzero(self._written[: len(self.rows)] > writes)


class ClientStore:
    """One row per client that has taken part: memory never grows with the population."""

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory or Memory()
        self._numbers = RowNumbers()
        self._fields: dict[str, _Field] = {}
        self._pages: list[_Page] = []
        self._views: dict[int, Mapping[str, Tensor]] = {}

    @property
    def writes(self) -> int:
        """How often rows were written."""
        return self._numbers.writes

    @property
    def _rows(self) -> dict[int, int]:
        return self._numbers.rows

    def __contains__(self, client: int) -> bool:
        return client in self._rows

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, client: int) -> Mapping[str, Tensor]:
        """A client's fields, on the device; where they lie there, as views that the client's next ``write`` changes."""
        return {name: row.to(self._memory.device) for name, row in self._row(client).items()}

    def write(self, changes: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Stores the fields of several clients.

        Raises:
            InputError: If no tier has memory left for them; then nothing was changed.
        """
        kinds = {name: _Field(value.shape, value.dtype) for row in changes.values() for name, value in row.items()}
        new = [client for client in changes if client not in self._rows]
        self._allocate(len(self) + len(new), kinds | self._fields)
        self._numbers.mark(list(changes))
        rows, given = dict[str, list[Tensor]](), dict[str, list[Tensor]]()
        for client, values in changes.items():
            row = self._row(client)
            for name, value in values.items():
                rows.setdefault(name, []).append(row[name])
                given.setdefault(name, []).append(value)
        for name, own in rows.items():
            torch._foreach_copy_(own, given[name])  # a GPU gets many at once, if all are of one type

    def reserve(self, more: int, row: Mapping[str, Tensor]) -> None:
        """Makes sure that there is memory for the rows of clients to come.

        Args:
            more: How many.
            row: An example of the fields that each will have.

        Raises:
            InputError: If no tier has memory left for them.
        """
        kinds = {name: _Field(value.shape, value.dtype) for name, value in row.items()}
        self._allocate(len(self) + more, kinds | self._fields)

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

    def changed_since(self, writes: int) -> np.ndarray:
        """The numbers of the rows that were written since ``writes`` had a value, ascending.

        Rows have the numbers 0, 1, ... in the order of the clients' first rounds. They keep them, also in a store that
        is made from this one's pieces.
        """
        return self._numbers.changed_since(writes)

    def chosen_pieces(self, rows: np.ndarray) -> dict[str, Pieces]:
        """Some rows as tensors in pieces, and ``rows``, their numbers; the clients' numbers are those of all rows.

        Args:
            rows: The numbers of the rows, ascending.
        """
        everyone = self.pieces()
        fields = {
            name: Pieces(
                kind.dtype, (len(rows), *kind.shape), functools.partial(self._gathered, name, rows), fresh=True
            )
            for name, kind in self._fields.items()
        }
        return {_IDS: everyone[_IDS], _ROWS: Pieces.of(torch.from_numpy(rows.astype(np.int64))), **fields}

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Tensor],
        memory: Memory | None = None,
        earlier: Sequence[Mapping[str, Tensor]] = (),
    ) -> "ClientStore":
        """The store whose ``pieces`` were as given; rows go to their places page by page.

        Args:
            state: All pieces, or chosen ones.
            memory: The tiers of memory for them.
            earlier: Pieces of the same store at earlier moments, the oldest first, for rows that weren't chosen later.

        Raises:
            InputError: If no tier has memory left for them.
            ValueError: If rows are missing.
        """
        store, clients = cls(memory), state[_IDS].tolist()
        parts = newest_rows(state, earlier)
        fields = {name: kind for part, _ in parts for name, kind in part.kinds().items()}
        store._allocate(len(clients), fields)
        store._numbers.mark(clients)
        for part, places in parts:
            store._fill(part, places)
        return store

    def _fill(self, part: "StoredRows", places: np.ndarray) -> None:
        """Copies rows from some places of a part."""
        for page in self._pages:
            here = places[(part.rows[places] >= page.start) & (part.rows[places] < page.start + page.count)]
            for name, value in part.fields.items():
                for chosen in _in_chunks(here, self._fields[name].bytes):
                    page.rows[name][_index(part.rows[chosen] - page.start)] = value[_index(chosen)].to(
                        page.rows[name].device
                    )

    def _gathered(self, name: str, rows: np.ndarray) -> Iterator[Tensor]:
        for page in self._pages:
            here = rows[(rows >= page.start) & (rows < page.start + page.count)] - page.start
            for chosen in _in_chunks(here, self._fields[name].bytes):
                yield page.rows[name].index_select(0, send(chosen, torch.int64, page.rows[name].device))

    def _parts(self, name: str) -> Iterator[Tensor]:
        for page in self._pages:
            yield page.rows[name][: max(len(self) - page.start, 0)]

    def _row(self, client: int) -> Mapping[str, Tensor]:
        """A client's fields where they lie. Those on a GPU are kept: making views takes longer than using them."""
        row = self._views.get(client)
        if row is None:
            page, place = self._find(self._rows[client])
            row = {name: page.rows[name][place] for name in self._fields}
            if all(field.is_cuda for field in row.values()):
                self._views[client] = row
        return row

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
        if self._fields.keys() != fields.keys():
            self._views.clear()
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


@dataclass(frozen=True)
class StoredRows:
    """Some rows of a store, as they were stored.

    Attributes:
        rows: Their numbers.
        fields: Their fields by name, ``[rows, …]``.
    """

    rows: np.ndarray
    fields: Mapping[str, Tensor]

    @classmethod
    def of(cls, pieces: Mapping[str, Tensor], clients: int) -> "StoredRows":
        """The rows in the pieces of a store with a number of clients."""
        fields = {name: value for name, value in pieces.items() if name not in (_IDS, _ROWS)}
        rows = pieces[_ROWS].to(torch.int64).reshape(-1).numpy() if _ROWS in pieces else np.arange(len(pieces[_IDS]))
        if len(rows) and not (rows.min() >= 0 and rows.max() < clients):
            raise ValueError(f"rows of clients should have numbers from 0 to {clients - 1}")
        return cls(rows, fields)

    def kinds(self) -> dict[str, _Field]:
        """The shapes and types of the fields."""
        return {name: _Field(value.shape[1:], value.dtype) for name, value in self.fields.items()}


def newest_rows(
    state: Mapping[str, Tensor], earlier: Sequence[Mapping[str, Tensor]]
) -> list[tuple[StoredRows, np.ndarray]]:
    """The rows of a store as they were stored at several moments, each with the places in it that count.

    Args:
        state: All pieces of the store, or chosen ones.
        earlier: Pieces of the same store at earlier moments, the oldest first, for rows that weren't chosen later.

    Raises:
        ValueError: If rows are missing.
    """
    clients = len(state[_IDS])
    parts = [StoredRows.of(pieces, clients) for pieces in (*earlier, state)]
    newest = np.full(clients, -1)
    for number, part in enumerate(parts):
        newest[part.rows] = number
    if (newest < 0).any():
        raise ValueError(f"{int((newest < 0).sum())} of {clients} rows of clients are missing")
    return [(part, np.flatnonzero(newest[part.rows] == number)) for number, part in enumerate(parts)]


def _in_chunks(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Numbers of rows of some bytes each, for a limited number of bytes at a time."""
    most = max(_CHUNK // max(size, 1), 1)
    return (rows[begin : begin + most] for begin in range(0, len(rows), most))


def _index(rows: np.ndarray) -> slice | Tensor:
    """An index of rows: a slice if they follow one another, since that copies nothing."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return torch.from_numpy(rows)


def _row_bytes(fields: Mapping[str, _Field]) -> int:
    return sum(kind.bytes for kind in fields.values())
