"""A run that is broken off and resumed ends bit for bit as one that never was."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_runs
import torch
from slow_checkpoints import SlowCheckpoints
from tiny_runs import (
    Killed,
    as_version_06,
    break_off,
    checkpoints,
    contents,
    dies_at,
    ends_after,
    in_pieces,
    log,
    needed_files,
    results,
    resume,
    run,
    stripes,
)
from torch import nn

import adabest
from adabest.algorithms.catalog import CORE
from adabest.algorithms.fedavg import FedAvg
from adabest.engine.simulation import Simulation
from adabest.errors import InputError, Interrupted
from adabest.federation.partitioners import PARTITIONERS
from adabest.runs import beginning, build, run_loop
from adabest.runs.build import build_federation
from adabest.runs.callbacks import checkpoints as pace
from adabest.runs.files.manifest import checksum_of_object


class TestBitForBit:
    @pytest.mark.parametrize("algorithm", [*CORE, "adabest,beta=auto", "vrl-sgd"])
    def test_an_interrupted_run_ends_as_a_straight_one(self, algorithm: str, tmp_path: Path) -> None:
        changes: dict[str, Any] = {"algorithm": algorithm, "unbalance": 0.3, "checkpoint_every": 0}
        straight = run(tmp_path / "straight", **changes)
        assert in_pieces(tmp_path / "pieces", 25, Interrupted, **changes) >= 3
        assert results(tmp_path / "pieces") == results(straight.folder)
        assert adabest.load(tmp_path / "pieces").status == "finished"

    @pytest.mark.parametrize("algorithm", [*CORE, "adabest,beta=auto", "vrl-sgd"])
    def test_a_killed_run_ends_as_a_straight_one(self, algorithm: str, tmp_path: Path) -> None:
        changes: dict[str, Any] = {"algorithm": algorithm, "checkpoint_every": 1}
        straight = run(tmp_path / "straight", **changes)
        assert in_pieces(tmp_path / "pieces", 22, Killed, **changes) >= 3
        assert results(tmp_path / "pieces") == results(straight.folder)

    @pytest.mark.parametrize(
        "changes",
        [
            {"model": "tiny_runs:dropping"},
            {"augmentation": "flip-crop"},
            {"model": "tiny_runs:dropping", "augmentation": "flip-crop", "precision": "float64", "server_rate": 0.5},
            {"scored_clients": "all", "local_steps": "mean", "unbalance": 0.3},
            {"batching": "short", "unbalance": 0.3},
            {"batching": "replacement"},
        ],
        ids=["dropout", "augmentation", "both", "other rules", "short batches", "replacement"],
    )
    def test_every_random_draw_is_repeated(self, changes: dict[str, Any], tmp_path: Path) -> None:
        straight = run(tmp_path / "straight", **changes)
        assert in_pieces(tmp_path / "pieces", 25, Interrupted, **changes) >= 2
        assert results(tmp_path / "pieces") == results(straight.folder)
        assert results(straight.folder) != results(run(tmp_path / "plain").folder)

    @pytest.mark.parametrize("beats", [0, 5, 13, 27, 31, 33, 60, 71])
    def test_a_run_may_stop_anywhere(self, beats: int, tmp_path: Path) -> None:
        """At the very start, within training, within an evaluation, in the last round."""
        straight = run(tmp_path / "straight")
        for error in (Killed, Interrupted):
            break_off(tmp_path / error.__name__, beats, error, checkpoint_every=2)
            resume(tmp_path / error.__name__)
            assert results(tmp_path / error.__name__) == results(straight.folder)

    def test_a_run_of_objects_is_resumed_with_them(self, tmp_path: Path) -> None:
        torch.manual_seed(1)
        objects: dict[str, Any] = {
            "dataset": stripes(),
            "model": nn.Sequential(nn.Flatten(), nn.Linear(36, 3)),
            "algorithm": FedAvg(),
        }
        straight = run(tmp_path / "straight", **objects)
        break_off(tmp_path / "pieces", 30, Interrupted, **objects)
        with pytest.raises(InputError, match="pass it again"):
            resume(tmp_path / "pieces")
        resume(tmp_path / "pieces", **objects)
        assert results(tmp_path / "pieces") == results(straight.folder)

    def test_a_run_is_resumed_with_the_function_that_makes_its_model(self, tmp_path: Path) -> None:
        straight = run(tmp_path / "straight", model="tiny_runs:dropping")
        break_off(tmp_path / "pieces", 30, Interrupted, model=tiny_runs.dropping)
        resume(tmp_path / "pieces", model=tiny_runs.dropping)
        assert results(tmp_path / "pieces") == results(straight.folder)


class TestWhatCannotBeContinued:
    def test_resume_refuses_a_folder_without_a_run(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="there is no run in"):
            resume(tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_a_finished_run_stays_as_it_is(self, tmp_path: Path) -> None:
        done = run(tmp_path / "run")
        before = {path: path.stat().st_mtime_ns for path in done.folder.iterdir() if path.name != ".lock"}
        assert resume(done.folder) == done
        assert {path: path.stat().st_mtime_ns for path in before} == before

    def test_a_run_without_a_checkpoint_starts_again(self, tmp_path: Path) -> None:
        break_off(tmp_path / "run", 60, checkpoint_every=0)
        assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == 2
        assert adabest.load(tmp_path / "run").metrics == [], "rows that no checkpoint proves will be made again"
        resume(tmp_path / "run")
        assert "resumes after round 0" in log(tmp_path / "run")
        assert results(tmp_path / "run") == results(run(tmp_path / "straight").folder)

    @pytest.mark.parametrize("written", range(8))
    def test_a_run_killed_while_it_began_is_no_run(self, written: int, tmp_path: Path) -> None:
        """The configuration comes last: without it there is no run, and the next one takes the place."""
        with dies_at(os, "fsync", written):
            break_off(tmp_path / "run", 0)
        with pytest.raises(InputError, match="there is no run in"):
            resume(tmp_path / "run")
        run(tmp_path / "run")
        straight = run(tmp_path / "straight").folder
        assert results(tmp_path / "run") == results(straight)
        assert contents(tmp_path / "run").keys() == contents(straight).keys()  # nothing half-written stays

    @pytest.fixture
    def broken_off(self, tmp_path: Path) -> Path:
        break_off(tmp_path / "run", 30, checkpoint_every=1)
        return tmp_path / "run"

    def refused(self, folder: Path, what: str) -> None:
        before = contents(folder)
        with pytest.raises(InputError, match=f"the {what} isn't the one that this run began with"):
            resume(folder, trust=True)
        assert contents(folder) == before

    def test_resume_refuses_another_data_set(self, broken_off: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        changed = stripes().x_test.clone()
        changed[0, 0, 0, 0] ^= 1
        monkeypatch.setattr(tiny_runs, "stripes", lambda: replace(stripes(), x_test=changed))
        self.refused(broken_off, "dataset")

    def test_resume_refuses_another_partition(self, broken_off: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert isinstance(PARTITIONERS.builtin, dict)
        monkeypatch.setitem(PARTITIONERS.builtin, "dirichlet", PARTITIONERS.builtin["iid"])
        self.refused(broken_off, "partition")

    def test_resume_refuses_another_initial_model(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        break_off(tmp_path / "run", 30, model="tiny_runs:dropping")

        def other(input_shape: tuple[int, ...], classes: int) -> nn.Module:
            torch.manual_seed(1)
            return original(input_shape, classes)

        original = tiny_runs.dropping
        monkeypatch.setattr(tiny_runs, "dropping", other)
        self.refused(tmp_path / "run", "initial model")

    def test_another_environment_is_a_warning(
        self, broken_off: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here = build.environment

        def elsewhere(config: adabest.Config) -> dict[str, Any]:
            return {**here(config), "threads": 99, "processors": 99}

        monkeypatch.setattr(beginning, "environment", elsewhere)
        with pytest.warns(UserWarning, match="threads was 1, is 99; the last bits of the result may differ") as caught:
            resume(broken_off)
        assert len(caught) == 1  # the number of processors changes no bit
        assert "warning: threads was 1, is 99" in log(broken_off)
        assert results(broken_off) == results(run(tmp_path / "straight").folder)


class TestMetricsFile:
    def test_a_torn_last_line_is_cut(self, tmp_path: Path) -> None:
        break_off(tmp_path / "run", 60, checkpoint_every=3, evaluate_every=1)
        whole = adabest.load(tmp_path / "run").metrics
        assert [row["round"] for row in whole] == [1, 2, 3]
        with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
            file.write('{"round": 4, "scored_accu')
        assert adabest.load(tmp_path / "run").metrics == whole
        resume(tmp_path / "run")
        assert results(tmp_path / "run") == results(run(tmp_path / "straight", evaluate_every=1).folder)

    def test_rows_after_the_checkpoint_are_taken_back(self, tmp_path: Path) -> None:
        break_off(tmp_path / "run", 60, checkpoint_every=2, evaluate_every=1)
        assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == 3
        assert len(adabest.load(tmp_path / "run").metrics) == 2
        with ends_after(0, Killed), pytest.raises(Killed):
            resume(tmp_path / "run")
        assert [row["round"] for row in adabest.load(tmp_path / "run").metrics] == [1, 2]
        timings = [json.loads(line) for line in (tmp_path / "run" / "timings.jsonl").read_text().splitlines()]
        assert max(row["round"] for row in timings) == 2


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def damage_tensors(stem: Path) -> None:
    flip_a_byte(stem.with_suffix(".safetensors"))


def truncate_tensors(stem: Path) -> None:
    path = stem.with_suffix(".safetensors")
    path.write_bytes(path.read_bytes()[:100])


def remove_tensors(stem: Path) -> None:
    stem.with_suffix(".safetensors").unlink()


def damage_manifest(stem: Path) -> None:
    stem.with_suffix(".json").write_text('{"content": {')


def empty_manifest(stem: Path) -> None:
    stem.with_suffix(".json").write_text("[]")


def change_manifest(stem: Path) -> None:
    path = stem.with_suffix(".json")
    path.write_text(path.read_text().replace('"local_steps": ', '"local_steps": 1'))


def remove_manifest(stem: Path) -> None:
    stem.with_suffix(".json").unlink()


class TestCheckpoints:
    @pytest.fixture
    def broken_off(self, tmp_path: Path) -> Path:
        """A run that was killed in its fifth round."""
        break_off(tmp_path / "run", 60, checkpoint_every=1)
        return tmp_path / "run"

    def test_the_last_two_checkpoints_are_kept(self, broken_off: Path) -> None:
        names = checkpoints(broken_off)
        assert [name for name in names if name.endswith(".json")] == ["round-0000003.json", "round-0000004.json"]
        assert names == needed_files(broken_off)
        assert json.loads((broken_off / "status.json").read_text()) == {"status": "running", "round": 4}

    @pytest.mark.parametrize(
        "damage",
        [damage_tensors, truncate_tensors, remove_tensors, damage_manifest, empty_manifest, change_manifest],
    )
    def test_a_damaged_checkpoint_is_passed_over(
        self, damage: Callable[[Path], None], broken_off: Path, tmp_path: Path
    ) -> None:
        damage(broken_off / "checkpoints" / "round-0000004")
        with pytest.warns(UserWarning, match=r"round-0000004.json is passed over, and the one before"):
            resume(broken_off)
        assert "round-0000004.json is passed over" in log(broken_off)
        assert "resumes after round 3" in log(broken_off)
        assert results(broken_off) == results(run(tmp_path / "straight").folder)

    def test_tensors_without_a_manifest_do_not_count(self, broken_off: Path, tmp_path: Path) -> None:
        remove_manifest(broken_off / "checkpoints" / "round-0000004")
        resume(broken_off)
        assert "resumes after round 3" in log(broken_off)
        assert results(broken_off) == results(run(tmp_path / "straight").folder)

    def test_a_run_of_version_06_is_resumed(self, broken_off: Path, tmp_path: Path) -> None:
        as_version_06(broken_off)
        resume(broken_off)
        assert "resumes after round 4" in log(broken_off)
        assert results(broken_off) == results(run(tmp_path / "straight").folder)

    @pytest.mark.parametrize("damage", [damage_tensors, truncate_tensors, remove_tensors])
    def test_damaged_rows_of_an_earlier_round_cost_one_checkpoint_alone(
        self, damage: Callable[[Path], None], broken_off: Path, tmp_path: Path
    ) -> None:
        """Rows that haven't changed since are in round 2's file for round 4, and in round 1's for round 3."""
        damage(broken_off / "checkpoints" / "round-0000002")
        with pytest.warns(UserWarning, match="round-0000004.json is passed over"):
            resume(broken_off)
        assert "resumes after round 3" in log(broken_off)
        assert results(broken_off) == results(run(tmp_path / "straight").folder)

    def test_a_whole_checkpoint_is_used(self, broken_off: Path) -> None:
        resume(broken_off)
        assert "resumes after round 4" in log(broken_off)
        assert "passed over" not in log(broken_off)

    @pytest.mark.filterwarnings("ignore:.* is passed over")
    def test_a_run_whose_checkpoints_are_all_damaged_starts_again(self, broken_off: Path, tmp_path: Path) -> None:
        for stem in ("round-0000003", "round-0000004"):
            damage_tensors(broken_off / "checkpoints" / stem)
        with pytest.warns(UserWarning, match="has no whole checkpoint left, so it begins again with round 1"):
            resume(broken_off)
        assert "resumes after round 0" in log(broken_off)
        assert results(broken_off) == results(run(tmp_path / "straight").folder)

    @pytest.mark.filterwarnings("ignore:.* is passed over")
    def test_damaged_checkpoints_do_not_crowd_out_new_ones(self, broken_off: Path) -> None:
        """Started again and interrupted in round 3, the run must have the boundary of round 2 on disk."""
        for stem in ("round-0000003", "round-0000004"):
            damage_tensors(broken_off / "checkpoints" / stem)
        with ends_after(32), pytest.raises(Interrupted, match="after round 2"), pytest.warns(UserWarning, match="left"):
            resume(broken_off)
        resume(broken_off)
        assert "resumes after round 2" in log(broken_off)

    @pytest.mark.parametrize("written", range(6))
    def test_a_kill_while_a_checkpoint_is_written_loses_only_that(self, written: int, tmp_path: Path) -> None:
        """Before its tensors are in place, between them and the manifest, and after."""
        before = 8  # files are written before the first checkpoint
        with dies_at(os, "fsync", before + written), pytest.raises(Killed):
            run(tmp_path / "run", checkpoint_every=2)
        assert checkpoints(tmp_path / "run")
        resume(tmp_path / "run")
        assert results(tmp_path / "run") == results(run(tmp_path / "straight").folder)

    def test_a_finished_run_has_no_checkpoints(self, broken_off: Path) -> None:
        resume(broken_off)
        assert not (broken_off / "checkpoints").exists()

    def test_a_kill_at_the_very_end_leaves_no_checkpoints(self, tmp_path: Path) -> None:
        """Finished but not tidied up: the client states must go when someone comes back."""
        with dies_at(run_loop, "drop_checkpoints", 0), pytest.raises(Killed):
            run(tmp_path / "run", checkpoint_every=1)
        assert resume(tmp_path / "run").status == "finished"
        assert checkpoints(tmp_path / "run") == []


