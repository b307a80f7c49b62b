"""The engine of a federation: nodes train their clients, and judge models on what these hold out."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, Work
from adabest.algorithms.forms import blank
from adabest.engine import algorithm_calls as calls
from adabest.engine.evaluation import EvaluationRequest, EvaluationResult, evaluate_one_by_one
from adabest.engine.interface import Answers, ClientScores, Request, TrainingScores, stacked_states
from adabest.engine.local_test import GLOBAL, OWN, HeldOut, told_model
from adabest.engine.private_part import PrivatePart
from adabest.engine.receipt import Received, receive
from adabest.engine.simulation import Simulation
from adabest.errors import InputError
from adabest.flower.network import NodesLost, Roll
from adabest.flower.node_clients import NodeClients, NodesVerdict
from adabest.flower.orders import (
    NEVER,
    TEST,
    TRAIN,
    TestAnswer,
    TestOrder,
    TrainAnswer,
    TrainOrder,
    or_nan,
    read_answer,
    shortened,
)
from adabest.flower.parcels import Parcel, packed, unpacked
from adabest.runs.files.folder import RunFolder
from adabest.runs.files.manifest import read_manifest
from adabest.tasks.base import Scores
from adabest.tasks.classification import ClassificationTask
from adabest.tasks.objectives.metric import ACCURACY

_GO_ON = "once nodes are back, flwr run goes on from the last round"


@dataclass(frozen=True)
class Heading:
    """What every order names.

    Attributes:
        plan: The digest of the settings that must be the same everywhere.
        folder: The run's folder, which has its id.
    """

    plan: str
    folder: RunFolder

    @functools.cached_property
    def run(self) -> str:
        """The run's id, which stays the same when it is resumed."""
        manifest = read_manifest(self.folder)
        assert manifest is not None, "a run has a manifest before its first round"
        return manifest.run


