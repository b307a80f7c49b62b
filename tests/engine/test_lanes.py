"""Runs that are advanced together: each comes to what it comes to alone, and what happens to one is its own matter."""

import functools
import gc
import weakref
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import odd_models
import pytest
import torch
from recording import VARIANTS, make
from side_by_side import Case, StackedEngine, distance, run, simulate, with_norms
from small import assert_same
from torch import Tensor

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddane import FedDane
from adabest.algorithms.feddyn import FedDyn
from adabest.algorithms.fedprox import FedProx
from adabest.algorithms.scaffold import Scaffold
from adabest.data.augmentation import flip_crop
from adabest.engine.gate_rules import Gate
from adabest.engine.interface import Answers, Request
from adabest.engine.lanes import Lane, advance, advance_together
from adabest.engine.local_step import LocalTraining
from adabest.engine.reference import ReferenceEngine
from adabest.engine.simulation import Rules, Simulation
from adabest.engine.trainer import Trainer
from adabest.errors import Diverged, InputError, Interrupted
from adabest.runs.build import make_batched_engine
from adabest.tasks.base import no_heartbeat

every_engine = pytest.mark.parametrize("engine", [StackedEngine, make_batched_engine], ids=["stacked", "chosen"])


class Echo:
    """An engine whose answers are the questions, and that does something else to some of them."""

    def __init__(self, at: dict[int, BaseException] | None = None) -> None:
        self.asked: list[list[Any]] = []
        self._at = at or {}

    def exchange(self, requests: Sequence[Any]) -> list[Any]:
        self.asked.append(list(requests))
        error = self._at.get(len(self.asked))
        if isinstance(error, Diverged):
            return [error, *requests[1:]]
        if error is not None:
            raise error
        return list(requests)


def lane(name: str, exchanges: int, log: list[str] | None = None) -> Generator[Any, Any, list[Any]]:
    """Asks a few times, and says what it was told; with a log, it writes down how it ended."""
    told = []
    try:
        for number in range(exchanges):
            answer = yield f"{name}{number}"
            told.append(answer)
    except BaseException as error:
        if log is not None:
            log.append(f"{name}: {type(error).__name__}")
        raise
    return told


