"""Loggers: who hears what of a run, what happens when one fails, and what comes of them in a comparison."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import tiny_runs
from figures import catch_figures
from tiny_runs import (
    Diary,
    Killed,
    arguments,
    break_off,
    command,
    contents,
    ends_after,
    log,
    results,
    resume,
    run,
    tiny,
)

import adabest
from adabest import extras
from adabest.errors import InputError, Interrupted
from adabest.runs.callbacks.base import RunView
from adabest.runs.execution import check_runs
from adabest.runs.settings.resolution import resolve
from adabest.runs.trackers.catalog import TRACKERS, check_trackers, make_tracker

MINE: dict[str, Any] = {"loggers": ["tiny_runs:Diary"], "evaluate_every": 1}
BACKENDS = ("tensorboard", "wandb", "mlflow", "trackio")


@pytest.fixture(autouse=True)
def blank_page() -> Iterator[None]:
    """Every test begins with an empty diary, and a line that works."""
    Diary.heard.clear()
    tiny_runs.Quiet.heard.clear()
    yield
    Diary.failing.clear()


def heard(what: str) -> list[Any]:
    return [of for kind, of in Diary.heard if kind == what]


def rounds(rows: list[Mapping[str, Any]]) -> list[int]:
    return [row["round"] for row in rows]


class TestWhatIsHeard:
    def test_a_run_from_its_begin_to_its_end(self, tmp_path: Path) -> None:
        done = run(tmp_path / "my run", **MINE)
        assert [kind for kind, _ in Diary.heard] == ["begin", *["log"] * 5, "end"]
        (told,) = heard("begin")
        assert (told.name, told.group, told.folder) == ("my run", "", tmp_path / "my run")
        assert told.config == done.config.flat()
        assert list(told.rows) == []
        assert heard("log") == done.metrics
        assert heard("end") == [{"status": "finished", "round": 5}]

    def test_a_tracker_changes_no_result(self, tmp_path: Path) -> None:
        watched, alone = run(tmp_path / "watched", **MINE), run(tmp_path / "alone", evaluate_every=1)
        assert results(watched.folder) == results(alone.folder)
        assert contents(watched.folder).keys() - contents(alone.folder).keys() == {"tracking.json"}

    def test_trackers_hear_of_an_early_end(self, tmp_path: Path) -> None:
        early = run(tmp_path / "run", **{**MINE, "rounds": 30}, stop_after=2)
        assert heard("end") == [{"status": "finished", "round": early.round, "reason": early.reason}]
        assert early.reason is not None

    def test_trackers_hear_of_a_divergence(self, tmp_path: Path) -> None:
        lost = run(tmp_path / "run", algorithm="tiny_runs:Bomb", **MINE)
        assert heard("log") == lost.metrics
        assert heard("log")[-1] == {"round": 3, "diverged": lost.reason}
        assert heard("end") == [{"status": "diverged", "round": 3, "reason": lost.reason}]

    @pytest.mark.parametrize("error", [Interrupted, Killed, KeyboardInterrupt, MemoryError])
    def test_trackers_hear_that_a_run_is_broken_off(self, error: type[BaseException], tmp_path: Path) -> None:
        break_off(tmp_path / "run", 33, error, checkpoint_every=1, **MINE)
        expected = {Interrupted: ["interrupted"], Killed: [], KeyboardInterrupt: ["killed"], MemoryError: ["killed"]}
        assert [status["status"] for status in heard("end")] == expected[error]

    def test_trackers_hear_that_a_run_is_resumed(self, tmp_path: Path) -> None:
        """The rounds after the checkpoint come again, those before it once more as what is there already."""
        break_off(tmp_path / "run", 60, checkpoint_every=2, **MINE)
        assert rounds(heard("log")) == [1, 2, 3]
        before = Diary.heard.copy()
        Diary.heard.clear()
        done = resume(tmp_path / "run", allow=["tiny_runs:Diary"])
        assert [kind for kind, _ in Diary.heard] == ["begin", "log", "log", "log", "end"]
        (told,) = heard("begin")
        assert list(told.rows) == done.metrics[:2]
        assert heard("log") == done.metrics[2:]
        assert (told.id, told.name, told.config) == (before[0][1].id, "run", done.config.flat())

    def test_a_finished_run_is_left_alone(self, tmp_path: Path) -> None:
        done = run(tmp_path / "run", **MINE)
        Diary.heard.clear()
        resume(done.folder)
        assert Diary.heard == []

    def test_every_run_has_an_id_of_its_own(self, tmp_path: Path) -> None:
        run(tmp_path / "run", **MINE)
        run(tmp_path / "run", overwrite=True, **MINE)
        ids = [told.id for told in heard("begin")]
        assert len(set(ids)) == 2
        assert json.loads((tmp_path / "run" / "tracking.json").read_text()) == {"id": ids[1], "group": ""}

    def test_the_id_is_on_disk_before_anybody_hears_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A tracker that was told of a run just before a kill is told of the same run afterwards."""

        def begin(self: Diary, told: RunView) -> None:
            stored.append((told.id, json.loads((told.folder / "tracking.json").read_text())["id"]))

        stored: list[tuple[str, str]] = []
        monkeypatch.setattr(Diary, "start", begin)
        run(tmp_path / "run", **MINE)
        assert stored[0][0] == stored[0][1]

    def test_several_trackers_hear_the_same(self, tmp_path: Path) -> None:
        run(tmp_path / "run", loggers=["tiny_runs:Diary", "tiny_runs:Diary,title=other", "tiny_runs:Diary"])
        assert len(heard("begin")) == len(heard("end")) == 2
        assert len({told.id for told in heard("begin")}) == 1

    def test_trackers_are_named_on_the_command_line_and_in_a_file(self, tmp_path: Path) -> None:
        assert command("run", *arguments(**tiny(**MINE), out=tmp_path / "options")) == 0
        (tmp_path / "mine.toml").write_text("loggers = ['tiny_runs:Diary']\nevaluate_every = 1\n")
        assert command("run", tmp_path / "mine.toml", *arguments(**tiny(evaluate_every=1), out=tmp_path / "file")) == 0
        assert rounds(heard("log")) == [1, 2, 3, 4, 5] * 2


