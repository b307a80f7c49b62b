"""Keyed noise of algorithms: the same on every engine, alone and in lanes; and no other noise is let through."""

import random as python_random
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from relatives import NoisyFedAvg
from side_by_side import Case, StackedEngine, distance, simulate

from adabest import random
from adabest.algorithms.base import ClientContext, ServerContext
from adabest.algorithms.fedavg import FedAvg
from adabest.engine.lanes import advance_together
from adabest.engine.reference import ReferenceEngine
from adabest.engine.server_step import ServerStep, take_stacked
from adabest.engine.simulation import Simulation
from adabest.errors import InputError
from adabest.noise import NoiseKey
from adabest.random import Purpose
from adabest.runs.build import make_batched_engine
from adabest.tasks.base import no_heartbeat

CASE = Case("mlp,hidden=5", (1, 5, 5))
ENGINES: dict[str, Callable[..., Any]] = {
    "reference": ReferenceEngine,
    "cores": make_batched_engine,
    "stacked": StackedEngine,
}
every_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)


def federation(case: Case = CASE, engine: Callable[..., Any] = ReferenceEngine) -> Simulation:
    return simulate(NoisyFedAvg(), case, engine)


def make_rounds(simulation: Simulation, count: int = 3) -> Simulation:
    for _ in range(count):
        simulation.step()
    return simulation


def client_context(client: int | tuple[int, ...], **changes: Any) -> ClientContext:
    one = torch.ones(1)
    context = ClientContext(1, 0, 0.1, 0.1, one, one, NoiseKey(5, client))
    return replace(context, **changes)


# --- The numbers ------------------------------------------------------------------------------------------------------


def test_normal_numbers_are_quantiles_of_the_normal_distribution() -> None:
    chosen = [0, 1 << 12, 1 << 40, 1 << 58, 1 << 62, (1 << 63) - 1, -(1 << 63), -1, -(1 << 12), -(1 << 40)]
    bits = torch.tensor([*chosen, *random.bits(0, Purpose.ALGORITHM_NOISE, np.arange(2000)).tolist()])
    upper = [((word & 0xFFFF_FFFF_FFFF_FFFF) >> 12) for word in bits.tolist()]
    expected = [statistics.NormalDist().inv_cdf((2 * word + 1) / 2.0**53) for word in upper]
    torch.testing.assert_close(random.normal(bits), torch.tensor(expected, dtype=torch.float64), rtol=1e-14, atol=1e-15)


def test_normal_numbers_keep_their_last_bits() -> None:
    """They are part of the results of algorithms with noise: never change them."""
    words = [1 << 12, 1 << 40, (1 << 62) + 12345678901, (1 << 63) - 1, -(1 << 63) + 98765432109876, -(1 << 20)]
    assert [number.hex() for number in random.normal(torch.tensor(words)).tolist()] == [
        "-0x1.02734508d1f1cp+3",
        "-0x1.52dc6e853f1cap+2",
        "-0x1.5956b86311571p-1",
        "-0x1.40d931ff62707p-52",
        "0x1.c252f02e30182p-17",
        "0x1.db2611ede1974p+2",
    ]


def test_normal_numbers_have_the_moments_of_the_normal_distribution() -> None:
    drawn = client_context(3).normal_like(torch.zeros(400_000, dtype=torch.float64))
    moments = [float((drawn**power).mean()) for power in (1, 2, 3, 4)]
    assert moments == pytest.approx([0, 1, 0, 3], abs=0.05)


def test_uniform_numbers_are_evenly_spread_and_below_one() -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        drawn = client_context(3).uniform_like(torch.zeros(100_000, dtype=dtype))
        assert drawn.dtype == dtype
        assert 0 <= float(drawn.min()) < 0.01
        assert 0.99 < float(drawn.max()) < 1
        assert float(drawn.double().mean()) == pytest.approx(0.5, abs=0.01)


def test_uniform_numbers_are_the_upper_bits_of_the_named_draw() -> None:
    drawn = client_context(3, round=7, phase=1).uniform_like(torch.zeros(2, dtype=torch.float64), draw=9)
    words = random.bits(5, Purpose.ALGORITHM_NOISE, 7, 3, 1, 1, 0, 9, np.arange(2))
    assert drawn.tolist() == random.uniform(words).tolist()


