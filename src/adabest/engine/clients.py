"""What the clients keep between rounds."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor


class ClientStore:
    """One row per client that has taken part, in one tensor per field: memory never grows with the population."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._fields: dict[str, Tensor] = {}

    def __contains__(self, client: int) -> bool:
        return client in self._rows

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, client: int) -> dict[str, Tensor]:
        """A client's fields, as views: they are overwritten by the client's next ``write``."""
        row = self._rows[client]
        return {name: field[row] for name, field in self._fields.items()}

    def write(self, changes: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Stores the fields of several clients."""
        for client, fields in changes.items():
            row = self._rows.setdefault(client, len(self._rows))
            for name, value in fields.items():
                if name not in self._fields:
                    self._fields[name] = value.new_zeros((0, *value.shape))
                self._grow(name, row + 1)
                self._fields[name][row] = value
        for name in self._fields:
            self._grow(name, len(self))

    def _grow(self, name: str, rows: int) -> None:
        """Makes room for so many rows, twice as many as there were at least, so that growing stays cheap."""
        field = self._fields[name]
        if rows > len(field):
            more = max(rows, 2 * len(field)) - len(field)
            self._fields[name] = torch.cat([field, field.new_zeros((more, *field.shape[1:]))])

    def state(self) -> dict[str, Tensor]:
        """Everything, as tensors."""
        ids = torch.tensor(list(self._rows), dtype=torch.int64)
        return {"ids": ids, **{name: field[: len(self)] for name, field in self._fields.items()}}

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> "ClientStore":
        """The store that ``state`` was taken of."""
        store = cls()
        store._rows = {client: row for row, client in enumerate(state["ids"].tolist())}
        store._fields = {name: field for name, field in state.items() if name != "ids"}
        return store
