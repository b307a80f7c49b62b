"""β decay on a plateau, the averaged model, and the progressive n̄ of FedDyn and SCAFFOLD."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from quadratics import random_quadratics, run_cohorts, simulate
from safetensors.torch import load_file
from tiny_runs import run, stripes

import adabest
from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.feddyn import FedDyn
from adabest.algorithms.plateau import decay_on_plateau, no_norms
from adabest.algorithms.scaffold import Scaffold
from adabest.algorithms.scaffold_m import ScaffoldM
from adabest.engine.simulation import Rules, Simulation
from adabest.errors import InputError
from adabest.federation.roster import Attendance

CLIENTS = 5


def decays(norms: list[float], patience: int, factor: float = 0.5) -> list[int]:
    """The rounds, from 1, in which a number decays, given the norms of all rounds; by the definition."""
    found, window = [], []
    for round_number, norm in enumerate(norms, start=1):
        window.append(norm)
        last = window[-2 * patience :]
        if len(last) == 2 * patience:
            before, recent = np.mean(last[:patience]), np.mean(last[patience:])
            if abs(recent - before) <= 0.01 * before:
                found.append(round_number)
                window = []
    return found


class TestPlateau:
    @given(
        norms=st.lists(st.sampled_from([1.0, 1.005, 1.02, 1.3, 0.0]), min_size=1, max_size=40),
        patience=st.integers(1, 4),
    )
    def test_it_decays_when_the_definition_says_so(self, norms: list[float], patience: int) -> None:
        value, memory = torch.tensor([1.0], dtype=torch.float64), no_norms(torch.zeros(3), patience)
        found = []
        for round_number, norm in enumerate(norms, start=1):
            vector = torch.tensor([0.0, norm, 0.0], dtype=torch.float64)
            after, memory = decay_on_plateau(value, memory, vector, 0.5)
            if after < value:
                found.append(round_number)
            value = after
        assert found == decays(norms, patience)
        assert float(value) == 0.5 ** len(found)

    def test_lanes_decay_each_by_itself(self) -> None:
        value, memory = torch.ones(2, 1, dtype=torch.float64), no_norms(torch.zeros(2, 3), 1)
        for norms in ([1.0, 1.0], [1.0, 2.0], [1.0, 2.0]):
            vectors = torch.tensor(norms, dtype=torch.float64)[:, None] * torch.tensor([[1.0, 0.0, 0.0]])
            value, memory = decay_on_plateau(value, memory, vectors, 0.1)
        assert value.flatten().tolist() == pytest.approx([0.1, 0.1])
        assert memory[0].tolist() == [-torch.inf, 1.0]  # decayed in round two, and remembers round three
        assert memory[1].tolist() == [-torch.inf, -torch.inf]

    def test_off_by_default(self) -> None:
        simulation = simulate(AdaBest(beta=0.9), random_quadratics(0, CLIENTS))
        states = run_cohorts(simulation, [range(CLIENTS)] * 120)
        assert {float(state.server.beta) for state in states} == {0.9}
        assert simulation.state.server.h_norms.numel() == 0

    def test_beta_decays_and_so_does_h(self) -> None:
        """Theorem 2: the aggregate can't come to rest unless h does. With noise, ‖h‖ stays up until β goes down."""
        plain, decaying = (
            simulate(AdaBest(beta=0.9, beta_decay=factor, patience=10), random_quadratics(0, CLIENTS), eta=0.02)
            for factor in (1.0, 0.5)
        )
        generator = np.random.default_rng(0)
        cohorts = [generator.choice(CLIENTS, 2, replace=False).tolist() for _ in range(400)]
        norms: list[list[float]] = [[], []]
        betas = []
        for cohort in cohorts:
            for simulation, found in zip((plain, decaying), norms, strict=True):
                simulation.step(cohort=np.array(sorted(cohort)))
                assert simulation.state.h is not None
                found.append(float(simulation.state.h.norm()))
            betas.append(float(decaying.state.server.beta))
        rounds = decays(norms[1], 10)
        assert len(rounds) >= 3
        assert [t for t, (a, b) in enumerate(pairwise(betas), start=2) if b < a] == [t for t in rounds if t > 1]
        assert betas[-1] == pytest.approx(0.9 * 0.5 ** len(rounds))
        assert np.mean(norms[1][-50:]) < 0.5 * np.mean(norms[0][-50:])

    def test_its_state_survives_a_restart(self) -> None:
        def make() -> Simulation:
            # Steps so small that ‖h‖ soon stands still at β / (1 − β) of a pseudo-gradient's.
            return simulate(AdaBest(beta=0.5, beta_decay=0.5, patience=2), random_quadratics(0, CLIENTS), eta=1e-4)

        straight, broken = make(), make()
        run_cohorts(straight, [range(CLIENTS)] * 12)
        run_cohorts(broken, [range(CLIENTS)] * 6)
        again = make()
        again.restore(broken.snapshot())
        run_cohorts(again, [range(CLIENTS)] * 6)
        assert float(straight.state.server.beta) < 0.5
        assert torch.equal(straight.state.cloud, again.state.cloud)
        assert torch.equal(straight.state.server.h_norms, again.state.server.h_norms)


