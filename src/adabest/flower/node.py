"""A node: it has clients, their samples and their states, and carries out the server's orders.

Every order is carried out by itself, as if by a process of its own, which Flower starts for each: what a node knows
between two orders lies in its data and in its state files.
"""

import contextlib
import dataclasses
import functools
import hashlib
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import platformdirs
import torch
from torch import Tensor

from adabest.algorithms.base import Work
from adabest.data.dataset import Dataset, as_tensor
from adabest.engine import algorithm_calls as calls
from adabest.engine.interface import Answers, Request, client_context, server_context
from adabest.engine.private_part import PrivatePart
from adabest.errors import InputError, told
from adabest.federation.partition import Partition, held_out_samples
from adabest.flower.orders import (
    ANNOUNCE,
    TEST,
    TRAIN,
    Announcement,
    AnnounceOrder,
    Refusal,
    Tag,
    TestAnswer,
    TestOrder,
    TrainAnswer,
    TrainOrder,
    or_none,
    read,
    tags,
)
from adabest.flower.parcels import Parcel, packed, unpacked, whole_models
from adabest.flower.project import ClientData, NodeConfig, Plan, Project, checked_clients
from adabest.flower.state_files import State, StateFiles, checked, refuse_unwritable
from adabest.models.vector import parameters_of
from adabest.runs.build import BuiltParts, build_parts, make_engine
from adabest.runs.process_settings import ProcessSettings
from adabest.tasks.base import no_heartbeat

_WHERE = "the order"


