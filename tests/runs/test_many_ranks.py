"""Runs on many ranks: real processes over gloo, whose results have the bytes of one process.

A process that has imported everything forks the ranks, so that a job takes a second and not ten.
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked_ranks import ForkedProcess, Launcher
from ranked import Ended, plain_environment, rank_environment
from ranked_runs import CASES, make_cases, make_comparisons
from tiny_runs import HELPERS, RESULTS, arguments, log, resume, run, tiny

import adabest
from adabest.cli.rank_command import answer_in_job
from adabest.runs.files.run_verification import verify_run
from adabest.runs.job import current_job

# One row a round, so that the file of metrics shows how far a job is.
SLOW = tiny(rounds=40, evaluate_every=1, checkpoint_every=3, threads=1, engine="batched", algorithm="feddyn")
SHORT = tiny(rounds=2, threads=1)
PATIENCE = 60  # seconds until a job that doesn't get anywhere counts as hung


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The slow run in one process, never interrupted."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    run(folder, **SLOW)
    return folder


@pytest.fixture(scope="module")
def cases_of_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cases, made in this process."""
    folder = tmp_path_factory.mktemp("cases")
    make_cases(folder, list(CASES))
    assert len(results_below(folder)) > 3 * len(CASES)
    return folder


def results_below(folder: Path) -> dict[str, bytes]:
    """The results of all runs below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for name in RESULTS for path in folder.rglob(name)}


def assert_same_results(one: Path, other: Path) -> None:
    expected, found = results_below(one), results_below(other)
    assert expected.keys() == found.keys()
    assert [name for name in expected if found[name] != expected[name]] == []


def codes(ended: list[Ended]) -> list[int]:
    return [process.code for process in ended]


def assert_one_message(ended: list[Ended], code: int, words: str) -> None:
    """All ranks end with a code, and only rank 0 says why, in one line."""
    assert codes(ended) == [code] * len(ended), ended
    assert re.search(words, ended[0].stderr), ended[0].stderr
    assert ended[0].stderr.count("adabest: ") == 1, ended[0].stderr
    assert "Traceback" not in ended[0].stderr
    assert [(process.stdout, process.stderr) for process in ended[1:]] == [("", "")] * (len(ended) - 1)


def after_rounds(goal: int, folder: Path, act: Callable[[list[ForkedProcess]], None]) -> Any:
    """Waits until a run has made some rounds, then does something to its processes."""

    def meanwhile(processes: list[ForkedProcess]) -> None:
        deadline, metrics = time.monotonic() + PATIENCE, folder / "metrics.jsonl"
        while not metrics.is_file() or metrics.read_bytes().count(b"\n") < goal:
            assert time.monotonic() < deadline, "the job doesn't get anywhere"
            assert processes[0].poll() is None, "the job has ended too early"
            time.sleep(0.002)
        act(processes)

    return meanwhile


def terminate_all(processes: list[ForkedProcess]) -> None:
    for process in processes:
        process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.soak), 3])
def test_every_run_has_the_bytes_of_one_process(
    launcher: Launcher, cases_of_one: Path, tmp_path: Path, size: int
) -> None:
    ended = launcher.run(size, "cases", tmp_path / "ranks", module="ranked_runs")
    assert codes(ended) == [0] * size, ended
    assert_same_results(cases_of_one, tmp_path / "ranks")
    assert (tmp_path / "ranks/shares.json").read_text() == "[]"  # no rank keeps what has ended


def test_a_job_of_one_rank_has_the_bytes_of_no_job(
    cases_of_one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in rank_environment(0, 1, 29500).items():
        monkeypatch.setenv(name, value)
    assert answer_in_job(["run", "--trust"], lambda: make_cases(tmp_path, list(CASES))) == 0
    assert_same_results(cases_of_one, tmp_path)
    assert (tmp_path / "shares.json").read_text() == "[]"
    assert current_job() is None


@pytest.mark.parametrize("size", [2, 3])
def test_comparisons_and_sweeps_have_the_bytes_of_one_process(launcher: Launcher, tmp_path: Path, size: int) -> None:
    """Two runs on three ranks are lanes whose clients are shared out; else each rank makes whole runs."""
    ended = launcher.run(size, "comparisons", tmp_path / "ranks", module="ranked_runs")
    assert codes(ended) == [0] * size, ended
    make_comparisons(tmp_path / "one")
    assert len(results_below(tmp_path / "one")) > 30
    assert_same_results(tmp_path / "one", tmp_path / "ranks")
    assert "diverged" in (tmp_path / "ranks/sweep/table.md").read_text()


def test_a_killed_rank_ends_the_run_and_other_numbers_of_ranks_go_on(
    launcher: Launcher, tmp_path: Path, straight: Path
) -> None:
    """Two ranks, of which one is killed; then three, which are asked to stop; then one process."""
    folder = tmp_path / "run"
    ended = launcher.run(
        2, "run", *arguments(**SLOW, out=folder), meanwhile=after_rounds(8, folder, lambda ranks: ranks[1].kill())
    )
    assert codes(ended) == [5, -signal.SIGKILL]
    assert re.search(r"adabest: rank 1 on \S+ was lost: .*resume with: adabest resume", ended[0].stderr)
    assert "Traceback" not in ended[0].stderr
    assert [finding.state for finding in verify_run(folder)] == ["whole"]
    left = adabest.load(folder)
    assert left.status == "killed"
    assert left.round >= 3
    ended = launcher.run(3, "resume", folder, meanwhile=after_rounds(20, folder, terminate_all))
    assert_one_message_of_interruption(ended)
    assert adabest.load(folder).round >= 19  # the last round is saved, whatever round a checkpoint was due in
    resume(folder)
    assert_same_results(straight, folder)


def assert_one_message_of_interruption(ended: list[Ended]) -> None:
    assert codes(ended) == [130] * len(ended), ended
    assert re.search(r"adabest: interrupted after round \d+; resume with: adabest resume", ended[0].stderr)
    assert [process.stderr for process in ended[1:]] == [""] * (len(ended) - 1)


def test_one_rank_that_is_asked_to_stop_stops_all(launcher: Launcher, tmp_path: Path, straight: Path) -> None:
    """One process, then two, then three."""
    folder = tmp_path / "run"
    ended = launcher.run(1, "run", *arguments(**SLOW, out=folder), meanwhile=after_rounds(5, folder, terminate_all))
    assert_one_message_of_interruption(ended)
    ended = launcher.run(
        2,
        "resume",
        folder,
        meanwhile=after_rounds(15, folder, lambda ranks: ranks[1].send_signal(signal.SIGTERM)),
    )
    assert_one_message_of_interruption(ended)
    assert codes(launcher.run(3, "resume", folder)) == [0, 0, 0]
    assert_same_results(straight, folder)


def test_a_frozen_rank_ends_the_run_after_the_deadline(launcher: Launcher, tmp_path: Path, straight: Path) -> None:
    folder = tmp_path / "run"

    def freeze(processes: list[ForkedProcess]) -> None:
        processes[1].send_signal(signal.SIGSTOP)
        for process in (processes[0], processes[2]):
            process.wait(PATIENCE)
        processes[1].kill()

    ended = launcher.run(
        3,
        "run",
        *arguments(**SLOW, out=folder),
        environment={"ADABEST_RANK_DEADLINE": "2"},
        meanwhile=after_rounds(8, folder, freeze),
    )
    assert codes(ended) == [5, -signal.SIGKILL, 5]
    assert re.search(
        r"adabest: rank 1 on \S+ was lost: (nothing was heard of it for [2-9]|another rank had given it up)",
        ended[0].stderr,
    )
    assert ended[2].stderr == ""
    assert [finding.state for finding in verify_run(folder)] == ["whole"]
    assert codes(launcher.run(2, "resume", folder)) == [0, 0]
    assert_same_results(straight, folder)


def test_a_restarted_job_goes_on(launcher: Launcher, tmp_path: Path, straight: Path) -> None:
    """The same command again, as torchrun starts it; without a restart it would refuse the folder."""
    folder = tmp_path / "run"
    command = ["run", *arguments(**SLOW, out=folder)]
    ended = launcher.run(2, *command, meanwhile=after_rounds(8, folder, lambda ranks: ranks[0].kill()))
    assert codes(ended) == [-signal.SIGKILL, 5]
    assert re.search(r"adabest: rank 0 on \S+ was lost", ended[1].stderr)
    assert_one_message(launcher.run(2, *command), 2, "holds an unfinished run; continue it with")
    assert codes(launcher.run(2, *command, environment={"TORCHELASTIC_RESTART_COUNT": "1"})) == [0, 0]
    assert_same_results(straight, folder)


def test_a_second_interrupt_ends_all_ranks_at_once(launcher: Launcher, tmp_path: Path) -> None:
    """Rank 1 is deaf, so that the first interrupt can't be obeyed yet."""
    folder = tmp_path / "run"
    settings = {**SLOW, "rounds": 400}

    def twice(processes: list[ForkedProcess]) -> None:
        processes[1].send_signal(signal.SIGSTOP)
        for _ in range(2):
            processes[0].send_signal(signal.SIGINT)
            time.sleep(0.3)
        processes[0].wait(PATIENCE)
        processes[1].send_signal(signal.SIGCONT)

    ended = launcher.run(2, "run", *arguments(**settings, out=folder), meanwhile=after_rounds(4, folder, twice))
    assert codes(ended) == [130, 5]
    assert ended[0].stderr.splitlines()[-1] == "adabest: interrupted; a run that was begun can be resumed"
    assert [finding.state for finding in verify_run(folder)] == ["whole"]


