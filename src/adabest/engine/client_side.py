"""The client side of a run: where its clients live, and what they keep between rounds.

A client keeps the algorithm's state on it, h_i for instance. For the scored model, the latest model of each is kept,
too: on the server's side, since it follows from message and reply.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, Work
from adabest.engine.algorithm_calls import client_models
from adabest.engine.arrival import Arrival
from adabest.engine.client_store import ClientStore, OneByOne, Pieces
from adabest.engine.estimate_norms import estimate_norms
from adabest.engine.interface import Answers, Request
from adabest.engine.memory_tiers import Memory
from adabest.engine.receipt import Received, assume, receive
from adabest.engine.scored_model import ScoredModel, ScoredSum
from adabest.tasks.base import Task

# The columns of what is kept: the fields of the algorithm's own state, and the latest model.
STATE, MODEL = "state.", "model"

Rows = dict[int, dict[str, Tensor]]
"""What clients keep after a round, by client and column."""


class KeptRows(Protocol):
    """What clients keep between rounds, one row for each client that has taken part; see ``ClientStore``."""

    @property
    def writes(self) -> int:
        """How often rows were written."""

    def __contains__(self, client: int) -> bool: ...

    def __iter__(self) -> Iterator[int]: ...

    def __len__(self) -> int: ...

    def read(self, client: int) -> Mapping[str, Tensor]:
        """A client's fields."""

    def bytes(self) -> dict[str, int]:
        """The allocated bytes, by the setting that limits them."""

    def changed_since(self, writes: int) -> np.ndarray:
        """The numbers of the rows that were written since ``writes`` had a value, ascending."""

    def pieces(self) -> dict[str, Pieces]:
        """All rows as tensors in pieces."""

    def chosen_pieces(self, rows: np.ndarray) -> dict[str, Pieces]:
        """Some rows as tensors in pieces, and ``rows``, their numbers."""


class ClientSide(Protocol):
    """Reaches the clients of a run, wherever they live.

    Attributes:
        answers_late: Whether replies are on a device whose numbers the host would have to wait for.
    """

    answers_late: bool

    def begin(self) -> tuple[KeptRows, ScoredSum]:
        """What is kept before the first round: nothing."""

    def restore(
        self, rows: Mapping[str, Tensor], earlier: Sequence[Mapping[str, Tensor]], scored: ScoredModel | None
    ) -> tuple[KeptRows, ScoredSum | None]:
        """What is kept after a round, as it was stored.

        Args:
            rows: The pieces of the rows, or of some.
            earlier: Pieces at earlier moments, the oldest first, for the other rows.
            scored: What the scored model is made of.
        """

    def state(self, kept: KeptRows, client: int) -> Any:
        """The algorithm's state on a client, fresh if the client has never taken part."""

    def model(self, kept: KeptRows, client: int) -> Tensor | None:
        """The latest model of a client; None if it has none."""

    def states(self, kept: KeptRows, cohort: Collection[int]) -> Mapping[int, Any]:
        """The clients of a request, each with its state; None for one that lives elsewhere."""

    def receive(self, request: Request, answers: Answers | Received, *, assumed: bool) -> Received:
        """The answers to a request, judged and averaged.

        Args:
            request: The request, which has the rules of the gate.
            answers: The answers, or what was received where the clients are.
            assumed: Whether all replies are assumed to be good.
        """

    def states_after(self, received: Received, clients: Collection[int]) -> Mapping[int, Any]:
        """The clients of the next phase, each with its state after this one; None for one that lives elsewhere."""

    def prepare(self, kept: KeptRows, scored: ScoredSum | None, received: Sequence[Received]) -> ScoredSum | None:
        """Prepares what is kept after a round, which isn't final yet.

        A client whose reply was left out keeps its latest model, and counts with the one that it was sent if it has
        none.

        Args:
            kept: What was kept before.
            scored: The scored model's sum before.
            received: The phases of the round; none if it was skipped.

        Returns:
            The scored model's sum after the round; None if the models of clients can't be told from their replies.
        """

    def keep(self, kept: KeptRows, *, final: bool) -> None:
        """Has the clients keep what was prepared.

        Args:
            kept: What was kept before.
            final: Whether the round is final; else what it leads to counts, but ``finish_oldest`` is yet to come, or
                ``forget``.
        """

    def finish_oldest(self, kept: KeptRows) -> None:
        """Makes the oldest round final of those that aren't."""

    def forget(self) -> None:
        """Forgets what was prepared, and all rounds that aren't final."""

    def estimate_norms(self, kept: KeptRows, request: Request) -> Tensor:
        """‖h_i‖ of all clients that have taken part, float64 ``[clients]``, in the order of their first rounds.

        Args:
            kept: What is kept before the round that was prepared.
            request: A request to nobody, at whose scale they are measured.
        """


