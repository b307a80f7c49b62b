"""A run's folder: what lies in it, who may write to it, and how a run comes to an end."""

import contextlib
import json
import os
import signal
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from safetensors import safe_open
from safetensors.torch import load_file
from small import METRICS
from tiny_runs import (
    Killed,
    break_off,
    checkpoints,
    contents,
    dies_at,
    dropping,
    ends_after,
    log,
    results,
    resume,
    run,
    stripes,
    tiny,
)
from torch import Tensor, nn

import adabest
from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.catalog import CORE
from adabest.errors import InputError, Interrupted
from adabest.federation.roster import Roster
from adabest.runs.files import folder as files
from adabest.runs.files.folder import RunFolder
from adabest.runs.stored_run import find_runs
from adabest.stop_requests import StopRequests

AS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
MODELS = ("model", "aggregate", "cloud")


def strict_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file, by the letter of the JSON standard."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} isn't JSON")

    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> adabest.Run:
    """A finished run, to look at only."""
    return run(tmp_path_factory.mktemp("finished") / "run", checkpoint_every=1)


class TestFolder:
    def test_a_folder_holds_the_documented_files(self, finished: adabest.Run) -> None:
        names = {path.name for path in finished.folder.iterdir()} - {".lock"}
        assert names == {
            "config.toml",
            "manifest.json",
            "identity.json",
            "environment.json",
            "metrics.jsonl",
            "timings.jsonl",
            "log.txt",
            "status.json",
            "model.safetensors",
            "aggregate.safetensors",
            "cloud.safetensors",
        }
        status = json.loads((finished.folder / "status.json").read_text())
        assert status == {"status": "finished", "round": 5}

    def test_metrics_have_a_row_per_evaluation(self, finished: adabest.Run) -> None:
        rows = strict_rows(finished.folder / "metrics.jsonl")
        assert [tuple(row) for row in rows] == [METRICS] * 3
        assert [row["round"] for row in rows] == [2, 4, 5]
        assert rows == finished.metrics
        last = rows[-1]
        assert last["local_steps"] == 5 * 3 * 4  # 3 clients of 26 samples, in batches of 8
        parameters = finished.identity["parameters"]
        assert last["bytes_down"] == last["bytes_up"] == 5 * 3 * 4 * (parameters + 1)  # a vector and a number

    def test_metrics_that_a_run_does_not_have_are_null(self, tmp_path: Path) -> None:
        (row,) = run(tmp_path / "run", rounds=1, algorithm="fedavg", validation_clients=0).metrics
        missing = {name for name, value in row.items() if value is None}
        held_out = {"validation_accuracy", "validation_spread", "validation_worst_tenth"}
        assert missing == {"h_norm", "client_h_norm", "h_cosine"} | held_out

    def test_wall_clock_figures_are_kept_apart(self, finished: adabest.Run, tmp_path: Path) -> None:
        rows = strict_rows(finished.folder / "timings.jsonl")
        assert [row["round"] for row in rows if "seconds" in row] == [2, 4, 5]
        assert all(row["seconds"] > 0 and row["steps_per_second"] > 0 for row in rows if "seconds" in row)
        assert [row["round"] for row in rows if "checkpoint_seconds" in row] == [1, 2, 3, 4]
        # So equal runs have equal files.
        again = run(tmp_path / "again", checkpoint_every=1)
        for name in ("metrics.jsonl", "config.toml", "identity.json", "model.safetensors"):
            assert (again.folder / name).read_bytes() == (finished.folder / name).read_bytes(), name

    @pytest.mark.parametrize(("every", "rounds", "evaluated"), [(1, 3, [1, 2, 3]), (2, 4, [2, 4]), (10, 3, [3])])
    def test_evaluated_rounds_are_those_asked_for_and_the_last(
        self, every: int, rounds: int, evaluated: list[int], tmp_path: Path
    ) -> None:
        done = run(tmp_path / "run", evaluate_every=every, rounds=rounds)
        assert [row["round"] for row in done.metrics] == evaluated

    def test_models_hold_tensors_only(self, finished: adabest.Run) -> None:
        for name in MODELS:
            with safe_open(finished.folder / f"{name}.safetensors", "pt") as file:
                assert file.metadata() is None
                assert set(file.keys()) == set(finished.model.state_dict())

    def test_identity_and_environment_are_written(self, finished: adabest.Run) -> None:
        identity = json.loads((finished.folder / "identity.json").read_text())
        assert identity["dataset"] == stripes().fingerprint()
        assert identity["input_shape"] == [1, 6, 6]
        assert len(identity["initial_model"]) == len(identity["partition"]["fingerprint"]) == 64
        assert identity["partition"]["training_clients"] == 8
        assert identity["partition"]["validation_clients"] == 1
        assert 0 < identity["partition"]["mean_label_entropy"] < np.log(3)
        environment = json.loads((finished.folder / "environment.json").read_text())
        assert environment["torch"] == torch.__version__
        assert environment["threads"] == torch.get_num_threads()

    def test_the_log_tells_the_story(self, finished: adabest.Run) -> None:
        lines = [line.split(" ", maxsplit=2)[2] for line in log(finished.folder).splitlines()]
        assert lines[0] == "begins: adabest on stripes, 5 rounds"
        assert lines[1].startswith("round 2: scored accuracy 0.")
        assert lines[-1] == "finished after round 5"


