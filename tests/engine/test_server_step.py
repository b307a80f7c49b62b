"""Server steps of several runs at once: the bits of each alone, and none for algorithms that don't say so."""

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from recording import NAMES, make
from side_by_side import Case, fitting, simulate

from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Nothing, Replies, ServerContext, Update
from adabest.algorithms.fedavg import FedAvg
from adabest.algorithms.feddyn import FedDyn
from adabest.engine import server_step
from adabest.engine.lanes import Lane, advance_together
from adabest.engine.reference import ReferenceEngine
from adabest.engine.server_step import ServerStep, may_be_stacked, take_server_steps, take_stacked
from adabest.tasks.base import no_heartbeat

MLP = Case("mlp,hidden=9x5", (2, 6, 6), kind="mlp")


@dataclass(frozen=True)
class Bounded(FedAvg):
    """A server step of its own, with a norm, in a class that says nothing about stacking."""

    def server_step(self, server: Any, cloud: Any, replies: Replies, context: ServerContext) -> Update:
        found = super().server_step(server, cloud, replies, context)
        return found._replace(cloud=found.cloud / torch.linalg.vector_norm(found.cloud))


def rounds(lanes: list[Any], count: int) -> list[Lane[None]]:
    def lane(simulation: Any) -> Lane[None]:
        for _ in range(count):
            yield from simulation.round()

    return [lane(simulation) for simulation in lanes]


@pytest.mark.parametrize("name", [*NAMES, "adabest,beta=auto"])
def test_stacked_steps_have_the_bits_of_single_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [fitting(make(name), MLP._replace(seed=seed)) for seed in range(3)]
    together, single = ([simulate(make(name), case, ReferenceEngine) for case in cases] for _ in range(2))
    counts = list[int]()

    def stacked(steps: list[ServerStep]) -> list[Update]:
        counts.append(len(steps))
        return take_stacked(steps)

    with monkeypatch.context() as patch:
        patch.setattr("adabest.engine.lanes.take_server_steps", stacked)
        advance_together(rounds(together, 3), ReferenceEngine(no_heartbeat))
    advance_together(rounds(single, 3), ReferenceEngine(no_heartbeat))
    assert counts == [3] * 3 * len(make(name).phases)
    for one, other in zip(together, single, strict=True):
        for field in ("cloud", "aggregate", "h"):
            mine, theirs = getattr(one.state, field), getattr(other.state, field)
            assert (mine is None) == (theirs is None)
            assert mine is None or torch.equal(mine, theirs)
        assert all(torch.equal(a, b) for a, b in zip(one.state.server, other.state.server, strict=True))


