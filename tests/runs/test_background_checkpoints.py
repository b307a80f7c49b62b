"""Checkpoints that another thread writes, and that hold only what has changed."""

import errno
import json
import os
import random
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from quadratics import random_quadratics, simulate
from small import assert_same
from tiny_runs import Killed, break_off, checkpoints, dies_at, ends_after, log, needed_files, results, resume, run

import adabest
from adabest.algorithms.adabest import AdaBest
from adabest.engine.simulation import Simulation
from adabest.errors import Interrupted
from adabest.runs.callbacks import checkpoints as callback
from adabest.runs.callbacks.base import Callback, RunView
from adabest.runs.files import checkpoint as checkpoint_module
from adabest.runs.files.background_writer import BackgroundWriter
from adabest.runs.files.checkpoint import RowFiles, load_checkpoint, save_checkpoint
from adabest.runs.files.folder import RunFolder
from adabest.runs.files.manifest import checksum_of_object
from adabest.runs.files.run_verification import verify_run

WRITER = "adabest-writer"


def save(folder: RunFolder, files: RowFiles, simulation: Simulation) -> int:
    """Writes a checkpoint; returns the rows that it has."""
    draft = files.draft(simulation)
    files.written(draft, *save_checkpoint(folder, draft.state, {}, earlier=draft.earlier))
    return len(draft.rows)


