"""Reading runs stays quick: what is long is read in part, what is many is read once, and damage stays with its run."""

import dataclasses
import importlib.util
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from measured import metrics_file
from pages import make_run, store
from tiny_runs import command

import adabest
from adabest.data.loading import load_dataset
from adabest.report.entries import mean_curve
from adabest.report.page import curves
from adabest.runs.files.metrics_file import MetricsFile
from adabest.runs.results_file import Result
from adabest.runs.settings.resolution import resolve
from adabest.runs.stored_run import find_runs

# A row as runs of AdaBest have them: 21 metrics, most of them with 16 digits.
ROW = (
    '{{"round": {number}, "scored_accuracy": {a!r}, "scored_loss": {b!r}, "aggregate_accuracy": {b!r}, '
    '"aggregate_loss": {a!r}, "cloud_accuracy": {a!r}, "cloud_loss": {b!r}, "train_accuracy": {b!r}, '
    '"train_loss": {a!r}, "validation_accuracy": {a!r}, "validation_spread": {b!r}, "validation_worst_tenth": {b!r}, '
    '"cloud_norm": {a!r}, "h_norm": {b!r}, "client_h_norm": {a!r}, "h_cosine": null, "present": 20, "cohort": 2, '
    '"bytes_down": {number}0, "bytes_up": {number}0, "local_steps": {number}}}\n'
)


def write_rows(folder: Path, count: int, seed: int = 0) -> None:
    """Gives a run so many rows of metrics."""
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for begin in range(0, count, 1000):
            numbers = np.random.default_rng([seed, begin]).random((1000, 2)).tolist()
            rounds = range(begin + 1, min(begin + 1000, count) + 1)
            file.writelines(ROW.format(number=n, a=a, b=b) for n, (a, b) in zip(rounds, numbers, strict=False))


def long_run(folder: Path, rows: int, seed: int = 0, learning_rate: float = 0.1) -> Path:
    """A finished run on the digits with so many rows of metrics."""
    settings = {"dataset": "digits", "clients": 20, "alpha": 0.3, "partition_seed": 0}
    config, components = resolve({**settings, "seed": seed, "learning_rate": learning_rate})
    partition = adabest.runs.build.partition_statistics(adabest.runs.build.cut_partition(config, components))
    run = make_run({}, folder=folder, identity={"partition": partition})
    store(dataclasses.replace(run, config=dataclasses.replace(config, rounds=rows), round=rows), folder)
    write_rows(folder, rows, seed)
    return folder