class NodeEngine:
    """The engine of a federation: nodes train their clients, and judge models on what these hold out.

    Attributes:
        tests: What judges models at the nodes, once it is known that clients hold something out.
    """

    def __init__(self, roll: Roll, heading: Heading, *, tests_here: bool, mean_steps: bool) -> None:
        """Makes the engine.

        Args:
            roll: The nodes.
            heading: The run.
            tests_here: Whether the server has test samples.
            mean_steps: Whether all clients make the mean number of local steps.
        """
        self._roll, self._heading = roll, heading
        self._tests_here, self._mean_steps = tests_here, mean_steps
        self.tests: NodeTests | None = None

    def exchange(self, requests: Sequence[Request]) -> list[Received]:
        """Has nodes carry out a phase of a round.

        Raises:
            NodesLost: If none has answered.
        """
        return [self._one_run(request) for request in requests]

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[EvaluationResult]:
        """Judges models on the server's test samples or, where it has none, on what clients hold out.

        Raises:
            NodesLost: If no node has answered.
        """
        if self._tests_here:
            return [evaluate_one_by_one(request, self._roll.heartbeat) for request in requests]
        assert self.tests is not None, "a federation in which nobody has test samples isn't begun"
        return [EvaluationResult(self.tests.test(request.models), None) for request in requests]

    def _one_run(self, request: Request) -> Received:
        if self.tests is not None:
            self.tests.forget()
        contents = packed(request.message, request.private)
        shares = self._roll.by_node(request.clients)
        parcels = {
            node: Parcel(self._order(request, clients), contents.vectors, contents.numbers)
            for node, clients in shares.items()
        }
        found = self._roll.ask(TRAIN, parcels)
        kind, like = request.algorithm.reply_type(request.context.phase), request.message.cloud
        replies, steps, scores = dict[int, Any](), dict[int, int](), dict[int, ClientScores]()
        absent = dict[int, str]()
        for node, clients in shares.items():
            answer = found[node]
            try:
                if isinstance(answer, str):
                    raise InputError(answer)
                facts = read_answer("its answer", answer.facts, TrainAnswer)
                there = _checked_clients(facts, clients, request)
                if request.task.metrics[0] == ACCURACY:
                    _check_accuracies(one[1] for one in facts["scores"])
                if there:
                    stacked = unpacked(
                        kind, answer.vectors, answer.numbers, like, private=request.private, clients=len(there)
                    )
                    replies |= {
                        client: kind(*(field[place] for field in stacked)) for place, client in enumerate(there)
                    }
            except InputError as error:
                absent |= dict.fromkeys(clients, shortened(str(error)))  # it may quote names that the node made up
                continue
            steps |= zip(there, facts["steps"], strict=True)
            scores |= {own.client: own for own in _scores_in(facts, there)}
            given = {client: facts["faults"].get(str(client)) for client in clients if client not in there}
            absent |= {client: shortened(why or "no reply") for client, why in given.items()}
        # A round without replies is one that changes nothing. Without this, a node that is gone for good would end the
        # run for good: the round that is made again has the same cohort.
        is_silent = all(isinstance(found[node], str) for node in shares)
        if is_silent and not self._roll.reaches_others(shares):
            why = "; ".join(f"{node}: {found[node]}" for node in shares)
            raise NodesLost(f"no node has answered in round {request.context.round}: {why}; {_GO_ON}")
        return self._received(request, replies, steps, scores, absent)

    def _received(
        self,
        request: Request,
        replies: Mapping[int, Any],
        steps: Mapping[int, int],
        scores: Mapping[int, ClientScores],
        absent: Mapping[int, str],
    ) -> Received:
        """What the server has of a phase; a blank stands in the place of a reply that hasn't come."""
        kind, like = request.algorithm.reply_type(request.context.phase), request.message.cloud
        clients = list(request.clients)
        empty = blank(kind, like)
        answers = Answers(
            clients=clients,
            states=None,
            replies=stacked_states([replies.get(client, empty) for client in clients]),
            steps=[steps.get(client, 0) for client in clients],
            scores=(TrainingScores.of_clients([scores[client] for client in clients if client in scores]),)
            if scores
            else (),
            faults=absent,
        )
        received = receive(request, answers, request.gate, request.remembered)
        nodes = {client: node for node, own in self._roll.by_node(clients).items() for client in own}
        return received._replace(
            verdict=NodesVerdict(received.verdict, absent, nodes),
            bytes_up=received.bytes_up * len(replies) // len(clients),
        )

    def _order(self, request: Request, clients: Sequence[int]) -> TrainOrder:
        context = request.context
        is_common = request.common_steps is not None or self._mean_steps
        return TrainOrder(
            plan=self._heading.plan,
            run=self._heading.run,
            round=context.round,
            phase=context.phase,
            clients=list(clients),
            after=[list(request.clients[client]) for client in clients],
            common_steps=int(request.steps(clients[:1])[0]) if is_common else None,
        )


class _Tested(NamedTuple):
    """What nodes make of models.

    Attributes:
        scores: Loss and metrics of each model by name, over all that clients hold out.
        by_client: The metrics of each model on each client, ``[clients, metrics]``; that of own models as ``OWN``.
    """

    scores: dict[str, Scores]
    by_client: dict[str, np.ndarray]