class TestRowFiles:
    SETTINGS: ClassVar[dict[str, Any]] = {
        "dataset": "synthetic,samples=2000,shape=1x8x8,classes=3,test=20",
        "model": "mlp,hidden=64",
        "clients": 200,
        "validation_clients": 0,
        "participation": 0.025,
        "batch_size": 10,
        "evaluate_every": 30,
    }

    def simulation(self) -> Simulation:
        return simulate(AdaBest(mu=0.5), random_quadratics(4, 60), participation=0.1)

    def test_every_checkpoint_is_put_together_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also if there are too many files, and some are given up."""
        monkeypatch.setattr(checkpoint_module, "_MOST_FILES", 4)
        simulation, files, folder = self.simulation(), RowFiles(), RunFolder(tmp_path)
        parts: list[int] = []
        for number in range(1, 31):
            simulation.step()
            if number % 3 == 0 and number != 15:  # in between, a draft that is never written
                save(folder, files, simulation)
                found = load_checkpoint(folder, None)
                assert found is not None
                again = self.simulation()
                again.restore(found.state)
                assert_same(again.snapshot(), simulation.snapshot())
                assert checkpoints(tmp_path) == needed_files(tmp_path)
                parts.append(len(found.state.earlier))
            elif number == 14:
                files.draft(simulation)
        assert 2 <= max(parts) <= 4

    def test_rows_that_did_not_change_are_not_written(self, tmp_path: Path) -> None:
        """200 clients, 5 a round: the bytes of ten rows, since checkpoints take turns, not of two hundred."""
        sizes: dict[int, int] = {}
        with pytest.MonkeyPatch.context() as patch:

            def saved(*given: Any, **options: Any) -> tuple[str, str]:
                name, digest = save_checkpoint(*given, **options)
                sizes[int(name[6:13])] = (tmp_path / "run" / "checkpoints" / name).stat().st_size
                return name, digest

            patch.setattr(callback, "save_checkpoint", saved)
            done = run(tmp_path / "run", **self.SETTINGS, checkpoint_every=1, rounds=60)
        parameters = done.identity["parameters"]
        row = 2 * 4 * parameters  # h_i and the latest model
        rest = 6 * 8 * parameters + 8 * 200 * 4 + 4000  # models, the roster, the header
        small = [size for size in sizes.values() if size <= 10 * row + rest]
        assert len(sizes) == 59
        assert len(small) >= 50
        assert sum(sizes.values()) < 59 * (20 * row + rest), "files that are given up are few"

    def test_a_first_checkpoint_and_that_of_a_resumed_run_have_all_rows(self, tmp_path: Path) -> None:
        simulation, folder = self.simulation(), RunFolder(tmp_path)
        for files in (RowFiles(), RowFiles()):
            simulation.step()
            assert save(folder, files, simulation) == len(simulation.state.clients)

    def test_claims_that_lead_out_of_the_folder_are_refused(self, tmp_path: Path) -> None:
        break_off(tmp_path / "run", 60, checkpoint_every=1)
        path = tmp_path / "run" / "checkpoints" / "round-0000004.json"
        shutil.copy(path.with_suffix(".safetensors"), tmp_path / "outside.safetensors")
        content = json.loads(path.read_text())["content"]
        content["earlier"] = {"../../outside.safetensors": content["tensors_sha256"]}
        sealed = {"content": content, "content_sha256": checksum_of_object(content)}
        path.write_text(json.dumps(sealed))
        with pytest.warns(UserWarning, match="it needs files that aren't those of checkpoints"):
            resume(tmp_path / "run")
        assert "resumes after round 3" in log(tmp_path / "run")


@contextmanager
def dies_in_the_writer(calls: int) -> Iterator[list[str]]:
    """Kills a run at a certain write, replacement or removal of its writing thread; gives the operations before."""
    done: list[str] = []

    def counted(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            if len(done) > calls:
                raise Killed  # everywhere: the process is dead
            if threading.current_thread().name == WRITER:
                done.append(name)
                if len(done) > calls:
                    raise Killed
            return original(*given, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (os, "open")):
            patch.setattr(owner, name, counted(name, getattr(owner, name)))
        yield done


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return results(run(tmp_path_factory.mktemp("straight") / "run", evaluate_every=1).folder)


class TestKills:
    @pytest.mark.parametrize("calls", range(44))
    def test_a_kill_of_the_writer_changes_no_byte(self, calls: int, tmp_path: Path, straight: dict[str, bytes]) -> None:
        """Between tensors, claims, removal, manifest and status of four checkpoints, while the run goes on."""
        try:
            with dies_in_the_writer(calls) as done:
                run(tmp_path / "run", checkpoint_every=1, evaluate_every=1)
        except Killed:
            assert len(done) == calls + 1
        assert {finding.state for finding in verify_run(tmp_path / "run")} == {"whole"}
        resume(tmp_path / "run")
        assert results(tmp_path / "run") == straight

    def test_rounds_go_on_while_a_checkpoint_is_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What it claims is of its own round, though the run has made more rows."""
        may_write, rows, files = threading.Event(), list[int](), list[str]()

        def late(*given: Any, **options: Any) -> tuple[str, str]:
            may_write.wait(60)
            return save_checkpoint(*given, **options)

        class Release(Callback):
            def after_round(self, run: RunView) -> None:
                if run.round == 3:
                    rows.append((run.folder / "metrics.jsonl").read_bytes().count(b"\n"))
                    files.extend(checkpoints(run.folder))
                    may_write.set()

        monkeypatch.setattr(callback, "save_checkpoint", late)
        monkeypatch.setattr(callback.CheckpointTime, "may_wait", lambda self: False)
        with ends_after(45 + 12, Killed), pytest.raises(Killed):
            run(tmp_path / "run", checkpoint_every=1, evaluate_every=1, callbacks=[Release()])
        assert (rows, files) == ([3], []), "the first checkpoint wasn't waited for"
        left = adabest.load(tmp_path / "run")
        assert [row["round"] for row in left.metrics] == list(range(1, left.round + 1))
        assert {finding.state for finding in verify_run(tmp_path / "run")} == {"whole"}

    def test_an_interrupted_run_finishes_the_write_and_saves_its_last_round(
        self, tmp_path: Path, straight: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        saved: list[tuple[int, str]] = []

        def slow(folder: RunFolder, state: Any, *given: Any, **options: Any) -> tuple[str, str]:
            if threading.current_thread().name == WRITER:
                threading.Event().wait(0.3)
            written = save_checkpoint(folder, state, *given, **options)
            saved.append((state.numbers["round"], threading.current_thread().name))
            return written

        with monkeypatch.context() as patch:
            patch.setattr(callback, "save_checkpoint", slow)
            break_off(tmp_path / "run", 60, Interrupted, checkpoint_every=2, evaluate_every=1)
        assert saved[-1][0] == adabest.load(tmp_path / "run").round
        assert saved[0] == (2, WRITER)
        resume(tmp_path / "run")
        assert results(tmp_path / "run") == straight

    def test_a_second_ctrl_c_abandons_the_write(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        begun = threading.Event()

        def endless(folder: RunFolder, *given: Any, heartbeat: Callable[[], None], **options: Any) -> None:
            begun.set()
            while True:
                heartbeat()

        def interrupt() -> None:
            assert begun.wait(60)
            raise KeyboardInterrupt

        class Impatient(Callback):
            def after_round(self, run: RunView) -> None:
                if run.round == 2:
                    interrupt()

        with monkeypatch.context() as patch:
            patch.setattr(callback, "save_checkpoint", endless)
            with pytest.raises(KeyboardInterrupt):
                run(tmp_path / "run", checkpoint_every=1, callbacks=[Impatient()])
        assert not RunFolder(tmp_path / "run").is_being_written()
        assert adabest.load(tmp_path / "run").status == "killed"


class TestFailures:
    def full(self, monkeypatch: pytest.MonkeyPatch, from_round: int) -> None:
        def write(folder: RunFolder, state: Any, *given: Any, **options: Any) -> tuple[str, str]:
            if state.numbers["round"] >= from_round:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder.path))
            return save_checkpoint(folder, state, *given, **options)

        monkeypatch.setattr(callback, "save_checkpoint", write)

    def test_a_run_that_is_finished_needs_no_checkpoint(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The disk is full while the last checkpoint is written, and there is space for the models."""
        with monkeypatch.context() as patch:
            self.full(patch, 4)
            assert run(tmp_path / "run", checkpoint_every=4).status == "finished"
        assert results(tmp_path / "run") == results(run(tmp_path / "straight").folder)

    @pytest.mark.parametrize("from_round", [1, 2])
    def test_a_full_disk_ends_the_run(self, from_round: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patch:
            self.full(patch, from_round)
            with pytest.raises(OSError, match="No space left on device"):
                run(tmp_path / "run", checkpoint_every=1)
        left = adabest.load(tmp_path / "run")
        assert (left.status, left.round) == ("killed", from_round - 1)
        resume(tmp_path / "run")
        assert results(tmp_path / "run") == results(run(tmp_path / "straight").folder)

    def test_rows_of_a_write_that_failed_are_written_with_the_next(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The disk is full for a moment. The run ends, and saves its last round with all that changed since round 1."""
        failed: list[int] = []

        def write(folder: RunFolder, state: Any, *given: Any, **options: Any) -> tuple[str, str]:
            if state.numbers["round"] == 2:
                failed.append(2)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder.path))
            return save_checkpoint(folder, state, *given, **options)

        with monkeypatch.context() as patch:
            patch.setattr(callback, "save_checkpoint", write)
            with pytest.raises(OSError, match="No space left"):
                run(tmp_path / "run", checkpoint_every=1)
        assert failed == [2]
        assert adabest.load(tmp_path / "run").round == 3
        resume(tmp_path / "run")
        assert results(tmp_path / "run") == results(run(tmp_path / "straight").folder)


