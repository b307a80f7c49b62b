"""Federations whose clients come and go: what each algorithm is told, what is kept, and what a run makes of it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from quadratics import random_quadratics
from tiny_runs import break_off, command, log, results, resume, run

import adabest
from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.base import Algorithm, ServerContext
from adabest.algorithms.catalog import ALGORITHMS, CORE
from adabest.engine.local_step import LocalTraining
from adabest.engine.simulation import Simulation
from adabest.errors import InputError
from adabest.federation.roster import Attendance

CLIENTS = 6
every_algorithm = pytest.mark.parametrize("name", CORE)


def simulate(algorithm: Algorithm, seed: int = 0, **attendance: Any) -> Simulation:
    task = random_quadratics(seed, CLIENTS, unbalanced=True)
    return Simulation(
        algorithm,
        task,
        np.arange(CLIENTS),
        training=LocalTraining(learning_rate=0.05, clip=0.0),
        attendance=Attendance(**{"participation": 0.5, **attendance}),
    )


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ServerContext]]:
    """Every context that a server step was given."""
    seen: list[ServerContext] = []
    for kind in set(ALGORITHMS.builtin.values()):
        if "server_step" in vars(kind):
            original = kind.server_step

            def step(self: Algorithm, *given: Any, original: Any = original) -> Any:
                seen.append(given[-1])
                return original(self, *given)

            monkeypatch.setattr(kind, "server_step", step)
    return iter([seen])


class TestWhatServersAreTold:
    SCHEDULE = ("2:leave:0-2", "4:join:1", "5:leave:1,3-4")
    PRESENT = ([0, 1, 2, 3, 4, 5], [3, 4, 5], [3, 4, 5], [1, 3, 4, 5], [5], [5])

    @pytest.mark.parametrize("name", ["feddyn", "scaffold", "scaffold-m"])
    def test_servers_are_told_the_number_of_those_present_and_their_mean_size(
        self, name: str, contexts: Iterator[list[ServerContext]]
    ) -> None:
        seen = next(contexts)
        simulation = simulate(ALGORITHMS.find(name)(), schedule=self.SCHEDULE)
        for _ in self.PRESENT:
            simulation.step()
        samples = np.array([random_quadratics(0, CLIENTS, unbalanced=True).samples(i) for i in range(CLIENTS)])
        assert [context.population.size for context in seen] == [len(present) for present in self.PRESENT]
        assert [context.population.mean_samples for context in seen] == [samples[p].mean() for p in self.PRESENT]

    @pytest.mark.parametrize("name", ["fedavg", "fedprox", "adabest"])
    def test_servers_that_declare_no_need_are_told_of_no_population(
        self, name: str, contexts: Iterator[list[ServerContext]]
    ) -> None:
        seen = next(contexts)
        simulation = simulate(ALGORITHMS.find(name)(), churn=0.2)
        for _ in range(6):
            simulation.step()
        assert len(seen) == 6
        assert all(context.known_population is None for context in seen)

    def test_adabest_does_the_same_whoever_else_is_there(self) -> None:
        """Two populations, one of which loses everyone who isn't asked: not a bit of AdaBest's may differ."""
        cohorts = ([0, 1], [1, 3], [0, 3])
        stays, loses = (simulate(AdaBest(), schedule=schedule) for schedule in ((), ("2:leave:2,4-5",)))
        for simulation in (stays, loses):
            for cohort in cohorts:
                simulation.step(cohort=np.array(cohort))
        assert torch.equal(stays.state.cloud, loses.state.cloud)
        dyn = [simulate(ALGORITHMS.find("feddyn")(), schedule=schedule) for schedule in ((), ("2:leave:2,4-5",))]
        for simulation in dyn:
            for cohort in cohorts:
                simulation.step(cohort=np.array(cohort))
        assert not torch.equal(dyn[0].state.cloud, dyn[1].state.cloud)


class TestComingAndGoing:
    @every_algorithm
    def test_only_those_present_take_part_and_the_others_keep_what_they_have(self, name: str) -> None:
        simulation = simulate(ALGORITHMS.find(name)(), participation=1.0, schedule=("3:leave:0-3", "6:join:0-3"))
        simulation.step()
        simulation.step()
        before = [tensor.clone() for tensor in simulation.client_state(0)]
        model = simulation.state.clients.read(0)["model"].clone()
        for _ in range(3):
            metrics = simulation.step(evaluate=True)
            assert metrics is not None
            assert (metrics["present"], metrics["cohort"]) == (2, 2)
        for kept, was in zip(simulation.client_state(0), before, strict=True):
            assert torch.equal(kept, was)
        assert torch.equal(simulation.state.clients.read(0)["model"], model)
        simulation.step()
        assert not torch.equal(simulation.state.clients.read(0)["model"], model)

    def test_who_comes_back_remembers_when_it_left(self) -> None:
        """AdaBest's h_i ← h_i / (t − t'_i) + g_i: the pause counts."""
        simulation = simulate(AdaBest(mu=0.1), participation=1.0, schedule=("3:leave:0", "7:join:0"))
        for _ in range(6):
            simulation.step()
        h, last_round = (tensor.clone() for tensor in simulation.client_state(0))
        assert int(last_round) == 2
        cloud = simulation.state.cloud.clone()
        simulation.step()
        g = cloud - simulation.state.clients.read(0)["model"]
        torch.testing.assert_close(simulation.client_state(0).h, h / 5 + g, rtol=1e-12, atol=1e-14)

    @pytest.mark.parametrize("name", ["feddyn", "scaffold"])
    def test_a_leavers_share_of_h_stays(self, name: str) -> None:
        simulation = simulate(ALGORITHMS.find(name)(), participation=1.0, schedule=("2:leave:0-5",))
        simulation.step()
        h = simulation.state.server.h.clone()
        assert float(h.norm()) > 0
        simulation.step()
        assert torch.equal(simulation.state.server.h, h)

    @every_algorithm
    def test_a_round_with_nobody_is_skipped(self, name: str) -> None:
        simulation = simulate(ALGORITHMS.find(name)(), participation=1.0, schedule=("2:leave:0-5", "4:join:0-5"))
        simulation.step()
        before = simulation.snapshot()
        metrics = simulation.step(evaluate=True)
        assert metrics is not None
        assert (metrics["round"], metrics["present"], metrics["cohort"]) == (2, 0, 0)
        assert metrics["train_loss"] is metrics["h_cosine"] is None
        assert (metrics["client_h_norm"] is not None) == (name == "adabest")
        assert metrics["local_steps"] == before.numbers["local_steps"]
        after = simulation.snapshot()
        assert after.numbers["round"] == 2
        assert after.numbers["skipped_rounds"] == 1
        for tensor in before.tensors:
            assert tensor == "roster.order" or torch.equal(after.tensors[tensor], before.tensors[tensor]), tensor
        simulation.step()
        simulation.step()
        assert not torch.equal(simulation.state.cloud, before.tensors["cloud"])

    def test_a_given_cohort_must_be_present(self) -> None:
        simulation = simulate(ALGORITHMS.find("feddyn")(), schedule=("1:leave:1-5",))
        with pytest.raises(
            InputError, match=r"the cohort \[0, 3\] should be one or more of the training clients present"
        ):
            simulation.step(cohort=np.array([0, 3]))
        simulation.step(cohort=np.array([0]))

    @every_algorithm
    def test_a_broken_off_round_can_be_made_again(self, name: str) -> None:
        straight, broken = (simulate(ALGORITHMS.find(name)(), churn=0.4, sampler="round-robin") for _ in range(2))
        for round_number in range(1, 9):
            straight.step()
            if round_number % 3 == 0:
                with pytest.raises(InputError):
                    broken.step(cohort=np.array([99]))  # the roster has moved on by then
            broken.step()
            assert torch.equal(straight.state.cloud, broken.state.cloud)

    def test_cohorts_can_be_asked_for_at_any_time(self) -> None:
        simulation, other = simulate(AdaBest(), churn=0.3), simulate(AdaBest(), churn=0.3)
        expected = [other.cohort(t).tolist() for t in range(1, 8)]
        for t in (5, 1, 7):
            assert simulation.cohort(t).tolist() == expected[t - 1]
        seen = []
        for _ in range(7):
            before = set(simulation.state.clients)
            simulation.step()
            seen.append(set(simulation.state.clients) - before)
        assert all(new <= set(cohort) for new, cohort in zip(seen, expected, strict=True))


class TestRuns:
    CHANGING: ClassVar[dict[str, Any]] = {"churn": 0.4, "schedule": ["2:leave:0-7", "3:join:0-5"], "participation": 0.4}

    @pytest.mark.parametrize("sampler", ["uniform", "bernoulli", "weighted", "round-robin"])
    @pytest.mark.parametrize("beats", [5, 17, 24])
    def test_killed_and_resumed_is_never_killed(self, sampler: str, beats: int, tmp_path: Path) -> None:
        settings = {**self.CHANGING, "sampler": sampler, "rounds": 6, "unbalance": 0.5, "average_from": 0.4}
        whole = run(tmp_path / "whole", **settings)
        break_off(tmp_path / "broken", beats, checkpoint_every=1, **settings)
        resume(tmp_path / "broken")
        assert results(tmp_path / "broken") == results(whole.folder)
        averaged = [(tmp_path / name / "averaged.safetensors").read_bytes() for name in ("whole", "broken")]
        assert averaged[0] == averaged[1]

    def test_skipped_rounds_are_logged(self, tmp_path: Path) -> None:
        run(tmp_path / "run", schedule=["2:leave:0-7", "4:join:0-7"])
        assert re.findall(r"round (\d) is skipped: no client is present", log(tmp_path / "run")) == ["2", "3"]

    def test_a_run_may_end_with_nobody(self, tmp_path: Path) -> None:
        finished = run(tmp_path / "run", schedule=["3:leave:0-7"], algorithm="feddyn")
        assert finished.status == "finished"
        assert finished.final["present"] == 0

    def test_populations_are_set_on_the_command_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        options = ["--churn", "0.4", "--schedule", "2:leave:0-7", "3:join:0-5", "--sampler", "weighted"]
        tiny = ["--dataset", "stripes", "--clients", "8", "--rounds", "4", "--epochs", "1"]
        tiny += ["--engine", "reference"]
        assert command("run", *tiny, *options, "--participation", "0.4", "--out", "one") == 0
        expected = run(tmp_path / "two", **{**self.CHANGING, "sampler": "weighted", "rounds": 4, "evaluate_every": 10})
        assert results(tmp_path / "one") == results(expected.folder)
        assert adabest.load("one").config.schedule == ("2:leave:0-7", "3:join:0-5")

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"schedule": ["2:leave:8"]}, "names client 8, but the training clients count from 0 to 7"),
            ({"schedule": "2:leave:8"}, "schedule should be a list"),
            ({"churn": -0.1}, "churn = -0.1: a probability"),
            ({"sampler": "fastest"}, "unknown sampler 'fastest'"),
            ({"average_from": 1.0}, "average_from = 1.0: a part of the run is at least 0 and below 1"),
        ],
    )
    def test_impossible_populations_are_refused(self, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=message):
            run(tmp_path / "run", **changes)
        assert not (tmp_path / "run").exists()
