"""The state of a federation: all that a later round depends on, and its form as plain tensors and numbers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from adabest.engine.client_side import ClientSide, KeptRows
from adabest.engine.client_store import Pieces
from adabest.engine.gate import GateNotes, Rejection
from adabest.engine.scored_model import AveragedModel, ScoredModel, ScoredSum

_CLIENTS = "clients."
_NORMS = "remembered_norms."
_GATE, _UNTOLD = "gate.", "gate.untold"
_COUNTS = ("rejected", "unanswered", "unanswered_in_a_row")


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
        scored: What the scored model is made of; None where clients' models can't be told from their replies.
        averaged: What the averaged model is made of; None where there is none.
        clients: What the clients keep, their latest models included.
        bytes_down: Bytes sent to clients so far.
        bytes_up: Bytes sent by clients so far.
        local_steps: Local steps made so far.
        skipped_rounds: Rounds so far in which no client was present.
        notes: What the gate has noted.
        remembered_norms: The norms of the last accepted replies by phase, where their median is a limit.
    """

    round: int
    cloud: Tensor
    aggregate: Tensor
    server: Any
    h: Tensor | None
    scored: ScoredSum | None
    clients: KeptRows
    averaged: AveragedModel | None = None
    bytes_down: int = 0
    bytes_up: int = 0
    local_steps: int = 0
    skipped_rounds: int = 0
    notes: GateNotes = field(default_factory=GateNotes)
    remembered_norms: Mapping[int, Tensor] = field(default_factory=dict)

    def view(self, rows: np.ndarray | None = None) -> View:
        """The whole state, not copied.

        Args:
            rows: The numbers of the clients' rows that it has, ascending; None for all.
        """
        tensors = {"cloud": self.cloud, "aggregate": self.aggregate}
        pieces = {name: Pieces.of(tensor) for name, tensor in tensors.items()}
        numbers: dict[str, float | int] = {"round": self.round}
        if self.scored is not None:
            pieces["scored.total"] = self.scored.pieces()
            numbers |= {"scored.weight": self.scored.weight, "scored.unit": self.scored.unit}
        later = {} if self.h is None else {"h": self.h}
        later |= {f"server.{name}": value for name, value in self.server._asdict().items()}
        numbers |= {
            "bytes_down": self.bytes_down,
            "bytes_up": self.bytes_up,
            "local_steps": self.local_steps,
            "skipped_rounds": self.skipped_rounds,
        }
        if self.averaged is not None:
            later["averaged.total"] = self.averaged.total
            numbers["averaged.rounds"] = self.averaged.rounds
        # What the gate notes stands only where it has noted something: else a state is that of earlier versions.
        numbers |= {f"{_GATE}{name}": number for name in _COUNTS if (number := getattr(self.notes, name))}
        if self.notes.rejections or self.notes.skips:
            text = json.dumps([self.notes.rejections, self.notes.skips])
            later[_UNTOLD] = torch.tensor(list(text.encode()), dtype=torch.uint8)
        later |= {f"{_NORMS}{phase}": norms for phase, norms in self.remembered_norms.items()}
        pieces |= {name: Pieces.of(tensor) for name, tensor in later.items()}
        columns = self.clients.pieces() if rows is None else self.clients.chosen_pieces(rows)
        return View(pieces | {_CLIENTS + name: column for name, column in columns.items()}, numbers)

    @classmethod
    def from_snapshot(
        cls, snapshot: Snapshot, server_type: type[Any], device: torch.device, clients: ClientSide
    ) -> "State":
        """The state that a snapshot was taken of.

        Args:
            snapshot: What was taken.
            server_type: The NamedTuple of the algorithm's server state.
            device: Where the server's tensors are to live.
            clients: Where what the clients keep is to live.
        """
        rows, *earlier = (_columns(tensors) for tensors in (snapshot.tensors, *snapshot.earlier))
        small = {name: tensor for name, tensor in snapshot.tensors.items() if not name.startswith(_CLIENTS)}
        untold = small.pop(_UNTOLD, None)
        tensors = {name: tensor.to(device, copy=True) for name, tensor in small.items()}
        numbers = snapshot.numbers
        averaged, scored = None, None
        if "averaged.total" in tensors:
            averaged = AveragedModel(tensors["averaged.total"], int(numbers["averaged.rounds"]))
        if "scored.total" in tensors:
            scored = ScoredModel(tensors["scored.total"], numbers["scored.weight"], numbers["scored.unit"])
        kept, scored_sum = clients.restore(rows, earlier, scored)
        norms = {name.removeprefix(_NORMS): tensor for name, tensor in tensors.items() if name.startswith(_NORMS)}
        return cls(
            round=int(numbers["round"]),
            cloud=tensors["cloud"],
            aggregate=tensors["aggregate"],
            server=server_type(**{name: tensors[f"server.{name}"] for name in server_type._fields}),
            h=tensors.get("h"),
            scored=scored_sum,
            averaged=averaged,
            clients=kept,
            bytes_down=int(numbers["bytes_down"]),
            bytes_up=int(numbers["bytes_up"]),
            local_steps=int(numbers["local_steps"]),
            skipped_rounds=int(numbers["skipped_rounds"]),
            notes=_notes(numbers, untold),
            remembered_norms={int(phase): tensor.cpu() for phase, tensor in norms.items()},
        )


def _notes(numbers: Mapping[str, float | int], untold: Tensor | None) -> GateNotes:
    """The notes of the gate, of which the latest are the bytes of a JSON text.

    Raises:
        ValueError: If these aren't such a text.
    """
    counts = {name: int(numbers.get(f"{_GATE}{name}", 0)) for name in _COUNTS}
    try:
        rejections, skips = ([], []) if untold is None else json.loads(bytes(untold.tolist()))
        return GateNotes(
            **counts,
            rejections=tuple(Rejection(int(number), int(client), str(reason)) for number, client, reason in rejections),
            skips=tuple(map(int, skips)),
        )
    except TypeError as error:
        raise ValueError(f"the notes of the gate aren't rounds, clients and reasons: {error}") from error


def _columns(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The columns of the client store among the tensors of a snapshot."""
    return {name.removeprefix(_CLIENTS): tensor for name, tensor in tensors.items() if name.startswith(_CLIENTS)}