class TestBackgroundWriter:
    def test_a_write_is_waited_for_before_the_next(self) -> None:
        writer, written, may_write = BackgroundWriter(), list[int](), threading.Event()

        def slow(heartbeat: Callable[[], None]) -> None:
            may_write.wait(60)
            written.append(1)

        writer.begin(slow)
        assert writer.is_busy
        writer.check()
        may_write.set()
        writer.begin(lambda heartbeat: written.append(2))
        writer.finish()
        assert (written, writer.is_busy) == ([1, 2], False)

    def test_an_exception_is_raised_once_in_the_owner(self) -> None:
        def fail(heartbeat: Callable[[], None]) -> None:
            raise OSError("full")

        writer = BackgroundWriter()
        writer.begin(fail)
        with pytest.raises(OSError, match="full"):
            writer.finish()
        writer.check()
        writer.begin(fail)
        writer.close()
        writer.finish()

    def test_an_abandoned_write_ends_at_its_next_heartbeat(self) -> None:
        def endless(heartbeat: Callable[[], None]) -> None:
            while True:
                heartbeat()

        writer, written = BackgroundWriter(), list[int]()
        writer.begin(endless)
        writer.abandon()

        def short(heartbeat: Callable[[], None]) -> None:
            heartbeat()
            written.append(1)

        writer.begin(short)
        writer.finish()
        assert written == [1]

    def test_no_thread_is_left(self, tmp_path: Path) -> None:
        before = threading.active_count()
        break_off(tmp_path / "run", random.Random(0).randint(30, 50), checkpoint_every=1)
        assert threading.active_count() <= before + 1  # one that has set its event may need a moment to end