class TestAdvancing:
    def test_all_are_asked_at_the_same_time_until_each_ends(self) -> None:
        engine: Any = Echo()
        results = advance_together([lane("a", 3), lane("b", 1), lane("c", 0), lane("d", 2)], engine)
        assert results == [["a0", "a1", "a2"], ["b0"], [], ["d0", "d1"]]
        assert engine.asked == [["a0", "b0", "d0"], ["a1", "d1"], ["a2"]]

    def test_a_single_lane_is_advanced(self) -> None:
        engine: Any = Echo()
        assert advance(lane("a", 2), engine) == ["a0", "a1"]
        assert advance_together(list[Any](), engine) == []

    def test_an_error_of_the_engine_is_raised_in_every_lane_that_hasnt_ended(self) -> None:
        log: list[str] = []
        error = RuntimeError("out of order")
        engine: Any = Echo({2: error})
        with pytest.raises(RuntimeError) as raised:
            advance_together([lane("a", 3, log), lane("b", 1, log), lane("c", 2, log)], engine)
        assert raised.value is error
        assert log == ["a: RuntimeError", "c: RuntimeError"]

    def test_an_error_of_a_lane_is_raised_in_the_others(self) -> None:
        log: list[str] = []

        def careless() -> Generator[Any, Any, list[Any]]:
            yield "x"
            raise InputError("what was I thinking") from ValueError("this")

        engine: Any = Echo()
        with pytest.raises(InputError, match="what was I thinking") as raised:
            advance_together([lane("a", 3, log), careless(), lane("c", 3, log)], engine)
        assert log == ["a: InputError", "c: InputError"]
        assert isinstance(raised.value.__cause__, ValueError), "what led to it is still told"

    @pytest.mark.parametrize("interruption", [KeyboardInterrupt(), Interrupted("by a signal")], ids=["key", "signal"])
    def test_an_interruption_is_raised_in_every_lane(self, interruption: BaseException) -> None:
        log: list[str] = []
        engine: Any = Echo({1: interruption})
        with pytest.raises(type(interruption)):
            advance_together([lane("a", 3, log), lane("b", 3, log)], engine)
        assert len(log) == 2

    def test_lanes_may_save_go_on_or_raise_at_an_error(self) -> None:
        """One saves and ends, one goes on, one says what it means for it: that is what comes out."""
        closed = []

        def saves() -> Generator[Any, Any, str]:
            try:
                yield "s"
            except Interrupted:
                return "saved"
            return "finished"

        def stubborn() -> Generator[Any, Any, str]:
            try:
                for _ in range(3):
                    try:
                        yield "w"
                    except Interrupted:
                        continue
            finally:
                closed.append(True)
            return "finished"

        def explains() -> Generator[Any, Any, str]:
            try:
                yield "e"
            except Interrupted as error:
                raise Interrupted("stopped, see runs/7") from error
            return "finished"

        for lanes, message in (([saves(), stubborn(), explains()], "see runs/7"), ([saves(), stubborn()], "plain")):
            engine: Any = Echo({1: Interrupted("plain")})
            with pytest.raises(Interrupted, match=message):
                advance_together(lanes, engine)
        assert closed == [True, True]

    def test_divergence_is_raised_in_its_own_lane_only(self) -> None:
        log: list[str] = []

        def minds() -> Generator[Any, Any, Any]:
            try:
                yield "m"
            except Diverged as diverged:
                return f"diverged: {diverged}"

        engine: Any = Echo({1: Diverged("loss is nan")})
        assert advance_together([minds(), lane("a", 2, log)], engine) == ["diverged: loss is nan", ["a0", "a1"]]
        assert log == []

    def test_divergence_that_a_lane_doesnt_mind_ends_all(self) -> None:
        log: list[str] = []
        engine: Any = Echo({1: Diverged("loss is nan")})
        with pytest.raises(Diverged, match="loss is nan"):
            advance_together([lane("a", 2, log), lane("b", 2, log)], engine)
        assert log == ["a: Diverged", "b: Diverged"]


# --- Lanes of real runs -----------------------------------------------------------------------------------------------


def rounds_of(simulation: Simulation, rounds: int) -> Lane[str | None]:
    """A run as a lane; returns the message of its divergence."""
    try:
        for _ in range(rounds):
            yield from simulation.round(evaluate=True)
    except Diverged as diverged:
        return str(diverged)
    return None


MLP = Case("mlp,hidden=9x5", (2, 6, 6), kind="mlp")
STEADY = LocalTraining(clip=1.0)


def half_and_half(images: Tensor, keys: Tensor) -> Tensor:
    return 0.5 * images


