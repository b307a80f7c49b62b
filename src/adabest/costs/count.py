"""What a round costs, counted: an algorithm's own functions are run on small vectors, and watched.

Counts that are linear in the model's size and in the number of steps or of replies are formulas. They are derived from
four small rounds and checked on a fifth, so that no model, however large, needs to be made.
"""

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adabest.algorithms.base import Algorithm, ClientContext, Population, ServerContext, Work
from adabest.algorithms.catalog import ALGORITHMS
from adabest.algorithms.fedavg import FedAvg
from adabest.costs.formula import Formula, bilinear, symbol
from adabest.costs.operations import ADDITION, MULTIPLICATION, OperationCounter
from adabest.costs.published import PaperCosts, paper_costs
from adabest.costs.sizes import Precision, Sizes
from adabest.engine.local_step import LocalTraining, local_step
from adabest.engine.reduction import reduce_replies
from adabest.engine.scored_model import ScoredModel
from adabest.engine.simulation import message_bytes
from adabest.errors import InputError
from adabest.runs.settings.algorithm_specification import check_algorithms, make_algorithm
from adabest.runs.settings.run_plan import labelled

# Where to count, as n and the number that both K and |P| have: four places for a formula, and one to check it.
_PLACES = ((1000, 2), (1000, 3), (2000, 2), (2000, 3))
_CHECK = (3000, 5)
_SAMPLES = 10  # of each client; what they are changes no count
_BARE = LocalTraining(clip=0.0, weight_decay=0.0)
_GUARDED = LocalTraining(clip=10.0, weight_decay=1e-3)
_ZERO = Formula({})


class Compute(NamedTuple):
    """What someone computes in a round.

    Attributes:
        arithmetic: Gradients, and additions and multiplications on vectors.
        other: Everything else that is done to vectors, under torch's names.
        numbers: How many operations there are on single numbers, whatever the model's size.
    """

    arithmetic: Formula
    other: Formula
    numbers: Formula


@dataclass(frozen=True)
class AlgorithmCosts:
    """What a round of one algorithm costs.

    Attributes:
        client: What a client computes, without clipping and weight decay.
        guards: What clipping and weight decay add to that.
        server: What the server computes: the message, the means of the replies, its step.
        scored: What the simulator computes on top, to keep up the scored model.
        client_bytes: What a client keeps.
        server_bytes: What the server keeps, the cloud model not counted.
        down: Bytes sent to each client of a round.
        up: Bytes that each of them sends.
        scored_client_bytes: What the simulator keeps of each client on top: its latest model.
        scored_server_bytes: And of all of them together: the sum of these models.
        paper: What the paper says.
    """

    client: Compute
    guards: Compute
    server: Compute
    scored: Compute
    client_bytes: Formula
    server_bytes: Formula
    down: Formula
    up: Formula
    scored_client_bytes: Formula
    scored_server_bytes: Formula
    paper: PaperCosts


@dataclass(frozen=True)
class Costs:
    """The costs of several algorithms.

    Attributes:
        sizes: What the formulas are to be evaluated for.
        algorithms: The costs by label.
        baseline: FedAvg's, to compare with.
    """

    sizes: Sizes
    algorithms: dict[str, AlgorithmCosts]
    baseline: AlgorithmCosts


def count_costs(algorithms: Sequence[str | Algorithm] | None, sizes: Sizes) -> Costs:
    """Counts what a round costs.

    Args:
        algorithms: Specifications such as ``adabest,beta=0.9``, or Algorithm objects; None for all that come along.
        sizes: What the formulas are to be evaluated for.

    Raises:
        InputError: If there is no such algorithm, or there is no formula for its costs.
    """
    chosen = tuple(ALGORITHMS.builtin) if algorithms is None else algorithms
    check_algorithms(chosen)
    made = {label: make_algorithm(algorithm) for label, algorithm in labelled(chosen).items()}
    counted = {label: _costs(label, algorithm, sizes.precision) for label, algorithm in made.items()}
    return Costs(sizes, counted, _costs("fedavg", FedAvg(), sizes.precision))


def _costs(label: str, algorithm: Algorithm, precision: Precision) -> AlgorithmCosts:
    try:
        bare, guarded = (
            {(n, k): play(algorithm, Sizes(n, k, k, precision=precision), training) for n, k in (*_PLACES, _CHECK)}
            for training in (_BARE, _GUARDED)
        )
    except Exception as error:
        error.add_note(f"while the costs of {label} were counted")
        raise
    kept = _fit(label, {place: played.sizes for place, played in bare.items()}, "|P|")
    client = _fit(label, {place: played.client for place, played in bare.items()}, "K")
    whole = _fit(label, {place: played.client for place, played in guarded.items()}, "K")
    return AlgorithmCosts(
        client=_compute(client),
        guards=_compute({kind: whole.get(kind, _ZERO) - client.get(kind, _ZERO) for kind in client | whole}),
        server=_compute(_fit(label, {place: played.server for place, played in bare.items()}, "|P|")),
        scored=_compute(_fit(label, {place: played.scored for place, played in bare.items()}, "|P|")),
        client_bytes=kept["client"],
        server_bytes=kept["server"],
        down=kept["down"],
        up=kept["up"],
        scored_client_bytes=kept["scored client"],
        scored_server_bytes=kept["scored server"],
        paper=paper_costs(algorithm),
    )