class TestDamage:
    """Of everything that the newest checkpoint needs, one file after another is damaged."""

    SETTINGS: ClassVar[dict[str, Any]] = {"clients": 30, "participation": 0.1, "rounds": 14, "checkpoint_every": 1}

    def test_no_file_takes_both_checkpoints_with_it(self, tmp_path: Path) -> None:
        straight = results(run(tmp_path / "straight", **self.SETTINGS).folder)
        with dies_at(Simulation, "round", 12), pytest.raises(Killed):
            run(tmp_path / "run", **self.SETTINGS)
        directory = tmp_path / "run" / "checkpoints"
        newest, before = (json.loads(path.read_text())["content"] for path in sorted(directory.glob("*.json"))[::-1])
        own = {f"round-{content['numbers']['round']:07d}.safetensors" for content in (newest, before)}
        needed = [{*content["earlier"]} | own for content in (newest, before)]
        assert len(newest["earlier"]) > 1
        assert not {*newest["earlier"]} & {*before["earlier"]}
        for name in sorted(needed[0] | needed[1]):
            damaged = tmp_path / name
            shutil.copytree(tmp_path / "run", damaged)
            content = bytearray((damaged / "checkpoints" / name).read_bytes())
            content[-1] ^= 1
            (damaged / "checkpoints" / name).write_bytes(content)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                resume(damaged)
            assert "begins again" not in log(damaged)
            assert results(damaged) == straight


def test_a_checkpoint_that_comes_too_late_for_its_round_is_taken_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is busy in rounds 2 and 3, so the checkpoint of round 2 is one of round 4; then comes that of 6."""
    monkeypatch.setattr(callback.CheckpointTime, "may_wait", lambda self: False)
    taken, rounds = list[int](), list[int]()

    class Watching(callback.Checkpoints):
        def after_round(self, run: adabest.RunView) -> None:
            rounds.append(run.round)
            monkeypatch.setattr(BackgroundWriter, "is_busy", run.round in (2, 3))
            super().after_round(run)

        def save(self, run: adabest.RunView, **options: Any) -> float:
            taken.append(run.round)
            return super().save(run, in_background=False)

    monkeypatch.setattr("adabest.runs.run_loop.Checkpoints", Watching)
    run(tmp_path / "run", rounds=8, checkpoint_every=2)
    assert rounds == list(range(1, 9))
    assert taken == [4, 6]
    assert log(tmp_path / "run").count("the disk is too slow for a checkpoint every 2 rounds") == 1