class Node:
    """A node of a federation.

    Attributes:
        name: Its name, by which the server tells of it.
    """

    def __init__(self, project: Project, run_config: Mapping[str, Any], node_config: NodeConfig) -> None:
        """Sets up a node; its clients are asked for with the first order.

        Args:
            project: The project.
            run_config: The settings of the run.
            node_config: What the node was started with: ``name``, ``state-dir``, ``device`` and ``engine`` are its own;
                the rest is the project's.
        """
        self._project, self._run_config, self._config = project, run_config, node_config
        self.name = _name(node_config)
        folder = node_config.get("state-dir") or platformdirs.user_state_path("adabest") / "federation"
        self._folder = Path(str(folder)).expanduser().absolute()

    def answer(self, kind: str, parcel: Parcel) -> Parcel:
        """Carries out an order. Whatever prevents it becomes a refusal with the reason."""
        carry_out: dict[str, Callable[[Parcel], Parcel]] = {
            ANNOUNCE: self._announce,
            TRAIN: self._train,
            TEST: self._test,
        }
        try:
            with self._at_work():
                return carry_out[kind](parcel)
        except InputError as error:
            why = str(error)
        except Exception as error:
            why = told(error)
        # Only of this order does the server not know whom it has asked.
        return Parcel(Refusal(refused=f"{self.name}: {why}" if kind == ANNOUNCE else why))

    @functools.cached_property
    def _plan(self) -> Plan:
        machine = {name: self._config[name] for name in ("engine", "device") if name in self._config}
        return self._project.plan(self._run_config, machine=machine)

    @functools.cached_property
    def _built(self) -> BuiltParts:
        given = checked_clients(self._project.clients(self._config))
        if not given:
            raise InputError("it has no clients; a node needs at least one")
        config, components = self._plan.config, self._plan.components
        dataset, partition = _pooled(given, components.dataset, config.local_test or 0.0, config.partition_seed or 0)
        return build_parts(config, dataclasses.replace(components, dataset=dataset), partition=partition)

    @contextlib.contextmanager
    def _at_work(self) -> Any:
        with ProcessSettings.of(self._plan.config, self._plan.components).entered():
            yield

    def _refuse_other_plan(self, digest: str) -> None:
        if digest != self._plan.digest():
            raise InputError(
                "it has other settings, or another version of adabest, than the server; both need the same project"
            )

    def _announce(self, parcel: Parcel) -> Parcel:
        self._refuse_other_plan(read(_WHERE, parcel.facts, AnnounceOrder)["plan"])
        refuse_unwritable(self._folder)  # else each of its clients would be left out of every round
        partition = self._built.partition
        clients = partition.training
        held_out = np.zeros_like(clients) if partition.held_out is None else partition.held_out.samples[clients]
        return Parcel(
            Announcement(
                node=self.name,
                model=digest_of_model(self._built),
                clients=clients.tolist(),
                samples=partition.samples[clients].tolist(),
                held_out=held_out.tolist(),
            )
        )

    def _train(self, parcel: Parcel) -> Parcel:
        order = read(_WHERE, parcel.facts, TrainOrder)
        self._refuse_other_plan(order["plan"])
        work = _Training.of(order, parcel, self._built, self._plan, self._folder)
        answered, faults = dict[int, Answers](), dict[str, str]()
        for client, after in tags(_WHERE, order["after"], order["clients"]).items():
            try:
                answered[client] = work.train(client, after)
            except InputError as error:
                faults[str(client)] = str(error)
            except Exception as error:
                faults[str(client)] = told(error)
        answers = list(answered.values())
        scores = [_scores(one) for one in answers if one.scores]
        facts = TrainAnswer(
            clients=list(answered), steps=[one.steps[0] for one in answers], scores=scores, faults=faults
        )
        if not answers:
            return Parcel(facts)
        contents = packed(Answers.joined(answers).replies, work.request.private)
        return Parcel(facts, contents.vectors, contents.numbers)

    def _test(self, parcel: Parcel) -> Parcel:
        order = read(_WHERE, parcel.facts, TestOrder)
        self._refuse_other_plan(order["plan"])
        task, partition = self._built.task, self._built.partition
        held_out = partition.held_out
        expected = tags(_WHERE, order["after"], order["clients"])
        clients = np.array(order["clients"], dtype=np.int64)
        if held_out is None or not np.isin(clients, partition.training).all() or not held_out.samples[clients].all():
            raise InputError("it is asked to test models with samples that its clients don't hold out")
        like = task.initial_model()
        private = PrivatePart.of(self._built.parts.algorithm, task)
        models = whole_models(parcel.vectors[: order["models"]], like, private)
        samples = np.concatenate([held_out.of(client) for client in clients])
        judged = [task.judge_by_client(model, samples, held_out.samples[clients]) for model in models]
        values = [one.values for one in judged]
        faults = dict[str, str]()
        if order["own"]:
            own = np.full((len(clients), len(task.metrics)), np.nan)
            message = self._message_of_next_round(order, parcel, like, private)
            for place, (client, after) in enumerate(expected.items()):
                try:
                    model = self._own_model(order, client, after, message, like)
                except InputError as error:  # the models of the server can be judged all the same
                    faults[str(client)] = str(error)
                    continue
                if model is not None:
                    chosen, count = held_out.of(client), held_out.samples[[client]]
                    own[place] = task.judge_by_client(model, chosen, count).values[0]
            values.append(own)
        answer = TestAnswer(
            weight=float(judged[0].weight) if judged else 0.0,
            losses=[or_none(one.loss) for one in judged],
            sums=[[or_none(number) for number in one.sums.tolist()] for one in judged],
            values=[
                [[or_none(number) for number in own[place].tolist()] for own in values] for place in range(len(clients))
            ],
            faults=faults,
        )
        return Parcel(answer)

    def _message_of_next_round(
        self, order: TestOrder, parcel: Parcel, like: Tensor, private: PrivatePart | None
    ) -> Any:
        """The message by which clients tell their personal models; None if the order has none."""
        vectors = parcel.vectors[order["models"] :]
        if not vectors:
            return None
        kind = self._built.parts.algorithm.message_type(0)
        return unpacked(kind, vectors, parcel.numbers, like, private=private)

    def _own_model(self, order: TestOrder, client: int, after: Tag, message: Any, like: Tensor) -> Tensor | None:
        """The model that a client uses for itself; None if it has none yet."""
        files = StateFiles(self._folder, order["run"])
        next_round = Tag(order["round"] + 1, 0)
        confirmed = self._plan.config.state_commit == "confirmed"
        state = files.state_before(client, after, None, confirmed=confirmed)
        if state is None:
            return None
        if message is None:
            return None if state.model is None else state.model.to(like.device)
        algorithm, task, training, _ = self._built.parts
        context = server_context(training, next_round.round, seed=self._plan.config.seed)
        private = PrivatePart.of(algorithm, task)
        request = Request(algorithm, task, training, algorithm.phases[0], {}, message, context, private=private)
        kept = checked(state, algorithm.client_type(), like, files.path(client))
        return calls.personal_model(algorithm, kept, message, client_context(request, client))