class TestLooking:
    @pytest.mark.parametrize("looking", ["show", "list"])
    def test_a_long_run_is_looked_at_without_parsing_its_rows(
        self,
        looking: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        folder = store(make_run(), tmp_path / "run")
        write_rows(folder, 20_000)
        monkeypatch.setattr(MetricsFile, "_blocks", None)  # what reads all of a file
        loads, parsed = json.loads, []

        def recorded(text: str) -> object:
            parsed.append(text)
            return loads(text)

        monkeypatch.setattr(json, "loads", recorded)
        assert command(looking, folder) == 0
        assert "20000" in capsys.readouterr().out
        assert len(parsed) <= 5, "status, identity, environment, and the last row"

    def test_a_damaged_run_is_named_and_the_others_are_listed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("COLUMNS", "300")  # else a long folder is broken, and sometimes in the middle of a name
        for name in ("first", "second", "third"):
            store(make_run(), tmp_path / name)
        with (tmp_path / "second" / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write("[]\n")
        assert command("list", tmp_path) == 0
        told = capsys.readouterr()
        assert "second/metrics.jsonl, line 5 is damaged: it isn't an object" in told.err.replace("\\", "/")
        assert [name in told.out for name in ("first", "second", "third")] == [True, False, True]

    def test_metrics_are_read_when_they_are_asked_for(self, tmp_path: Path) -> None:
        run = adabest.load(store(make_run(), tmp_path / "run"))
        assert "metrics" not in vars(run)
        assert run.metrics is run.metrics
        assert run.metrics[-1] == run.final
        assert run.points("present").values.tolist() == run.curve("present")[1]

    def test_kept_columns_have_a_place_for_each_row(self) -> None:
        rows: list[dict[str, Any]] = [
            {"round": 2, "scored_accuracy": 0.123456789, "h_norm": None, "present": 8},
            {"round": 4, "scored_accuracy": 0.5, "h_norm": 2.0, "present": 7, "averaged_accuracy": 0.25},
            {"round": 5, "diverged": "lost"},
        ]
        kept = Result.of(dataclasses.replace(make_run(), measured=metrics_file(rows)), "cell", "fedavg", {})
        assert kept.columns == {
            "round": [2, 4],
            "scored_accuracy": [0.123457, 0.5],
            "averaged_accuracy": [None, 0.25],
            "h_norm": [None, 2.0],
            "present": [8, 7],
        }
        assert all(type(value) is int for name in ("round", "present") for value in kept.columns[name])
        assert kept.points("h_norm").values.tolist() == [2.0]


class TestFinding:
    def test_runs_are_found_below_folders_and_within_runs(self, tmp_path: Path) -> None:
        places = ["b", "a/deep/er", "b/inside"]
        for place in places:
            store(make_run(), tmp_path / place)
        (tmp_path / "c").mkdir()
        (tmp_path / "c" / "config.toml").touch()  # anybody's
        assert find_runs(tmp_path) == [tmp_path / place for place in sorted(places)]
        assert find_runs(tmp_path / "b") == [tmp_path / "b", tmp_path / "b" / "inside"]
        assert find_runs(tmp_path / "nowhere") == []

    def test_folders_within_a_run_are_not_searched(self, tmp_path: Path) -> None:
        store(make_run(), tmp_path / "run")
        for name in ("checkpoints", "mlflow", "wandb", ".replaced"):
            store(make_run(), tmp_path / "run" / name / "0")
        store(make_run(), tmp_path / "wandb" / "0")  # of this name, but no run's
        assert find_runs(tmp_path) == [tmp_path / "run", tmp_path / "wandb" / "0"]

    def test_links_to_folders_are_not_followed(self, tmp_path: Path) -> None:
        store(make_run(), tmp_path / "elsewhere" / "run")
        (tmp_path / "runs").mkdir()
        try:
            (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
            (tmp_path / "runs" / "loop").symlink_to(tmp_path / "runs", target_is_directory=True)
        except OSError:
            pytest.skip("links can't be made here")
        assert find_runs(tmp_path / "runs") == []
        assert find_runs(tmp_path / "runs" / "link") == [tmp_path / "runs" / "link" / "run"]


EPSILON = sys.float_info.epsilon  # 2⁻⁵²
KEPT = Result.of(make_run(), "cell", "fedavg", {})


def measured(found: Mapping[int, float]) -> Result:
    """As much of a run as curves need."""
    return dataclasses.replace(KEPT, columns={"round": list(found), "any": list(found.values())})


class TestMeanCurves:
    @given(st.lists(st.dictionaries(st.integers(1, 9), st.floats(-1e9, 1e9)), min_size=1, max_size=6))
    @example([{1: 999999999.0}, {1: 4e-114}, {1: 247976842.75511336}, {1: 899506806.9912419}])  # another last bit
    @example([{1: 1e9}, {1: 1e-8}, {1: -1e9}, {1: -1e-8}, {1: 1e-30}])  # cancels to what is lost
    def test_means_are_those_of_the_standard_library_up_to_rounding(self, found: list[dict[int, float]]) -> None:
        curve = mean_curve([measured(dict(sorted(one.items()))) for one in found], "any")
        assert curve.rounds.tolist() == sorted({number for one in found for number in one})
        for number, mean, spread in zip(curve.rounds.tolist(), curve.mean, curve.spread, strict=True):
            values = [one[number] for one in found if number in one]
            # Both means have their sum and its quotient rounded: four times 2⁻⁵³. What Neumaier's summation loses
            # beside is of second order in the values, not in their sum, which may cancel; tiny quotients lose a bit.
            second_order = (len(values) * EPSILON) ** 2 * sum(map(abs, values))
            assert abs(mean - fmean(values)) <= 2 * EPSILON * abs(fmean(values)) + second_order + 5e-324
            expected = 0.0 if len(values) == 1 else stdev(values)
            assert spread == pytest.approx(expected, rel=1e-9, abs=1e-6)

    def test_large_values_have_a_spread(self) -> None:
        curve = mean_curve([measured({1: 1e300}), measured({1: 3e300})], "any")
        assert curve.mean.tolist() == [2e300]
        assert curve.spread.tolist() == pytest.approx([math.sqrt(2) * 1e300])

    def test_values_whose_sum_is_too_large_are_no_number(self) -> None:
        curve = mean_curve([measured({1: 1.7e308}), measured({1: 1.7e308})], "any")
        assert curves._five_digits(float(curve.mean[0])) is None

    def test_equal_values_have_no_spread(self) -> None:
        curve = mean_curve([measured({1: 0.1})] * 3, "any")
        assert curve.spread.tolist() == [0.0]


def test_digits_are_the_same_from_the_loader_of_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    fingerprint = load_dataset("digits").fingerprint()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert load_dataset("digits").fingerprint() == fingerprint


# --- At scale ---------------------------------------------------------------------------------------------------------

MEASURE = """
import json, resource, subprocess, sys
code = subprocess.run([sys.executable, "-m", "adabest", *sys.argv[1:]], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([code, used.ru_utime + used.ru_stime, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)]))
"""


class Cost(NamedTuple):
    """What a command took: seconds of a processor, so that neighbours don't count, and bytes at once."""

    seconds: float
    memory: int


def cost_of(*given: object) -> Cost:
    """Runs a command in a process of its own, started by a small one: else the size of this one would count."""
    words = [sys.executable, "-c", MEASURE, *map(str, given)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    code, seconds, memory = json.loads(done.stdout)
    assert code == 0, done.stderr
    return Cost(seconds, memory)


@pytest.fixture(scope="module")
def start() -> float:
    """What it takes to start at all."""
    pytest.importorskip("resource")
    return min(cost_of("--version").seconds for _ in range(2))


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that is gone afterwards: what is in it is large."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.soak
def test_a_million_rows_are_read_quickly(start: float, place: Path) -> None:
    folder = long_run(place / "long" / "run", 1_000_000)
    limits = {
        ("show", folder): Cost(5, 500_000_000),
        ("list", folder.parent): Cost(5, 500_000_000),
        ("report", folder, "--html", place / "long.html"): Cost(15, 1_000_000_000),
    }
    for words, limit in limits.items():
        cost = cost_of(*words)
        assert cost.seconds - start < limit.seconds, words
        assert cost.memory < limit.memory, words
    assert (place / "long.html").stat().st_size < 1_000_000


@pytest.mark.soak
def test_two_hundred_runs_are_read_quickly(start: float, place: Path) -> None:
    for number in range(200):
        long_run(place / "many" / f"{number:03}", 1000, seed=number % 5, learning_rate=0.1 + 0.001 * (number // 5))
    assert cost_of("list", place / "many").seconds - start < 2
    assert cost_of("report", place / "many", "--html", place / "many.html").seconds - start < 5