class NodeTests:
    """Judges models on what clients hold out, where they are.

    An evaluated round takes one order to each node: what its tests tell serves the metrics of all models and of each
    client.
    """

    def __init__(
        self,
        roll: Roll,
        heading: Heading,
        *,
        clients: NodeClients,
        simulation: Simulation,
        algorithm: Algorithm,
        task: ClassificationTask,
        score: str,
    ) -> None:
        """Sets the tests up.

        Args:
            roll: The nodes.
            heading: The run.
            clients: What is known of the clients.
            simulation: The run's simulation.
            algorithm: Its algorithm.
            task: Its task, which has the number of samples that each client holds out.
            score: The model that is told of.
        """
        self._roll, self._heading, self._clients = roll, heading, clients
        self._simulation, self._algorithm, self._task, self._score = simulation, algorithm, task, score
        self._private = PrivatePart.of(algorithm, task)
        self._has_personal = type(algorithm).personal_model is not Algorithm.personal_model
        partition, held_out = task.partition, task.partition.held_out
        assert held_out is not None, "tests of clients that hold nothing out aren't set up"
        holding = partition.training[held_out.samples[partition.training] > 0]
        self.held_out = HeldOut(holding, partition.samples[holding], held_out.samples[holding])
        self._last: _Tested | None = None

    def forget(self) -> None:
        """Forgets the last tests, since a round begins."""
        self._last = None

    def test(self, models: Mapping[str, Tensor]) -> dict[str, Scores]:
        """Loss and metrics of models over all that clients hold out.

        Raises:
            NodesLost: If no node has answered.
        """
        # What is personal follows from the next message, and its round hasn't ended yet.
        self._last = self._ask(models, message=None, own=not self._has_personal)
        return self._last.scores

    def by_client(self) -> dict[str, np.ndarray]:
        """The metrics of each client with the global model and with its own.

        Raises:
            NodesLost: If no node has answered.
        """
        if self._last is None or OWN not in self._last.by_client:
            model = told_model(self._simulation, self._score)
            found = self._ask({GLOBAL: model}, message=self._message_of_next_round(), own=True)
            self._last = _Tested({}, found.by_client)
        found_by = self._last.by_client
        told = next(name for name in (GLOBAL, self._score, "aggregate") if name in found_by)
        return {GLOBAL: found_by[told], OWN: found_by[OWN]}

    @functools.cached_property
    def _count_of_sums(self) -> int:
        """How many sums metrics are made of."""
        one = np.ones(1, dtype=np.int64)
        return len(self._task.judge_by_client(self._task.initial_model(), one - 1, one).sums)

    def _message_of_next_round(self) -> Any:
        """The message by which clients tell their personal models; None where the algorithm has none."""
        if not self._has_personal:
            return None
        simulation = self._simulation
        context = simulation.context(simulation.state.round + 1)
        return calls.message(self._algorithm, simulation.state.server, simulation.state.cloud, context)

    def _ask(self, models: Mapping[str, Tensor], *, message: Any, own: bool) -> _Tested:
        tags = self._clients.tags(self._simulation.state.clients)
        shares = self._roll.by_node(self.held_out.clients.tolist())
        vectors = [model if self._private is None else model[~self._private.mask] for model in models.values()]
        contents = packed(message, self._private) if message is not None else None
        parcels = {
            node: Parcel(
                TestOrder(
                    plan=self._heading.plan,
                    run=self._heading.run,
                    round=max((tag.round for tag in tags.values()), default=0),
                    models=len(models),
                    own=own,
                    clients=clients,
                    after=[list(tags.get(client, NEVER)) for client in clients],
                ),
                [*vectors, *([] if contents is None else contents.vectors)],
                {} if contents is None else contents.numbers,
            )
            for node, clients in shares.items()
        }
        found = self._roll.ask(TEST, parcels)
        answers, faults = dict[str, TestAnswer](), dict[str, str]()
        for node, answer in found.items():
            try:
                if isinstance(answer, str):
                    raise InputError(answer)
                answers[node] = self._read(answer, models=len(models), own=own, clients=len(shares[node]))
            except InputError as error:
                faults[node] = shortened(str(error))
        for node, fault in faults.items():
            self._roll.say(f"{node} has not tested the models: {fault}")
        for node, given in answers.items():
            for name, loss, sums in zip(models, given["losses"], given["sums"], strict=True):
                if loss is None or None in sums:
                    self._roll.say(f"{node}: the loss or a metric of the {name} model isn't finite there")
            for client in shares[node]:
                if str(client) in given["faults"]:
                    why = shortened(given["faults"][str(client)])
                    self._roll.say(f"{node} has not tested the own model of client {client}: {why}")
        if not answers:
            why = "; ".join(f"{node}: {fault}" for node, fault in faults.items())
            raise NodesLost(f"no node has tested the models: {why}; {_GO_ON}")
        return self._put_together(list(models), answers, shares, own=own)

    def _read(self, answer: Parcel, *, models: int, own: bool, clients: int) -> TestAnswer:
        facts = read_answer("its answer", answer.facts, TestAnswer)
        metrics, sums = len(self._task.metrics), {len(one) for one in facts["sums"]} - {self._count_of_sums}
        fits = len(facts["losses"]) == len(facts["sums"]) == models and len(facts["values"]) == clients
        fits = fits and all(len(one) == models + own and {len(x) for x in one} <= {metrics} for one in facts["values"])
        if not fits or sums or facts["weight"] < 0:
            raise InputError("its answer hasn't the numbers that were asked for")
        if ACCURACY in self._task.metrics:
            place = self._task.metrics.index(ACCURACY)
            _check_accuracies(row[place] for one in facts["values"] for row in one)
            for one in facts["sums"]:  # the accuracy of all nodes is a ratio of such sums
                if any(number is not None and number < 0 for number in one):
                    raise InputError("its answer has sums below 0")
                summed = torch.tensor([or_nan(number) for number in one], dtype=torch.float64)
                _check_accuracies([float(self._task.objective.values(summed)[place])])
        return facts

    def _put_together(
        self, names: Sequence[str], answers: Mapping[str, TestAnswer], shares: Mapping[str, Sequence[int]], *, own: bool
    ) -> _Tested:
        place = {client: number for number, client in enumerate(self.held_out.clients.tolist())}
        by_client = {
            name: np.full((len(place), len(self._task.metrics)), np.nan) for name in [*names, *([OWN] if own else [])]
        }
        for node, answer in answers.items():
            for client, values in zip(shares[node], answer["values"], strict=True):
                for table, row in zip(by_client.values(), values, strict=True):
                    table[place[client]] = [or_nan(value) for value in row]
        scores = {name: self._scores(number, name, answers, by_client) for number, name in enumerate(names)}
        return _Tested(scores, by_client)

    def _scores(
        self, number: int, name: str, answers: Mapping[str, TestAnswer], by_client: Mapping[str, np.ndarray]
    ) -> Scores:
        """A model's scores over all samples; metrics of the user's own are means over clients, by their samples.

        Numbers that aren't finite at one node don't make those of all: they are left out as long as others are there.
        """
        weights = np.array([answer["weight"] for answer in answers.values()])
        losses = np.array([or_nan(answer["losses"][number]) for answer in answers.values()])
        finite = np.isfinite(losses) if np.isfinite(losses).any() else np.ones_like(losses, dtype=bool)
        loss = float((weights * losses)[finite].sum() / max(weights[finite].sum(), 1.0))
        rows = torch.tensor(
            [[or_nan(one) for one in answer["sums"][number]] for answer in answers.values()], dtype=torch.float64
        )
        whole = rows.isfinite().all(dim=1)
        sums = (rows[whole] if whole.any() else rows).sum(dim=0)
        values = self._task.objective.values(sums).tolist()
        for column in by_client[name][:, len(values) :].T:
            known = ~np.isnan(column)
            counts = self.held_out.held_out[known]
            values.append(float((column[known] * counts).sum() / counts.sum()) if known.any() else float("nan"))
        return Scores(loss, {metric.name: value for metric, value in zip(self._task.metrics, values, strict=True)})