class LocalClients:
    """Clients that live in this process."""

    def __init__(self, algorithm: Algorithm, task: Task, initial: Tensor, memory: Memory) -> None:
        """Sets up the client side.

        Args:
            algorithm: The algorithm.
            task: The objectives of the clients.
            initial: θ_0.
            memory: How much of device, memory and disk they may take.
        """
        self._algorithm, self._task = algorithm, task
        self._initial, self._memory = initial, memory
        self._kind = type(algorithm.client_init(initial))
        self._prepared: Rows = {}
        self._not_final: deque[Rows] = deque()
        self.answers_late = not Arrival(initial[:1]).is_there

    def begin(self) -> tuple[ClientStore, ScoredModel]:
        """An empty store, and an empty sum."""
        return ClientStore(self._memory), ScoredModel.empty(self._initial)

    def restore(
        self, rows: Mapping[str, Tensor], earlier: Sequence[Mapping[str, Tensor]], scored: ScoredModel | None
    ) -> tuple[ClientStore, ScoredModel | None]:
        """The store that the rows were taken from, and the sum itself."""
        return ClientStore.from_state(rows, self._memory, earlier), scored

    def states(self, kept: KeptRows, cohort: Collection[int]) -> dict[int, Any]:
        """The states of a cohort."""
        return {client: self.state(kept, client) for client in cohort}

    def state(self, kept: KeptRows, client: int) -> Any:
        """The state of a client, fresh if the client has never taken part."""
        row = self.row(kept, client) if self._kind._fields else None
        return self._algorithm.client_init(self._initial) if row is None else self._state_in(row)

    def model(self, kept: KeptRows, client: int) -> Tensor | None:
        """The latest model of a client."""
        row = self.row(kept, client)
        return None if row is None else row.get(MODEL)

    def receive(self, request: Request, answers: Answers | Received, *, assumed: bool) -> Received:
        """Averages the replies, judged or as they are."""
        if isinstance(answers, Received):
            return answers
        return assume(request, answers) if assumed else receive(request, answers, request.gate, request.remembered)

    def states_after(self, received: Received, clients: Collection[int]) -> dict[int, Any]:
        """The states that the clients answered with."""
        states = states_by_client(_answers(received))
        return {client: states[client] for client in clients}  # they were accepted, and so are their states

    def prepare(self, kept: KeptRows, scored: ScoredSum | None, received: Sequence[Received]) -> ScoredModel | None:
        """Prepares the rows of the clients, and the sum with their latest models in place of those before."""
        assert scored is None or isinstance(scored, ScoredModel)
        self._prepared = rows = self.rows_after(received)
        if scored is None or not received:
            return scored
        trained = [(one.clients, models) for one in received if (models := _models(one)) is not None]
        if not trained and len(received) == len(self._algorithm.phases):
            return None
        cohort = received[0].clients
        previous = [self.model(kept, client) for client in cohort]
        clients, models = trained[-1] if trained else ([], self._initial.new_empty(0, len(self._initial)))
        models = _accepted_or_before(received, clients, models, previous)
        for client, model in zip(cohort, models.unbind(), strict=True):
            rows[client][MODEL] = model
        weighted = self._algorithm.scored_weight == "samples"
        samples = [float(self._task.samples(client)) if weighted else 1.0 for client in cohort]
        return scored.with_models(models, previous, samples)

    def rows_after(self, received: Sequence[Received]) -> Rows:
        """What the clients of a round keep after it, but for their latest models."""
        rows = Rows()
        for one in received:  # a client that was left out in a phase isn't in the next
            states = states_by_client(_answers(one)) | _states_taken_back(one)
            rows |= {
                client: {STATE + name: value for name, value in state._asdict().items()}
                for client, state in states.items()
            }
        return rows

    def keep(self, kept: KeptRows, *, final: bool) -> None:
        """Writes the prepared rows into the store, or holds them until the round is final."""
        self._not_final.append(self._prepared)
        self._prepared = {}
        if final:
            self.finish_oldest(kept)

    def finish_oldest(self, kept: KeptRows) -> None:
        """Writes the rows of the oldest round that isn't final into the store."""
        assert isinstance(kept, ClientStore)
        kept.write(self._not_final[0])
        self._not_final.popleft()

    def forget(self) -> None:
        """Drops the rows that aren't in the store."""
        self._prepared = {}
        self._not_final.clear()

    def estimate_norms(self, kept: KeptRows, request: Request) -> Tensor:
        """‖h_i‖, from the prepared rows and the store."""
        everyone = dict.fromkeys([*kept, *self._prepared])

        def state(client: int) -> Any:
            return self._state_in(self._prepared[client]) if client in self._prepared else self.state(kept, client)

        return estimate_norms(request._replace(clients=OneByOne(everyone, state)))

    def row(self, kept: KeptRows, client: int) -> Mapping[str, Tensor] | None:
        """What a client keeps, be it final or not; None if it has never taken part."""
        latest = next((rows[client] for rows in reversed(self._not_final) if client in rows), None)
        return kept.read(client) if latest is None and client in kept else latest

    def _state_in(self, row: Mapping[str, Tensor]) -> Any:
        return self._kind(**{name: row[STATE + name] for name in self._kind._fields})