class TestPlace:
    def test_a_finished_run_is_not_overwritten(self, tmp_path: Path) -> None:
        first = run(tmp_path / "run", rounds=2)
        before = contents(first.folder)
        with pytest.raises(InputError, match="holds a finished run; choose another folder, or pass --overwrite"):
            run(tmp_path / "run", rounds=3)
        assert contents(first.folder) == before

    def test_an_unfinished_run_is_not_overwritten(self, tmp_path: Path) -> None:
        break_off(tmp_path / "run", 30, checkpoint_every=1)
        before = contents(tmp_path / "run")
        with pytest.raises(InputError, match=r"holds an unfinished run; continue it with `adabest resume .*run`"):
            run(tmp_path / "run")
        assert contents(tmp_path / "run") == before

    def test_overwrite_replaces_a_run(self, tmp_path: Path) -> None:
        break_off(tmp_path / "run", 30, checkpoint_every=1, seed=1)
        run(tmp_path / "run", overwrite=True, rounds=2)
        run(tmp_path / "fresh", rounds=2)
        assert results(tmp_path / "run") == results(tmp_path / "fresh")
        assert contents(tmp_path / "run").keys() == contents(tmp_path / "fresh").keys()
        assert log(tmp_path / "run").count("begins") == 1

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_strangers_files_are_never_removed(self, overwrite: bool, tmp_path: Path) -> None:
        run(tmp_path / "run", rounds=1)
        (tmp_path / "run" / "thesis.tex").write_text("ten years of work")
        before = contents(tmp_path / "run")
        words = "thesis.tex" if overwrite else "holds a finished run"
        with pytest.raises(InputError, match=words):
            run(tmp_path / "run", rounds=1, overwrite=overwrite)
        assert contents(tmp_path / "run") == before

    def test_a_folder_of_something_else_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "thesis").mkdir()
        (tmp_path / "thesis" / "thesis.tex").write_text("ten years of work")
        with pytest.raises(InputError, match=r"holds things that aren't a run's \(thesis.tex\); nothing was removed"):
            run(tmp_path / "thesis", overwrite=True)
        assert contents(tmp_path / "thesis") == {"thesis.tex": b"ten years of work"}

    def test_an_empty_folder_will_do(self, tmp_path: Path) -> None:
        assert run(tmp_path, rounds=1).status == "finished"

    @pytest.mark.parametrize("place", ["file", "file/run", "file/deep/run"])
    def test_a_file_in_the_way_is_refused(self, place: str, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("here")
        with pytest.raises(InputError, match="can't write to the folder"):
            run(tmp_path / place, overwrite=True)
        assert (tmp_path / "file").read_text() == "here"

    def test_a_read_only_disk_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*arguments: Any, **options: Any) -> None:
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
        with pytest.raises(InputError, match=r"can't write to the folder .*: Read-only file system"):
            run(tmp_path / "run")

    @pytest.mark.skipif(AS_ROOT, reason="root may write anywhere")
    def test_a_folder_without_permission_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "locked").mkdir(mode=0o500)
        with pytest.raises(InputError, match=r"can't write to the folder .*: Permission denied"):
            run(tmp_path / "locked")
        with pytest.raises(InputError, match=r"can't write to the folder .*: Permission denied"):
            run(tmp_path / "locked" / "run")

    def test_a_kill_while_making_room_leaves_no_finished_run(self, tmp_path: Path) -> None:
        """Whatever has been removed when the process dies, the rest must not claim to be a finished run."""
        liars = []
        for removals in range(11):
            place = tmp_path / f"after-{removals}"
            run(place, rounds=1)
            with dies_at(Path, "unlink", removals), contextlib.suppress(Killed):
                run(place, rounds=1, overwrite=True)
            if RunFolder(place).holds_run() and resume(place).final.get("round") != 1:
                liars.append(removals)
        assert not liars


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a lock."""
    monkeypatch.setattr(files, "_PATIENCE", 0.01)


@pytest.mark.usefixtures("impatient")
class TestLock:
    def test_a_second_writer_is_refused(self, tmp_path: Path) -> None:
        break_off(tmp_path / "run", 30, checkpoint_every=1)
        before = contents(tmp_path / "run")
        writer = RunFolder(tmp_path / "run")
        writer.acquire()
        try:
            for attempt in (resume, lambda place: run(place, overwrite=True)):
                with pytest.raises(InputError, match=r"another process is working on .*run; wait for it"):
                    attempt(tmp_path / "run")
            assert contents(tmp_path / "run") == before
            assert adabest.load(tmp_path / "run").status == "running"
        finally:
            writer.release()
        assert adabest.load(tmp_path / "run").status == "killed"
        assert resume(tmp_path / "run").status == "finished"

    def test_looking_at_a_run_takes_no_lock(self, tmp_path: Path) -> None:
        break_off(tmp_path / "run", 30)
        writer = RunFolder(tmp_path / "run")
        adabest.load(tmp_path / "run")
        writer.acquire()
        assert writer.is_being_written()
        writer.release()
        assert not writer.is_being_written()

    def test_a_run_is_read_where_nothing_may_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*given: Any, **options: Any) -> None:
            raise PermissionError(13, "Permission denied")

        break_off(tmp_path / "run", 30)
        monkeypatch.setattr(FileLock, "acquire", refuse)
        assert adabest.load(tmp_path / "run").status == "killed"

    def test_the_lock_is_released_whatever_happens(self, tmp_path: Path) -> None:
        for error in (Killed, Interrupted):
            break_off(tmp_path / error.__name__, 5, error)
            assert not RunFolder(tmp_path / error.__name__).is_being_written()


class TestDivergence:
    def test_a_divergence_is_recorded(self, tmp_path: Path) -> None:
        lost = run(tmp_path / "lost", algorithm="tiny_runs:Bomb", fuse=4, evaluate_every=1, checkpoint_every=1)
        assert (lost.status, lost.round, lost.reason) == ("diverged", 4, "the cloud model isn't finite")
        assert strict_rows(lost.folder / "metrics.jsonl")[-1] == {"round": 4, "diverged": lost.reason}
        assert lost.final["round"] == 3
        assert lost.curve("scored_accuracy")[0] == [1, 2, 3]
        assert "diverged in round 4: the cloud model isn't finite" in log(lost.folder)
        assert not (lost.folder / "checkpoints").exists()

    def test_the_models_of_the_round_before_are_kept(self, tmp_path: Path) -> None:
        lost = run(tmp_path / "lost", algorithm="tiny_runs:Bomb", fuse=4)
        good = run(tmp_path / "good", algorithm="fedavg", rounds=3)
        for name in MODELS:
            file = f"{name}.safetensors"
            assert (lost.folder / file).read_bytes() == (good.folder / file).read_bytes()

    def test_resuming_a_diverged_run_changes_nothing(self, tmp_path: Path) -> None:
        lost = run(tmp_path / "lost", algorithm="tiny_runs:Bomb", fuse=2)
        before = contents(lost.folder)
        assert resume(lost.folder) == lost
        assert contents(lost.folder) == before

    def test_a_divergence_is_the_same_after_a_kill(self, tmp_path: Path) -> None:
        bomb: dict[str, Any] = {"algorithm": "tiny_runs:Bomb", "fuse": 4, "checkpoint_every": 2}
        straight = run(tmp_path / "straight", **bomb)
        break_off(tmp_path / "killed", 38, **bomb)
        assert resume(tmp_path / "killed", allow=["tiny_runs:Bomb"]).round == 4
        assert results(tmp_path / "killed") == results(straight.folder)

    def test_a_divergence_in_the_first_round_leaves_a_finite_model(self, tmp_path: Path) -> None:
        lost = run(tmp_path / "lost", learning_rate=1e30, clip=0, bad_replies="stop")
        assert (lost.status, lost.round, lost.final) == ("diverged", 1, {})
        assert "its training loss at local step" in str(lost.reason)
        assert all(torch.isfinite(tensor).all() for tensor in lost.model.state_dict().values())

    def test_a_norm_too_large_for_a_number_breaks_no_file(self, tmp_path: Path) -> None:
        # Weights of 1e170 have finite losses in float64, but no finite norm, for which JSON has no word.
        huge: dict[str, Any] = {"model": "logistic", "precision": "float64", "clip": 0, "weight_decay": 0}
        lost = run(tmp_path / "lost", learning_rate=1e170, rounds=1, **huge)
        assert lost.status in ("finished", "diverged")


class TestSignals:
    @pytest.fixture
    def ringing(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Signals that arrive one after another, from the 30th heartbeat on."""
        signals: list[int] = []
        beats = 0
        heartbeat = StopRequests.heartbeat

        def ring(self: StopRequests) -> None:
            nonlocal beats
            beats += 1
            while beats >= 30 and signals:
                signal.raise_signal(signal.Signals(signals.pop(0)))
            heartbeat(self)

        monkeypatch.setattr(StopRequests, "heartbeat", ring)
        return signals

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_request_ends_the_round(self, number: int, ringing: list[int], tmp_path: Path) -> None:
        place = tmp_path / "a run"
        handler = signal.getsignal(number)
        ringing.append(number)
        with pytest.raises(Interrupted, match=r"interrupted after round 2; resume with: adabest resume '.*a run'$"):
            run(place, checkpoint_every=0)
        assert signal.getsignal(number) is handler
        stopped = adabest.load(place)
        assert (stopped.status, stopped.round) == ("interrupted", 2)
        assert checkpoints(place) == ["round-0000002.json", "round-0000002.safetensors"]
        assert [row["round"] for row in stopped.metrics] == [2]
        assert "interrupted after round 2; resume with" in log(place)
        resume(place)
        assert results(place) == results(run(tmp_path / "straight").folder)

    def test_a_request_before_the_first_round_is_done_is_heard(self, tmp_path: Path) -> None:
        with pytest.raises(Interrupted, match="interrupted after round 0"), ends_after(5):
            run(tmp_path / "run")
        assert checkpoints(tmp_path / "run") == []
        assert resume(tmp_path / "run").status == "finished"
        assert results(tmp_path / "run") == results(run(tmp_path / "straight").folder)

    def test_a_second_ctrl_c_ends_the_process(self, ringing: list[int], tmp_path: Path) -> None:
        ringing += [signal.SIGINT, signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run", checkpoint_every=1)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert adabest.load(tmp_path / "run").status == "killed"
        resume(tmp_path / "run")
        assert results(tmp_path / "run") == results(run(tmp_path / "straight").folder)

    def test_a_second_termination_does_not_end_the_process(self) -> None:
        with StopRequests() as requests:
            requests.heartbeat()
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            with pytest.raises(Interrupted):
                requests.heartbeat()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    def test_handlers_are_restored_after_a_finished_run(self, tmp_path: Path) -> None:
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        run(tmp_path / "run", rounds=1)
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before

    def test_other_threads_install_nothing(self, tmp_path: Path) -> None:
        before = signal.getsignal(signal.SIGINT)
        seen: list[Any] = []

        def work() -> None:
            with StopRequests() as requests:
                seen.append(signal.getsignal(signal.SIGINT))
                requests.heartbeat()
            seen.append(run(tmp_path / "run", rounds=1).status)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert seen == [before, "finished"]
        assert signal.getsignal(signal.SIGINT) is before


class TestSameClients:
    @pytest.fixture
    def cohorts(self, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
        """Who took part, as places among the training clients, for every round that is run."""
        seen: list[list[int]] = []
        draw = Roster.cohort

        def cohort(self: Roster) -> np.ndarray:
            chosen = draw(self)
            seen.append(np.searchsorted(self.present(), chosen).tolist())
            return chosen

        monkeypatch.setattr(Roster, "cohort", cohort)
        return seen

    def test_the_algorithm_changes_neither_cohorts_nor_initial_model(
        self, cohorts: list[list[int]], tmp_path: Path
    ) -> None:
        identities = [run(tmp_path / name, algorithm=name, rounds=3).identity for name in CORE]
        assert all(identity == identities[0] for identity in identities)
        first, *others = (cohorts[start : start + 3] for start in range(0, len(cohorts), 3))
        assert len(others) == len(CORE) - 1
        assert all(other == first for other in others)
        assert first[0] != first[1]

    def test_the_partition_seed_changes_only_the_partition(self, cohorts: list[list[int]], tmp_path: Path) -> None:
        one = run(tmp_path / "one", rounds=3).identity
        two = run(tmp_path / "two", rounds=3, partition_seed=1).identity
        assert cohorts[:3] == cohorts[3:]
        assert one["initial_model"] == two["initial_model"]
        assert one["dataset"] == two["dataset"]
        assert one["partition"]["fingerprint"] != two["partition"]["fingerprint"]

    def test_the_seed_changes_everything(self, cohorts: list[list[int]], tmp_path: Path) -> None:
        one = run(tmp_path / "one", rounds=3).identity
        two = run(tmp_path / "two", rounds=3, seed=1).identity
        assert cohorts[:3] != cohorts[3:]
        assert one["initial_model"] != two["initial_model"]
        assert one["partition"]["fingerprint"] != two["partition"]["fingerprint"]
        three = run(tmp_path / "three", rounds=1, seed=1, partition_seed=0).identity
        assert three["partition"]["fingerprint"] == one["partition"]["fingerprint"]
        assert three["initial_model"] == two["initial_model"]

    def test_adabest_without_estimates_is_fedavg(self, tmp_path: Path) -> None:
        """On balanced data, bit for bit, down to the files."""
        exact: dict[str, Any] = {"precision": "float64", "unbalance": 0.0}
        plain = run(tmp_path / "fedavg", algorithm="fedavg", **exact)
        empty = run(tmp_path / "adabest", algorithm=AdaBest(mu=0, beta=0), **exact)
        other = run(tmp_path / "other", algorithm=AdaBest(mu=0, beta=0.1), **exact)
        for name in MODELS:
            file = f"{name}.safetensors"
            assert (plain.folder / file).read_bytes() == (empty.folder / file).read_bytes()
            assert (plain.folder / file).read_bytes() != (other.folder / file).read_bytes()


def accuracy_of(module: nn.Module) -> float:
    """On the test set, computed without the package."""
    pixels = stripes().x_train[:].double()
    x = (stripes().x_test - pixels.mean().float()) / pixels.std(correction=0).float()
    dtype = next(module.parameters()).dtype
    with torch.no_grad():
        return float((module(x.to(dtype)).argmax(dim=1) == stripes().y_test).double().mean())


class TestReading:
    def test_a_loaded_run_is_the_one_that_was_run(self, finished: adabest.Run) -> None:
        assert adabest.load(finished.folder) == finished
        assert adabest.load(str(finished.folder)).config == finished.config
        assert (finished.status, finished.round, finished.reason) == ("finished", 5, None)
        assert finished.config.algorithm == "adabest"
        assert finished.config.hyperparameters == vars(AdaBest(mu=0.02, beta=0.96))
        assert finished.final == finished.metrics[-1]

    def test_curves_have_rounds_and_values(self, finished: adabest.Run) -> None:
        assert finished.curve("cloud_norm") == ([2, 4, 5], [row["cloud_norm"] for row in finished.metrics])
        assert finished.curve("no such thing") == ([], [])

    @pytest.mark.parametrize("precision", ["float32", "float64"])
    def test_models_score_what_the_metrics_say(self, precision: str, tmp_path: Path) -> None:
        done = run(tmp_path / "run", precision=precision, model="tiny_runs:dropping", algorithm="feddyn")
        assert not done.model.training
        assert accuracy_of(done.model) == done.final["scored_accuracy"]
        for which in ("scored", "aggregate", "cloud"):
            assert accuracy_of(done.load_model(which)) == done.final[f"{which}_accuracy"]
        assert len({done.final[f"{which}_loss"] for which in ("scored", "aggregate", "cloud")}) == 3

    def test_the_model_file_is_the_model(self, finished: adabest.Run) -> None:
        stored = load_file(finished.folder / "model.safetensors")
        assert all(torch.equal(tensor, stored[name]) for name, tensor in finished.model.state_dict().items())

    def test_a_model_object_must_be_given(self, tmp_path: Path) -> None:
        torch.manual_seed(0)
        module = dropping((1, 6, 6), 3)
        run(tmp_path / "run", model=module)
        done = adabest.load(tmp_path / "run")
        with pytest.raises(InputError, match=r"was a Python object: pass it again, as module=..."):
            _ = done.model
        blank = dropping((1, 6, 6), 3)
        assert accuracy_of(done.load_model(module=blank)) == done.final["scored_accuracy"]

    def test_a_module_that_does_not_fit_is_refused(self, finished: adabest.Run) -> None:
        with pytest.raises(InputError, match="model"):
            finished.load_model(module=nn.Linear(2, 2))

    def test_models_that_are_not_there_are_named(self, finished: adabest.Run, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="a run has no 'best' model; it has scored, aggregate, cloud"):
            finished.load_model("best")
        break_off(tmp_path / "run", 20)
        with pytest.raises(InputError, match="has no scored model: the run is killed"):
            _ = adabest.load(tmp_path / "run").model

    def test_load_refuses_a_folder_without_a_run(self, tmp_path: Path) -> None:
        for place in (tmp_path, tmp_path / "nowhere"):
            with pytest.raises(InputError, match=r"there is no run in .* \(it has no config.toml\)"):
                adabest.load(place)
        assert list(tmp_path.iterdir()) == []

    def test_a_run_that_has_just_begun_is_read(self, tmp_path: Path) -> None:
        break_off(tmp_path / "run", 0)
        begun = adabest.load(tmp_path / "run")
        assert (begun.status, begun.round, begun.metrics, begun.final) == ("killed", 0, [], {})
        for name in ("status.json", "identity.json"):
            content = (tmp_path / "run" / name).read_bytes()
            (tmp_path / "run" / name).unlink()
            with pytest.raises(InputError, match=f"{name} is missing; bring back"):
                adabest.load(tmp_path / "run")
            (tmp_path / "run" / name).write_bytes(content)

    def test_damaged_files_are_named(self, tmp_path: Path) -> None:
        done = run(tmp_path / "run", evaluate_every=1, rounds=2)
        lines = (done.folder / "metrics.jsonl").read_text().splitlines(keepends=True)
        (done.folder / "metrics.jsonl").write_text(lines[0][:20] + "\n" + lines[1])
        with pytest.raises(InputError, match=r"metrics.jsonl has .*: rows that manifest.json proves are lost"):
            adabest.load(done.folder)
        (done.folder / "metrics.jsonl").write_text("".join(lines))
        (done.folder / "status.json").write_text("{")
        with pytest.raises(InputError, match=r"status.json is damaged"):
            adabest.load(done.folder)

    def test_runs_are_found(self, tmp_path: Path) -> None:
        for name in ("b", "a/deep", "c"):
            break_off(tmp_path / name, 0)
        (tmp_path / "empty").mkdir()
        assert find_runs(tmp_path) == [tmp_path / "a" / "deep", tmp_path / "b", tmp_path / "c"]
        assert find_runs(tmp_path / "nowhere") == []


def test_settings_of_a_resumed_run_cannot_change(finished: adabest.Run) -> None:
    with pytest.raises(InputError, match="can't be resumed with another 'rounds'"):
        resume(finished.folder, rounds=7)
    assert finished.config.rounds == tiny()["rounds"]


class WithCounter(nn.Module):
    """A classifier with a constant of whole numbers, as an embedding of positions has."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a_position", torch.arange(4))
        self.linear = nn.Linear(36, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(x.flatten(1))
        return scores


def test_a_model_with_whole_numbers_is_loaded(tmp_path: Path) -> None:
    done = run(tmp_path / "run", rounds=1, model=WithCounter())
    module = done.load_model(module=WithCounter())
    assert next(module.parameters()).dtype == torch.float32


def test_predictions_take_inputs_as_the_data_set_has_them(tmp_path: Path) -> None:
    done = run(tmp_path / "run", rounds=2)
    data = stripes()
    right = (done.predict(data.x_test).argmax(dim=1) == data.y_test).double().mean()
    assert float(right) == done.final["scored_accuracy"]
    assert torch.equal(done.predict(data.x_test.numpy()), done.predict(data.x_test))


class Unreachable:
    """A tracker that can't be reached."""

    def start(self, run: Any) -> None:
        raise ConnectionError("nobody there")

    def after_evaluation(self, run: Any, metrics: Any) -> None:
        """Never comes to it."""

    def end(self, run: Any, ending: Any) -> None:
        """Nor to this."""


def test_a_run_survives_a_successor_that_can_not_begin(tmp_path: Path) -> None:
    run(tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(InputError, match="can't begin: nobody there"):
        run(tmp_path / "run", overwrite=True, seed=1, loggers=[f"{__name__}:Unreachable"])
    assert contents(tmp_path / "run") == before
    assert not (tmp_path / "run" / ".replaced").exists()


def test_remains_of_a_killed_replacement_are_removed(tmp_path: Path) -> None:
    run(tmp_path / "run")
    (tmp_path / "run" / ".replaced").mkdir()
    (tmp_path / "run" / ".replaced" / files.CONFIG).write_text("x")
    with pytest.warns(UserWarning, match="a run was being replaced; the new one had begun, and is here"):
        again = run(tmp_path / "run", overwrite=True, seed=1)
    assert again.config.seed == 1
    assert not (tmp_path / "run" / ".replaced").exists()


def test_the_decay_of_beta_is_among_the_curves(tmp_path: Path) -> None:
    finished = run(
        tmp_path / "run", beta=0.5, beta_decay=0.1, patience=1, rounds=30, evaluate_every=1, learning_rate=1e-9
    )
    betas = finished.curve("beta")[1]
    assert betas[0] == 0.5
    assert betas[-1] < 0.1
    assert "beta" not in run(tmp_path / "plain").final


def test_a_beta_that_sets_itself_is_in_every_row(tmp_path: Path) -> None:
    finished = run(tmp_path / "run", beta="auto", rounds=6, evaluate_every=2)
    rounds, betas = finished.curve("beta")
    assert list(rounds) == list(finished.curve("scored_accuracy")[0])
    assert len(rounds) >= 3
    assert all(0.0 <= beta <= 0.99 for beta in betas)
    assert finished.final["beta"] == betas[-1]
    loaded = adabest.load(tmp_path / "run")
    assert loaded.config.hyperparameters["beta"] == "auto"
    assert loaded.export("safetensors", "scored", out=tmp_path / "model.safetensors").exists()


def test_load_refuses_a_folder_of_runs_and_names_one(tmp_path: Path) -> None:
    run(tmp_path / "one")
    with pytest.raises(InputError, match=r"there is no run in .*; there are some below it, such as .*one"):
        adabest.load(tmp_path)
