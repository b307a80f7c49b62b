"""Tuning on a grid: what is tried, what is chosen, and that nothing of it comes from the test set."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from figures import catch_figures
from tiny_runs import arguments, as_old_version, command, contents, ends_after, log, results, tiny

import adabest
from adabest.algorithms.adabest import AdaBest
from adabest.errors import InputError, Interrupted
from adabest.experiments.choice import Point, choose
from adabest.experiments.default_grids import TUNING_ROUNDS, paper_grid
from adabest.experiments.search import plan_search
from adabest.experiments.tuning_table import tuning_table
from adabest.paper.experiment_runs import ExperimentRequest
from adabest.paper.specification import read_specification
from adabest.runs.results_file import read_choices


def tune(out: Path, **changes: Any) -> adabest.Tuning:
    return adabest.tune(out=out, show=False, **tiny(**changes))


def table_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def point(*accuracies: float | None, status: str = "finished", **values: Any) -> Point:
    return Point(values, list(accuracies), [status, *["finished"] * (len(accuracies) - 1)])


class TestTheRule:
    def test_the_highest_mean(self) -> None:
        assert choose([point(0.5, 0.7, beta=0.2), point(0.9, 0.4, beta=0.4), point(0.6, 0.5, beta=0.6)]) == {
            "beta": 0.4
        }

    def test_ties_go_to_the_smaller_value_whatever_the_order(self) -> None:
        tied = [point(0.5, beta=10.0), point(0.5, beta=9.0), point(0.5, beta=9.5), point(0.4, beta=1.0)]
        assert choose(tied) == choose(tied[::-1]) == {"beta": 9.0}

    def test_ties_are_broken_in_the_order_of_the_axes(self) -> None:
        tied = [point(0.5, beta=0.4, mu=0.01), point(0.5, beta=0.2, mu=0.3), point(0.5, beta=0.2, mu=0.2)]
        assert choose(tied) == {"beta": 0.2, "mu": 0.2}

    def test_one_that_diverged_in_a_seed_loses(self) -> None:
        lost = point(0.9, 0.9, status="diverged", mu=0.2)
        assert choose([lost, point(0.1, 0.1, mu=0.02)]) == {"mu": 0.02}
        assert choose([lost]) is None

    def test_the_table_marks_it(self) -> None:
        points = [
            point(0.5, 0.7, beta=0.2, how="so"),
            point(0.9, 0.9, status="diverged", beta=0.4, how="so"),
            Point({"beta": 1.0, "how": "so"}, [None, None], ["diverged", "diverged"]),
        ]
        table = tuning_table(points, {"beta": 0.2, "how": "so"})
        assert table.head == ("beta", "how", "validation %", "choice")
        assert table.rows == (
            ("0.2", "so", "60.00 ± 14.14", "chosen"),
            ("0.4", "so", "90.00 (1 of 2 diverged)", ""),
            ("1.0", "so", "diverged", ""),
        )
        assert [row[-1] for row in tuning_table(points, None).rows] == ["", "", ""]


class TestTheGridsOfThePaper:
    @pytest.mark.parametrize(
        ("algorithm", "participation", "values"),
        [
            ("feddyn", 0.01, {"mu": [0.002, 0.02, 0.2]}),
            ("feddyn", 1.0, {"mu": [0.002, 0.02, 0.2]}),
            ("adabest", 0.005, {"beta": [0.2, 0.4, 0.6]}),
            ("adabest", 0.01, {"beta": [0.2, 0.4, 0.6]}),
            ("adabest", 0.011, {"beta": [0.94, 0.96, 0.98, 1.0]}),
            ("adabest", 1.0, {"beta": [0.94, 0.96, 0.98, 1.0]}),
            ("fedprox", 0.1, {"mu": [0.001, 0.01, 0.1, 1.0]}),
        ],
    )
    def test_values(self, algorithm: str, participation: float, values: dict[str, list[float]]) -> None:
        assert paper_grid(algorithm, participation) == values
        search = plan_search(tiny(algorithm=algorithm, participation=participation))
        assert search.points == [{name: value} for name, its_own in values.items() for value in its_own]

    @pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "scaffold-m", "tiny_runs:Bomb"])
    def test_an_algorithm_that_has_none(self, algorithm: str, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=f"no values to try for {algorithm}.* --vary .* --space "):
            tune(tmp_path / "all", algorithm=algorithm)
        assert not (tmp_path / "all").exists()

    def test_where_nothing_else_is_said(self, tmp_path: Path) -> None:
        """500 rounds, unless there are others, and the share of clients of a run."""
        settings = {name: value for name, value in tiny().items() if name not in ("rounds", "participation")}
        with ends_after(30), pytest.raises(Interrupted):
            adabest.tune(out=tmp_path / "all", show=False, **settings)
        with ends_after(30):
            assert command("tune", *arguments(**settings), "--out", tmp_path / "cli") == 130
        for folder in ("all", "cli"):
            begun = [adabest.load(path.parent) for path in sorted((tmp_path / folder).glob("*/config.toml"))]
            assert [run.config.hyperparameters["beta"] for run in begun] == [0.94, 0.96, 0.98, 1.0]
            assert {run.config.rounds for run in begun} == {TUNING_ROUNDS} == {500}


@pytest.mark.usefixtures("no_figure")
class TestTuning:
    def test_all_points_with_all_seeds(self, tmp_path: Path) -> None:
        vary: dict[str, Any] = {"beta": [0.9, 0.5], "epochs": [1, 2]}
        done = tune(tmp_path / "all", vary=vary, seeds=[0, 1])
        sweep = adabest.sweep(vary=vary, seeds=[0, 1], out=tmp_path / "sweep", show=False, **tiny())
        assert list(done.runs) == list(sweep.runs)
        assert done.folder == tmp_path / "all"
        for label in done.runs:
            assert results(done.folder / label) == results(sweep.folder / label)
        means = {label: sum(r.final["validation_accuracy"] for r in runs) / 2 for label, runs in done.entries.items()}
        best = [label for label, mean in means.items() if mean == max(means.values())]
        chosen = done.chosen
        assert chosen is not None
        assert f"adabest,beta={chosen['beta']},epochs={chosen['epochs']}" == sorted(best)[0]
        rows = table_of(done.folder)
        assert [(row["beta"], row["epochs"]) for row in rows] == [
            ("0.9", "1"),
            ("0.9", "2"),
            ("0.5", "1"),
            ("0.5", "2"),
        ]
        assert [row["validation %"].split()[0] for row in rows] == [f"{100 * mean:.2f}" for mean in means.values()]
        assert [row["choice"] for row in rows].count("chosen") == 1
        assert {path.name for path in done.files} == {"table.md", "table.csv", "choices.json"}

    def test_what_is_best_on_the_test_set_is_no_matter(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The same runs, with other test results, give the same files and the same words."""
        given = [*arguments(**tiny(), out=tmp_path / "all"), "--vary", "beta=0.2,0.5,0.9"]
        assert command("tune", *given) == 0
        said = capsys.readouterr()
        for number, path in enumerate(sorted((tmp_path / "all").glob("*/metrics.jsonl"))):
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            for row in rows:
                row |= {name: 0.1234 + number / 10 for name in row if name.split("_")[0] in ("scored", "cloud")}
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            as_old_version(path.parent)  # or the manifest would refuse the rows
        before = {name: (tmp_path / "all" / name).read_bytes() for name in ("table.md", "table.csv", "choices.json")}
        assert command("tune", *given) == 0
        again = capsys.readouterr()
        assert again.out == said.out
        assert before == {name: (tmp_path / "all" / name).read_bytes() for name in before}
        assert "validation %" in said.out
        assert "accuracy %" not in said.out.replace("validation %", "")

    def test_nothing_of_the_test_set_is_shown_meanwhile(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for lanes in (1, 2):
            given = [*arguments(**tiny(), out=tmp_path / str(lanes), lanes=lanes), "--vary", "beta=0.2,0.5"]
            assert command("tune", *given) == 0
            shown = [line.split("round 5/5, ")[1] for line in capsys.readouterr().err.splitlines()]
            made = [adabest.load(path.parent) for path in sorted((tmp_path / str(lanes)).glob("*/config.toml"))]
            accuracies = [f"validation accuracy {100 * run.final['validation_accuracy']:.1f} %" for run in made]
            assert [words.split(",")[0] for words in shown] == accuracies

    def test_on_the_command_line_and_from_a_file_it_is_the_same(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        done = tune(tmp_path / "python", algorithm="feddyn", seeds=[3], lanes=2)
        given = [*arguments(**tiny(algorithm="feddyn"), out=tmp_path / "cli"), "--seeds", "3"]
        assert command("tune", *given) == 0
        out = capsys.readouterr().out
        assert f"Chosen: mu = {(done.chosen or {})['mu']}" in out
        assert f"Written: {tmp_path / 'cli' / 'choices.json'}" in out
        (tmp_path / "all.toml").write_text("algorithm = 'feddyn'\nseeds = [3]\n[vary]\nmu = [0.002, 0.02, 0.2]\n")
        file = adabest.tune(tmp_path / "all.toml", out=tmp_path / "file", show=False, **tiny())
        assert command("tune", tmp_path / "all.toml", *arguments(**tiny()), "--out", tmp_path / "both") == 0
        assert file.chosen == done.chosen
        for place in ("cli", "file", "both"):
            assert (tmp_path / place / "table.csv").read_bytes() == (done.folder / "table.csv").read_bytes()
            choices = [{**vars(one), "provenance": {}} for one in read_choices(tmp_path / place / "choices.json")]
            assert choices == [{**vars(one), "provenance": {}} for one in read_choices(done.folder / "choices.json")]

    def test_the_choice_as_a_file(self, tmp_path: Path) -> None:
        done = tune(tmp_path / "all", vary=["beta=0.5,0.9"], seeds=[2, 0], rounds=2, algorithm="adabest,mu=0.1")
        (choice,) = read_choices(tmp_path / "all" / "choices.json")
        assert (choice.cells, choice.algorithm, choice.rounds, choice.seeds) == ("*", "adabest", 2, [2, 0])
        assert choice.chosen == done.chosen
        assert [entry["point"] for entry in choice.grid] == [{"beta": 0.5}, {"beta": 0.9}]
        accuracies = [[run.final["validation_accuracy"] for run in runs] for runs in done.entries.values()]
        assert [entry["validation_accuracy"] for entry in choice.grid] == accuracies
        assert [entry["status"] for entry in choice.grid] == [["finished"] * 2] * 2
        assert choice.provenance["torch"]
        table1 = read_specification("table1")
        request = ExperimentRequest(table1, table1.chosen_cells([]), ["fedavg", "adabest"], [0])
        for cell in request.cells:
            assert request.chosen([choice], cell, "adabest") == done.chosen
            assert request.chosen([choice], cell, "fedavg") == {}

    def test_some_diverge(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        given = [*arguments(**tiny(algorithm="tiny_runs:Bomb"), out=tmp_path / "all"), "--vary", "fuse=2,9,8"]
        assert command("tune", *given) == 0
        assert "Chosen: fuse = 8" in capsys.readouterr().out  # the same as 9, and smaller
        assert [row["validation %"] == "diverged" for row in table_of(tmp_path / "all")] == [True, False, False]
        assert read_choices(tmp_path / "all" / "choices.json")[0].grid[0]["status"] == ["diverged"]

    def test_all_diverge(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        given = [*arguments(**tiny(algorithm="tiny_runs:Bomb"), out=tmp_path / "all"), "--vary"]
        assert command("tune", *given, "fuse=9") == 0
        assert (tmp_path / "all" / "choices.json").is_file()
        assert command("tune", *given, "fuse=2,3") == 3
        assert "Nothing could be chosen: every point diverged" in capsys.readouterr().out
        assert not (tmp_path / "all" / "choices.json").exists()
        assert [row["choice"] for row in table_of(tmp_path / "all")] == ["", ""]
        assert command("resume", tmp_path / "all", "--allow", "tiny_runs:Bomb") == 3

    def test_interrupted_and_resumed(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        given = [*arguments(**tiny(), out=tmp_path / "all", seeds=[0, 1], lanes=3), "--vary", "beta=0.2,0.9"]
        with ends_after(100):
            assert command("tune", *given) == 130
        assert f"resume with: adabest resume {tmp_path / 'all'}" in capsys.readouterr().err
        assert not (tmp_path / "all" / "choices.json").exists()
        assert command("resume", tmp_path / "all") == 0
        assert "Chosen: beta = " in capsys.readouterr().out
        assert "resumes after round" in log(tmp_path / "all" / "adabest,beta=0.2,seed=0")
        straight = tune(tmp_path / "straight", vary={"beta": [0.2, 0.9]}, seeds=[0, 1])
        for label in straight.runs:
            assert results(tmp_path / "all" / label) == results(straight.folder / label)
        assert (tmp_path / "all" / "table.csv").read_bytes() == (straight.folder / "table.csv").read_bytes()

    def test_what_is_finished_is_kept(self, tmp_path: Path) -> None:
        tune(tmp_path / "all", vary={"beta": [0.5]}, rounds=1)
        before = contents(tmp_path / "all" / "adabest,beta=0.5")
        done = tune(tmp_path / "all", vary={"beta": [0.5, 0.6]}, rounds=1)
        assert contents(tmp_path / "all" / "adabest,beta=0.5") == before
        assert len(done.entries) == 2
        tune(tmp_path / "all", vary={"beta": [0.5]}, rounds=1, overwrite=True)
        assert contents(tmp_path / "all" / "adabest,beta=0.5") != before  # its timings are others

    def test_by_default_it_goes_where_its_settings_say(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        folders = [
            adabest.tune(show=False, **given, **tiny(rounds=1)).folder
            for given in ({"vary": {"beta": [0.5]}}, {"vary": ["beta=0.5"], "lanes": 1}, {"vary": {"beta": [0.6]}})
        ]
        assert folders[0] == folders[1] != folders[2]
        assert all(folder.name.startswith("tune-") for folder in folders)

    def test_the_figure(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        drawn: list[tuple[Any, Path]] = []

        def draw(figure: Any, stem: Path) -> list[Path]:
            drawn.append((figure, stem))
            return [stem]

        catch_figures(monkeypatch, draw)
        done = tune(tmp_path / "all", vary={"beta": [0.2, 0.9]}, evaluate_every=1)
        ((figure, stem),) = drawn
        assert stem == tmp_path / "all" / "figure"
        assert stem in done.files
        for line in figure.axes[0].lines:
            (run,) = done.entries[line.get_label()]
            assert list(line.get_ydata()) == run.curve("validation_accuracy")[1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vary": {"betta": [0.5]}}, "unknown setting 'betta'; did you mean 'beta'"),
        ({"vary": {"beta": [0.5, 2.0]}}, "beta = 2.0 is out of range"),
        ({"vary": ["beta="]}, "there must be settings with the values to try"),
        ({"vary": {"seed": [0, 1]}}, "seed can't be varied: pass `seeds`"),
        ({"vary": {"rounds": [5, 6]}}, "rounds can't be tuned: it belongs to the task"),
        ({"vary": {"alpha": [0.1, 0.3]}}, "alpha can't be tuned"),
        ({"vary": {"beta": [0.5]}, "space": {"beta": "0:1"}}, "values to vary or a space to search, not both"),
        ({"trials": 5}, "trials = 5: trials are points of a space; name one"),
        ({"target": 0.9}, "tuning has no target"),
        ({"stop_at": 0.9}, "stop_at looks at the test set"),
        ({"validation_clients": 0}, "validation clients, which needs validation_clients"),
        ({"algorithm": AdaBest()}, "name it, as in 'adabest'"),
        ({"participation": "much"}, "participation should be a number"),
        ({"lanes": 0}, "lanes = 0"),
    ],
)
def test_mistakes_are_found_before_anything_is_begun(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        tune(tmp_path / "all", **changes)
    assert not (tmp_path / "all").exists()


def test_a_folder_with_other_runs(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    adabest.run(out=tmp_path / "all" / "adabest,beta=0.5", show=False, **tiny(rounds=1, algorithm="adabest,beta=0.7"))
    with pytest.raises(InputError, match="holds a run with other settings"):
        tune(tmp_path / "all", vary={"beta": [0.5]}, rounds=1)
    assert not (tmp_path / "all" / "comparison.toml").exists()