@dataclasses.dataclass(frozen=True)
class _Training:
    """The training that a server has ordered.

    Attributes:
        request: What is asked of each client, without clients.
        files: The clients' states.
        tag: The phase.
        confirmed: Whether old states are kept until replies are confirmed.
        keeps_models: Whether clients will be asked for their own models.
        clients: The clients that are here.
        exchange: Carries out a request.
    """

    request: Request
    files: StateFiles
    tag: Tag
    confirmed: bool
    keeps_models: bool
    clients: frozenset[int]
    exchange: Callable[[Request], Answers]

    @classmethod
    def of(cls, order: TrainOrder, parcel: Parcel, built: BuiltParts, plan: Plan, folder: Path) -> "_Training":
        """Reads an order.

        Raises:
            InputError: If it can't be carried out.
        """
        algorithm, task, training, _ = built.parts
        phase, config = order["phase"], plan.config
        if order["round"] < 1 or not 0 <= phase < len(algorithm.phases):
            raise InputError(f"{_WHERE} is for round {order['round']}, exchange {phase + 1}, which there isn't")
        like = task.initial_model()
        private = PrivatePart.of(algorithm, task)
        engine = make_engine(config)(no_heartbeat)

        def exchange(request: Request) -> Answers:
            (answers,) = engine.exchange([request])
            assert isinstance(answers, Answers), "the engine trains in this process"
            return answers

        request = Request(
            algorithm,
            task,
            training,
            algorithm.phases[phase],
            {},
            unpacked(algorithm.message_type(phase), parcel.vectors, parcel.numbers, like, private=private),
            server_context(training, order["round"], phase, seed=config.seed),
            common_steps=order["common_steps"],
            private=private,
        )
        return cls(
            request,
            StateFiles(folder, order["run"]),
            Tag(order["round"], phase),
            confirmed=config.state_commit == "confirmed",
            keeps_models=built.partition.held_out is not None,
            clients=frozenset(built.partition.training.tolist()),
            exchange=exchange,
        )

    def train(self, client: int, after: Tag) -> Answers:
        """Trains a client; its new state is on disk before its reply is sent.

        Args:
            client: The client.
            after: The phase that its state is expected to be of.

        Raises:
            InputError: If the client isn't here, its state is missing or of another moment, or its reply can't be used.
        """
        request, algorithm = self.request, self.request.algorithm
        if client not in self.clients:
            raise InputError(f"it has no client {client}")
        like = request.task.initial_model()
        with self.files.held(client):
            before = self.files.state_before(client, after, self.tag, confirmed=self.confirmed)
            if before is None:
                state = calls.initial_client(algorithm, like)
            else:
                state = checked(before, algorithm.client_type(), like, self.files.path(client))
            answers = self.exchange(request._replace(clients={client: state}))
            fields = {name: value[0] for name, value in answers.states._asdict().items()}
            new = State(self.tag, fields, self._model(client, answers, before))
            self.files.write(client, self.files.kept(client, before, new) if self.confirmed else [new])
        if answers.faults:
            raise InputError(answers.faults[client])
        return answers

    def _model(self, client: int, answers: Answers, before: State | None) -> Tensor | None:
        """The model that the client has trained, or had; None if nobody will ask for it."""
        if not self.keeps_models:
            return None
        request = self.request
        found = None
        if request.work is Work.TRAIN and not answers.faults:
            found = calls.client_models(request.algorithm, request.message, answers.replies, request.context, [client])
        if found is None:
            return None if before is None else before.model
        return found[0]


class _Samples(NamedTuple):
    """The samples of a client: those that it trains on, then those that it holds out."""

    x: Tensor
    y: Tensor
    trained: int


