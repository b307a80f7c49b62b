"""The client side of a run whose clients are shared out among ranks, as rank 0 sees it."""

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adabest.engine.client_side import MODEL, STATE, KeptRows
from adabest.engine.client_store import Pieces, RowNumbers, newest_rows
from adabest.engine.distributed.conductor import Conductor, SharedRun
from adabest.engine.distributed.parcels import spec_of
from adabest.engine.interface import Answers, Request
from adabest.engine.receipt import Received
from adabest.engine.scored_model import ScoredModel, ScoredSum

_CHUNK = 32 * 2**20  # bytes of rows that are fetched at a time


class RankedClients:
    """Clients that live at ranks, each at the one where it trained last.

    Attributes:
        answers_late: False: the ranks tell what is judged.
    """

    answers_late = False

    def __init__(self, conductor: Conductor, run: SharedRun) -> None:
        """Sets up the client side of a run that all ranks know.

        Args:
            conductor: What orders ranks about.
            run: The run.
        """
        self._conductor, self._run = conductor, run
        self._new: list[int] = []
        self._is_scored = True
        conductor.forget_when_gone(run, self)

    def begin(self) -> tuple["RankedRows", "RankedScoredSum"]:
        """No rows, and a sum of nothing."""
        return RankedRows(self._conductor, self._run), self._kept_sum()

    def restore(
        self, rows: Mapping[str, Tensor], earlier: Sequence[Mapping[str, Tensor]], scored: ScoredModel | None
    ) -> tuple["RankedRows", "RankedScoredSum | None"]:
        """Shares out what was stored."""
        kept = RankedRows(self._conductor, self._run)
        kept.restore(rows, earlier, scored)
        self._is_scored = scored is not None
        return kept, self._kept_sum() if scored is not None else None

    def _kept_sum(self) -> "RankedScoredSum":
        scored = self._run.share.scored
        assert scored is not None, "the run has a scored model"
        return RankedScoredSum(self._conductor, self._run, scored)

    def state(self, kept: KeptRows, client: int) -> Any:
        """The state of a client, fetched from where it lives."""
        fresh = self._run.share.parts.algorithm.client_init(self._run.share.like)
        if client not in kept or not fresh._fields:
            return fresh
        row = kept.read(client)
        return type(fresh)(**{name: row[STATE + name] for name in fresh._fields})

    def states(self, kept: KeptRows, cohort: Collection[int]) -> dict[int, Any]:
        """A cohort, without its states."""
        return dict.fromkeys(cohort)

    def model(self, kept: KeptRows, client: int) -> Tensor | None:
        """The latest model of a client, fetched from the ranks."""
        return kept.read(client).get(MODEL) if client in kept else None

    def receive(self, request: Request, answers: Answers | Received, *, assumed: bool) -> Received:
        """What the conductor has received."""
        assert isinstance(answers, Received), "the conductor is the engine of these runs"
        return answers

    def states_after(self, received: Received, clients: Collection[int]) -> dict[int, Any]:
        """The clients of the next phase, without their states."""
        return dict.fromkeys(clients)

    def prepare(self, kept: KeptRows, scored: ScoredSum | None, received: Sequence[Received]) -> ScoredSum | None:
        """Notes who took part; the ranks have prepared the rest."""
        self._new = list(received[0].clients) if received else []
        if not received or scored is None:
            return scored
        share = self._run.share
        ended_early = len(received) < len(share.parts.algorithm.phases)  # no reply was accepted in an early phase
        self._is_scored = ended_early or any(share.has_models(one.request.context.phase) for one in received)
        if not self._is_scored:
            return None
        assert share.next_scored is not None, "a round that has models prepares their sum"
        return RankedScoredSum(self._conductor, self._run, share.next_scored)

    def keep(self, kept: KeptRows, *, final: bool) -> None:
        """Has the ranks keep what they have prepared."""
        assert isinstance(kept, RankedRows)
        if self._new:
            self._conductor.keep(self._run, scored=self._is_scored)
            kept.mark(self._new)
        self._new = []

    def finish_oldest(self, kept: KeptRows) -> None:
        """Nothing: every round is final."""

    def forget(self) -> None:
        """Nothing: the ranks forget what they prepared when the next round begins."""

    def estimate_norms(self, kept: KeptRows, request: Request) -> Tensor:
        """‖h_i‖, each worked out where the client is."""
        run = self._run
        everyone = list(dict.fromkeys([*kept, *self._new]))
        homes = {**run.homes, **(run.placed if self._new else {})}
        service = self._conductor.service
        found = self._conductor.carry_out(
            "norms",
            lambda order: service.estimate_norms(order, request.message),
            run=run.number,
            round=request.context.round,
            seed=request.context.noise.seed,
            message=[spec_of(field) for field in request.message],
            homes=[[client, homes[client]] for client in everyone],
        )
        assert found is not None
        return torch.tensor([found[client] for client in everyone if client in found], dtype=torch.float64)


class RankedScoredSum:
    """The scored model's sum after a round, of which every rank has a part.

    It can be read until the next round is kept.

    Attributes:
        weight: Σ v_i.
        unit: The number of samples that weighs one; 0 before anyone took part.
    """

    def __init__(self, conductor: Conductor, run: SharedRun, own: ScoredModel) -> None:
        """Takes the sum after the last round that was begun.

        Args:
            conductor: What orders ranks about.
            run: The run.
            own: Rank 0's part of the sum.
        """
        self._conductor, self._run = conductor, run
        self._round = run.begun
        self.weight, self.unit = own.weight, own.unit

    def value(self, initial: Tensor, all_samples: float | None = None) -> Tensor:
        """The scored model."""
        if self.unit == 0:
            return initial
        return ScoredModel(self._total(), self.weight, self.unit).value(initial, all_samples)

    def pieces(self) -> Pieces:
        """Σ v_i θ_i."""
        like = self._run.share.like
        return Pieces(torch.float64, tuple(like.shape), lambda: iter([self._total()]), fresh=True)

    def _total(self) -> Tensor:
        # What was prepared in the round under way isn't kept yet; it never is if the round diverges.
        is_prepared = self._round == self._run.begun and not self._run.is_kept
        total = self._conductor.carry_out(
            "scored", self._conductor.service.scored_sum, run=self._run.number, prepared=is_prepared
        )
        assert total is not None
        return total


