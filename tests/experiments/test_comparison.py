"""Comparisons: the same clients for all, a table and a figure that say what the metrics say."""

import csv
import dataclasses
import json
import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from tiny_runs import (
    Bomb,
    arguments,
    as_old_version,
    break_off,
    command,
    contents,
    ends_after,
    log,
    results,
    resume_comparison,
    run,
    stripes,
    tiny,
)
from torch import nn

import adabest
from adabest import AdaBest, FedAvg, InputError, Interrupted
from adabest.experiments.comparison_file import recall
from adabest.federation.roster import Roster
from adabest.report.figure import comparison_figure
from adabest.runs.callbacks.run_records import Records
from adabest.runs.files import folder as files
from adabest.runs.files.folder import RunFolder
from adabest.runs.settings.toml_file import to_toml

FILES = ["table.md", "table.csv", "figure.png", "figure.svg"]
THREE = ("fedavg", "feddyn", "adabest")
FIRST = 72 + 4  # heartbeats of the first run, and of a look at each of three folders before it


def compare(out: Path, *, algorithms: Any = THREE, overwrite: bool = False, **changes: Any) -> adabest.Comparison:
    """A comparison; hyper-parameters of several algorithms come from a file, since Python has no keywords for them."""
    settings = tiny(**changes)
    own: dict[str, Any] = {name: settings.pop(name) for name in ("beta", "mu", "fuse") if name in settings}
    file = out.parent / "hyperparameters.toml" if own else None
    if file is not None:
        file.write_text(to_toml(own), encoding="utf-8")
    return adabest.compare(file, algorithms=algorithms, out=out, overwrite=overwrite, show=False, **settings)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> adabest.Comparison:
    """A finished comparison, to look at only."""
    return compare(tmp_path_factory.mktemp("three") / "all", evaluate_every=1, target=0.6)


def table_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run, read without the package."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def times(folder: Path) -> dict[Path, int]:
    """When each file of a run was last written."""
    return {path: path.stat().st_mtime_ns for path in folder.iterdir() if path.name != ".lock"}


