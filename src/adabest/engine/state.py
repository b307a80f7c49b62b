"""The state of a federation: all that a later round depends on, and its form as plain tensors and numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from adabest.engine.client_store import ClientStore, Pieces
from adabest.engine.memory_tiers import Memory
from adabest.engine.scored_model import AveragedModel, ScoredModel

_CLIENTS = "clients."


class Snapshot(NamedTuple):
    """A state as tensors and numbers: a copy, or what a checkpoint holds.

    Attributes:
        tensors: The tensors.
        numbers: The numbers.
        earlier: Tensors of earlier states, the oldest first, for clients' rows that ``tensors`` doesn't have.
    """

    tensors: dict[str, Tensor]
    numbers: dict[str, float | int]
    earlier: tuple[Mapping[str, Tensor], ...] = ()


class View(NamedTuple):
    """A state that isn't copied, ready to be written to disk; the next round changes it."""

    tensors: dict[str, Pieces]
    numbers: dict[str, float | int]

    @property
    def bytes(self) -> int:
        """The bytes of all tensors."""
        return sum(pieces.bytes for pieces in self.tensors.values())

    def held(self) -> "View":
        """A copy that another thread may write to disk while rounds go on; on a GPU nothing waits for it."""
        return View({name: pieces.held() for name, pieces in self.tensors.items()}, dict(self.numbers))

    def copy(self) -> Snapshot:
        """A copy that later rounds don't change."""
        return Snapshot({name: pieces.copy() for name, pieces in self.tensors.items()}, dict(self.numbers))


@dataclass
class State:
    """The state of a federation after a round.

    Attributes:
        round: The last finished round.
        cloud: θ.
        aggregate: θ̄.
        server: The algorithm's own state.
        h: The server's estimate of the full gradient, if the algorithm has one.
        scored: What the scored model is made of.
        averaged: What the averaged model is made of; None where there is none.
        clients: What the clients keep, their latest models included.
        bytes_down: Bytes sent to clients so far.
        bytes_up: Bytes sent by clients so far.
        local_steps: Local steps made so far.
        skipped_rounds: Rounds so far in which no client was present.
    """

    round: int
    cloud: Tensor
    aggregate: Tensor
    server: Any
    h: Tensor | None
    scored: ScoredModel
    averaged: AveragedModel | None = None
    clients: ClientStore = field(default_factory=ClientStore)
    bytes_down: int = 0
    bytes_up: int = 0
    local_steps: int = 0
    skipped_rounds: int = 0

    def view(self, rows: np.ndarray | None = None) -> View:
        """The whole state, not copied.

        Args:
            rows: The numbers of the clients' rows that it has, ascending; None for all.
        """
        tensors = {"cloud": self.cloud, "aggregate": self.aggregate, "scored.total": self.scored.total}
        if self.h is not None:
            tensors["h"] = self.h
        tensors |= {f"server.{name}": value for name, value in self.server._asdict().items()}
        numbers: dict[str, float | int] = {
            "round": self.round,
            "scored.weight": self.scored.weight,
            "scored.unit": self.scored.unit,
            "bytes_down": self.bytes_down,
            "bytes_up": self.bytes_up,
            "local_steps": self.local_steps,
            "skipped_rounds": self.skipped_rounds,
        }
        if self.averaged is not None:
            tensors["averaged.total"] = self.averaged.total
            numbers["averaged.rounds"] = self.averaged.rounds
        pieces = {name: Pieces.of(tensor) for name, tensor in tensors.items()}
        columns = self.clients.pieces() if rows is None else self.clients.chosen_pieces(rows)
        return View(pieces | {_CLIENTS + name: column for name, column in columns.items()}, numbers)

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, server_type: type[Any], memory: Memory) -> "State":
        """The state that a snapshot was taken of.

        Args:
            snapshot: What was taken.
            server_type: The NamedTuple of the algorithm's server state.
            memory: Where the tensors are to live, and what the clients' may take.
        """
        rows, *earlier = (_columns(tensors) for tensors in (snapshot.tensors, *snapshot.earlier))
        small = {name: tensor for name, tensor in snapshot.tensors.items() if not name.startswith(_CLIENTS)}
        tensors = {name: tensor.to(memory.device, copy=True) for name, tensor in small.items()}
        numbers = snapshot.numbers
        averaged = None
        if "averaged.total" in tensors:
            averaged = AveragedModel(tensors["averaged.total"], int(numbers["averaged.rounds"]))
        return cls(
            round=int(numbers["round"]),
            cloud=tensors["cloud"],
            aggregate=tensors["aggregate"],
            server=server_type(**{name: tensors[f"server.{name}"] for name in server_type._fields}),
            h=tensors.get("h"),
            scored=ScoredModel(tensors["scored.total"], numbers["scored.weight"], numbers["scored.unit"]),
            averaged=averaged,
            clients=ClientStore.from_state(rows, memory, earlier),
            bytes_down=int(numbers["bytes_down"]),
            bytes_up=int(numbers["bytes_up"]),
            local_steps=int(numbers["local_steps"]),
            skipped_rounds=int(numbers["skipped_rounds"]),
        )


def _columns(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The columns of the client store among the tensors of a snapshot."""
    return {name.removeprefix(_CLIENTS): tensor for name, tensor in tensors.items() if name.startswith(_CLIENTS)}