@pytest.mark.parametrize(
    "other",
    [
        client_context(4),
        client_context(3, round=2),
        client_context(3, phase=1),
        client_context(3, noise=NoiseKey(6, 3)),
        client_context(3, noise=NoiseKey(5)),
    ],
    ids=["client", "round", "phase", "seed", "server"],
)
def test_another_name_gives_other_numbers(other: ClientContext) -> None:
    x = torch.zeros(4)
    for mine, theirs in (
        (client_context(3).normal_like(x), other.normal_like(x)),
        (client_context(3).uniform_like(x), other.uniform_like(x)),
    ):
        assert not bool((mine == theirs).any())


def test_no_two_draws_are_alike() -> None:
    x, context = torch.zeros(4, dtype=torch.float64), client_context(3)
    keys = [context.noise.in_function(name) for name in ("client_start", "client_finish")]
    contexts = [context, *(replace(context, noise=key) for key in keys)]
    drawn = [one.normal_like(x) for one in contexts for _ in range(3)]
    drawn += [context.normal_like(x, draw=number) for number in range(3)]
    assert len({float(number) for numbers in drawn for number in numbers}) == 4 * 12


def test_a_numbered_draw_is_the_same_in_every_function_and_call() -> None:
    x, context = torch.zeros(4), client_context(3)
    other = replace(context, noise=context.noise.in_function("client_finish"))
    other.normal_like(x)
    for _ in range(2):
        assert torch.equal(context.normal_like(x, draw=2), other.normal_like(x, draw=2))


def test_each_call_of_a_function_counts_its_draws_from_the_first() -> None:
    x, context = torch.zeros(4), client_context(3)
    one, other = (replace(context, noise=context.noise.in_function("client_start")) for _ in range(2))
    assert torch.equal(one.normal_like(x), other.normal_like(x))
    assert torch.equal(one.normal_like(x), other.normal_like(x))


def test_numbers_are_the_same_however_many_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(3, 10, 7)
    whole = [draw(x, draw=0) for draw in (client_context((8, 3, 5)).normal_like, client_context(3).uniform_like)]
    monkeypatch.setattr("adabest.noise._AT_ONCE", 16)
    parts = [draw(x, draw=0) for draw in (client_context((8, 3, 5)).normal_like, client_context(3).uniform_like)]
    assert all(map(torch.equal, whole, parts))


def test_clients_at_once_have_the_numbers_of_each_alone() -> None:
    together, vector, number = client_context((8, 3, 5)), torch.zeros(6), torch.zeros(1)
    for of_all, of_one in (
        (vector, vector),
        (torch.zeros(3, 6), vector),
        (torch.zeros(3, 1), number),
        (number, number),
    ):
        drawn = together.normal_like(of_all, draw=0)
        for place, client in enumerate((8, 3, 5)):
            assert torch.equal(drawn[place], client_context(client).normal_like(of_one, draw=0))


def test_every_number_of_a_table_is_its_own() -> None:
    assert len(set(client_context(3).normal_like(torch.zeros(5, 7, dtype=torch.float64)).flatten().tolist())) == 35


def test_noise_like_a_table_without_a_dimension_for_the_clients_is_refused() -> None:
    words = r"the shape \[2, 4\]: where 3 clients or runs are computed at once, .* its first dimension theirs: \[3, 4\]"
    with pytest.raises(InputError, match=words):
        client_context((8, 3, 5)).normal_like(torch.zeros(2, 4))


@pytest.mark.parametrize("draw", [-1, 0.5, "a", True])
def test_a_draw_without_a_number_is_refused(draw: Any) -> None:
    with pytest.raises(InputError, match=r"draw = .* should be a whole number from 0"):
        client_context(3).normal_like(torch.zeros(1), draw=draw)


def test_noise_like_whole_numbers_is_refused() -> None:
    with pytest.raises(InputError, match="noise is like a tensor of a float type, not int64"):
        client_context(3).uniform_like(torch.zeros(1, dtype=torch.int64))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: its bits can't be compared with the CPU's")
def test_a_gpu_has_the_bits_of_a_cpu() -> None:
    for dtype in (torch.float64, torch.float32):
        for client in (3, (8, 3, 5)):
            x, context = torch.zeros(100_003, dtype=dtype), client_context(client)
            assert torch.equal(context.normal_like(x, draw=0), context.normal_like(x.cuda(), draw=0).cpu())
            assert torch.equal(context.uniform_like(x, draw=0), context.uniform_like(x.cuda(), draw=0).cpu())


