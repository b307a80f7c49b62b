"""The trackers themselves, offline: what their own readers find is what the metrics say, also after a kill."""

import importlib
import json
import struct
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_runs import Killed, arguments, break_off, command, contents, ends_after, resume, run, tiny

import adabest
from adabest.errors import Interrupted
from adabest.runs.callbacks.base import Ending
from adabest.runs.trackers.rows import numbers
from adabest.runs.trackers.tensorboard import TensorBoard
from adabest.runs.trackers.wandb import WandB

ROWS = ({"round": 1, "accuracy": 0.5, "h_norm": None}, {"round": 2, "accuracy": 0.75, "h_norm": 0.1})
Points = dict[str, list[tuple[int, float]]]


def points(done: adabest.Run) -> Points:
    """What should be found: every metric that is a number, by round."""
    found: Points = {}
    for row in done.metrics:
        for name, value in row.items():
            if value is not None and name != "round":
                found.setdefault(name, []).append((row["round"], value))
    return found


def rounded(found: Points) -> Points:
    """As TensorBoard has them, in single precision."""
    return {name: [(step, float(np.float32(value))) for step, value in line] for name, line in found.items()}


def tracked_run(folder: Path) -> Any:
    """What a tracker reads of a run."""
    return types.SimpleNamespace(id="abc123", name="mine", group="", folder=folder, config={"rounds": 2}, rows=ROWS)


class TestTensorBoard:
    @pytest.fixture(autouse=True)
    def reader(self) -> None:
        module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        self.accumulator: Callable[[str], Any] = module.EventAccumulator

    def read(self, folder: Path) -> tuple[Points, dict[str, str]]:
        """Scalars and texts."""
        events = self.accumulator(str(folder)).Reload()
        scalars = {name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]}
        texts = {
            name.removesuffix("/text_summary"): events.Tensors(name)[-1].tensor_proto.string_val[0].decode()
            for name in events.Tags()["tensors"]
        }
        return scalars, texts

    def test_every_row_is_in_the_event_file(self, tmp_path: Path) -> None:
        done = run(tmp_path / "run", tensorboard=True, evaluate_every=1)
        scalars, texts = self.read(done.folder)
        assert scalars == rounded(points(done))
        assert len(scalars["scored_accuracy"]) == 5
        settings = dict(line.strip().split(" = ") for line in texts["config"].splitlines())
        assert settings == {name: str(value) for name, value in done.config.flat().items()}
        assert texts["status"] == "status finished, round 5"

    @pytest.mark.parametrize("error", [Killed, Interrupted])
    def test_after_a_break_every_step_is_there_once(self, error: type[BaseException], tmp_path: Path) -> None:
        break_off(tmp_path / "run", 60, error, tensorboard=True, evaluate_every=1, checkpoint_every=2)
        assert [step for step, _ in self.read(tmp_path / "run")[0]["cloud_norm"]] == [1, 2, 3]
        done = resume(tmp_path / "run")
        sizes = sorted(path.stat().st_size for path in done.folder.glob("events.out.tfevents.*"))
        assert [size > 0 for size in sizes] == [False, True]
        scalars, texts = self.read(done.folder)
        assert scalars == rounded(points(done))
        assert texts["status"] == "status finished, round 5"

    def test_one_who_watches_sees_every_step_once(self, tmp_path: Path) -> None:
        """TensorBoard goes on reading where the old file ended, which the new one has from the start again."""
        break_off(tmp_path / "run", 60, tensorboard=True, evaluate_every=1, checkpoint_every=2)
        (old,) = (tmp_path / "run").glob("events.out.tfevents.*")
        old.rename(old.with_name("events.out.tfevents.0000000001"))  # from a second before, by which they are sorted
        watching = self.accumulator(str(tmp_path / "run"))
        watching.Reload()
        done = resume(tmp_path / "run")
        watching.Reload()
        assert [event.step for event in watching.Scalars("cloud_norm")] == [1, 2, 3, 4, 5]
        assert done.status == "finished"

    def test_every_row_is_on_disk_at_once(self, tmp_path: Path) -> None:
        logger = TensorBoard()
        logger.start(tracked_run(tmp_path))
        assert self.read(tmp_path)[0]["accuracy"] == [(1, 0.5), (2, 0.75)]
        logger.after_evaluation(tracked_run(tmp_path), {"round": 3, "accuracy": 1.0})
        assert self.read(tmp_path)[0]["accuracy"] == [(1, 0.5), (2, 0.75), (3, 1.0)]
        logger.end(tracked_run(tmp_path), Ending("finished", 3))

    def test_name_and_switch_do_the_same(self, tmp_path: Path) -> None:
        given = arguments(**tiny(rounds=1), out=tmp_path / "run")
        assert command("run", *given, "--tensorboard", "--loggers", "tensorboard") == 0
        assert len(list((tmp_path / "run").glob("events.out.tfevents.*"))) == 1

    def test_event_files_are_ours(self, tmp_path: Path) -> None:
        run(tmp_path / "run", rounds=2, tensorboard=True)
        again = run(tmp_path / "run", rounds=1, overwrite=True)
        assert not list(again.folder.glob("events.out.tfevents.*"))


