"""``adabest.forecast`` and ``reproduce --plan``: counts by hand, times by a probe, and nothing written."""

from pathlib import Path
from typing import Any

import pytest
from small_specification import SMALL, make_specification

import adabest
from adabest.cli import main
from adabest.costs import step_probe
from adabest.costs.step_probe import ProbedTimes, clients_in_probe, probe_steps
from adabest.errors import InputError
from adabest.federation.batches import MISSING
from adabest.paper import forecast as forecasting
from adabest.paper import rendering, reproduce
from adabest.paper.forecast import Forecast, count_work
from adabest.report.numbers import as_count, as_duration
from adabest.runs.build import build_federation
from adabest.runs.settings.config import Config
from adabest.runs.settings.resolution import resolve

PROBED = ProbedTimes(clients=8, steps=16, step=0.001, evaluation=0.0001)


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Probes that take no time; the list has the number of clients of each."""
    asked: list[int] = []

    def probe(config: Config, components: Any, clients: int, steps: int) -> ProbedTimes:
        asked.append(clients)
        return PROBED

    monkeypatch.setattr(forecasting, "probe_steps", probe)
    return asked


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with an empty folder of data in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("ADABEST_DATA", str(tmp_path / "data"))
    return tmp_path


def rows(of: Forecast) -> list[tuple[str, ...]]:
    return [row[:6] for row in of.table.rows]


class TestTable1:
    @pytest.mark.parametrize(
        ("percent", "rounds", "steps"), [(1, 1000, 55_000), (10, 1200, 660_000), (100, 2000, 11_000_000)]
    )
    def test_a_run_has_the_steps_of_hand_arithmetic(
        self, percent: int, rounds: int, steps: int, empty: Path, probes: list[int]
    ) -> None:
        # 50,000 samples are 454 for each of 110 clients: 11 batches of 45, five times, in 1, 10 or 100 clients a round.
        (group,) = adabest.forecast("table1", cells=f"cifar10/{percent}/iid", entries="fedavg", seeds=[0]).groups
        assert (group.runs, group.rounds, group.steps, group.samples) == (1, rounds, steps, 45 * steps)
        assert group.seconds == pytest.approx(steps * 0.001 + rounds / 20 * (10_000 + 10 * 50_000 / 110) * 0.0001)

    def test_tuning_is_counted(self, empty: Path, probes: list[int]) -> None:
        planned = adabest.forecast("table1", cells=["cifar100/1/*", "cifar100/10/iid"], seeds=[0, 1])
        assert rows(planned) == [
            ("cifar100/1/*", "tuning", "18", "0", "9,000", "495,000"),  # 3 cells, 3 values, 2 seeds, 500 rounds
            ("cifar100/1/*", "runs", "24", "0", "24,000", "1,320,000"),
            ("cifar100/10/iid", "runs", "8", "0", "9,600", "5,280,000"),
            ("all", "", "50", "0", "42,600", "7,095,000"),
        ]
        assert planned.seconds == sum(group.seconds for group in planned.groups) > 0
        assert len(probes) == 2  # tuning has no averaged model to evaluate; the others share a probe

    def test_rounds_can_be_fewer(self, empty: Path, probes: list[int]) -> None:
        planned = adabest.forecast("table1", cells="cifar10/10/iid", entries=["fedavg"], seeds=[0], rounds=20)
        assert planned.groups[0].steps == 20 * 10 * 55

    def test_full_gradients_take_time_and_are_no_steps(self, empty: Path, probes: list[int]) -> None:
        cells: dict[str, Any] = {"cells": "cifar100/1/iid", "seeds": [0], "show": False}
        (plain,) = adabest.forecast("misses-scaffold", entries="scaffold,clip=0", **cells).groups
        planned = adabest.forecast("misses-scaffold", entries="scaffold,option=1", **cells)
        (group,) = planned.groups
        assert (group.steps, group.samples) == (plain.steps, plain.samples)
        assert (plain.gradient_batches, group.gradient_batches) == (0, 11 * 1000)  # 11 batches of one client a round
        assert group.seconds == pytest.approx(plain.seconds + 11 * 1000 * 0.001)
        assert "over 11,000 batches, are in the times, and not in the steps." in planned.notes[1]

    def test_rows_of_the_same_cells_say_in_what_they_differ(self, empty: Path, probes: list[int]) -> None:
        planned = adabest.forecast("misses-scaffold", cells="cifar100/1/iid", seeds=[0])
        assert [row[:3] for row in planned.table.rows] == [
            ("cifar100/1/iid", "runs", "3"),
            ("cifar100/1/iid, batch_size=50", "runs", "1"),
            ("cifar100/1/iid, augmentation=none", "runs", "1"),
            ("cifar100/1/iid, validation_clients=0", "runs", "1"),
            ("all", "", "6"),
        ]

    def test_probes_are_announced(self, empty: Path, probes: list[int], capsys: pytest.CaptureFixture[str]) -> None:
        given: dict[str, Any] = {"cells": "cifar10/1/iid", "entries": "fedavg", "seeds": [0]}
        adabest.forecast("table1", **given)
        assert capsys.readouterr().err == "cifar10/1/iid: timing a few steps of 1 client\n"
        adabest.forecast("table1", **given, show=False)
        assert capsys.readouterr().err == ""

    def test_data_that_are_not_there_are_told(self, empty: Path, probes: list[int]) -> None:
        planned = adabest.forecast("table1", cells="emnist-l/1/iid", entries=["fedavg"], seeds=[0])
        (said,) = [note for note in planned.notes if note.startswith("emnist-l: ")]
        assert said.endswith("It isn't on this machine: times are those of synthetic samples of its shape.")
        assert any(
            "Times are estimates for this machine (cpu, engine batched, float32): 16 local" in n for n in planned.notes
        )

    def test_nothing_is_written(self, empty: Path, probes: list[int], capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["reproduce", "table1", "--plan", "--cells", "cifar10/1/iid", "--seeds", "0"]) == 0
        assert [path.name for path in empty.rglob("*")] == ["data"]
        assert "220,000" in capsys.readouterr().out  # four runs


class TestUnequalClients:
    def test_cohorts_are_drawn_as_the_run_draws_them(self) -> None:
        settings: dict[str, Any] = {**SMALL, "algorithm": "fedavg", "unbalance": 0.8, "batch_size": 7, "rounds": 9}
        config, components = resolve({**settings, "dataset": "digits", "clients": 20, "participation": 0.2})
        simulation = build_federation(config, components)
        task = simulation.task
        wanted = sum(task.steps(int(i)) for t in range(1, 10) for i in simulation.simulation.cohort(t))
        assert count_work(config, components).steps == wanted

    @pytest.mark.parametrize("change", [{"churn": 0.3}, {"schedule": ("3:leave:0-9",)}, {"local_steps": "mean"}])
    def test_populations_that_change_are_followed(self, change: dict[str, Any]) -> None:
        settings = {**SMALL, "algorithm": "fedavg", "dataset": "digits", "clients": 20, "rounds": 6, **change}
        config, components = resolve({**settings, "participation": 0.5})
        built = build_federation(config, components)
        wanted = sum(built.task.steps(int(i)) for t in range(1, 7) for i in built.simulation.cohort(t))
        assert count_work(config, components).steps == wanted

    @pytest.mark.parametrize("change", [{"local_steps": "uniform:1:9"}, {"algorithm": "extended:CoinTosses"}])
    def test_drawn_steps_are_those_of_the_run(self, change: dict[str, Any], trusting: None) -> None:
        settings = {**SMALL, "algorithm": "fedavg", "dataset": "digits", "clients": 20, "rounds": 3, **change}
        config, components = resolve({**settings, "participation": 0.2, "model": "logistic"})
        built = build_federation(config, components)
        for _ in range(3):
            built.simulation.step()
        assert count_work(config, components).steps == built.simulation.state.local_steps

    @pytest.mark.parametrize("local_steps", ["own", "mean"])
    @pytest.mark.parametrize("batching", ["top-up", "short", "replacement"])
    def test_samples_are_those_of_the_batches(self, batching: str, local_steps: str) -> None:
        how = {"batching": batching, "local_steps": local_steps, "unbalance": 0.8, "batch_size": 7, "rounds": 3}
        settings = {**SMALL, "algorithm": "fedavg", "dataset": "digits", "clients": 20, **how}
        config, components = resolve({**settings, "participation": 0.5})
        built = build_federation(config, components)
        task, cohorts = built.task, {t: built.simulation.cohort(t).tolist() for t in range(1, 4)}
        drawn = [task._batches_of(i, t, 0)[: task.steps(i)] for t, cohort in cohorts.items() for i in cohort]
        assert count_work(config, components).samples == sum(int((batches != MISSING).sum()) for batches in drawn)


class TestFolder:
    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        small = make_specification(name="population", shares="population", axes={"scenario": {"iid/few": {}}}, apart=[])
        for place in (reproduce, rendering):
            monkeypatch.setattr(place, "read_specification", lambda _: small)

    def test_finished_runs_count_as_done(self, tmp_path: Path, probes: list[int]) -> None:
        adabest.reproduce("population", entries="adabest", seeds=[0], out=tmp_path / "out", show=False)
        before = sorted(tmp_path.rglob("*"))
        planned = adabest.forecast("population", seeds=[0, 1], out=tmp_path / "out")
        assert [(group.runs, group.done) for group in planned.groups] == [(4, 1)]  # its β was chosen, and is kept
        assert sorted(tmp_path.rglob("*")) == before
        adabest.reproduce("population", seeds=[0, 1], out=tmp_path / "out", show=False)
        whole = adabest.forecast("population", seeds=[0, 1], out=tmp_path / "out")
        assert [(g.runs, g.done, g.steps, g.probed, g.seconds) for g in whole.groups] == [(4, 4, 0, None, 0.0)]
        assert whole.notes[0].startswith("Counts are exact.")

    def test_what_is_tuned_is_not_done_before_it_is_chosen(self, tmp_path: Path, probes: list[int]) -> None:
        planned = adabest.forecast("population", seeds=[0], out=tmp_path / "out")
        assert [(group.purpose, group.runs) for group in planned.groups] == [("tuning", 2), ("runs", 2)]
        assert not (tmp_path / "out").exists()


class TestProbe:
    @pytest.mark.parametrize(("enough", "steps"), [(0.0, 2), (1e6, 5)])
    def test_a_probe_times_steps_and_an_evaluation(
        self, enough: float, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two steps for each client where these take long, else as many as the run has."""
        monkeypatch.setattr(step_probe, "_ENOUGH", enough)
        monkeypatch.setattr(step_probe, "_MOST_ROUNDS", 1)
        monkeypatch.chdir(tmp_path)
        config, components = resolve({**SMALL, "algorithm": "adabest", "dataset": "digits"})
        times = probe_steps(config, components, clients=3, steps=5)
        assert (times.clients, times.steps) == (3, 3 * steps)
        assert 0 < times.step < 10
        assert 0 <= times.evaluation < 1
        assert list(tmp_path.iterdir()) == []

    def test_a_batch_of_a_full_gradient_counts_as_a_step(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(step_probe, "_ENOUGH", 0.0)
        config, components = resolve({**SMALL, "algorithm": "scaffold-gradient", "dataset": "digits"})
        assert probe_steps(config, components, clients=3, steps=5).steps == 3 * (2 + 1)

    def test_clients_side_by_side_are_limited(self) -> None:
        assert [clients_in_probe(Config(), count) for count in (0, 3, 1000)] == [1, 3, 8]
        assert clients_in_probe(Config(device="cuda"), 1000) == 256


def test_costs_have_nothing_to_plan() -> None:
    with pytest.raises(InputError, match="costs are measured in minutes"):
        adabest.forecast("costs")


def test_results_are_not_planned(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "table1", "--plan", "--results", "x.json"]) == 2
    assert "leave out --plan" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (2e-5, "20 µs"),
        (0.0213, "21.3 ms"),
        (59.94, "59.9 s"),
        (90, "1.5 min"),
        (1e5, "27.8 h"),
        (1e6, "11.6 days"),
        (0.99999, "1,000 ms"),
        (500 * 86400, "500 days"),
        (1020 * 86400, "2.79 years"),
        (1e12, "31,700 years"),
    ],
)
def test_durations_have_the_unit_that_people_use(seconds: float, text: str) -> None:
    assert as_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (999_999, "999,999"),
        (2_475_000, "2.48 million"),
        (92_178_000_000, "92.2 billion"),
        (10**13, "10,000 billion"),
    ],
)
def test_large_counts_have_a_word(count: int, text: str) -> None:
    assert as_count(count) == text
