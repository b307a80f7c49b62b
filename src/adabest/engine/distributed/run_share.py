"""Shares of runs: what one rank has of a run whose clients are shared out.

Every rank has the states of the clients whose home it is, and its part of every client's latest model and of their sum.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, Work
from adabest.algorithms.forms import blank, forms_of
from adabest.engine import algorithm_calls as calls
from adabest.engine.client_side import MODEL, states_by_client
from adabest.engine.client_store import ClientStore
from adabest.engine.distributed.parcels import Spec, spec_of
from adabest.engine.distributed.placement import Slices
from adabest.engine.interface import Answers, Request, server_context
from adabest.engine.local_step import LocalTraining
from adabest.engine.memory_tiers import Memory
from adabest.engine.private_part import PrivatePart
from adabest.engine.scored_model import ScoredModel
from adabest.tasks.base import Task


class RunParts(NamedTuple):
    """What the share of a run is made of, the same on every rank.

    Attributes:
        algorithm: The algorithm.
        task: The objectives of the clients.
        training: The settings of local training.
        memory: How much of device, memory and disk what clients keep may take on this rank.
    """

    algorithm: Algorithm
    task: Task
    training: LocalTraining
    memory: Memory


class RunShare:
    """A rank's share of one run.

    Attributes:
        parts: What it is made of.
        slices: The parts of vectors.
        scored: This rank's part of the scored model's sum; None where models can't be told.
        next_scored: The same after the round that was prepared.
    """

    def __init__(self, parts: RunParts, slices: Slices, rank: int) -> None:
        """A share before the first round.

        Args:
            parts: What it is made of.
            slices: The parts of vectors.
            rank: This rank.
        """
        self.parts, self.slices, self._rank = parts, slices, rank
        initial = parts.task.initial_model()
        self._fresh = parts.algorithm.client_init(initial)
        self._initial = initial
        self._private = PrivatePart.of(parts.algorithm, parts.task)
        self._states = _SlotStore(parts.memory)
        self._models = ClientStore(parts.memory)
        self.scored: ScoredModel | None = ScoredModel.empty(initial[slices.part(rank)])
        self.next_scored: ScoredModel | None = self.scored
        self._prepared_states: dict[int, Any] = {}
        self._prepared_models: dict[int, Tensor] = {}
        self._trained: dict[int, Tensor] = {}
        self._sent: Tensor | None = None
        self._phases_done = 0
        self._model_sources: dict[int, _ModelSource] = {}

    @property
    def like(self) -> Tensor:
        """θ_0, whose type and device are those of all models."""
        return self._initial

    def example(self, name: str) -> Tensor:
        """A field of a fresh state."""
        field: Tensor = getattr(self._fresh, name)
        return field

    @property
    def state_specs(self) -> list[Spec]:
        """The shapes and types of the fields of a client's state."""
        return [spec_of(field) for field in self._fresh]

    def state(self, client: int) -> Any:
        """The state of a client that lives here, or trains here: after the last phase, else as it was kept."""
        if client in self._prepared_states:
            return self._prepared_states[client]
        if client not in self._states or not self._fresh._fields:
            return self._fresh
        row = self._states.read(client)
        return type(self._fresh)(*(row[name] for name in self._fresh._fields))

    def take_over(self, client: int, fields: Sequence[Tensor]) -> None:
        """Takes the state of a client that trains here, and lives elsewhere until it is kept."""
        self._prepared_states[client] = type(self._fresh)(*fields)

    def begin_round(self) -> None:
        """Forgets what was prepared, and not kept."""
        self._prepared_states, self._prepared_models = {}, {}
        self._trained, self._sent, self._phases_done = {}, None, 0
        self.next_scored = self.scored

    def request(self, work: Work, clients: Sequence[int], message: Any, context: Any) -> Request:
        """The request to the clients that train here."""
        algorithm, task, training, _ = self.parts
        states = {client: self.state(client) for client in clients}
        steps = calls.common_steps(algorithm, context)
        return Request(
            algorithm, task, training, work, states, message, context, common_steps=steps, private=self._private
        )

    def reserve(self, cohort: Sequence[int], own: Collection[int]) -> None:
        """Makes sure that there is memory for what the clients of a round will keep here, so that ``keep`` can't fail.

        Args:
            cohort: All clients of the round.
            own: Those that train here.

        Raises:
            InputError: If no tier has memory left for them.
        """
        if self._fresh._fields:
            self._states.reserve(own, self._fresh._asdict())
        if self.scored is not None and any(map(self.has_models, range(len(self.parts.algorithm.phases)))):
            new = sum(client not in self._models for client in cohort)
            self._models.reserve(new, {MODEL: self._initial[self.slices.part(self._rank)]})

    def prepare_states(self, answers: Answers) -> None:
        """Prepares the new states of clients that have trained here."""
        self._prepared_states |= states_by_client(answers)

    def take_back(self, states: Mapping[int, Any]) -> None:
        """Prepares the states before a phase in place of new ones that don't count."""
        self._prepared_states |= states

    def prepare_models(
        self, cohort: Sequence[int], clients: Sequence[int], models: Tensor | None, cloud: Tensor, mask: Sequence[bool]
    ) -> None:
        """Prepares the latest models after a phase, this rank's parts of them.

        They are those of before, or the cloud model that was sent first, where a reply was left out.

        Args:
            cohort: All clients of the round.
            clients: Those of the phase; the others were left out before.
            models: This rank's parts of their models, ``[clients, …]``; None if the phase has none.
            cloud: The cloud model that was sent.
            mask: Whether the reply of each was accepted.
        """
        if self._sent is None:
            self._sent = cloud[self.slices.part(self._rank)]
        if models is not None:
            self._trained = dict(zip(clients, models.unbind(), strict=True))
        self._phases_done += 1
        is_last = self._phases_done == len(self.parts.algorithm.phases)
        if self.scored is None or not (is_last or not any(mask)) or (is_last and not self._trained):
            return
        accepted = {client for client, is_accepted in zip(clients, mask, strict=True) if is_accepted}
        previous = [self._models.read(client)[MODEL] if client in self._models else None for client in cohort]
        latest = [
            self._trained[client] if client in accepted & self._trained.keys() else self._sent if old is None else old
            for client, old in zip(cohort, previous, strict=True)
        ]
        self._prepared_models = dict(zip(cohort, latest, strict=True))
        weighted, task = self.parts.algorithm.scored_weight == "samples", self.parts.task
        samples = [float(task.samples(client)) if weighted else 1.0 for client in cohort]
        taken = models if models is not None and len(accepted) == len(cohort) else torch.stack(latest)
        self.next_scored = self.scored.with_models(taken, previous, samples)

    def keep(self, homes: Mapping[int, int], *, scored: bool) -> None:
        """Makes final what was prepared.

        Args:
            homes: The rank at which each client of the round lives from now on.
            scored: Whether the run has a scored model.
        """
        here = {client: state for client, state in self._prepared_states.items() if homes.get(client) == self._rank}
        for client, home in homes.items():
            if home != self._rank:
                self._states.drop(client)
        if self._fresh._fields:
            self._states.write({client: state._asdict() for client, state in here.items()})
        if self._prepared_models:
            self._models.write({client: {MODEL: model} for client, model in self._prepared_models.items()})
        self.scored = self.next_scored if scored else None
        self.begin_round()

    def put(
        self, own: Sequence[int], fields: Mapping[str, Tensor], clients: Sequence[int], models: Tensor | None
    ) -> None:
        """Stores what clients keep from now on.

        Args:
            own: The clients that live here.
            fields: Their states' fields by name, ``[own clients, …]``.
            clients: The clients whose models are stored.
            models: This rank's parts of their latest models, ``[clients, …]``.

        Raises:
            InputError: If no tier has memory left for them.
        """
        if fields:
            rows = [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)]
            self._states.write(dict(zip(own, rows, strict=True)))
        if models is not None:
            self._models.write({client: {MODEL: model} for client, model in zip(clients, models, strict=True)})

    def kept_model(self, client: int) -> Tensor:
        """This rank's part of the latest model of a client."""
        return self._models.read(client)[MODEL]

    def kept_state(self, client: int, name: str) -> Tensor:
        """A field of the state of a client that lives here."""
        return self._states.read(client)[name]

    def bytes(self) -> dict[str, int]:
        """The bytes of what is kept here, by the setting that limits them."""
        one, other = self._states.bytes(), self._models.bytes()
        return {setting: size + other[setting] for setting, size in one.items()}

    def put_scored(self, total: Tensor, weight: float, unit: float) -> None:
        """Sets this rank's part of the scored model's sum."""
        self.scored = self.next_scored = ScoredModel(total, weight, unit)

    def vectors(self, phase: int) -> list[str]:
        """The names of the vectors in a reply of a phase."""
        forms = forms_of(self.parts.algorithm.reply_type(phase))
        return [name for name, form in forms.items() if form is not None and form.is_vector]

    def has_models(self, phase: int) -> bool:
        """Whether the models of clients can be told from their replies in a phase."""
        return self.parts.algorithm.phases[phase] is Work.TRAIN and self._model_source(phase).is_known

    def model_field(self, phase: int) -> str | None:
        """The field of a reply that is the client's model; None if the model is worked out from message and reply."""
        return self._model_source(phase).field

    def _model_source(self, phase: int) -> "_ModelSource":
        """Where the models of clients come from; found by asking the algorithm for the model of a blank reply."""
        if phase not in self._model_sources:
            algorithm = self.parts.algorithm
            reply = blank(algorithm.reply_type(phase), self._initial)
            message = blank(algorithm.message_type(phase), self._initial)
            model = algorithm.client_model(message, reply, server_context(self.parts.training, 1, phase))
            field = next((name for name in self.vectors(phase) if getattr(reply, name) is model), None)
            self._model_sources[phase] = _ModelSource(model is not None, field)
        return self._model_sources[phase]