class TestPace:
    """Checkpoints by the clock, on a clock that the test turns."""

    def saved(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, cost: float, writing: float = 0.0, **changes: Any
    ) -> list[int]:
        """The rounds after which a checkpoint is written, if a round takes 5 s.

        Args:
            folder: The run's folder.
            monkeypatch: Puts everything back in the end.
            cost: The seconds that a copy of the state takes.
            writing: The seconds that another thread then writes.
            changes: Settings.
        """
        whole_round = Simulation.round
        with monkeypatch.context() as patch:
            clock = SlowCheckpoints(patch, copying=cost, writing=writing)

            def slow_round(self: Simulation, **options: Any) -> Any:
                clock.now += 5.0
                return whole_round(self, **options)

            patch.setattr(Simulation, "round", slow_round)
            run(folder, **{"rounds": 21, "clients": 2, "validation_clients": 0, "model": "logistic", **changes})
        return [number for _, number in clock.saved]

    def test_checkpoints_are_ten_seconds_apart(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.saved(tmp_path / "run", monkeypatch, cost=0.125) == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]

    def test_checkpoints_take_at_most_a_twentieth_of_the_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # 2 s are 5 % of 40 s, of which 38 are for rounds. What the first one costs isn't known before.
        assert self.saved(tmp_path / "run", monkeypatch, cost=2.0) == [2, 10, 18]
        assert self.saved(tmp_path / "slower", monkeypatch, cost=4.0) == [2, 18]

    def test_checkpoints_come_every_so_many_rounds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.saved(tmp_path / "run", monkeypatch, cost=100.0, checkpoint_every=6) == [6, 12, 18]
        # The last round's state is the result itself.
        assert self.saved(tmp_path / "last", monkeypatch, cost=0.0, checkpoint_every=7) == [7, 14]

    def test_checkpoints_are_written_at_most_half_of_the_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.saved(tmp_path / "run", monkeypatch, cost=0.0, writing=12.5) == [2, 7, 12, 17]

    def test_a_slow_disk_holds_a_run_up_for_a_while_and_then_checkpoints_come_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The second one waits for 2 s. Then each is taken in the first round that finds the thread idle again.
        monkeypatch.setattr(pace, "_SECONDS_OF_WAITING", 1.0)
        assert self.saved(tmp_path / "run", monkeypatch, cost=0.0, writing=12.0, checkpoint_every=2) == [
            *(2, 4, 7, 10, 13, 16, 19, 20)
        ]

    def test_checkpoints_can_be_turned_off(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.saved(tmp_path / "run", monkeypatch, cost=0.0, checkpoint_every=0) == []


def test_a_folder_of_the_format_before_goes_on(tmp_path: Path) -> None:
    """Versions 0.5.0 and 0.6.0 wrote format 2, and refuse this version's, in which rows are in several files."""
    break_off(tmp_path / "run", 30, checkpoint_every=1)
    path = tmp_path / "run" / "manifest.json"
    content = json.loads(path.read_text(encoding="utf-8"))["content"]
    assert content["format"] == 3
    content["format"] = 2
    path.write_text(json.dumps({"content": content, "content_sha256": checksum_of_object(content)}), encoding="utf-8")
    assert resume(tmp_path / "run").status == "finished"
    assert results(tmp_path / "run") == results(run(tmp_path / "straight").folder)
    assert json.loads(path.read_text(encoding="utf-8"))["content"]["format"] == 3


def test_a_checkpoint_of_another_version_is_refused_in_words(tmp_path: Path) -> None:
    break_off(tmp_path / "run", 30, checkpoint_every=1)
    newest = max((tmp_path / "run" / "checkpoints").glob("*.json"))
    manifest = json.loads(newest.read_text(encoding="utf-8"))
    del manifest["content"]["numbers"]["skipped_rounds"]
    content = json.dumps(manifest["content"], sort_keys=True).encode()
    manifest["content_sha256"] = hashlib.sha256(content).hexdigest()
    newest.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(adabest.InputError, match=r"its checkpoint, written by adabest [\d.]+, lacks 'skipped_rounds'"):
        resume(tmp_path / "run")


def test_resume_accepts_a_statistic_that_differs_in_its_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may go on on another machine, which computes the statistics anew."""
    break_off(tmp_path / "run", 30, checkpoint_every=1)
    before = json.loads((tmp_path / "run" / "identity.json").read_text())["partition"]["mean_label_entropy"]
    found = []

    def build_elsewhere(*given: Any) -> Any:
        federation = build_federation(*given)
        statistics = federation.identity["partition"]
        statistics["mean_label_entropy"] = float(np.nextafter(statistics["mean_label_entropy"], 9.0))
        found.append(statistics["mean_label_entropy"])
        return federation

    monkeypatch.setattr(run_loop, "build_federation", build_elsewhere)
    assert resume(tmp_path / "run").status == "finished"
    assert found == [np.nextafter(before, 9.0)]


def test_resume_refuses_a_folder_of_runs(tmp_path: Path) -> None:
    run(tmp_path / "all" / "one", rounds=1)
    with pytest.raises(InputError, match="there are runs below it"):
        adabest.resume(tmp_path / "all")
