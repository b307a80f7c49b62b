"""The job of ranks: what must be the same at all of them, and what a job of one rank does."""

from pathlib import Path
from typing import Any

import pytest
import torch
from ranked import rank_environment
from ranked_runs import Undeclared
from tiny_runs import Bomb, Faulty, arguments, command, results, resume, run, tiny

from adabest.algorithms.catalog import ALGORITHMS
from adabest.algorithms.feddane import FedDane
from adabest.engine.distributed.rank_device import choose_device
from adabest.engine.distributed.ranks import Ranks
from adabest.errors import InputError, Interrupted, RankLost
from adabest.runs import rank_job
from adabest.runs.job import current_job
from adabest.runs.rank_job import RankJob, compare_facts, facts_of_process, undeclared_fields
from adabest.stop_requests import StopRequests

HOSTS = ("here", "there")


@pytest.fixture
def one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is the only one of a torchrun job."""
    for name, value in rank_environment(0, 1, 29500).items():
        monkeypatch.setenv(name, value)


class TestFacts:
    def test_the_same_facts_pass(self, tmp_path: Path) -> None:
        (tmp_path / "settings.toml").write_text("rounds = 2\n")
        words = ["run", str(tmp_path / "settings.toml"), "nowhere.toml"]
        facts = facts_of_process(words)
        compare_facts([facts, facts_of_process(words)], HOSTS)
        assert facts["file nowhere.toml"] == "none"
        assert len(facts[f"file {words[1]}"]) == 12

    @pytest.mark.parametrize("name", ["arguments", "version of adabest", "version of torch", "version of Python"])
    def test_each_difference_is_named(self, name: str) -> None:
        facts = facts_of_process(["run"])
        words = rf"rank 1 on there has another {name} than rank 0 on here: other, not .*; all ranks need the same"
        with pytest.raises(InputError, match=words):
            compare_facts([facts, {**facts, name: "other"}], HOSTS)

    def test_a_changed_source_is_another_version(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        before = facts_of_process([])["version of adabest"]
        (tmp_path / "runs").mkdir()
        (tmp_path / "runs/rank_job.py").write_text("changed")
        monkeypatch.setattr(rank_job, "__file__", str(tmp_path / "runs/rank_job.py"))
        assert facts_of_process([])["version of adabest"] != before


def test_every_algorithm_of_the_package_declares_its_replies() -> None:
    assert [name for name in ALGORITHMS.names() if undeclared_fields(ALGORITHMS.find(name)())] == []
    assert undeclared_fields(FedDane()) == []
    assert undeclared_fields(Undeclared()) == ["model", "samples"]


def test_a_rank_needs_the_gpu_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks.join(rank_environment(0, 1, 29500))
    ranks.local_rank = 2
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(InputError, match=r"device 'cuda': rank 0 needs GPU 2 of its machine, which has 2"):
        choose_device(ranks, "cuda", None)
    with pytest.raises(InputError, match="backend nccl sends vectors between GPUs"):
        choose_device(ranks, "cpu", "nccl")
    choose_device(ranks, "cpu", "gloo")


class TestOneRank:
    @pytest.mark.usefixtures("one_rank")
    def test_a_command_leaves_no_job_behind(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert command("run", *arguments(**tiny(), out=tmp_path / "job")) == 0
        assert current_job() is None
        assert "Written to" in capsys.readouterr().out
        assert command("run", "--no-such-option") == 2

    def test_an_interrupted_job_is_resumed_without_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        straight = results(run(tmp_path / "straight", **tiny()).folder)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in rank_environment(0, 1, 29500).items():
                patch.setenv(name, value)
            beats = iter(range(10_000))

            def heartbeat(self: StopRequests) -> None:
                if next(beats) > 30:
                    raise Interrupted("enough")

            patch.setattr(StopRequests, "heartbeat", heartbeat)
            assert command("run", *arguments(**tiny(), out=tmp_path / "job")) == 130
        resume(tmp_path / "job")
        assert results(tmp_path / "job") == straight

    @pytest.mark.usefixtures("one_rank")
    @pytest.mark.parametrize(("algorithm", "code"), [(Bomb, 3), (Faulty, None)])
    def test_a_failure_has_the_exit_code_that_it_has_without_a_job(
        self, tmp_path: Path, algorithm: Any, code: int | None
    ) -> None:
        settings = tiny(algorithm=f"tiny_runs:{algorithm.__name__}")
        if code is None:
            with pytest.raises(ZeroDivisionError):
                command("run", *arguments(**settings, out=tmp_path / "job"))
        else:
            assert command("run", *arguments(**settings, out=tmp_path / "job")) == code
        assert current_job() is None


def test_a_job_that_stopped_in_the_middle_exchanges_nothing_more() -> None:
    """The other ranks wait for what rank 0 won't send, and would take the next order for it."""
    ranks = Ranks.join(rank_environment(0, 1, 29500))
    ranks.size = 2
    job = RankJob(ranks)
    ranks.give_up(KeyboardInterrupt())
    with pytest.raises(RankLost, match=r"stopped in the middle of an exchange \(KeyboardInterrupt\)"):
        job.end(1)