class _ModelSource(NamedTuple):
    """Where the models of clients come from in a phase.

    Attributes:
        is_known: Whether they can be told from message and reply.
        field: The field of the reply that is the model; None if it is worked out.
    """

    is_known: bool
    field: str | None


class _SlotStore:
    """A store of rows whose places are used again when a client has moved away."""

    def __init__(self, memory: Memory) -> None:
        self._store = ClientStore(memory)
        self._slots: dict[int, int] = {}
        self._free: list[int] = []

    def __contains__(self, client: int) -> bool:
        return client in self._slots

    def read(self, client: int) -> Mapping[str, Tensor]:
        return self._store.read(self._slots[client])

    def reserve(self, clients: Iterable[int], row: Mapping[str, Tensor]) -> None:
        new = sum(client not in self._slots for client in clients)
        self._store.reserve(max(new - len(self._free), 0), row)

    def write(self, rows: Mapping[int, Mapping[str, Tensor]]) -> None:
        for client in rows:
            if client not in self._slots:
                self._slots[client] = self._free.pop() if self._free else len(self._slots)
        self._store.write({self._slots[client]: row for client, row in rows.items()})

    def drop(self, client: int) -> None:
        if client in self._slots:
            self._free.append(self._slots.pop(client))

    def bytes(self) -> dict[str, int]:
        return self._store.bytes()