class RankedRows:
    """What clients keep at the ranks, one row for each that has taken part."""

    def __init__(self, conductor: Conductor, run: SharedRun) -> None:
        self._conductor, self._run = conductor, run
        self._numbers = RowNumbers()

    @property
    def writes(self) -> int:
        """How often rows were written."""
        return self._numbers.writes

    def __contains__(self, client: int) -> bool:
        return client in self._numbers.rows

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers.rows)

    def __len__(self) -> int:
        return len(self._numbers.rows)

    def mark(self, clients: Sequence[int]) -> None:
        """Notes that the rows of clients are written."""
        self._numbers.mark(clients)

    def read(self, client: int) -> dict[str, Tensor]:
        """A client's fields, fetched from where they are."""
        return {column: self._fetch(column, [client])[0] for column in self._examples()}

    def bytes(self) -> dict[str, int]:
        """The bytes of what is kept at this rank, by the setting that limits them."""
        return self._run.share.bytes()

    def changed_since(self, writes: int) -> np.ndarray:
        """The numbers of the rows that were written since ``writes`` had a value, ascending."""
        return self._numbers.changed_since(writes)

    def pieces(self) -> dict[str, Pieces]:
        """All rows as tensors in pieces, fetched when they are asked for."""
        clients = list(self)
        return {"ids": Pieces.of(torch.tensor(clients, dtype=torch.int64)), **self._pieces_of(clients)}

    def chosen_pieces(self, rows: np.ndarray) -> dict[str, Pieces]:
        """Some rows as tensors in pieces, and ``rows``, their numbers."""
        everyone = list(self)
        chosen = {"rows": Pieces.of(torch.from_numpy(rows.astype(np.int64)))}
        ids = {"ids": Pieces.of(torch.tensor(everyone, dtype=torch.int64))}
        return ids | chosen | self._pieces_of([everyone[row] for row in rows.tolist()])

    def restore(
        self, rows: Mapping[str, Tensor], earlier: Sequence[Mapping[str, Tensor]], scored: ScoredModel | None
    ) -> None:
        """Shares out rows as they were stored, a few at a time; the homes of clients go round the ranks."""
        clients = rows["ids"].tolist()
        self._numbers = RowNumbers(clients)
        size = self._conductor.ranks.size
        self._run.homes = {client: row % size for row, client in enumerate(clients)}
        fields = [name.removeprefix(STATE) for name in self._examples() if name != MODEL]
        for part, places in newest_rows(rows, earlier):
            models = MODEL in part.fields
            most = max(_CHUNK // max(sum(value[:1].nbytes for value in part.fields.values()), 1), 1)
            for first in range(0, len(places), most):
                some = places[first : first + most]
                chosen = [clients[row] for row in part.rows[some].tolist()]
                columns = {name: part.fields[STATE + name][some] for name in fields}
                columns |= {MODEL: part.fields[MODEL][some]} if models else {}
                self._put(chosen, fields=fields, models=models, columns=columns)
        total = None if scored is None else scored.total
        numbers = None if scored is None else [scored.weight, scored.unit]
        self._put([], scored=numbers, unscored=scored is None, columns={}, total=total)

    def _put(
        self,
        clients: Sequence[int],
        *,
        columns: Mapping[str, Tensor],
        fields: Sequence[str] = (),
        models: bool = False,
        scored: Sequence[float] | None = None,
        unscored: bool = False,
        total: Tensor | None = None,
    ) -> None:
        self._conductor.carry_out(
            "put",
            lambda order: self._conductor.service.put(order, columns, total),
            run=self._run.number,
            clients=list(clients),
            homes=[self._run.homes[client] for client in clients],
            fields=list(fields),
            models=models,
            scored=scored,
            unscored=unscored,
        )

    def _examples(self) -> dict[str, Tensor]:
        """The columns, with an example of each."""
        share = self._run.share
        self._conductor.tidy()  # whether there are models is known once the last round is kept
        fresh = share.parts.algorithm.client_init(share.like)
        columns = {STATE + name: value for name, value in fresh._asdict().items()}
        return columns | ({} if share.scored is None else {MODEL: share.like})

    def _pieces_of(self, clients: Sequence[int]) -> dict[str, Pieces]:
        if not len(self):
            return {}

        def parts(column: str, example: Tensor) -> Iterator[Tensor]:
            most = max(_CHUNK // max(example.nbytes, 1), 1)
            for first in range(0, len(clients), most):
                yield self._fetch(column, clients[first : first + most])

        return {
            column: Pieces(
                example.dtype,
                (len(clients), *example.shape),
                functools.partial(parts, column, example),
                fresh=True,
            )
            for column, example in self._examples().items()
        }

    def _fetch(self, column: str, clients: Sequence[int]) -> Tensor:
        homes = [self._run.homes[client] for client in clients]
        name = None if column == MODEL else column.removeprefix(STATE)
        rows = self._conductor.carry_out(
            "fetch",
            self._conductor.service.fetch,
            run=self._run.number,
            field=name,
            clients=list(clients),
            homes=homes,
        )
        assert rows is not None
        return rows