LANES: list[tuple[Any, Case, LocalTraining, Rules | None]] = [
    (AdaBest(), MLP, STEADY, None),
    (AdaBest(mu=0.1, beta=0.5), MLP._replace(seed=5), STEADY, None),
    (AdaBest(beta="auto"), MLP, STEADY, None),
    (AdaBest(beta="auto"), MLP._replace(seed=5), STEADY, Rules(server_rate=0.5)),
    (FedAvg(), MLP, LocalTraining(learning_rate=0.03, weight_decay=0.1, clip=0), Rules(server_rate=0.5)),
    (FedDyn(), MLP._replace(partition_seed=2, unbalance=0.0), STEADY, None),
    (Scaffold(), MLP._replace(options=(("epochs", 3),)), STEADY, None),
    (FedProx(), MLP._replace(options=(("local_steps", "mean"),), seed=6), STEADY, None),
    (FedAvg(), MLP._replace(options=(("batch_size", 5),)), STEADY, None),
    (FedDyn(), MLP._replace(options=(("batching", "replacement"),)), STEADY, None),
    (FedDyn(), MLP._replace(options=(("batching", "replacement"),), seed=7, unbalance=0.0), STEADY, None),
    (FedAvg(), MLP._replace(options=(("batching", "short"),)), STEADY, None),
    (AdaBest(), MLP._replace(options=(("batching", "short"), ("epochs", 1)), seed=8), STEADY, None),
    (FedDane(), MLP, STEADY, None),
    (FedDane(), MLP._replace(seed=9, partition_seed=3), STEADY, None),
    (AdaBest(), MLP._replace(augmentation=flip_crop), STEADY, None),
    (AdaBest(), MLP._replace(augmentation=half_and_half), STEADY, None),
    (AdaBest(), Case("logistic", (5,), kind="logistic"), STEADY, None),
    (FedDyn(), Case(odd_models.make("mixed"), (2, 6, 6), kind="mixed"), STEADY, None),
    (FedDyn(), Case(odd_models.make("mixed"), (2, 6, 6), kind="mixed", seed=3), STEADY, None),
    (AdaBest(), Case(odd_models.make("transformer"), (2, 6, 6), kind="transformer"), STEADY, None),
    (FedDane(), Case(odd_models.make("transformer"), (2, 6, 6), kind="transformer", seed=3), STEADY, None),
]


@every_engine
@pytest.mark.parametrize("most", [None, 5])
def test_lanes_agree_with_single_runs(engine: Any, most: int | None) -> None:
    """Different seeds, algorithms, numbers, learning rates, partitions, batches and augmentations in one exchange."""
    lengths = [2 + number % 2 for number in range(len(LANES))]
    together = [simulate(a, case, engine, training, rules) for a, case, training, rules in LANES]
    single = [simulate(a, case, ReferenceEngine, training, rules) for a, case, training, rules in LANES]
    shared = engine(no_heartbeat, clients_in_parallel=most)
    lanes = [rounds_of(simulation, length) for simulation, length in zip(together, lengths, strict=True)]
    assert advance_together(lanes, shared) == [None] * len(LANES)
    for mine, truth, length in zip(together, single, lengths, strict=True):
        run(truth, length)
        assert mine.state.local_steps == truth.state.local_steps
        assert distance(mine, truth) < 1e-11


class Counting(StackedEngine):
    """Counts the clients that train in one go."""

    together: list[int]

    def _train(self, trainer: Trainer, requests: Mapping[int, Request]) -> dict[int, Answers]:
        self.together = [*getattr(self, "together", []), sum(len(request.clients) for request in requests.values())]
        return super()._train(trainer, requests)


@every_engine
def test_lanes_of_all_algorithms_have_the_bits_of_single_runs(engine: Any) -> None:
    """On a model with a normalisation layer, which FedBN asks for."""
    case = with_norms(MLP._replace(kind="norms"))
    alone, together = ([simulate(make(name), case, engine) for name in VARIANTS] for _ in range(2))
    shared = engine(no_heartbeat)
    for _ in range(2):
        for simulation in alone:
            simulation.step()
        advance_together([simulation.round() for simulation in together], shared)
    for mine, truth in zip(together, alone, strict=True):
        assert_same(mine.snapshot(), truth.snapshot())


def test_lanes_of_one_kind_train_in_one_go() -> None:
    simulations = [simulate(FedAvg(), MLP._replace(seed=seed), Counting) for seed in range(4)]
    engine = Counting(no_heartbeat)
    advance_together([rounds_of(simulation, 1) for simulation in simulations], engine)
    assert engine.together == [sum(len(simulation.cohort(1)) for simulation in simulations)]


def test_lanes_of_one_kind_compute_full_gradients_in_one_go() -> None:
    simulations = [simulate(FedDane(), MLP._replace(seed=seed), Counting) for seed in range(3)]
    engine = Counting(no_heartbeat)
    advance_together([rounds_of(simulation, 1) for simulation in simulations], engine)
    assert engine.together == [sum(len(simulation.cohort(1)) for simulation in simulations)] * 2


