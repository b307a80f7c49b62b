"""Runs in lanes: each ends as if it had been alone, whatever happens to the others."""

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from slow_checkpoints import SlowCheckpoints
from tiny_runs import Bomb, Diary, Killed, contents, dies_at, ends_after, log, resume, run, tiny

import adabest
from adabest.algorithms.catalog import CORE
from adabest.algorithms.fedavg import FedAvg
from adabest.engine.cpu import trainer
from adabest.engine.interface import Answers, Request
from adabest.engine.reference import ReferenceEngine
from adabest.errors import InputError, Interrupted
from adabest.runs import run_loop
from adabest.runs.build import build_federation
from adabest.runs.callbacks import checkpoints
from adabest.runs.callbacks.checkpoints import CheckpointTime
from adabest.runs.callbacks.run_records import Records
from adabest.runs.execution import run_lanes
from adabest.runs.files.checkpoint import save_checkpoint
from adabest.runs.files.folder import RunFolder
from adabest.runs.run_loop import PendingRun
from adabest.runs.settings.resolution import resolve

# What says when and how fast, and so differs between two equal runs.
CLOCKED = {"timings.jsonl", "log.txt", "environment.json", "manifest.json"}  # which has the run's own id
UNEQUAL: list[dict[str, Any]] = [
    {"algorithm": "fedavg", "rounds": 3},
    {"algorithm": "adabest", "seed": 4, "unbalance": 0.5},
    {"algorithm": "scaffold-m", "model": "logistic", "rounds": 7, "learning_rate": 0.05},
    {"algorithm": "feddyn", "clients": 5, "partition": "iid", "evaluate_every": 1, "batch_size": 3},
    {"algorithm": "adabest", "schedule": ["2:leave:0-7", "4:join:0-7"], "model": "tiny_runs:dropping"},
    {"algorithm": "tiny_runs:Bomb", "fuse": 2},
    {"algorithm": "fedprox", "rounds": 30, "evaluate_every": 1, "stop_after": 3},
]