class TestAveragedModel:
    @pytest.mark.parametrize(
        ("average_from", "counted"), [(0.0, [1, 2, 3, 4, 5]), (0.5, [3, 4, 5]), (0.79, [4, 5]), (0.8, [5])]
    )
    def test_is_the_mean_of_the_aggregates_of_the_last_part(
        self, average_from: float, counted: list[int], tmp_path: Path
    ) -> None:
        finished = run(tmp_path / "run", average_from=average_from, precision="float64", evaluate_every=1)
        aggregates = [
            load_file(run(tmp_path / str(t), rounds=t, precision="float64").folder / "aggregate.safetensors")
            for t in counted
        ]
        averaged = load_file(finished.folder / "averaged.safetensors")
        for name, tensor in averaged.items():
            expected = torch.stack([aggregate[name] for aggregate in aggregates]).mean(dim=0)
            torch.testing.assert_close(tensor, expected, rtol=1e-14, atol=1e-16)
        measured = [row["round"] for row in finished.metrics if "averaged_accuracy" in row]
        assert measured == counted
        module = finished.load_model("averaged")
        inputs = (stripes().x_test.double() - stripes().mean) / stripes().std
        right = (module(inputs).argmax(dim=1) == stripes().y_test).double().mean()
        assert finished.final["averaged_accuracy"] == pytest.approx(float(right))

    def test_off_by_default(self, tmp_path: Path) -> None:
        finished = run(tmp_path / "run")
        assert "averaged_accuracy" not in finished.final
        with pytest.raises(InputError, match="no averaged model: it wasn't asked for"):
            finished.load_model("averaged")

    def test_skipped_rounds_do_not_count(self) -> None:
        task = random_quadratics(0, CLIENTS)
        simulation = Simulation(
            AdaBest(),
            task,
            np.arange(CLIENTS),
            attendance=Attendance(participation=1.0, schedule=("2:leave:0-4", "4:join:0-4")),
            rules=Rules(average_from=1),
        )
        aggregates = []
        for round_number in range(1, 6):
            simulation.step()
            if round_number not in (2, 3):
                aggregates.append(simulation.state.aggregate)
        averaged = simulation.averaged_model()
        assert averaged is not None
        torch.testing.assert_close(averaged, torch.stack(aggregates).mean(dim=0))

    def test_the_table_of_a_comparison_has_it(self, tmp_path: Path) -> None:
        settings: dict[str, Any] = {"dataset": stripes(), "clients": 8, "epochs": 1, "rounds": 2, "show": False}
        with_it = adabest.compare(algorithms=["fedavg"], out=tmp_path / "a", average_from=0.5, **settings)
        without = adabest.compare(algorithms=["fedavg"], out=tmp_path / "b", **settings)
        assert "averaged %" in with_it.table.head
        assert "averaged %" not in without.table.head
        assert len(with_it.table.rows[0]) == len(with_it.table.head)


class TestProgressiveMean:
    COHORTS = ([0, 2], [1, 2], [0, 3, 4], [2])

    @pytest.mark.parametrize("kind", [FedDyn, Scaffold, ScaffoldM])
    def test_is_the_mean_over_the_replies_so_far(self, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        task = random_quadratics(0, CLIENTS, unbalanced=True)
        told: list[float] = []
        original = kind.downlink

        def downlink(self: Any, *given: Any) -> Any:
            message = original(self, *given)
            told.append(float(message.mean_samples))
            return message

        monkeypatch.setattr(kind, "downlink", downlink)
        simulation = simulate(kind(sample_mean="progressive"), task)
        run_cohorts(simulation, self.COHORTS)
        replied: list[int] = []
        for mean, cohort in zip(told, self.COHORTS, strict=True):
            assert mean == (np.mean(replied) if replied else 0.0)
            replied += [task.samples(client) for client in cohort]

    @pytest.mark.parametrize("kind", [FedDyn, Scaffold, ScaffoldM])
    def test_changes_nothing_on_balanced_data(self, kind: Any) -> None:
        task = random_quadratics(0, CLIENTS)
        known, progressive = (simulate(kind(sample_mean=how), task) for how in ("population", "progressive"))
        for simulation in (known, progressive):
            run_cohorts(simulation, self.COHORTS)
        assert torch.equal(known.state.cloud, progressive.state.cloud)

    @pytest.mark.parametrize("kind", [FedDyn, Scaffold, ScaffoldM])
    def test_before_the_first_reply_everyone_is_of_mean_size(self, kind: Any) -> None:
        """So the first round is that of balanced clients with the same objectives and numbers of steps."""
        task = random_quadratics(0, CLIENTS, unbalanced=True)
        progressive = simulate(kind(sample_mean="progressive"), task)
        progressive.step(cohort=np.array([0, 2, 3]))
        alone = [simulate(kind(), task) for _ in range(3)]
        # Where a client is all there is, its size is the mean.
        for simulation, client in zip(alone, (0, 2, 3), strict=True):
            simulation._clients, simulation._samples = np.array([client]), np.array([task.samples(client)])
            simulation._roster = simulation._roster_before_round_one()
            simulation.step(cohort=np.array([client]))
            found = progressive.state.clients.read(client)["model"]
            torch.testing.assert_close(found, simulation.state.clients.read(client)["model"], rtol=1e-14, atol=1e-15)

    def test_scaffold_and_scaffold_m_still_agree_where_clients_make_equal_steps(self) -> None:
        task = random_quadratics(0, CLIENTS)
        one, other = (simulate(kind(sample_mean="progressive"), task) for kind in (Scaffold, ScaffoldM))
        for simulation in (one, other):
            run_cohorts(simulation, self.COHORTS)
        torch.testing.assert_close(one.state.cloud, other.state.cloud, rtol=1e-12, atol=1e-13)