@pytest.mark.parametrize("shape", [(3, 1), (3, 7), (2, 513), (1, 512), (4, 5, 3), (3, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_rows_lie_as_tensors_of_their_own_do(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    stacked = torch.arange(math.prod(shape), dtype=dtype).view(shape)
    rows = server_step.aligned_rows(stacked)
    assert [row.tolist() for row in rows] == stacked.tolist()
    assert all(row.is_contiguous() for row in rows)
    if math.prod(shape[1:]) > 1:
        assert all((row.data_ptr() - rows[0].data_ptr()) % 512 == 0 for row in rows)


def test_what_may_be_stacked_is_said_of_the_very_step() -> None:
    assert may_be_stacked(FedAvg())
    assert may_be_stacked(AdaBest())
    assert may_be_stacked(AdaBest(beta="auto")), "its sums have an order of their own"
    assert not may_be_stacked(AdaBest(beta_decay=0.9, patience=2)), "it takes a norm"
    assert not may_be_stacked(Bounded()), "what FedAvg says isn't about this step"


def test_steps_are_stacked_with_their_like_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a made-up GPU: what differs in hyper-parameters, learning rate, count or population goes alone."""
    stacked = list[int]()

    def counted(steps: list[ServerStep]) -> list[Update]:
        stacked.append(len(steps))
        return take_stacked(steps)

    class OnDevice(torch.Tensor):
        is_cuda = True

    def step(algorithm: Any, **changes: Any) -> ServerStep:
        cloud = torch.zeros(4).as_subclass(OnDevice)

        class Three(Replies):
            count = changes.pop("count", 3)

            def mean(self, field: str, weight: str = "one") -> torch.Tensor:
                return torch.ones(4) if field == "model" else torch.ones(1)

        context = ServerContext(**{"round": 1, "phase": 0, "eta": 0.1, "base_eta": 0.1, **changes})
        return ServerStep(algorithm, algorithm.server_init(cloud), cloud, Three(), context)

    monkeypatch.setattr(server_step, "take_stacked", counted)
    steps = [step(AdaBest()), step(AdaBest()), step(AdaBest(mu=0.1)), step(AdaBest(), eta=0.2), step(FedAvg())]
    steps += [step(AdaBest(), count=2), step(Bounded()), step(Bounded()), step(AdaBest())]
    results = [found for found in take_server_steps(steps) if isinstance(found, Update)]
    assert stacked == [3]
    assert [torch.equal(found.aggregate, torch.ones(4)) for found in results] == [True] * len(steps)


def test_a_population_of_its_own_keeps_a_step_apart() -> None:
    kinds = set()
    for size in (10.0, 10.0, 11.0):
        simulation = simulate(FedDyn(), MLP, ReferenceEngine)
        context = simulation.context(1, 0)
        assert context.known_population is not None
        population = type(context.known_population)(size, context.known_population.mean_samples)
        found = type(context)(**{**vars(context), "known_population": population})
        replies: Any = type("Few", (), {"count": 2})()
        state = simulation.state
        kinds.add(server_step._kind(ServerStep(FedDyn(), state.server, state.cloud, replies, found)))
    assert len(kinds) == 2


@dataclass(frozen=True)
class Careless(FedAvg):
    """Fails for one of its runs, which is told by its model."""

    @property
    def stackable(self) -> bool:
        return True

    def server_step(self, server: Any, cloud: Any, replies: Replies, context: ServerContext) -> Update:
        if bool((cloud[..., 0] == 1).any()):
            raise ZeroDivisionError("a bug")
        return Update(server, cloud, cloud)


def test_an_error_belongs_to_the_run_whose_step_it_is() -> None:
    context = ServerContext(round=1, phase=0, eta=0.1, base_eta=0.1)
    replies: Any = type("Few", (), {"count": 2})()
    steps = [
        ServerStep(Careless(), Careless().server_init(torch.zeros(3)), torch.full((3,), float(run)), replies, context)
        for run in range(3)
    ]
    first, second, third = server_step._results(steps)
    assert isinstance(first, Update)
    assert isinstance(second, ZeroDivisionError)
    assert isinstance(third, Update)


@dataclass(frozen=True)
class WithRates(FedAvg):
    """Has a hyper-parameter that isn't a plain number."""

    rates: tuple[float, ...] = (0.1,)

    @property
    def stackable(self) -> bool:
        return True

    def server_step(self, server: Any, cloud: Any, replies: Replies, context: ServerContext) -> Update:
        return Update(server, cloud, cloud.flatten() if cloud.ndim == 1 else cloud.view(-1, 1, 1, 1).squeeze(9))


def test_hyper_parameters_that_cant_be_compared_keep_steps_alone() -> None:
    assert not may_be_stacked(WithRates())


def test_a_step_that_cant_be_stacked_is_told_of_and_goes_alone() -> None:
    context = ServerContext(round=1, phase=0, eta=0.1, base_eta=0.1)
    replies: Any = type("Few", (), {"count": 2})()
    steps = [ServerStep(WithRates(), Nothing(), torch.full((3,), float(run)), replies, context) for run in range(2)]
    with pytest.warns(UserWarning, match="WithRates says that its server steps may be stacked, but that fails"):
        found = server_step._results(steps)
    assert [result.cloud.tolist() for result in found if isinstance(result, Update)] == [[0.0] * 3, [1.0] * 3]