def _fit(label: str, counts: Mapping[tuple[int, int], Counter[str]], loop: str) -> dict[str, Formula]:
    """The formula of each kind of count.

    Raises:
        InputError: If the counts aren't linear in n and in the number of steps or replies.
    """
    formulas = {}
    for kind in dict.fromkeys(kind for counted in counts.values() for kind in counted):
        formula = bilinear({place: counts[place][kind] for place in _PLACES}, symbol("n"), symbol(loop))
        n, times = _CHECK
        expected, found = formula.value({"n": n, loop: times}), counts[_CHECK][kind]
        if expected != found:
            raise InputError(
                f"there is no formula for the costs of {label}: {found} of {kind!r} were counted at n = {n} and "
                f"{loop} = {times}, where smaller rounds make one expect {expected}; costs should be linear in both"
            )
        formulas[kind] = formula
    return formulas


def _compute(formulas: Mapping[str, Formula]) -> Compute:
    """Puts the kinds together, on vectors and on single numbers apart."""
    arithmetic, other, numbers = _ZERO, _ZERO, _ZERO
    for kind, formula in formulas.items():
        if kind in ("g", "G"):
            arithmetic += formula * symbol(kind)
            continue
        vectors = formula.where(lambda term: "n" in term)
        numbers += formula - vectors
        if kind in (ADDITION, MULTIPLICATION):
            arithmetic += vectors * symbol(kind)
        else:
            other += vectors * symbol(kind)
    return Compute(arithmetic, other, numbers)


class Played(NamedTuple):
    """What was counted in one round.

    Attributes:
        client: Operations of one client, and its gradients.
        server: Operations of the server.
        scored: Operations that keep up the scored model.
        sizes: Bytes that are kept and sent.
    """

    client: Counter[str]
    server: Counter[str]
    scored: Counter[str]
    sizes: Counter[str]


def play(algorithm: Algorithm, sizes: Sizes, training: LocalTraining) -> Played:
    """Plays two rounds with the same clients, and counts the second, in which everyone has a past.

    Args:
        algorithm: Whose functions are watched.
        sizes: How large everything is.
        training: Whether there are clipping and weight decay.
    """
    federation = _Federation(algorithm, sizes, training)
    federation.round(1)
    return federation.round(2)


class _Federation:
    """Clients whose gradient is always the same and costs nothing. A round is the engine's, without its safety nets."""

    def __init__(self, algorithm: Algorithm, sizes: Sizes, training: LocalTraining) -> None:
        self._algorithm, self._sizes, self._training = algorithm, sizes, training
        self._gradient = torch.linspace(-1.0, 1.0, sizes.parameters, dtype=sizes.dtype)
        self._cloud = torch.linspace(0.5, 1.5, sizes.parameters, dtype=sizes.dtype)
        self._server = algorithm.server_init(self._cloud)
        self._clients = [algorithm.client_init(self._cloud) for _ in range(sizes.participants)]
        self._steps, self._samples = self._cloud.new_tensor([sizes.steps]), self._cloud.new_tensor([_SAMPLES])
        self._models: dict[int, Tensor] = {}
        self._scored = ScoredModel.empty(self._cloud)
        self._population = Population(sizes.population, float(_SAMPLES)) if algorithm.needs_population else None

    def round(self, number: int) -> Played:
        at_client, at_server, at_simulator = OperationCounter(), OperationCounter(), OperationCounter()
        sizes: Counter[str] = Counter()
        for phase, work in enumerate(self._algorithm.phases):
            context = ServerContext(
                round=number,
                phase=phase,
                eta=self._training.eta(number),
                base_eta=self._training.learning_rate,
                known_population=self._population,
            )
            with at_server:
                message = self._algorithm.downlink(self._server, self._cloud, context)
            replies, changes = [], list[tuple[Tensor, Tensor | None, float]]()
            for client in range(len(self._clients)):
                with at_client if client == 0 else contextlib.nullcontext():
                    reply, model = self._work(client, work, message, context)
                replies.append((client, reply))
                if work is Work.TRAIN:
                    changes.append((model, self._models.get(client), 1.0))
                    self._models[client] = model
            if changes:
                with at_simulator:
                    self._scored = self._scored.with_models(changes)
            with at_server:
                reduced = reduce_replies(self._algorithm.means, replies)
                update = self._algorithm.server_step(self._server, self._cloud, reduced, context)
            self._server, self._cloud = update.server, update.cloud
            at_client.counts.update({"g": self._sizes.steps} if work is Work.TRAIN else {"G": 1})
            sizes.update({"down": message_bytes(message), "up": message_bytes(replies[0][1])})
        with at_simulator:
            self._scored.value(self._cloud)
        sizes["client"] = message_bytes(self._clients[0])
        sizes["server"] = message_bytes(self._server)
        sizes["scored client"] = message_bytes(self._models.values()) // len(self._clients)
        sizes["scored server"] = message_bytes([self._scored.total])
        return Played(at_client.counts, at_server.counts, at_simulator.counts, sizes)

    def _work(self, client: int, work: Work, message: Any, server: ServerContext) -> tuple[Any, Tensor]:
        """One client's reply, and what it was made of: its model, or its gradient over all samples."""
        state, result = self._clients[client], self._gradient
        context = ClientContext(
            round=server.round,
            phase=server.phase,
            eta=server.eta,
            base_eta=server.base_eta,
            steps=self._steps,
            samples=self._samples,
        )
        correction = self._algorithm.client_start(state, message, context)
        if work is Work.TRAIN:
            result = correction.start
            for _ in range(self._sizes.steps):
                result = local_step(result, self._gradient, correction, server.eta, self._training)
        self._clients[client], reply = self._algorithm.client_finish(state, message, result, context)
        return reply, result