def test_lanes_with_other_batches_train_by_themselves() -> None:
    cases = [MLP._replace(options=(("batching", batching),)) for batching in ("top-up", "short", "replacement")]
    simulations = [simulate(FedAvg(), case, Counting) for case in cases]
    engine = Counting(no_heartbeat)
    advance_together([rounds_of(simulation, 1) for simulation in simulations], engine)
    assert engine.together == [len(simulation.cohort(1)) for simulation in simulations]


@every_engine
def test_divergence_is_a_matter_of_its_own_lane(engine: Any) -> None:
    wild, calm, stops = LocalTraining(learning_rate=1e200, clip=0), STEADY, Rules(gate=Gate("stop"))
    settings = [(0, calm), (0, wild), (4, calm)]
    simulations, truths = (
        [simulate(FedAvg(), MLP._replace(seed=seed), kind, training, stops) for seed, training in settings]
        for kind in (engine, ReferenceEngine)
    )
    shared = engine(no_heartbeat, clients_in_parallel=2)
    messages = advance_together([rounds_of(simulation, 3) for simulation in simulations], shared)
    expected = [advance(rounds_of(truth, 3), ReferenceEngine(no_heartbeat)) for truth in truths]
    assert messages == expected
    assert [message is None for message in messages] == [True, False, True]
    for mine, truth in zip(simulations, truths, strict=True):
        assert mine.state.round == truth.state.round
        assert distance(mine, truth) < 1e-11


@every_engine
@pytest.mark.parametrize("name", ["frozen", "buffer"])
def test_lanes_keep_what_isnt_trained_apart(engine: Any, name: str) -> None:
    """The same model by name, but its weights are drawn anew for every seed, those that never train among them."""
    cases = [Case(odd_models.make(name, seed), odd_models.INPUT, seed=seed, kind=name) for seed in (0, 1)]
    simulations = [simulate(AdaBest(), case, engine) for case in cases]
    advance_together([rounds_of(simulation, 2) for simulation in simulations], engine(no_heartbeat))
    for case, mine in zip(cases, simulations, strict=True):
        truth = simulate(AdaBest(), case, ReferenceEngine)
        run(truth, 2)
        assert distance(mine, truth) < 1e-11


@every_engine
def test_an_engine_outlives_the_runs_that_used_it(engine: Any) -> None:
    """Kinds are told apart by addresses in memory, which a later run may be given again."""
    shared = engine(no_heartbeat)
    first = simulate(FedAvg(), Case("logistic", (4,)), engine)
    advance(rounds_of(first, 1), shared)
    task = weakref.ref(first._task)
    del first
    gc.collect()
    assert task() is not None, "as long as it lives, nothing else has its address"
    for shape in ((5,), (6,), (7,), (5,), (6,)):
        case = Case("logistic", shape)
        mine = simulate(FedAvg(), case, engine)
        advance(rounds_of(mine, 1), shared)
        truth = simulate(FedAvg(), case, ReferenceEngine)
        run(truth, 1)
        assert distance(mine, truth) < 1e-11


@every_engine
def test_float32_lanes_beside_float64_lanes(engine: Any) -> None:
    shared = engine(no_heartbeat)
    cases = [MLP._replace(dtype=dtype) for dtype in (torch.float32, torch.float64)]
    simulations = [simulate(FedDyn(), case, functools.partial(engine)) for case in cases]
    advance_together([rounds_of(simulation, 2) for simulation in simulations], shared)
    for case, mine, limit in zip(cases, simulations, (2e-3, 1e-11), strict=True):
        truth = simulate(FedDyn(), case, ReferenceEngine)
        run(truth, 2)
        assert mine.state.cloud.dtype == case.dtype
        assert distance(mine, truth) < limit
