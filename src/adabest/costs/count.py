"""Counted costs of a round: small federations are simulated, and every operation on tensors is counted.

Counts that are linear in the model's size and in the number of steps or of replies are formulas. They are derived from
four small rounds and checked on a fifth, so that no model, however large, needs to be made.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple, get_args

import numpy as np
import torch

from adabest.algorithms.base import Algorithm
from adabest.algorithms.catalog import CORE
from adabest.algorithms.fedavg import FedAvg
from adabest.costs.formula import Formula, Number, bilinear, symbol, whole_or_fraction
from adabest.costs.free_gradients import FreeGradients
from adabest.costs.operations import ADDITION, MULTIPLICATION, OperationCounter
from adabest.costs.published import PaperCosts, paper_costs
from adabest.costs.sizes import Precision, Sizes
from adabest.costs.storage import kept_bytes
from adabest.engine.evaluation import EvaluationRequest, EvaluationResult
from adabest.engine.gate_rules import Gate
from adabest.engine.interface import Engine, Request
from adabest.engine.lanes import advance
from adabest.engine.local_step import LocalTraining
from adabest.engine.reference import ReferenceEngine
from adabest.engine.sections import Section
from adabest.engine.simulation import Rules, Simulation
from adabest.errors import InputError
from adabest.model_part import Parameter
from adabest.runs.settings.algorithm_specification import check_algorithms, make_algorithm
from adabest.runs.settings.run_plan import labelled
from adabest.tasks.base import no_heartbeat

# Where to count, as n and the number that both K and |P| have: four places for a formula, and one to check it.
_PLACES = ((1000, 2), (1000, 3), (2000, 2), (2000, 3))
_CHECK = (3000, 5)
_PRIVATE = (0, 100)  # where to count as q, for algorithms with a private part
_SAMPLES = 10  # of each client; what they are changes no count
_BARE = LocalTraining(clip=0.0, weight_decay=0.0)
_GUARDED = LocalTraining(clip=10.0, weight_decay=1e-3)
_ZERO = 0 * symbol("n")


class Compute(NamedTuple):
    """The compute of a client or of the server in a round.

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
    """Counted costs of one algorithm's round, and the paper's.

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
class CountedCosts:
    """The costs of several algorithms.

    Attributes:
        sizes: The sizes that the formulas are to be evaluated for.
        algorithms: The costs by label.
        baseline: FedAvg's, to compare with.
    """

    sizes: Sizes
    algorithms: dict[str, AlgorithmCosts]
    baseline: AlgorithmCosts


def count_costs(
    algorithms: Sequence[str | Algorithm] | None, sizes: Sizes, named: Sequence[Parameter] = ()
) -> CountedCosts:
    """Counts what a round costs.

    Args:
        algorithms: Specifications such as ``adabest,beta=0.9``, or Algorithm objects; None for the paper's and their
            variants.
        sizes: What the formulas are to be evaluated for.
        named: The model's parameters by name, if it is known.

    Raises:
        InputError: If there is no such algorithm, or there is no formula for its costs.
    """
    chosen = CORE if algorithms is None else algorithms
    check_algorithms(chosen)
    made = {label: make_algorithm(algorithm) for label, algorithm in labelled(chosen).items()}
    counted = {
        label: _costs(label, algorithm, sizes.precision, _private_numbers(algorithm, named))
        for label, algorithm in made.items()
    }
    return CountedCosts(sizes, counted, _costs("fedavg", FedAvg(), sizes.precision, _ZERO))


def _private_numbers(algorithm: Algorithm, named: Sequence[Parameter]) -> Formula:
    """q: its number, or the symbol where the model isn't known.

    Raises:
        InputError: If the model has no such part.
    """
    part = algorithm.private_part()
    if part is None:
        return _ZERO
    return int(part.mask(named).sum()) + _ZERO if named else symbol("q")


def _costs(label: str, algorithm: Algorithm, precision: Precision, private: Formula) -> AlgorithmCosts:
    found = _costs_with(label, algorithm, precision, _PRIVATE[0])
    if algorithm.private_part() is None:
        return found
    more, numbers = _costs_with(label, algorithm, precision, _PRIVATE[1]), _PRIVATE[1] - _PRIVATE[0]
    down, up = (
        first + Fraction(1, numbers) * (second - first) * private
        for first, second in ((found.down, more.down), (found.up, more.up))
    )
    return replace(found, down=down, up=up)


def _costs_with(label: str, algorithm: Algorithm, precision: Precision, private: int) -> AlgorithmCosts:
    """The costs of an algorithm where a model has some private numbers."""
    try:
        bare, guarded = (
            {
                (n, k): count_round(algorithm, Sizes(n, k, k, precision=precision), training, private)
                for n, k in (*_PLACES, _CHECK)
            }
            for training in (_BARE, _GUARDED)
        )
    except Exception as error:
        error.add_note(f"while the costs of {label} were counted")
        raise
    kept = _fit(label, {place: counted.sizes for place, counted in bare.items()}, "|P|")
    client = _fit(label, {place: counted.client for place, counted in bare.items()}, "K")
    whole = _fit(label, {place: counted.client for place, counted in guarded.items()}, "K")
    return AlgorithmCosts(
        client=_compute(client),
        guards=_compute({kind: whole.get(kind, _ZERO) - client.get(kind, _ZERO) for kind in client | whole}),
        server=_compute(_fit(label, {place: counted.server for place, counted in bare.items()}, "|P|")),
        scored=_compute(_fit(label, {place: counted.scored for place, counted in bare.items()}, "|P|")),
        client_bytes=kept["client"],
        server_bytes=kept["server"],
        down=kept["down"],
        up=kept["up"],
        scored_client_bytes=kept["scored_client"],
        scored_server_bytes=kept["scored_server"],
        paper=paper_costs(algorithm),
    )


def _fit(label: str, counts: Mapping[tuple[int, int], Mapping[str, Number]], loop: str) -> dict[str, Formula]:
    """The formula of each kind of count.

    Raises:
        InputError: If the counts aren't linear in n and in the number of steps or replies.
    """
    formulas = {}
    for kind in dict.fromkeys(kind for counted in counts.values() for kind in counted):
        formula = bilinear({place: counts[place].get(kind, 0) for place in _PLACES}, symbol("n"), symbol(loop))
        n, times = _CHECK
        expected, found = formula.value({"n": n, loop: times}), counts[_CHECK].get(kind, 0)
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
        vectors = formula.with_symbol("n")
        numbers += formula - vectors
        if kind in (ADDITION, MULTIPLICATION):
            arithmetic += vectors * symbol(kind)
        else:
            other += vectors * symbol(kind)
    return Compute(arithmetic, other, numbers)


class CountedRound(NamedTuple):
    """Counts of one round.

    Attributes:
        client: Operations of one client, and its gradients.
        server: Operations of the server.
        scored: Operations that keep up the scored model.
        sizes: Bytes that are kept and sent.
    """

    client: dict[str, Number]
    server: dict[str, Number]
    scored: dict[str, Number]
    sizes: dict[str, Number]


def count_round(algorithm: Algorithm, sizes: Sizes, training: LocalTraining, private: int = 0) -> CountedRound:
    """Simulates two rounds with the same clients, and counts the second, in which everyone has a past.

    Args:
        algorithm: Whose rounds they are.
        sizes: How large everything is.
        training: Whether there are clipping and weight decay.
        private: How many numbers of a model are private, for algorithms with a private part.
    """
    initial, gradient = (
        torch.linspace(first, last, sizes.parameters, dtype=sizes.dtype) for first, last in ((0.5, 1.5), (-1.0, 1.0))
    )
    task = FreeGradients(initial, gradient, steps=sizes.steps, samples=_SAMPLES, private=private)
    everyone, cohort = np.arange(sizes.population), np.arange(sizes.participants)
    counts: dict[Section, OperationCounter] = {}
    samples, rules = np.full(sizes.population, _SAMPLES), Rules(gate=Gate("stop"))  # a reply left out isn't averaged
    simulation = Simulation(algorithm, task, everyone, samples=samples, training=training, rules=rules)
    simulation.observer = counts.__getitem__
    engine = ReferenceEngine(no_heartbeat, counts.__getitem__)
    for _ in range(2):
        counts.update({section: OperationCounter() for section in get_args(Section)})
        before, task.batches, task.full = simulation.state, 0, 0
        advance(simulation.round(cohort=cohort), _OwnSteps(engine))
        simulation.scored_model()
    after = simulation.state
    of_clients = counts["client"].counts | Counter({"g": task.batches, "G": task.full})
    sent = {"down": after.bytes_down - before.bytes_down, "up": after.bytes_up - before.bytes_up}
    return CountedRound(
        client=_shares(of_clients, sizes.participants),
        server=dict(counts["server"].counts),
        scored=dict(counts["scored"].counts),
        sizes=kept_bytes(simulation) | _shares(sent, sizes.participants),
    )


class _OwnSteps:
    """An engine whose clients make K steps, even if the algorithm draws their number: costs are told by K."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def exchange(self, requests: Sequence[Request]) -> Sequence[Any]:
        return self._engine.exchange([request._replace(common_steps=None) for request in requests])

    def evaluate(self, requests: Sequence[EvaluationRequest]) -> list[EvaluationResult]:
        return self._engine.evaluate(requests)


def _shares(counts: Mapping[str, int], clients: int) -> dict[str, Number]:
    """What one of equal clients has of the counts of all."""
    return {kind: whole_or_fraction(Fraction(count, clients)) for kind, count in counts.items() if count}