@pytest.mark.usefixtures("no_figure")
class TestRuns:
    def test_they_are_plain_runs(self, three: adabest.Comparison, tmp_path: Path) -> None:
        assert list(three.runs) == list(THREE)
        for name in THREE:
            alone = run(tmp_path / name, algorithm=name, evaluate_every=1)
            assert results(three.folder / name) == results(alone.folder)
            assert three.runs[name].config == alone.config

    def test_on_the_same_clients(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        cohorts: dict[int, list[list[int]]] = {}
        draw = Roster.cohort

        def cohort(self: Roster) -> np.ndarray:
            chosen = draw(self)
            cohorts.setdefault(self.round, []).append(chosen.tolist())
            return chosen

        monkeypatch.setattr(Roster, "cohort", cohort)
        done = compare(tmp_path / "all", rounds=3)
        identities = [run.identity for run in done.runs.values()]
        assert all(identity == identities[0] for identity in identities)
        assert [len(chosen) for chosen in cohorts.values()] == [3, 3, 3]
        assert all(chosen == [chosen[0]] * 3 for chosen in cohorts.values())

    def test_a_hyper_parameter_goes_to_those_that_have_it(self, tmp_path: Path) -> None:
        done = compare(tmp_path / "all", rounds=1, mu=0.3, beta=0.5)
        own = {label: dict(run.config.hyperparameters) for label, run in done.runs.items()}
        assert own["fedavg"] == {}
        assert own["feddyn"]["mu"] == 0.3
        assert own["adabest"] == vars(AdaBest(mu=0.3, beta=0.5))

    def test_an_algorithm_twice(self, tmp_path: Path) -> None:
        done = compare(
            tmp_path / "all", rounds=1, beta=0.5, algorithms=["adabest", "adabest, beta=0.9", "adabest,mu=0"]
        )
        own = {label: dict(run.config.hyperparameters) for label, run in done.runs.items()}
        assert own == {
            "adabest": vars(AdaBest(mu=0.02, beta=0.5)),
            "adabest,beta=0.9": vars(AdaBest(mu=0.02, beta=0.9)),
            "adabest,mu=0": vars(AdaBest(mu=0.0, beta=0.5)),
        }
        assert [row["algorithm"] for row in table_of(done.folder)] == list(own)

    def test_objects(self, tmp_path: Path) -> None:
        algorithms = [FedAvg(), AdaBest(beta=0.5), "adabest"]
        done = compare(tmp_path / "all", algorithms=algorithms, dataset=stripes(), rounds=2)
        assert list(done.runs) == ["fedavg", "adabest,beta=0.5", "adabest"]
        assert done.runs["adabest,beta=0.5"].config.hyperparameters["beta"] == 0.5
        before = {label: times(run.folder) for label, run in done.runs.items()}
        again = compare(tmp_path / "all", algorithms=algorithms, dataset=stripes(), rounds=2)
        assert {label: times(run.folder) for label, run in again.runs.items()} == before

    def test_the_defaults(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        done = adabest.compare(show=False, **tiny(rounds=1))
        assert list(done.runs) == ["fedavg", "fedprox", "scaffold", "feddyn", "adabest"]
        assert done.folder.parent == Path("runs")
        assert adabest.compare(show=False, **tiny(rounds=1)).folder == done.folder
        assert adabest.compare(show=False, **tiny(rounds=2)).folder != done.folder


class TestMistakes:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"algorithms": ["fedavg", "fedavg"]}, "the algorithm 'fedavg' is named twice; tell them apart"),
            ({"algorithms": ["fedavg", FedAvg()]}, "the algorithm 'fedavg' is named twice"),
            ({"algorithms": ["fedavg", "adabes"]}, "unknown algorithm 'adabes'; did you mean 'adabest'"),
            ({"algorithms": ["fedavg", "adabest,betta=1"]}, "unknown setting 'betta'; did you mean 'beta'"),
            ({"algorithms": ["fedavg", "feddyn"], "beta": 0.5}, "unknown setting 'beta'"),
            ({"algorithms": [FedAvg(), 5]}, "algorithm should be a name or an Algorithm, not a int"),
            ({"algorithms": "fedavg"}, "algorithms"),
            ({"algorithm": "fedavg"}, "a comparison takes `algorithms`, not `algorithm`"),
            ({"rouns": 5}, "unknown setting 'rouns'; did you mean 'rounds'"),
            ({"beta": 2.0}, "beta = 2.0 is out of range"),
            ({"target": 95}, "target = 95: an accuracy is above 0 and at most 1"),
            ({"target": -0.5}, "target = -0.5: an accuracy is above 0"),
            ({"target": 0.0}, "target = 0.0: an accuracy is above 0"),
            ({"target": "high"}, "target = 'high': it should be a number, such as an accuracy above 0"),
            ({"lanes": 0}, "lanes = 0: at least 1 run is trained at a time"),
            ({"lanes": 1.5}, "lanes = 1.5: at least 1 run"),
            ({"lanes": True}, "lanes = True: at least 1 run"),
        ],
    )
    def test_they_are_found_before_anything_is_begun(self, changes: dict[str, Any], words: str, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=words):
            compare(tmp_path / "all", **changes)
        assert not (tmp_path / "all").exists()

    def test_a_file_in_the_way(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("here")
        with pytest.raises(InputError, match="can't write to the folder"):
            compare(tmp_path / "file" / "all")

    def test_nothing_to_resume(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="there is no run in"):
            resume_comparison(tmp_path)


class TestReport:
    def test_files(self, three: adabest.Comparison) -> None:
        assert three.files == [three.folder / name for name in FILES]
        picture = imread(three.folder / "figure.png")
        assert picture.shape[0] > 300
        assert picture.shape[1] > 800
        assert np.ptp(picture[..., :3]) > 0.9  # black on white, at least
        drawing = ElementTree.parse(three.folder / "figure.svg")
        assert drawing.getroot().tag.endswith("svg")

    def test_the_table_is_recomputed_from_the_metrics(self, three: adabest.Comparison) -> None:
        table = table_of(three.folder)
        assert [row["algorithm"] for row in table] == list(THREE)
        for row in table:
            metrics = rows_of(three.folder / row["algorithm"])
            last = metrics[-1]
            reached = [m["round"] for m in metrics if m["scored_accuracy"] >= 0.6]
            assert float(row["accuracy %"]) == pytest.approx(100 * last["scored_accuracy"], abs=0.051)
            assert row["rounds to 60 %"] == (str(reached[0]) if reached else "never")
            assert float(row["sent MB"]) == pytest.approx((last["bytes_up"] + last["bytes_down"]) / 1e6, abs=0.051)
            assert float(row["‖θ‖"]) == pytest.approx(last["cloud_norm"], rel=6e-3)
            h = last["h_norm"]
            assert row["‖h‖"] == "–" if h is None else float(row["‖h‖"]) == pytest.approx(h, rel=6e-3)
        assert [row["‖h‖"] == "–" for row in table] == [True, False, False]
        assert len({row["rounds to 60 %"] for row in table}) > 1

    def test_all_forms_of_the_table_agree(self, three: adabest.Comparison) -> None:
        lines = (three.folder / "table.md").read_text(encoding="utf-8").splitlines()
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
        assert cells[0] == list(three.table.head)
        assert [tuple(row) for row in cells[2:]] == list(three.table.rows)
        assert [tuple(row.values()) for row in table_of(three.folder)] == list(three.table.rows)

    def test_the_default_target_is_one_that_all_reach(self, tmp_path: Path) -> None:
        done = compare(tmp_path / "all", evaluate_every=1)
        best = [max(row["scored_accuracy"] for row in rows_of(done.folder / name)) for name in THREE]
        goal = int(100 * min(best) + 1e-9)
        assert done.table.head[3] == f"rounds to {goal} %"
        assert all(row[f"rounds to {goal} %"] != "never" for row in table_of(done.folder))

    def test_the_figure_has_one_line_for_each(self, three: adabest.Comparison) -> None:
        figure = comparison_figure(three.runs, "a title")
        assert len(figure.axes) == 2
        for axes, name in zip(figure.axes, ("scored_accuracy", "cloud_norm"), strict=True):
            assert [line.get_label() for line in axes.lines] == list(THREE)
            for line in axes.lines:
                metrics = rows_of(three.folder / str(line.get_label()))
                assert np.asarray(line.get_xydata()).tolist() == [[row["round"], row[name]] for row in metrics]
            looks = {(line.get_color(), str(line.get_linestyle())) for line in axes.lines}
            assert len(looks) == len({color for color, _ in looks}) == 3
        legend = figure.axes[0].get_legend()
        assert legend is not None
        assert [text.get_text() for text in legend.get_texts()] == list(THREE)

    def test_a_diverged_run_is_in_the_table(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "120")
        settings = tiny(evaluate_every=1, fuse=3, out=tmp_path / "all")
        given = ["--algorithms", "fedavg", "tiny_runs:Bomb"]
        again = ["resume", tmp_path / "all", "--allow", "tiny_runs:Bomb"]
        for line in (["compare", *arguments(**settings), *given], again):
            assert command(*line) == 3
            assert "diverged in round 3" in capsys.readouterr().out
        table = table_of(tmp_path / "all")
        assert [row["algorithm"] for row in table] == ["fedavg", "tiny_runs.Bomb"]
        assert table[1]["accuracy %"] == "diverged in round 3"
        assert table[0]["accuracy %"].replace(".", "").isdigit()
        runs = {label: adabest.load(tmp_path / "all" / label) for label in ("fedavg", "tiny_runs.Bomb")}
        accuracy = comparison_figure(runs).axes[0]
        assert [line.get_marker() for line in accuracy.lines] == ["None", "None", "x"]

    def test_one_that_diverges_at_once(self, tmp_path: Path) -> None:
        done = compare(tmp_path / "all", algorithms=[FedAvg(), Bomb(fuse=1)])
        assert done.table.rows[1] == ("bomb,fuse=1", "diverged in round 1", "–", "never", "–", "–", "–")
        assert done.table.head[3] == "rounds to 0 %"


@pytest.mark.usefixtures("no_figure")
class TestInterruption:
    def test_it_is_resumed_with_one_command(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        place = tmp_path / "all"
        with ends_after(FIRST + 30):
            given = [*arguments(**tiny(), out=place, lanes=1), "--algorithms", *THREE]
            assert command("compare", *given) == 130
        err = capsys.readouterr().err
        assert err.splitlines()[-1] == f"adabest: interrupted; resume with: adabest resume {place}"
        assert [adabest.load(place / name).status for name in THREE[:2]] == ["finished", "interrupted"]
        assert not (place / THREE[2]).exists()
        before = times(place / THREE[0])
        assert command("resume", place) == 0
        assert times(place / THREE[0]) == before, "a finished run was run again"
        assert "resumes after round 2" in log(place / THREE[1])
        straight = compare(tmp_path / "straight")
        for name in THREE:
            assert results(place / name) == results(straight.folder / name)
        for name in FILES[:2]:
            assert (place / name).read_bytes() == (straight.folder / name).read_bytes()

    def test_the_target_is_remembered(self, tmp_path: Path) -> None:
        with ends_after(30), pytest.raises(Interrupted):
            compare(tmp_path / "all", target=0.5, beta=0.7)
        done = resume_comparison(tmp_path / "all")
        assert done.table.head[3] == "rounds to 50 %"
        assert done.runs["adabest"].config.hyperparameters["beta"] == 0.7

    def test_comparing_again_resumes_too(self, tmp_path: Path) -> None:
        with ends_after(FIRST + 30), pytest.raises(Interrupted):
            compare(tmp_path / "all", lanes=1)
        before = times(tmp_path / "all" / THREE[0])
        done = compare(tmp_path / "all", algorithms=[*THREE, "scaffold"])
        assert times(tmp_path / "all" / THREE[0]) == before
        assert [run.status for run in done.runs.values()] == ["finished"] * 4

    def test_objects_are_resumed_from_python(self, tmp_path: Path) -> None:
        objects: dict[str, Any] = {"algorithms": [FedAvg(), Bomb(fuse=9)], "dataset": stripes()}
        with ends_after(FIRST + 30), pytest.raises(Interrupted):
            compare(tmp_path / "all", **objects, lanes=1)
        done = compare(tmp_path / "all", **objects)
        assert "resumes after round 2" in log(tmp_path / "all" / "bomb,fuse=9")
        straight = compare(tmp_path / "straight", **objects)
        for label in straight.runs:
            assert results(done.folder / label) == results(straight.folder / label)

    def test_it_does_not_name_a_command_that_cannot_work(self, tmp_path: Path) -> None:
        with ends_after(30), pytest.raises(Interrupted) as caught:
            compare(tmp_path / "all", algorithms=[FedAvg()], dataset=stripes())
        assert "adabest resume" not in str(caught.value) or recall(tmp_path / "all") is not None

    def test_a_request_between_two_runs_is_heard(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Someone who presses Ctrl-C while a run's models are written doesn't want the next run to begin."""
        end = Records.end

        def interrupted(*given: Any) -> None:
            signal.raise_signal(signal.SIGINT)
            end(*given)

        monkeypatch.setattr(Records, "end", interrupted)
        with pytest.raises((Interrupted, KeyboardInterrupt)):
            compare(tmp_path / "all", lanes=1)
        assert not (tmp_path / "all" / THREE[1]).exists()


@pytest.mark.usefixtures("no_figure")
class TestPlace:
    def test_other_settings_are_refused(self, tmp_path: Path) -> None:
        compare(tmp_path / "all", rounds=1)
        before = contents(tmp_path / "all")
        with pytest.raises(
            InputError, match=r"fedavg holds a run with other settings \(rounds\); choose another folder"
        ):
            compare(tmp_path / "all", rounds=2)
        with pytest.raises(InputError, match=r"adabest holds a run with other settings"):
            compare(tmp_path / "all", rounds=1, beta=0.5)
        assert contents(tmp_path / "all") == before

    def test_unless_told_to_overwrite(self, tmp_path: Path) -> None:
        compare(tmp_path / "all", rounds=1)
        done = compare(tmp_path / "all", rounds=2, overwrite=True)
        assert [run.round for run in done.runs.values()] == [2, 2, 2]

    def test_overwriting_runs_everything_anew(self, tmp_path: Path) -> None:
        compare(tmp_path / "all", rounds=1)
        before = times(tmp_path / "all" / "fedavg")
        compare(tmp_path / "all", rounds=1, overwrite=True)
        after = times(tmp_path / "all" / "fedavg")
        assert before.keys() == after.keys()
        assert all(after[path] > before[path] for path in before)

    def test_an_interrupted_overwriting_is_resumed(self, tmp_path: Path) -> None:
        """Its old runs have other settings, but they were given up when it began."""
        compare(tmp_path / "all", rounds=1)
        with ends_after(30), pytest.raises(Interrupted):
            compare(tmp_path / "all", overwrite=True)
        done = resume_comparison(tmp_path / "all")
        assert [run.round for run in done.runs.values()] == [5, 5, 5]

    def test_what_is_not_ours_stops_it_before_anything_is_removed(self, tmp_path: Path) -> None:
        compare(tmp_path / "all", rounds=1)
        (tmp_path / "all" / "adabest" / "thesis.tex").write_text("ten years of work")
        before = contents(tmp_path / "all")
        with pytest.raises(InputError, match=r"thesis.tex\); nothing was removed"):
            compare(tmp_path / "all", rounds=1, overwrite=True)
        assert contents(tmp_path / "all") == before

    def test_an_old_comparison_is_not_resumed_in_place_of_a_new_one(self, tmp_path: Path) -> None:
        compare(tmp_path / "all", algorithms=["fedavg"], rounds=1)
        compare(tmp_path / "all", algorithms=[AdaBest()], rounds=1, dataset=stripes())
        assert not recall(tmp_path / "all") is not None

    def test_a_run_of_the_same_settings_is_taken_over(self, tmp_path: Path) -> None:
        break_off(tmp_path / "all" / "fedavg", 30, algorithm="fedavg", checkpoint_every=1)
        done = compare(tmp_path / "all", algorithms=["fedavg"], checkpoint_every=1)
        assert "resumes after round 2" in log(done.folder / "fedavg")


def other_stripes() -> adabest.Dataset:
    """Another data set under the same name."""
    data = stripes()
    return dataclasses.replace(data, x_train=data.x_train[:].flip(0))


@pytest.mark.usefixtures("no_figure")
def test_compare_refuses_another_data_set_under_the_same_name(tmp_path: Path) -> None:
    given: dict[str, Any] = {"algorithms": ["fedavg"], "out": tmp_path / "all", "show": False}
    adabest.compare(**given, **tiny(rounds=1, dataset=stripes()))
    with pytest.raises(InputError, match="the dataset isn't the one that this run began with"):
        adabest.compare(**given, **tiny(rounds=1, dataset=other_stripes()))
    assert adabest.compare(**given, **tiny(rounds=1, dataset=stripes())).runs


@pytest.mark.usefixtures("no_figure")
def test_models_of_the_same_shape_are_compared_in_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = set()
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
        done = adabest.compare(algorithms=["fedavg"], show=False, **tiny(rounds=1, model=model))
        folders.add(done.folder)
    assert len(folders) == 2


@pytest.mark.usefixtures("no_figure")
def test_compare_refuses_a_data_file_that_was_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    given: dict[str, Any] = {"algorithms": ["fedavg"], "out": tmp_path / "all", "show": False}
    settings = tiny(rounds=1, dataset=str(path), model="logistic", batch_size=4)
    for shift in (0, 1):
        x = np.arange(400, dtype=np.float32).reshape(100, 4) + shift
        np.savez(path, x_train=x, y_train=np.arange(100) % 3, x_test=x, y_test=np.arange(100) % 3)
        if shift == 0:
            adabest.compare(**given, **settings)
    with pytest.raises(InputError, match="the dataset isn't the one"):
        adabest.compare(**given, **settings)


@pytest.mark.usefixtures("no_figure")
def test_compare_refuses_a_folder_that_another_process_works_on(tmp_path: Path) -> None:
    other = RunFolder(tmp_path / "all")
    other.acquire()
    try:
        with pytest.raises(InputError, match="another process is working on"):
            adabest.compare(algorithms=["fedavg"], out=tmp_path / "all", show=False, **tiny(rounds=1))
    finally:
        other.release()


@pytest.mark.usefixtures("no_figure")
def test_a_finished_run_of_an_earlier_version_counts_in_a_comparison(tmp_path: Path) -> None:
    settings = {**tiny(rounds=1), "algorithms": ["adabest"], "show": False}
    adabest.compare(out=tmp_path, **settings)
    as_old_version(tmp_path / "adabest")
    config = tmp_path / "adabest" / files.CONFIG
    lines = config.read_text(encoding="utf-8").splitlines()
    config.write_text("\n".join(line for line in lines if not line.startswith(("beta_decay", "patience"))) + "\n")
    before = contents(tmp_path / "adabest")
    adabest.compare(out=tmp_path, **settings)
    assert contents(tmp_path / "adabest") == before


@pytest.mark.usefixtures("no_figure")
@pytest.mark.parametrize(
    ("partition", "words"),
    [
        ("dirichlet", "dirichlet α = 0.3"),
        ("shards", "shards, 2 each"),
        ("iid", "iid"),
        ("dirichlet-legacy", "dirichlet-legacy α = 0.3"),
    ],
)
def test_a_title_names_the_partition_and_the_number_it_depends_on(
    partition: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: list[str] = []
    original = adabest.report.figure.comparison_figure

    def figure(runs: Any, title: str = "") -> Any:
        titles.append(title)
        return original(runs, title)

    monkeypatch.setattr("adabest.report.figure.comparison_figure", figure)
    adabest.compare(
        algorithms=["fedavg"], dataset=stripes(), clients=8, rounds=1, partition=partition, out=tmp_path, show=False
    )
    assert f", {words}, seed" in titles[0]
    assert ("α" in titles[0]) == partition.startswith("dirichlet")


@pytest.mark.usefixtures("no_figure")
def test_a_target_that_a_stopped_run_did_not_reach_is_not_called_never(tmp_path: Path) -> None:
    done = adabest.compare(
        algorithms=["fedavg"], dataset=stripes(), clients=8, epochs=1, rounds=9, evaluate_every=1, stop_at=0.01,
        target=1.0, out=tmp_path, show=False,
    )  # fmt: skip
    assert done.table.rows[0][done.table.head.index("rounds to 100 %")] == "> 1"