class TestFailing:
    def test_a_tracker_that_fails_at_the_start_stops_the_run(self, tmp_path: Path) -> None:
        Diary.failing.add("begin")
        with pytest.raises(InputError, match="the logger 'tiny_runs:Diary' can't begin: the line is dead"):
            run(tmp_path / "run", **MINE)
        assert not (tmp_path / "run" / "config.toml").exists()
        Diary.failing.clear()
        assert run(tmp_path / "run", **MINE).status == "finished"  # what was left doesn't stand in the way

    def test_trackers_that_had_begun_are_told_of_the_failure(self, tmp_path: Path) -> None:
        Diary.failing.add("begin")
        with pytest.raises(InputError, match="the logger 'tiny_runs:Diary,title=2' can't begin"):
            run(tmp_path / "run", loggers=["tiny_runs:Quiet", "tiny_runs:Diary,title=2"])
        assert [kind for kind, _ in tiny_runs.Quiet.heard] == ["begin", "end"]

    def test_a_tracker_that_fails_in_the_middle_stops_nothing(self, tmp_path: Path) -> None:
        Diary.failing.add("log")
        with pytest.warns(
            UserWarning, match=r"'tiny_runs:Diary' failed \(the line is dead\); the run goes on"
        ) as caught:
            done = run(tmp_path / "run", **MINE)
        assert len(caught) == 1
        assert done.status == "finished"
        assert results(done.folder) == results(run(tmp_path / "alone", evaluate_every=1).folder)
        assert "warning: the logger 'tiny_runs:Diary' failed (the line is dead)" in log(done.folder)
        assert "tiny_runs:Diary lacks 5 rows, which are in metrics.jsonl" in log(done.folder)
        assert len(heard("end")) == 1

    def test_rows_that_waited_are_delivered_in_order(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        got: list[int] = []
        attempts: list[int] = []

        def patchy(self: Diary, _run: RunView, row: Mapping[str, Any]) -> None:
            attempts.append(row["round"])
            if len(attempts) in (2, 3):
                raise ConnectionError("the line is dead")
            got.append(row["round"])

        monkeypatch.setattr(Diary, "after_evaluation", patchy)
        with pytest.warns(UserWarning, match="the line is dead") as caught:
            done = run(tmp_path / "run", **{**MINE, "rounds": 10})
        assert got == list(range(1, 11))
        # Round 2 fails and waits for one row, then for three: it is sent with round 8.
        assert attempts == [1, 2, 2, *range(2, 11)]
        assert len(caught) == 1
        assert log(done.folder).count("warning") == 2
        assert "lacks" not in log(done.folder)

    def test_the_last_row_gets_another_chance(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        got: list[int] = []

        def patchy(self: Diary, _run: RunView, row: Mapping[str, Any]) -> None:
            if row["round"] == 5 and not got.count(-5):
                got.append(-5)
                raise ConnectionError("the line is dead")
            got.append(row["round"])

        monkeypatch.setattr(Diary, "after_evaluation", patchy)
        with pytest.warns(UserWarning, match="the line is dead"):
            run(tmp_path / "run", **MINE)
        assert got == [1, 2, 3, 4, -5, 5]

    def test_a_tracker_that_fails_at_a_resumption_stops_nothing(self, tmp_path: Path) -> None:
        break_off(tmp_path / "run", 60, checkpoint_every=2, **MINE)
        Diary.heard.clear()
        Diary.failing.add("begin")
        with pytest.warns(UserWarning, match="the line is dead"):
            done = resume(tmp_path / "run", allow=["tiny_runs:Diary"])
        assert done.status == "finished"
        assert heard("log") == heard("end") == []
        # Whenever it is tried, it is told of all rows that there are by then.
        assert [rounds(told.rows) for told in heard("begin")] == [[1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5]]

    def test_a_tracker_that_comes_back_hears_all_rows(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        break_off(tmp_path / "run", 60, checkpoint_every=2, **MINE)
        Diary.heard.clear()
        begin = Diary.start

        def late(self: Diary, told: RunView) -> None:
            begin(self, told)
            if len(heard("begin")) == 1:
                raise ConnectionError("the line is dead")

        monkeypatch.setattr(Diary, "start", late)
        with pytest.warns(UserWarning, match="the line is dead"):
            resume(tmp_path / "run", allow=["tiny_runs:Diary"])
        assert [rounds(told.rows) for told in heard("begin")] == [[1, 2], [1, 2, 3, 4]]
        assert rounds(heard("log")) == [5]
        assert len(heard("end")) == 1

    def test_a_tracker_that_fails_at_the_end_changes_nothing(self, tmp_path: Path) -> None:
        Diary.failing.add("end")
        with pytest.warns(UserWarning, match="the line is dead"):
            assert run(tmp_path / "run", **MINE).status == "finished"

    def test_a_tracker_that_fails_does_not_disturb_another(self, tmp_path: Path) -> None:
        Diary.failing.add("log")
        with pytest.warns(UserWarning, match="the line is dead"):
            done = run(tmp_path / "run", loggers=["tiny_runs:Diary", "tiny_runs:Quiet"], evaluate_every=1)
        assert [of for kind, of in tiny_runs.Quiet.heard if kind == "log"] == done.metrics


@pytest.mark.usefixtures("trusting")
class TestFinding:
    def test_built_in_trackers_are_known(self) -> None:
        assert set(TRACKERS.builtin) == set(BACKENDS)
        assert TRACKERS.group == "adabest.loggers"

    def test_trackers_take_options(self) -> None:
        logger: Any = make_tracker("tiny_runs:Diary,title=hers")
        assert logger.title == "hers"
        with pytest.raises(InputError, match="logger 'tiny_runs:Diary' has no option 'titel'; did you mean 'title'"):
            check_trackers(["tiny_runs:Diary,titel=hers"])

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("wandbb", "unknown logger 'wandbb'; did you mean 'wandb'"),
            ("nowhere:Logger", "can't import module 'nowhere'"),
            ("tiny_runs:Nothing", "module 'tiny_runs' has no 'Nothing'"),
            ("tiny_runs:Bomb", "should be a class with the methods start, after_evaluation, end"),
            ("tiny_runs:dropping", "should be a class with the methods start, after_evaluation, end"),
        ],
    )
    def test_mistakes_are_found_before_anything_is_begun(self, name: str, words: str, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=words):
            run(tmp_path / "run", loggers=[name])
        with pytest.raises(InputError, match=words):
            adabest.compare(out=tmp_path / "all", algorithms=["fedavg"], show=False, **tiny(loggers=[name]))
        assert list(tmp_path.iterdir()) == []

    def test_a_name_that_is_no_list_is_refused(self) -> None:
        with pytest.raises(InputError, match="loggers should be a list, not 'wandb'"):
            resolve(tiny(loggers="wandb"))

    @pytest.mark.parametrize("name", BACKENDS)
    def test_a_package_that_is_not_installed_is_named(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(extras, "is_installed", lambda package: package != name)
        wanted = rf'logger {name!r} needs a package that isn\'t installed: pip install "adabest\[{name}\]"'
        with pytest.raises(InputError, match=wanted):
            run(tmp_path / "run", loggers=[name])
        assert command("run", *arguments(**tiny(), out=tmp_path / "run"), "--loggers", name) == 2
        assert f'pip install "adabest[{name}]"' in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []

    def test_the_switch_needs_the_package_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(extras, "is_installed", lambda package: False)
        with pytest.raises(InputError, match="logger 'tensorboard' needs a package"):
            check_runs([resolve(tiny(tensorboard=True))[0]])

    def test_a_folder_is_no_package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """W&B leaves a folder called wandb behind, which Python would import."""
        (tmp_path / "a_tracker").mkdir()
        monkeypatch.syspath_prepend(tmp_path)
        assert not extras.is_installed("a_tracker")
        assert not extras.is_installed("no_such_tracker")
        assert extras.is_installed("pytest")

    def test_a_tracker_is_found_as_an_entry_point(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "fancy-1.0.dist-info").mkdir()
        (tmp_path / "fancy-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: fancy\nVersion: 1.0\n")
        (tmp_path / "fancy-1.0.dist-info" / "entry_points.txt").write_text(
            "[adabest.loggers]\ndiary = tiny_runs:Diary\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        run(tmp_path / "run", loggers=["diary"])
        assert len(heard("end")) == 1

    def test_packages_are_imported_only_when_they_are_used(self) -> None:
        look = (
            "import sys, adabest.cli; from adabest.runs.trackers.catalog import TRACKERS; "
            f"print([name for name in {BACKENDS} if TRACKERS.find(name) and name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("[]\n", "")


class TestComparisons:
    @pytest.fixture(autouse=True)
    def no_figure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        catch_figures(monkeypatch)

    def compare(self, out: Path, **changes: Any) -> adabest.Comparison:
        return adabest.compare(algorithms=["fedavg", "adabest"], out=out, show=False, **tiny(**changes))

    def test_each_run_is_told_of_with_its_group(self, tmp_path: Path) -> None:
        done = self.compare(tmp_path / "all", **MINE)
        assert [(told.name, told.group) for told in heard("begin")] == [("fedavg", "all"), ("adabest", "all")]
        in_turn = zip(done.runs["fedavg"].metrics, done.runs["adabest"].metrics, strict=True)
        assert heard("log") == [row for rows in in_turn for row in rows]
        assert len({told.id for told in heard("begin")}) == 2

    def test_a_run_that_is_resumed_alone_stays_in_its_group(self, tmp_path: Path) -> None:
        with ends_after(100), pytest.raises(Interrupted):
            self.compare(tmp_path / "all", **MINE)
        Diary.heard.clear()
        resume(tmp_path / "all" / "adabest", allow=["tiny_runs:Diary"])
        assert [told.group for told in heard("begin")] == ["all"]

    def test_trackers_are_no_setting_that_is_compared(self, tmp_path: Path) -> None:
        self.compare(tmp_path / "all")
        before = {name: contents(tmp_path / "all" / name) for name in ("fedavg", "adabest")}
        self.compare(tmp_path / "all", loggers=["tiny_runs:Diary"])
        assert {name: contents(tmp_path / "all" / name) for name in before} == before
        with pytest.raises(InputError, match="holds a run with other settings"):
            self.compare(tmp_path / "all", rounds=6)

    def test_the_default_folder_does_not_depend_on_trackers(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        one = adabest.compare(algorithms=["fedavg"], show=False, **tiny(rounds=1))
        two = adabest.compare(algorithms=["fedavg"], show=False, **tiny(rounds=1, loggers=["tiny_runs:Diary"]))
        assert one.folder == two.folder