# --- Engines and lanes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [make_batched_engine, StackedEngine], ids=["cores", "stacked"])
def test_engines_agree_on_an_algorithm_with_noise(engine: Callable[..., Any]) -> None:
    mine, truth = make_rounds(federation(engine=engine)), make_rounds(federation())
    assert distance(mine, truth) < 1e-12
    silent = make_rounds(simulate(NoisyFedAvg(sigma=0.0), CASE, engine))
    assert distance(mine, silent) > 1e-3


@every_engine
def test_lanes_with_noise_are_as_each_alone(engine: Callable[..., Any]) -> None:
    cases = [CASE, CASE._replace(seed=1), CASE._replace(seed=2)]
    lanes, shared = [federation(case, engine) for case in cases], engine(no_heartbeat)
    for _ in range(3):
        advance_together([one.round() for one in lanes], shared)
    for lane, case in zip(lanes, cases, strict=True):
        assert torch.equal(lane.state.cloud, make_rounds(federation(case, engine)).state.cloud)


def test_stacked_server_steps_have_the_noise_of_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where steps of several runs are one operation."""
    counts = []

    def stacked(steps: list[ServerStep]) -> Any:
        counts.append(len(steps))
        return take_stacked(steps)

    monkeypatch.setattr("adabest.engine.lanes.take_server_steps", stacked)
    cases = [CASE, CASE._replace(seed=1), CASE._replace(seed=2)]
    lanes = [federation(case) for case in cases]
    advance_together([one.round() for one in lanes], ReferenceEngine(no_heartbeat))
    monkeypatch.undo()
    assert counts == [3]
    for lane, case in zip(lanes, cases, strict=True):
        assert torch.equal(lane.state.cloud, make_rounds(federation(case), 1).state.cloud)


def test_a_resumed_run_has_the_noise_of_one_that_went_through() -> None:
    begun, resumed = make_rounds(federation(), 2), federation()
    resumed.restore(begun.snapshot())
    assert torch.equal(make_rounds(resumed, 2).state.cloud, make_rounds(federation(), 4).state.cloud)


# --- Global generators ------------------------------------------------------------------------------------------------

DRAWS: dict[str, Callable[[], Any]] = {
    "torch": lambda: torch.randn(1),
    "NumPy": np.random.random,
    "Python": python_random.random,
}


def drawing(method: str, draw: Callable[[], Any], rounds: range = range(1, 100)) -> FedAvg:
    """FedAvg one of whose functions draws."""

    def function(self: FedAvg, *given: Any) -> Any:
        if not isinstance(given[-1], ServerContext | ClientContext) or given[-1].round in rounds:
            draw()
        return getattr(FedAvg, method)(self, *given)

    kind: type[FedAvg] = type("Drawing", (FedAvg,), {method: function})
    return kind()


@every_engine
@pytest.mark.parametrize("library", DRAWS)
@pytest.mark.parametrize(
    "method", ["server_init", "client_init", "downlink", "client_start", "client_finish", "server_step", "client_model"]
)
def test_a_draw_from_a_global_generator_is_refused(method: str, library: str, engine: Callable[..., Any]) -> None:
    words = f"algorithm Drawing: {method} draws random numbers from {library}'s global generator, so runs could not be"
    with pytest.raises(InputError, match=words) as caught:
        simulate(drawing(method, DRAWS[library]), CASE, engine).step()
    assert "context.normal_like(x)" in str(caught.value)


@pytest.mark.parametrize(("library", "first"), [("torch", 3), ("NumPy", 3), ("Python", 13)])
def test_a_draw_of_a_later_round_is_refused(library: str, first: int) -> None:
    simulation = simulate(drawing("server_step", DRAWS[library], range(first, 100)), CASE, ReferenceEngine)
    make_rounds(simulation, first - 1)
    with pytest.raises(InputError, match="algorithm Drawing: server_step draws"):
        make_rounds(simulation, 2)


def test_a_seed_of_ones_own_for_the_global_generator_is_refused() -> None:
    simulation = simulate(drawing("server_step", lambda: torch.manual_seed(0)), CASE, ReferenceEngine)
    with pytest.raises(InputError, match="server_step draws random numbers from torch's global generator"):
        make_rounds(simulation)


def test_a_draw_of_another_thread_meanwhile_is_not_the_algorithms() -> None:
    draws = [DRAWS["Python"]]

    def draw_once() -> None:
        if draws:
            draws.pop()()

    simulation = simulate(drawing("server_step", draw_once), CASE, ReferenceEngine)
    simulation.step()
    assert simulation.state.round == 1