@pytest.fixture(params=["batched", "reference"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def planned(place: Path, number: int, resumed: bool = False, **changes: Any) -> PendingRun:
    config, components = resolve(tiny(**changes))
    return PendingRun(RunFolder(place / str(number)), config, components, resumed)


def together(place: Path, settings: Sequence[dict[str, Any]], at_a_time: int | None = None, **common: Any) -> None:
    run_lanes([planned(place, number, **common, **one) for number, one in enumerate(settings)], at_a_time=at_a_time)


def go_on(place: Path, settings: Sequence[dict[str, Any]], **common: Any) -> None:
    run_lanes([planned(place, number, True, **common, **one) for number, one in enumerate(settings)])


def one_by_one(place: Path, settings: Sequence[dict[str, Any]], **common: Any) -> None:
    for number, one in enumerate(settings):
        run(place / str(number), **common, **one)


def outcome(place: Path) -> dict[str, bytes]:
    """Every file below a folder that doesn't tell the time."""
    return {name: content for name, content in contents(place).items() if Path(name).name not in CLOCKED}


class SingleRuns:
    """What runs come to one by one; the same runs are made only once."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.outcomes: dict[str, dict[str, bytes]] = {}

    def outcome(self, settings: Sequence[dict[str, Any]], **common: Any) -> dict[str, bytes]:
        key = repr([tiny(**common, **one) for one in settings])
        if key not in self.outcomes:
            folder = self.place / str(len(self.outcomes))
            one_by_one(folder, settings, **common)
            self.outcomes[key] = outcome(folder)
        return self.outcomes[key]


@pytest.fixture(scope="module")
def single_runs(tmp_path_factory: pytest.TempPathFactory) -> SingleRuns:
    return SingleRuns(tmp_path_factory.mktemp("single"))


def statuses(place: Path, number: int) -> list[tuple[str, int]]:
    loaded = [adabest.load(place / str(one)) for one in range(number)]
    return [(one.status, one.round) for one in loaded]


@pytest.mark.usefixtures("trusting")
class TestOutcome:
    def test_lanes_end_as_single_runs_do(self, engine: str, tmp_path: Path, single_runs: SingleRuns) -> None:
        together(tmp_path / "lanes", UNEQUAL, engine=engine)
        assert outcome(tmp_path / "lanes") == single_runs.outcome(UNEQUAL, engine=engine)
        ends = statuses(tmp_path / "lanes", len(UNEQUAL))
        assert ends[:6] == [("finished", 3), ("finished", 5), ("finished", 7), *[("finished", 5)] * 2, ("diverged", 2)]
        assert ends[6][0] == "finished"
        assert ends[6][1] < 30

    @pytest.mark.parametrize("at_a_time", [1, 2, 3])
    def test_lanes_are_trained_some_at_a_time(
        self, at_a_time: int, tmp_path: Path, single_runs: SingleRuns, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[int] = []
        exchange = ReferenceEngine.exchange

        def counted(self: ReferenceEngine, requests: Sequence[Request]) -> list[Answers]:
            asked.append(len(requests))
            return exchange(self, requests)

        monkeypatch.setattr(ReferenceEngine, "exchange", counted)
        together(tmp_path / "lanes", UNEQUAL, at_a_time)
        assert max(asked) == at_a_time
        # When one ends, the next takes its place: there are fewer only when none is waiting any more.
        assert sorted(asked, reverse=True) == asked or at_a_time == 1
        monkeypatch.undo()
        assert outcome(tmp_path / "lanes") == single_runs.outcome(UNEQUAL)

    def test_lanes_of_every_algorithm_end_as_single_runs_do(
        self, engine: str, tmp_path: Path, single_runs: SingleRuns
    ) -> None:
        settings = [{"algorithm": name} for name in CORE]
        together(tmp_path / "lanes", settings, engine=engine, unbalance=0.3)
        assert outcome(tmp_path / "lanes") == single_runs.outcome(settings, engine=engine, unbalance=0.3)

    def test_a_lane_whose_training_loss_is_lost_ends_alone(
        self, engine: str, tmp_path: Path, single_runs: SingleRuns
    ) -> None:
        settings: list[dict[str, Any]] = [
            {"seed": 0},
            {"learning_rate": 1e30, "clip": 0.0, "bad_replies": "stop"},
            {"seed": 1},
        ]
        together(tmp_path / "lanes", settings, engine=engine)
        assert outcome(tmp_path / "lanes") == single_runs.outcome(settings, engine=engine)
        assert [status for status, _ in statuses(tmp_path / "lanes", 3)] == ["finished", "diverged", "finished"]
        assert "its training loss at local step" in str(adabest.load(tmp_path / "lanes" / "1").reason)

    @pytest.mark.parametrize("precision", ["float32", "float64", "bf16"])
    @pytest.mark.parametrize("model", ["mlp,hidden=7", "logistic", "tiny_runs:convolving"])
    def test_lanes_of_every_precision_end_as_single_runs_do(
        self, precision: str, model: str, tmp_path: Path, single_runs: SingleRuns
    ) -> None:
        settings: list[dict[str, Any]] = [
            {"seed": 0, "unbalance": 0.4},
            {"algorithm": "feddyn"},
            {"algorithm": "scaffold"},
        ]
        common: dict[str, Any] = {
            "engine": "batched",
            "precision": precision,
            "model": model,
            "rounds": 2,
            "batch_size": 7,
        }
        together(tmp_path / "lanes", settings, **common)
        assert outcome(tmp_path / "lanes") == single_runs.outcome(settings, **common)

    @pytest.mark.parametrize("model", ["mlp,hidden=200", "tiny_runs:convolving"])
    def test_lanes_of_one_client_on_two_threads_end_as_single_runs_do(
        self, model: str, tmp_path: Path, single_runs: SingleRuns
    ) -> None:
        """A product large enough to be split among threads, and a lone client that must have only one, too."""
        settings = [{"seed": 0}, {"seed": 1}, {"seed": 2}]
        common: dict[str, Any] = {
            "dataset": "tiny_runs:squares",
            "model": model,
            "batch_size": 10,
            "clip": 0.5,
            "threads": 2,
        }
        common |= {"engine": "batched", "participation": 0.1, "rounds": 3}
        together(tmp_path / "lanes", settings, **common)
        assert outcome(tmp_path / "lanes") == single_runs.outcome(settings, **common)

    def test_an_algorithm_that_looks_at_all_clients_of_a_piece(
        self, tmp_path: Path, single_runs: SingleRuns, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It sees the same clients in a lane as alone, even if not all of them fit at a time."""
        monkeypatch.setattr(trainer, "_MODEL_BYTES", 2 * 323 * 4)  # bytes: two models, so three clients are two pieces
        settings = [{"algorithm": "tiny_runs:Peeping", "seed": seed} for seed in range(3)]
        common: dict[str, Any] = {"engine": "batched", "threads": 1, "rounds": 2}
        together(tmp_path / "lanes", settings, **common)
        assert outcome(tmp_path / "lanes") == single_runs.outcome(settings, **common)

    @pytest.mark.cuda
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
    @pytest.mark.parametrize("precision", ["float32", "tf32", "bf16", "float64"])
    @pytest.mark.parametrize("model", ["mlp,hidden=200", "cnn", "resnet"])
    def test_lanes_of_every_precision_of_a_gpu_end_as_single_runs_do(
        self, precision: str, model: str, tmp_path: Path, single_runs: SingleRuns
    ) -> None:
        settings: list[dict[str, Any]] = [
            {"seed": 0, "unbalance": 0.4},
            {"algorithm": "feddyn"},
            {"algorithm": "scaffold", "sampler": "bernoulli"},
        ]
        settings += [{"seed": seed} for seed in range(1, 6)]
        common: dict[str, Any] = {"engine": "batched", "device": "cuda", "precision": precision, "model": model}
        common |= {"dataset": "tiny_runs:squares", "rounds": 3, "batch_size": 10}
        together(tmp_path / "lanes", settings, **common)
        assert outcome(tmp_path / "lanes") == single_runs.outcome(settings, **common)

    def test_a_skipped_round_does_not_change_other_lanes(self, tmp_path: Path) -> None:
        together(tmp_path / "lanes", UNEQUAL[3:5])
        logs = [log(tmp_path / "lanes" / name) for name in "01"]
        assert ["round 2 is skipped" in text for text in logs] == [False, True]

    def test_lanes_that_all_have_ended_are_left_alone(self, tmp_path: Path) -> None:
        settings = [{"seed": 0}, {"seed": 1}]
        together(tmp_path / "lanes", settings)
        before = contents(tmp_path / "lanes")
        go_on(tmp_path / "lanes", settings)
        assert contents(tmp_path / "lanes") == before

    def test_a_lane_that_another_process_has_ended_is_left_alone(self, tmp_path: Path) -> None:
        with ends_after(30), pytest.raises(Interrupted):
            together(tmp_path / "lanes", [{}])
        run_lanes([planned(tmp_path / "lanes", 0, True) for _ in range(2)], at_a_time=1)
        assert log(tmp_path / "lanes" / "0").count("resumes after") == 1


class TestSurroundings:
    def test_runs_of_other_process_settings_are_trained_one_group_after_the_other(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[tuple[int, int, set[torch.dtype]]] = []
        exchange = ReferenceEngine.exchange

        def watched(self: ReferenceEngine, requests: Sequence[Request]) -> list[Answers]:
            formats = {request.message.cloud.dtype for request in requests}
            seen.append((len(requests), torch.get_num_threads(), formats))
            return exchange(self, requests)

        monkeypatch.setattr(ReferenceEngine, "exchange", watched)
        before = torch.get_num_threads()
        settings: list[dict[str, Any]] = [
            {"precision": "float64"},
            {},
            {"threads": 2},
            {"precision": "float64", "seed": 1},
            {"seed": 1},
        ]
        together(tmp_path / "lanes", settings, rounds=1)
        single, double = {torch.float32}, {torch.float64}
        assert seen == [(2, 1, double), (2, 1, single), (1, 2, single)]
        assert torch.get_num_threads() == before

    def test_a_request_between_two_groups_is_heard(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        end = Records.end

        def interrupted(*given: Any) -> None:
            signal.raise_signal(signal.SIGTERM)
            end(*given)

        monkeypatch.setattr(Records, "end", interrupted)
        with pytest.raises(Interrupted):
            together(tmp_path / "lanes", [{}, {"precision": "float64"}], rounds=1)
        assert not (tmp_path / "lanes" / "1").exists()

    def test_each_run_knows_its_threads(self, tmp_path: Path) -> None:
        together(tmp_path / "lanes", [{"threads": 2}, {}], rounds=1)
        environments = [json.loads((tmp_path / "lanes" / name / "environment.json").read_text()) for name in "01"]
        assert [environment["threads"] for environment in environments] == [2, 1]

    def test_handlers_are_put_back(self, tmp_path: Path) -> None:
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        together(tmp_path / "lanes", [{"seed": 0}, {"seed": 1}], rounds=1)
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


class TestInterruption:
    SETTINGS: tuple[dict[str, Any], ...] = ({"seed": 0}, {"seed": 1, "unbalance": 0.3}, {"algorithm": "scaffold"})

    @pytest.mark.parametrize("beats", [0, 40, 75, 130, 190])
    def test_interrupted_lanes_save_and_go_on(self, beats: int, tmp_path: Path, single_runs: SingleRuns) -> None:
        with ends_after(beats), pytest.raises(Interrupted):
            together(tmp_path / "lanes", self.SETTINGS, checkpoint_every=0)
        left = statuses(tmp_path / "lanes", 3)
        assert {status for status, _ in left} <= {"interrupted", "finished"}
        assert len({done for _, done in left}) <= 2  # in lock-step, so at most within one evaluation of each other
        go_on(tmp_path / "lanes", self.SETTINGS, checkpoint_every=0)
        assert outcome(tmp_path / "lanes") == single_runs.outcome(self.SETTINGS, checkpoint_every=0)

    def test_each_log_tells_how_to_go_on(self, tmp_path: Path) -> None:
        with ends_after(100), pytest.raises(Interrupted) as caught:
            together(tmp_path / "lanes", self.SETTINGS)
        folders = [tmp_path / "lanes" / name for name in "012"]
        assert str(caught.value).startswith("interrupted after round 2; resume with: adabest resume")
        assert all(f"resume with: adabest resume {folder}" in log(folder) for folder in folders)

    def test_one_lane_is_resumed_alone(self, engine: str, tmp_path: Path, single_runs: SingleRuns) -> None:
        """And the others go on in smaller company."""
        with ends_after(75 if engine == "reference" else 12), pytest.raises(Interrupted):  # others have fewer beats
            together(tmp_path / "lanes", self.SETTINGS, engine=engine)
        assert {status for status, done in statuses(tmp_path / "lanes", 3) if done > 0} == {"interrupted"}
        resume(tmp_path / "lanes" / "1")
        go_on(tmp_path / "lanes", self.SETTINGS, engine=engine)
        assert outcome(tmp_path / "lanes") == single_runs.outcome(self.SETTINGS, engine=engine)

    @pytest.mark.parametrize("beats", [0, 40, 75, 130, 190])
    def test_killed_lanes_end_as_single_runs_do(self, beats: int, tmp_path: Path, single_runs: SingleRuns) -> None:
        common = {"checkpoint_every": 2, "evaluate_every": 1}
        with ends_after(beats, Killed), pytest.raises(Killed):
            together(tmp_path / "lanes", self.SETTINGS, **common)
        assert {status for status, _ in statuses(tmp_path / "lanes", 3)} <= {"killed", "finished"}
        go_on(tmp_path / "lanes", self.SETTINGS, **common)
        assert outcome(tmp_path / "lanes") == single_runs.outcome(self.SETTINGS, **common)

    @pytest.mark.parametrize("written", [3, 9, 15, 20, 21, 22, 23, 24, 26])
    def test_lanes_killed_while_writing_end_as_single_runs_do(
        self, written: int, tmp_path: Path, single_runs: SingleRuns
    ) -> None:
        """While lanes begin, or between the checkpoint of one lane and that of the next."""
        with dies_at(os, "fsync", written), pytest.raises(Killed):
            together(tmp_path / "lanes", self.SETTINGS, checkpoint_every=1)
        for number, one in enumerate(self.SETTINGS):
            there = (tmp_path / "lanes" / str(number) / "config.toml").exists()
            run_lanes([planned(tmp_path / "lanes", number, there, checkpoint_every=1, **one)])
        assert outcome(tmp_path / "lanes") == single_runs.outcome(self.SETTINGS, checkpoint_every=1)

    def test_a_second_request_saves_no_further_lane(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        saved: list[Path] = []

        def slow_save(folder: RunFolder, *given: Any, **options: Any) -> None:
            saved.append(folder.path)
            raise KeyboardInterrupt

        monkeypatch.setattr(checkpoints, "save_checkpoint", slow_save)
        with ends_after(100), pytest.raises(KeyboardInterrupt):
            together(tmp_path / "lanes", self.SETTINGS, checkpoint_every=0)
        assert len(saved) == 1
        assert [status for status, _ in statuses(tmp_path / "lanes", 3)] == ["killed"] * 3  # all locks are free

    def test_a_lane_that_cannot_save_is_not_hushed_up(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        save = save_checkpoint

        def full(folder: RunFolder, *given: Any, **options: Any) -> tuple[str, str]:
            if folder.path.name == "1":
                raise OSError(28, "No space left on device")
            return save(folder, *given, **options)

        monkeypatch.setattr(checkpoints, "save_checkpoint", full)
        with ends_after(100), pytest.raises(OSError, match="No space left"):
            together(tmp_path / "lanes", self.SETTINGS, checkpoint_every=0)
        left = statuses(tmp_path / "lanes", 3)
        assert [left[0], left[2]] == [("interrupted", 2)] * 2


@pytest.mark.usefixtures("trusting")
class TestErrors:
    SETTINGS: tuple[dict[str, Any], ...] = ({"seed": 0}, {"algorithm": "tiny_runs:Faulty"}, {"seed": 1})

    def test_an_error_in_one_lane_ends_all_and_each_has_its_last_round(self, tmp_path: Path) -> None:
        with pytest.raises(ZeroDivisionError, match="a bug"):
            together(tmp_path / "lanes", self.SETTINGS, checkpoint_every=0)
        assert [status for status, _ in statuses(tmp_path / "lanes", 3)] == ["killed"] * 3
        # The first was advanced before the second failed, the third wasn't.
        assert [done for _, done in statuses(tmp_path / "lanes", 3)] == [3, 2, 2]
        assert "broken off after round 2: a bug" in log(tmp_path / "lanes" / "2")
        for number in (0, 2):
            resume(tmp_path / "lanes" / str(number))
            assert f"resumes after round {2 if number else 3}" in log(tmp_path / "lanes" / str(number))
            single = run(tmp_path / "single" / str(number), checkpoint_every=0, **self.SETTINGS[number])
            assert outcome(tmp_path / "lanes" / str(number)) == outcome(single.folder)

    def test_a_folder_that_another_process_works_on_is_refused(self, tmp_path: Path) -> None:
        other = RunFolder(tmp_path / "lanes" / "1")
        other.acquire()
        try:
            with pytest.raises(InputError, match=r"another process is working on .*lanes.1"):
                together(tmp_path / "lanes", [{"seed": 0}, {"seed": 1}])
        finally:
            other.release()
        assert not (tmp_path / "lanes" / "0").exists()

    def test_a_lane_that_cannot_begin_stops_all_before_training(self, tmp_path: Path) -> None:
        """Nothing is trained, and nobody's lock is left."""
        settings = [{"seed": 0}, {"clients": 1000}, {"seed": 1}]
        with dies_at(ReferenceEngine, "exchange", 0), pytest.raises(InputError, match="clients"):
            together(tmp_path / "lanes", settings)
        assert statuses(tmp_path / "lanes", 1) == [("killed", 0)]
        assert not (tmp_path / "lanes" / "1").exists()
        assert not (tmp_path / "lanes" / "2").exists()

    def test_trackers_hear_of_their_own_lane(self, tmp_path: Path) -> None:
        Diary.heard.clear()
        settings: list[dict[str, Any]] = [{"seed": 0}, {"algorithm": "tiny_runs:Bomb"}]
        together(tmp_path / "lanes", settings, loggers=["tiny_runs:Diary"], evaluate_every=1)
        ends = [told for what, told in Diary.heard if what == "end"]
        assert [end["status"] for end in ends] == ["diverged", "finished"]
        Diary.heard.clear()


class TestPace:
    def test_checkpoints_of_one_lane_take_a_twentieth(self) -> None:
        shared = CheckpointTime()
        shared.set(1, None)
        assert shared.wait(1) == 10.0
        shared.set(1, 2.0)
        assert shared.wait(1) == pytest.approx(38.0)  # 2 of 40 s

    def test_all_lanes_together_take_a_twentieth(self) -> None:
        shared = CheckpointTime()
        costs = {1: 1.0, 2: 2.0, 3: 3.0}
        for number, cost in costs.items():
            shared.set(number, cost)
        # A period of 120 s holds 6 s of checkpoints, its own among them.
        assert {number: shared.wait(number) + cost for number, cost in costs.items()} == pytest.approx(
            dict.fromkeys(costs, 120)
        )
        shared.leave(3)
        assert shared.wait(1) == pytest.approx(59.0)

    def test_unknown_costs_are_taken_from_other_lanes(self) -> None:
        shared = CheckpointTime()
        for number in range(10):
            shared.set(number, None)
        shared.set(0, 1.0)
        assert shared.wait(0) == pytest.approx(199.0)
        assert shared.wait(5) == pytest.approx(200.0)

    @pytest.mark.parametrize(("lanes", "short", "rounds"), [(1, 0, [2, 10, 18]), (3, 0, [2, 25]), (1, 4, [2, 10, 18])])
    def test_runs_keep_their_pace_of_checkpoints(
        self, lanes: int, short: int, rounds: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A round of all takes 5 s and a copy 2 s, so one lane has a checkpoint every 40 s, and three every 120 s.

        Those that have ended after three rounds don't count any more.
        """
        clock, exchange = SlowCheckpoints(monkeypatch, copying=2.0), ReferenceEngine.exchange

        def slow(self: ReferenceEngine, requests: Sequence[Request]) -> list[Answers]:
            clock.now += 5.0
            return exchange(self, requests)

        monkeypatch.setattr(ReferenceEngine, "exchange", slow)
        settings = [{"seed": seed, "rounds": 40 if seed < lanes else 3} for seed in range(lanes + short)]
        together(tmp_path / "lanes", settings, clients=2, validation_clients=0, model="logistic")
        assert [number for name, number in clock.saved if name == "0"][: len(rounds)] == rounds
        assert 2.0 * len(clock.saved) <= 0.05 * clock.now + 2.0 * lanes


def test_lanes_are_in_lock_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All clients' work of a round is asked for at once; else a fast engine would have nothing to put together."""
    rounds: list[list[int]] = []
    exchange = ReferenceEngine.exchange

    def watched(self: ReferenceEngine, requests: Sequence[Request]) -> list[Answers]:
        rounds.append([request.context.round for request in requests])
        return exchange(self, requests)

    monkeypatch.setattr(ReferenceEngine, "exchange", watched)
    together(tmp_path / "lanes", [{"rounds": 4}, {"algorithm": "fedavg", "rounds": 4}, {"rounds": 2}])
    assert rounds == [[1, 1, 1], [2, 2, 2], [3, 3], [4, 4]]


def test_a_diverging_lane_changes_no_other(tmp_path: Path) -> None:
    done = adabest.compare(
        algorithms=[FedAvg(), Bomb(fuse=1), Bomb(fuse=3)], out=tmp_path / "all", show=False, **tiny(lanes=2)
    )
    assert [(one.status, one.round) for one in done.runs.values()] == [
        ("finished", 5),
        ("diverged", 1),
        ("diverged", 3),
    ]


def test_a_run_that_another_process_finished_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = build_federation

    def slow_build(*given: Any) -> Any:
        monkeypatch.setattr(run_loop, "build_federation", build)
        run(tmp_path / "run", rounds=1)
        return build(*given)

    monkeypatch.setattr(run_loop, "build_federation", slow_build)
    with pytest.raises(InputError, match="holds a finished run"):
        run(tmp_path / "run", rounds=2)
    assert adabest.load(tmp_path / "run").round == 1