def wandb_records(path: Path, proto: Any) -> Iterator[Any]:
    """The records of an offline run: chunks of blocks of 32 KiB, each with its checksum, length and kind."""
    content, place, whole = path.read_bytes(), 7, b""
    assert content[:4] == b":W&B"
    while place + 7 <= len(content):
        room = 2**15 - place % 2**15
        if room < 7:
            place += room
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last chunk
            yield proto.Record.FromString(whole)
            whole = b""


class TestWandB:
    @pytest.fixture(autouse=True)
    def package(self) -> Iterator[None]:
        self.wandb = pytest.importorskip("wandb")
        self.proto = pytest.importorskip("wandb.proto.wandb_internal_pb2")
        yield
        self.die()

    def die(self) -> None:
        """Ends the process of its own that W&B writes in, as happens when ours ends; only then is all on disk."""
        self.wandb.teardown()

    def read(self, folder: Path) -> tuple[Points, dict[str, Any], Any]:
        """The history of the only offline run, its settings, and what else is known of it."""
        self.die()
        (file,) = folder.glob("wandb/offline-run-*/*.wandb")
        history: Points = {}
        config: dict[str, Any] = {}
        for record in wandb_records(file, self.proto):
            kind = record.WhichOneof("record_type")
            if kind == "history":
                for item in record.history.item:
                    key = item.key or item.nested_key[0]
                    if not key.startswith("_"):
                        history.setdefault(key, []).append((record.history.step.num, json.loads(item.value_json)))
            elif kind == "run":
                about = record.run
                for item in record.run.config.update:
                    config[item.key or item.nested_key[0]] = json.loads(item.value_json)
        config.pop("_wandb", None)
        return history, config, about

    def test_every_row_arrives(self, tmp_path: Path) -> None:
        done = run(tmp_path / "my run", loggers=["wandb"], evaluate_every=1)
        history, config, about = self.read(done.folder)
        assert history == points(done)
        assert config == done.config.flat()
        assert (about.display_name, about.project, about.run_group) == ("my run", "adabest", "")
        assert about.run_id == json.loads((done.folder / "tracking.json").read_text())["id"]

    @pytest.mark.parametrize("error", [Killed, Interrupted])
    def test_after_a_break_every_step_is_there_once(self, error: type[BaseException], tmp_path: Path) -> None:
        break_off(tmp_path / "run", 60, error, loggers=["wandb"], evaluate_every=1, checkpoint_every=2)
        before, _, about = self.read(tmp_path / "run")
        assert [step for step, _ in before["cloud_norm"]] == [1, 2, 3]
        done = resume(tmp_path / "run")
        history, _, again = self.read(done.folder)
        assert history == points(done)
        assert again.run_id == about.run_id

    def test_the_project_can_be_chosen(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WANDB_PROJECT", "theirs")
        assert self.read(run(tmp_path / "a", rounds=1, loggers=["wandb"]).folder)[2].project == "theirs"
        assert self.read(run(tmp_path / "b", rounds=1, loggers=["wandb,project=mine"]).folder)[2].project == "mine"

    def test_a_comparison_is_a_group(self, tmp_path: Path) -> None:
        given = arguments(**tiny(rounds=1), out=tmp_path / "all")
        assert command("compare", *given, "--algorithms", "fedavg", "adabest", "--loggers", "wandb") == 0
        groups = {name: self.read(tmp_path / "all" / name)[2] for name in ("fedavg", "adabest")}
        assert [(about.display_name, about.run_group) for about in groups.values()] == [
            ("fedavg", "all"),
            ("adabest", "all"),
        ]

    def test_the_folder_of_wandb_is_ours(self, tmp_path: Path) -> None:
        run(tmp_path / "run", rounds=1, loggers=["wandb"])
        assert "wandb" not in {path.split("/")[0] for path in contents(run(tmp_path / "run", overwrite=True).folder)}

    @pytest.mark.parametrize(("step", "sent"), [(0, [1, 2, 3]), (2, [2, 3]), (3, [3]), (4, [])])
    def test_rows_that_the_server_has_are_not_sent_again(
        self, step: int, sent: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A resumed run that is online says which step comes next."""
        steps: list[int] = []

        def init(**given: Any) -> Any:
            assert (given["id"], given["resume"]) == ("abc123", "allow")
            return types.SimpleNamespace(
                step=step, dir=str(tmp_path / "files"), log=lambda values, step, commit: steps.append(step)
            )

        monkeypatch.setattr(self.wandb, "init", init)
        logger = WandB()
        logger.start(tracked_run(tmp_path))
        logger.after_evaluation(tracked_run(tmp_path), {"round": 3, "accuracy": 0.8})
        assert steps == sent


class TestMLflow:
    @pytest.fixture(autouse=True)
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
        self.client = pytest.importorskip("mlflow").MlflowClient()

    def runs(self, experiment: str = "adabest") -> list[Any]:
        place = self.client.get_experiment_by_name(experiment).experiment_id
        return list(self.client.search_runs([place]))

    def read(self, found: Any) -> Points:
        return {
            name: [(point.step, point.value) for point in self.client.get_metric_history(found.info.run_id, name)]
            for name in found.data.metrics
        }

    def test_every_row_arrives(self, tmp_path: Path) -> None:
        done = run(tmp_path / "my run", loggers=["mlflow"], evaluate_every=1)
        (found,) = self.runs()
        assert self.read(found) == points(done)
        assert found.data.params == {name: str(value) for name, value in done.config.flat().items()}
        assert (found.info.run_name, found.info.status) == ("my run", "FINISHED")
        assert found.data.tags["adabest.id"] == json.loads((done.folder / "tracking.json").read_text())["id"]
        assert "group" not in found.data.tags

    @pytest.mark.parametrize(("error", "state"), [(Killed, "RUNNING"), (Interrupted, "KILLED")])
    def test_after_a_break_every_step_is_there_once(
        self, error: type[BaseException], state: str, tmp_path: Path
    ) -> None:
        break_off(tmp_path / "run", 60, error, loggers=["mlflow"], evaluate_every=1, checkpoint_every=2)
        (before,) = self.runs()
        assert before.info.status == state
        assert [step for step, _ in self.read(before)["cloud_norm"]] == [1, 2, 3]
        done = resume(tmp_path / "run")
        (found,) = self.runs()
        assert self.read(found) == points(done)
        assert (found.info.run_id, found.info.status) == (before.info.run_id, "FINISHED")
        assert found.data.tags["status"] == "finished"

    def test_a_resumed_run_is_running_again(self, tmp_path: Path) -> None:
        break_off(tmp_path / "run", 30, Interrupted, loggers=["mlflow"])
        assert self.runs()[0].info.status == "KILLED"
        with ends_after(5, Killed), pytest.raises(Killed):
            resume(tmp_path / "run")
        assert self.runs()[0].info.status == "RUNNING"

    def test_moved_data_change_no_parameter(self, tmp_path: Path) -> None:
        (tmp_path / "here").mkdir()
        (tmp_path / "there").mkdir()
        break_off(tmp_path / "run", 30, Interrupted, loggers=["mlflow"], data_dir=str(tmp_path / "here"))
        done = resume(tmp_path / "run", data_dir=str(tmp_path / "there"))
        (found,) = self.runs()
        assert self.read(found) == points(done)
        assert found.data.params["data_dir"] == str(tmp_path / "here")

    def test_rows_lost_by_a_kill_arrive_afterwards(self, tmp_path: Path) -> None:
        """A row of which only half the metrics came through, and one that never came."""
        break_off(tmp_path / "run", 60, loggers=["mlflow"], evaluate_every=1, checkpoint_every=2)
        (before,) = self.runs()
        folder = tmp_path / "store" / before.info.experiment_id / before.info.run_id / "metrics"
        for name, kept in {"cloud_norm": 1, "scored_loss": 2}.items():
            lines = (folder / name).read_text().splitlines(keepends=True)
            (folder / name).write_text("".join(lines[:kept]))
        (folder / "h_norm").unlink()
        done = resume(tmp_path / "run")
        assert self.read(self.runs()[0]) == points(done)

    def test_a_diverged_run_is_marked_as_failed(self, tmp_path: Path) -> None:
        lost = run(tmp_path / "run", loggers=["mlflow"], evaluate_every=1, algorithm="tiny_runs:Bomb")
        (found,) = self.runs()
        assert found.info.status == "FAILED"
        assert found.data.tags["reason"] == lost.reason

    def test_the_experiment_can_be_chosen(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "theirs")
        run(tmp_path / "a", rounds=1, loggers=["mlflow"])
        run(tmp_path / "b", rounds=1, loggers=["mlflow,experiment=mine"])
        assert [self.runs(name)[0].info.run_name for name in ("theirs", "mine")] == ["a", "b"]

    def test_a_comparison_is_a_group(self, tmp_path: Path) -> None:
        given = arguments(**tiny(rounds=1), out=tmp_path / "all")
        assert command("compare", *given, "--algorithms", "fedavg", "adabest", "--loggers", "mlflow") == 0
        assert {(found.info.run_name, found.data.tags["group"]) for found in self.runs()} == {
            ("fedavg", "all"),
            ("adabest", "all"),
        }

    def test_without_a_store_the_run_keeps_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a newcomer has: mlflow-skinny, no database (other packages may bring one), and no variable set."""
        mlflow: Any = importlib.import_module("mlflow")
        full = mlflow.MlflowClient

        def skinny(tracking_uri: str | None = None) -> Any:
            if tracking_uri is None:
                raise mlflow.exceptions.MlflowException("there is no database")
            return full(tracking_uri=tracking_uri)

        monkeypatch.setattr(mlflow, "MlflowClient", skinny)
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_ALLOW_FILE_STORE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.chdir(tmp_path)
        whole = run(tmp_path / "run", rounds=3, evaluate_every=1, loggers=["mlflow,experiment=drift"])
        client = type(self.client)(tracking_uri=(tmp_path / "run" / "mlflow").as_uri())
        (found,) = client.search_runs([client.get_experiment_by_name("drift").experiment_id])
        steps = [point.step for point in client.get_metric_history(found.info.run_id, "scored_accuracy")]
        assert steps == [1, 2, 3]
        run(tmp_path / "run", overwrite=True, rounds=1)  # the folder knows its own
        assert whole.status == "finished"

    def test_an_unknown_store_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "nothing://like/that")
        assert command("run", *arguments(**tiny(rounds=1, loggers=["mlflow"]), out=tmp_path / "run")) == 2
        err = capsys.readouterr().err
        assert err.startswith("adabest: the logger 'mlflow' can't begin: ")
        assert "Set MLFLOW_TRACKING_URI to a server" in err


class TestTrackio:
    @pytest.fixture(autouse=True)
    def package(self) -> None:
        self.trackio = pytest.importorskip("trackio")
        self.sqlite = pytest.importorskip("trackio.sqlite_storage").SQLiteStorage

    def find(self, name: str, project: str = "adabest") -> Any:
        (found,) = (found for found in self.trackio.Api().runs(project) if found.name.startswith(f"{name}-"))
        return found

    def read(self, found: Any) -> Points:
        lines: Points = {}
        for row in self.sqlite.get_logs(found.project, found.name):
            for name, value in row.items():
                if name not in ("step", "timestamp"):
                    lines.setdefault(name, []).append((row["step"], value))
        return lines

    def test_every_row_arrives(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        done = run(tmp_path / "all rows", loggers=["trackio"], evaluate_every=1)
        found = self.find("all rows")
        assert self.read(found) == points(done)
        settings = {name: value for name, value in found.config.items() if not name.startswith("_")}
        assert settings == done.config.flat()
        out, err = capsys.readouterr()
        assert out == ""  # where to look is told beside the results, not among them
        assert "Created new run: all rows-" in err

    @pytest.mark.parametrize("error", [Killed, Interrupted])
    def test_after_a_break_every_step_is_there_once(
        self, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = tmp_path / f"broken off, {error.__name__}"
        finishing: list[Callable[[], None]] = []
        init = self.trackio.init

        def remembered(**options: Any) -> Any:
            begun = init(**options)
            finishing.append(begun.finish)
            return begun

        with monkeypatch.context() as patch:
            patch.setattr(self.trackio, "init", remembered)
            break_off(place, 60, error, loggers=["trackio"], evaluate_every=1, checkpoint_every=2)
        if error is Killed:
            finishing[0]()  # what waits when a process dies may be lost: here it is not
        assert [step for step, _ in self.read(self.find(place.name))["cloud_norm"]] == [1, 2, 3]
        done = resume(place)
        assert self.read(self.find(place.name)) == points(done)

    def test_a_kill_before_anything_was_written_loses_no_row(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("trackio.run.Run.log", lambda *given, **options: None)
            break_off(tmp_path / "silent", 60, loggers=["trackio"], evaluate_every=1, checkpoint_every=2)
        done = resume(tmp_path / "silent")
        assert self.read(self.find("silent")) == points(done)

    def test_two_runs_in_folders_of_one_name_stay_apart(self, tmp_path: Path) -> None:
        for place in ("one", "two"):
            run(tmp_path / place / "same", rounds=1, loggers=["trackio,project=twins"])
        names = [found.name for found in self.trackio.Api().runs("twins")]
        assert len(set(names)) == 2

    def test_a_comparison_is_a_group(self, tmp_path: Path) -> None:
        given = arguments(**tiny(rounds=1), out=tmp_path / "all")
        chosen = ["--algorithms", "fedavg", "adabest", "--loggers", "trackio,project=grouped"]
        assert command("compare", *given, *chosen) == 0
        assert [self.find(name, "grouped").config["_Group"] for name in ("fedavg", "adabest")] == ["all", "all"]

    def test_lanes_do_not_end_each_other(self, tmp_path: Path) -> None:
        """Trackio by itself ends a run when another begins."""
        chosen: dict[str, Any] = {"algorithms": ["fedavg", "adabest"], "loggers": ["trackio,project=lanes"]}
        done = adabest.compare(out=tmp_path / "all", show=False, **chosen, **tiny(evaluate_every=1))
        for label, one in done.runs.items():
            assert self.read(self.find(label, "lanes")) == points(one)


def test_only_numbers_are_sent() -> None:
    assert numbers({"round": 3, "a": 1, "b": 0.5, "c": None, "diverged": "lost"}) == {"a": 1, "b": 0.5}