def _pooled(given: Mapping[int, ClientData], example: Dataset, share: float, seed: int) -> tuple[Dataset, Partition]:
    """The samples of all clients of a node as a data set, and whose they are.

    Args:
        given: The clients.
        example: A data set of the declared shapes, types and normalisation.
        share: The share of samples that clients hold out which don't bring test samples of their own.
        seed: The partition's seed.

    Raises:
        InputError: If samples aren't as they are declared.
    """
    clients = np.array(list(given), dtype=np.int64)
    own = [_samples(client, data, example) for client, data in given.items()]
    everyone = int(clients[-1]) + 1
    sizes = np.zeros(everyone, dtype=np.int64)
    sizes[clients] = [len(one.y) for one in own]
    owner = np.repeat(np.arange(everyone), sizes)
    places = np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]
    trained = np.zeros(everyone, dtype=np.int64)
    trained[clients] = [one.trained for one in own]
    is_held = places >= trained[owner]
    sharing = clients[[one.trained == len(one.y) > 1 for one in own]] if share else clients[:0]
    if len(sharing):
        is_held |= held_out_samples(owner, sizes, sharing, share, seed)
    dataset = dataclasses.replace(
        example, x_train=torch.cat([one.x for one in own]), y_train=torch.cat([one.y for one in own])
    )
    labels, classes = dataset.strata()

    def of(chosen: np.ndarray, held_out: Partition | None = None) -> Partition:
        counts = np.bincount(owner[chosen] * classes + labels[chosen], minlength=everyone * classes)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(owner[chosen], minlength=everyone))])
        return Partition(chosen, offsets, clients, clients[:0], counts.reshape(everyone, classes), held_out)

    held = np.flatnonzero(is_held)
    return dataset, of(np.flatnonzero(~is_held), of(held) if len(held) else None)


def _samples(client: int, data: ClientData, example: Dataset) -> _Samples:
    """The samples of a client, in the declared shapes and types.

    Raises:
        InputError: If they aren't.
    """
    parts = [(data.x, data.y, "")]
    if (data.x_test is None) != (data.y_test is None):
        raise InputError(f"client {client} has only one of x_test and y_test; give both or none")
    if data.x_test is not None:
        parts.append((data.x_test, data.y_test, "_test"))
    inputs, targets = list[Tensor](), list[Tensor]()
    for given_x, given_y, ending in parts:
        x, y = as_tensor(f"x{ending} of client {client}", given_x), as_tensor(f"y{ending} of client {client}", given_y)
        if len(x) != len(y):
            raise InputError(f"client {client} has {len(x)} inputs in x{ending} and {len(y)} targets in y{ending}")
        for name, tensor, declared in ((f"x{ending}", x, example.x_train), (f"y{ending}", y, example.y_train)):
            if tensor.shape[1:] != declared.shape[1:] or tensor.dtype != declared.dtype:
                raise InputError(
                    f"{name} of client {client} has samples of shape {list(tensor.shape[1:])} and type {tensor.dtype}; "
                    f"the project's example says {list(declared.shape[1:])} and {declared.dtype}"
                )
        inputs.append(x)
        targets.append(y)
    if not len(inputs[0]):
        raise InputError(f"client {client} has no samples to train on; leave it out")
    return _Samples(torch.cat(inputs), torch.cat(targets), len(inputs[0]))


def digest_of_model(built: BuiltParts) -> str:
    """A digest of a model's trainable parameters: their names and sizes."""
    words = [f"{own.name} {own.size}" for own in parameters_of(built.task.model.module)]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def _scores(answers: Answers) -> list[float | None]:
    (own,) = answers.scores[0].read()
    return [or_none(float(number)) for number in (own.loss, own.value, own.bad_step, own.bad_loss)]


def _name(node_config: NodeConfig) -> str:
    """The name of a node: the one that it was given, its number among partitions, or its host's."""
    if "name" in node_config:
        return str(node_config["name"])
    if "partition-id" in node_config:
        return f"node {node_config['partition-id']}"
    return socket.gethostname()