def _checked_clients(facts: TrainAnswer, asked: Sequence[int], request: Request) -> list[int]:
    """The clients of an answer.

    Raises:
        InputError: If it is about others, its lists aren't of one length, or they made other numbers of local steps
            than they were to make.
    """
    there, trains = facts["clients"], request.work is Work.TRAIN
    if not set(there) <= set(asked) or len(set(there)) < len(there):
        raise InputError("its answer is about other clients than it was asked for")
    lengths = {len(facts["steps"]), len(facts["scores"]) if trains else len(there), len(there)}
    if len(lengths) > 1 or any(len(one) != 4 for one in facts["scores"]):
        raise InputError("its answer should have steps and scores for each client")
    expected = request.steps(there).tolist() if trains else [0] * len(there)
    for client, steps, due in zip(there, facts["steps"], expected, strict=True):
        if steps != due:
            raise InputError(
                f"its answer says that client {client} made {steps} local steps; with the samples that the node has "
                f"announced there should be {due}"
            )
    return there


def _check_accuracies(values: Iterable[float | None]) -> None:
    """Checks accuracies that a node tells: one that can't be makes files of results that nobody can read.

    Raises:
        InputError: If one isn't between 0 and 1.
    """
    for value in values:
        if value is not None and (value < 0 or value > 1):
            raise InputError(f"its answer has an accuracy of {value:g}; it should be between 0 and 1")


def _scores_in(facts: TrainAnswer, clients: Sequence[int]) -> Iterator[ClientScores]:
    """How the training of clients went, as a node tells it."""
    for client, (loss, value, bad_step, bad_loss) in zip(clients, facts["scores"], strict=False):
        step = int(bad_step) if bad_step is not None else -1
        yield ClientScores(client, or_nan(loss), or_nan(value), step, or_nan(bad_loss))
