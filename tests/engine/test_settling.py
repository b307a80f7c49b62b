"""Rounds that are settled later, as on a GPU: the same states, and a divergence that is found late is told the same."""

from pathlib import Path
from typing import Any

import pytest
import torch
from recording import REPRESENTATIVES, make
from side_by_side import Case, StackedEngine, simulate
from tiny_runs import Bomb, Faulty, break_off, results, run, tiny

import adabest
from adabest.algorithms.catalog import CORE
from adabest.algorithms.fedavg import FedAvg
from adabest.engine.arrival import Arrival, send
from adabest.engine.gate_rules import Gate
from adabest.engine.lanes import Lane, advance
from adabest.engine.local_step import LocalTraining
from adabest.engine.simulation import Rules, Simulation
from adabest.errors import Diverged, Interrupted
from adabest.tasks.base import no_heartbeat

MLP = Case("mlp,hidden=9x5", (2, 6, 6), kind="mlp")
WILD = LocalTraining(learning_rate=1e200, clip=0)


def rounds(simulation: Simulation, count: int, *, settled: bool) -> Lane[None]:
    for _ in range(count):
        yield from simulation.round(settled=settled)
    simulation.settle()


def test_numbers_of_the_machine_are_there_at_once() -> None:
    arrival = Arrival(torch.arange(3.0))
    assert arrival.is_there
    assert arrival.read().tolist() == [0.0, 1.0, 2.0]
    assert send([1, 2], torch.float64, torch.device("cpu")).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("name", [*CORE, *REPRESENTATIVES])
@pytest.mark.usefixtures("late")
def test_rounds_that_are_settled_later_have_the_same_bits(name: str) -> None:
    sooner, later = (simulate(make(name), MLP, StackedEngine) for _ in range(2))
    advance(rounds(sooner, 4, settled=True), StackedEngine(no_heartbeat))
    advance(rounds(later, 4, settled=False), StackedEngine(no_heartbeat))
    mine, theirs = sooner.snapshot(), later.snapshot()
    assert mine.numbers == theirs.numbers
    assert all(torch.equal(tensor, theirs.tensors[name]) for name, tensor in mine.tensors.items())


@pytest.mark.usefixtures("late")
def test_a_round_is_settled_by_the_one_after_the_next() -> None:
    simulation = simulate(FedAvg(), MLP, StackedEngine, WILD, Rules(gate=Gate("stop")))
    engine = StackedEngine(no_heartbeat)
    advance(simulation.round(settled=False), engine)
    assert (simulation.state.round, len(simulation._unsettled)) == (1, 1)
    advance(simulation.round(settled=False), engine)
    with pytest.raises(Diverged, match="training loss at local step"):
        advance(simulation.round(settled=False), engine)
    assert simulation.state.round == 0
    assert bool(torch.isfinite(simulation.state.cloud).all())


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("look", [Simulation.settle, Simulation.view, Simulation.snapshot])
def test_whoever_reads_the_state_settles_it(look: Any) -> None:
    """A round that can't have been right is taken back; the next call makes it again, and tells what was wrong."""
    simulation = simulate(FedAvg(), MLP, StackedEngine, WILD, Rules(gate=Gate("stop")))
    advance(simulation.round(settled=False), StackedEngine(no_heartbeat))
    look(simulation)
    assert simulation.state.round == 0
    assert not simulation._unsettled
    with pytest.raises(Diverged, match=r"in round 1 is left out.*training loss at local step"):
        simulation.step()


def test_a_divergence_that_is_found_late_is_told_the_same(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """It comes between two evaluations, in round 4, and the run ends with the models of round 3."""
    settings: dict[str, Any] = {"algorithm": "tiny_runs:Bomb", "fuse": 4, "rounds": 9, "evaluate_every": 9}
    sooner = run(tmp_path / "sooner", **settings)
    request.getfixturevalue("late")
    later = run(tmp_path / "later", **settings)
    assert (later.status, later.round) == (sooner.status, sooner.round) == ("diverged", 4)
    assert results(tmp_path / "later") == results(tmp_path / "sooner")


@pytest.mark.usefixtures("late")
def test_an_interrupted_run_is_saved_before_a_round_that_has_diverged(tmp_path: Path) -> None:
    """The stop comes in the round after the divergence, before anyone knew of it; resumed, the run finds it again."""
    settings: dict[str, Any] = {"algorithm": "tiny_runs:Bomb", "fuse": 3, "rounds": 9, "evaluate_every": 9}
    run(tmp_path / "whole", **settings)
    break_off(tmp_path / "stopped", 12 * 3 + 2, Interrupted, **settings)
    stopped = adabest.load(tmp_path / "stopped")
    assert (stopped.status, stopped.round) == ("interrupted", 2)
    resumed = adabest.resume(tmp_path / "stopped", allow="tiny_runs:Bomb", show=False)
    assert isinstance(resumed, adabest.Run)
    assert resumed.status == "diverged"
    assert results(tmp_path / "stopped") == results(tmp_path / "whole")


@pytest.mark.usefixtures("late")
def test_callbacks_of_a_user_see_settled_rounds_alone(tmp_path: Path) -> None:
    class Seeing(adabest.Callback):
        def after_round(self, run: adabest.RunView) -> None:
            assert bool(torch.isfinite(run.simulation.state.cloud).all())

    settings: dict[str, Any] = {"algorithm": "tiny_runs:Bomb", "fuse": 4, "rounds": 9, "evaluate_every": 9}
    assert run(tmp_path, callbacks=[Seeing()], **settings).round == 4


@pytest.mark.usefixtures("late")
def test_an_error_begins_no_other_run_in_the_place_of_a_diverged_one(tmp_path: Path) -> None:
    """The error of one lane comes before another one finds out that it has diverged; the run that waits isn't begun."""
    settings = tiny(engine="batched", rounds=9, evaluate_every=9)
    algorithms = [Faulty(), Bomb(fuse=2), FedAvg()]
    with pytest.raises(ZeroDivisionError, match="a bug"):
        adabest.compare(algorithms=algorithms, lanes=2, out=tmp_path / "all", show=False, **settings)
    begun = {path.parent.name: adabest.load(path.parent).status for path in (tmp_path / "all").glob("*/config.toml")}
    assert sorted(begun.values()) == ["killed", "killed"]