def _answers(received: Received) -> Answers:
    assert received.answers is not None, "these clients live in this process"
    return received.answers


def states_by_client(answers: Answers) -> dict[int, Any]:
    """The states of clients, one by one."""
    kind, rows = type(answers.states), [field.unbind() for field in answers.states]
    return {client: kind(*(row[place] for row in rows)) for place, client in enumerate(answers.clients)}


def _states_taken_back(received: Received) -> dict[int, Any]:
    """The states before a phase of clients whose new ones don't count, since their replies weren't accepted."""
    if received.request.gate.state_commit == "sent" or all(received.verdict.accepted):
        return {}
    accepted = set(received.verdict.accepted_clients())
    return {client: state for client, state in received.request.clients.items() if client not in accepted}


def _models(received: Received) -> Tensor | None:
    """The models of the clients of a phase; None if it had no training, or if they can't be told."""
    request = received.request
    if request.work is not Work.TRAIN:
        return None
    answers = _answers(received)
    return client_models(request.algorithm, request.message, answers.replies, request.context, answers.clients)


def _accepted_or_before(
    received: Sequence[Received], trained: Sequence[int], models: Tensor, previous: Sequence[Tensor | None]
) -> Tensor:
    """The latest models of a cohort after a round.

    They are those of before, or the cloud model that was sent, where a reply was left out.

    Args:
        received: The phases of the round.
        trained: The clients that trained; none if all were left out before.
        models: Their models, ``[clients, P]``.
        previous: The clients' latest models before.
    """
    first, last = received[0], received[-1]
    if len(trained) == len(first.clients) == len(last.clients) and all(last.verdict.accepted):
        return models
    cloud = first.request.message.cloud
    own = dict(zip(trained, models, strict=True))
    accepted = set(last.verdict.accepted_clients()) & own.keys()
    rows = zip(first.clients, previous, strict=True)
    return torch.stack(
        [own[client] if client in accepted else cloud if model is None else model for client, model in rows]
    )