def test_an_error_at_another_rank_is_shown_by_rank_0(launcher: Launcher, tmp_path: Path) -> None:
    """And the round before it is saved, for which the other rank still answers."""
    settings = {**SHORT, "rounds": 5, "algorithm": "ranked_runs:FailingElsewhere", "participation": 1.0}
    zero, one = launcher.run(2, "run", *arguments(**settings, out=tmp_path / "run"))
    assert (zero.code, one.code) == (1, 1)
    assert re.search(r"RankFailed: an error at rank 1 on \S+:\nTraceback", zero.stderr)
    assert "ZeroDivisionError: a bug at another rank" in zero.stderr
    assert one.stderr == ""
    assert adabest.load(tmp_path / "run").round == 2


def test_clients_that_a_rank_has_no_memory_for_end_the_run(launcher: Launcher, tmp_path: Path) -> None:
    """Every rank tells rank 0 before anything is kept, and the round before is saved."""
    settings = {**SHORT, "rounds": 9, "algorithm": "feddyn", "client_memory": "16kB", "client_disk": "0"}
    ended = launcher.run(2, "run", *arguments(**settings, out=tmp_path / "run"))
    assert_one_message(ended, 2, "there is no memory left for what more clients keep")


class TestBadInput:
    """One message of rank 0, exit code 2 everywhere, and nothing hangs."""

    @pytest.mark.parametrize(
        ("words", "changes"),
        [
            (r"7 clients can't be shared out among 8 ranks", {"clients": 7, "size": 8}),
            (r"backend nccl sends vectors between GPUs; use --device cuda, or --backend gloo", {"backend": "nccl"}),
            (r"device 'cuda': .*use --device cpu", {"device": "cuda"}),
            (r"algorithm Undeclared doesn't say what its replies' model, samples are", {"algorithm": "Undeclared"}),
            (r"unknown algorithm 'fedavgg'; did you mean 'fedavg'", {"algorithm": "fedavgg"}),
        ],
    )
    def test_settings_that_no_ranks_can_use(
        self, launcher: Launcher, tmp_path: Path, words: str, changes: dict[str, Any]
    ) -> None:
        size = changes.pop("size", 2)
        if changes.get("algorithm") == "Undeclared":
            changes["algorithm"] = "ranked_runs:Undeclared"
        ended = launcher.run(size, "run", *arguments(**{**SHORT, **changes}, out=tmp_path / "run"))
        assert_one_message(ended, 2, words)
        assert not (tmp_path / "run/config.toml").exists()

    def test_the_parsers_own_errors(self, launcher: Launcher) -> None:
        ended = launcher.run(2, "run", "--no-such-option")
        assert codes(ended) == [2, 2]
        assert "Unrecognized options" in ended[0].stderr
        assert (ended[1].stdout, ended[1].stderr) == ("", "")

    def test_other_arguments_at_another_rank(self, launcher: Launcher, tmp_path: Path) -> None:
        line = ["run", *arguments(**SHORT, out=tmp_path / "run")]
        ended = launcher.run(3, *line, at_rank={2: {"arguments": [*line, "--seed", "3"]}})
        assert_one_message(ended, 2, r"rank 2 on \S+ has another arguments than rank 0")

    @pytest.mark.parametrize("other", ["rounds = 3\n", None])
    def test_another_file_of_settings_at_another_rank(
        self, launcher: Launcher, tmp_path: Path, other: str | None
    ) -> None:
        folders = [tmp_path / "0", tmp_path / "1"]
        for folder, text in zip(folders, ("rounds = 2\n", other), strict=True):
            folder.mkdir()
            if text is not None:
                (folder / "settings.toml").write_text(text)
        at_rank = {rank: {"folder": folder} for rank, folder in enumerate(folders)}
        ended = launcher.run(2, "run", "settings.toml", *arguments(dataset="stripes", out="run"), at_rank=at_rank)
        assert_one_message(ended, 2, r"rank 1 on \S+ has another file settings.toml than rank 0")

    def test_other_data_at_another_rank(self, launcher: Launcher, tmp_path: Path) -> None:
        settings = {**SHORT, "dataset": "ranked_runs:stripes_of_rank"}
        ended = launcher.run(2, "run", *arguments(**settings, out=tmp_path / "run"))
        assert_one_message(ended, 2, r"rank 1 on \S+ has another data set than rank 0 on \S+; all ranks need the same")

    @pytest.mark.parametrize("deadline", ["abc", "0.5", "inf"])
    def test_a_deadline_that_is_none(self, launcher: Launcher, deadline: str) -> None:
        ended = launcher.run(2, "run", environment={"ADABEST_RANK_DEADLINE": deadline})
        assert_one_message(ended, 2, f"ADABEST_RANK_DEADLINE='{deadline}' should be a number of seconds")

    def test_a_deadline_that_is_none_at_another_rank(self, launcher: Launcher) -> None:
        ended = launcher.run(2, "run", at_rank={1: {"environment": {"ADABEST_RANK_DEADLINE": "abc"}}})
        assert_one_message(ended, 2, r"rank 1 on \S+ has another ADABEST_RANK_DEADLINE than rank 0 .*: None, not 60.0")

    def test_half_of_torchruns_environment(self, launcher: Launcher) -> None:
        (ended,) = launcher.run(1, "run", environment={"MASTER_ADDR": "", "LOCAL_RANK": ""})
        assert_one_message([ended], 2, "the environment lacks LOCAL_RANK, MASTER_ADDR")


@pytest.mark.soak
def test_torchrun_restarts_a_killed_rank_and_the_run_goes_on(tmp_path: Path, straight: Path) -> None:
    """The real one, with its own store and its own restart."""
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    variables = plain_environment()
    del variables["PYTHONWARNINGS"]  # torchrun has some of its own
    settings = {**SLOW, "algorithm": "ranked_runs:DyingOnce", "out": folder}
    line = [*command, "-m", "adabest", "run", *arguments(**settings)]
    ended = subprocess.run(line, cwd=HELPERS, env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "exitcode: -9" in ended.stderr  # of rank 1; torchrun may end rank 0 before it can say so
    assert re.search(r"resumes after round [1-9]", log(folder))
    assert_same_results(straight, folder)
