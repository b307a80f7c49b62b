"""Several seeds, and sweeps: which runs are made, and tables and figures recomputed by hand."""

import csv
import dataclasses
import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest
from made_runs import make_run
from tiny_runs import Bomb, arguments, command, contents, ends_after, log, results, resume_comparison, run, tiny

import adabest
from adabest.algorithms.adabest import AdaBest
from adabest.algorithms.fedavg import FedAvg
from adabest.errors import InputError, Interrupted
from adabest.experiments.sweep import read_vary, write_vary
from adabest.report.entries import by_validation
from adabest.report.figure import comparison_figure, sweep_figure
from adabest.report.table import comparison_table, sweep_table

TWO = ["fedavg", "adabest,beta=0.5"]


def compare(out: Path, *, algorithms: Any = TWO, **changes: Any) -> adabest.Comparison:
    return adabest.compare(algorithms=algorithms, out=out, show=False, **tiny(**changes))


def sweep(out: Path, *, vary: Any, **changes: Any) -> adabest.Comparison:
    return adabest.sweep(vary=vary, out=out, show=False, **tiny(**changes))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def table_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def three_seeds(tmp_path_factory: pytest.TempPathFactory) -> adabest.Comparison:
    """A finished comparison, to look at only."""
    return compare(tmp_path_factory.mktemp("seeds") / "all", seeds=[0, 1, 5], evaluate_every=1, target=0.5)


class TestSeeds:
    def test_every_algorithm_with_every_seed(self, three_seeds: adabest.Comparison, tmp_path: Path) -> None:
        assert list(three_seeds.runs) == [f"{label},seed={seed}" for label in TWO for seed in (0, 1, 5)]
        assert {label: [one.config.seed for one in runs] for label, runs in three_seeds.entries.items()} == {
            label: [0, 1, 5] for label in TWO
        }
        alone = run(tmp_path / "alone", algorithm="adabest", beta=0.5, seed=5, evaluate_every=1)
        made = three_seeds.folder / "adabest,beta=0.5,seed=5"
        assert results(made) == results(alone.folder)
        assert (made / "config.toml").read_bytes() == (alone.folder / "config.toml").read_bytes()

    def test_the_table_is_recomputed_from_the_metrics(self, three_seeds: adabest.Comparison) -> None:
        for row in table_of(three_seeds.folder):
            metrics = [rows_of(three_seeds.folder / f"{row['algorithm']},seed={seed}") for seed in (0, 1, 5)]
            finals = [100 * rows[-1]["scored_accuracy"] for rows in metrics]
            assert row["accuracy %"] == f"{mean(finals):.1f} ± {stdev(finals):.1f}"
            reached = [min(r["round"] for r in rows if r["scored_accuracy"] >= 0.5) for rows in metrics]
            assert row["rounds to 50 %"] == f"{mean(reached):.1f}"
            assert row["‖θ‖"] == f"{mean(rows[-1]['cloud_norm'] for rows in metrics):.3g}"

    def test_the_figure_shows_means_in_bands(self, three_seeds: adabest.Comparison) -> None:
        figure = comparison_figure(three_seeds.entries)
        for axes, name in zip(figure.axes, ("scored_accuracy", "cloud_norm"), strict=True):
            assert [line.get_label() for line in axes.lines] == TWO
            assert len(axes.collections) == 2
            for line, band, label in zip(axes.lines, axes.collections, TWO, strict=True):
                curves = [
                    [row[name] for row in rows_of(three_seeds.folder / f"{label},seed={seed}")] for seed in (0, 1, 5)
                ]
                middle, spread = np.mean(curves, axis=0), np.std(curves, axis=0, ddof=1)
                np.testing.assert_allclose(np.asarray(line.get_ydata()), middle)
                corners = np.asarray(band.get_paths()[0].vertices)
                for number, (low, high) in enumerate(zip(middle - spread, middle + spread, strict=True), start=1):
                    at_round = corners[corners[:, 0] == number, 1]
                    assert (at_round.min(), at_round.max()) == pytest.approx((low, high))

    def test_the_titles_tell_the_seeds(self, three_seeds: adabest.Comparison) -> None:
        assert "seeds 0, 1, 5" in (three_seeds.folder / "figure.svg").read_text(encoding="utf-8")

    @pytest.mark.usefixtures("no_figure")
    def test_a_seed_more_costs_its_own_runs(self, tmp_path: Path) -> None:
        compare(tmp_path / "all", seeds=[0], rounds=1)
        before = contents(tmp_path / "all" / "fedavg,seed=0")
        done = compare(tmp_path / "all", seeds=[0, 1], rounds=1)
        assert contents(tmp_path / "all" / "fedavg,seed=0") == before
        assert len(done.runs) == 4

    @pytest.mark.usefixtures("no_figure")
    def test_interrupted_and_resumed(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        given = [*arguments(**tiny(), out=tmp_path / "all", seeds=[0, 1], lanes=3), "--algorithms", *TWO]
        with ends_after(100):
            assert command("compare", *given) == 130
        last = capsys.readouterr().err.splitlines()[-1]
        assert last == f"adabest: interrupted; resume with: adabest resume {tmp_path / 'all'}"
        assert len([path for path in (tmp_path / "all").iterdir() if path.is_dir()]) == 3  # the fourth hadn't begun
        assert command("resume", tmp_path / "all") == 0
        assert "resumes after round" in log(tmp_path / "all" / "fedavg,seed=0")
        straight = compare(tmp_path / "straight", seeds=[0, 1])
        for label in straight.runs:
            assert results(tmp_path / "all" / label) == results(straight.folder / label)
        assert (tmp_path / "all" / "table.csv").read_bytes() == (straight.folder / "table.csv").read_bytes()

    @pytest.mark.usefixtures("no_figure")
    def test_from_a_file_and_by_objects(self, tmp_path: Path) -> None:
        (tmp_path / "all.toml").write_text("algorithms = ['fedavg']\nseeds = [3, 4]\nlanes = 1\n")
        done = adabest.compare(tmp_path / "all.toml", out=tmp_path / "all", show=False, **tiny(rounds=1))
        assert list(done.runs) == ["fedavg,seed=3", "fedavg,seed=4"]
        done = compare(tmp_path / "objects", algorithms=[FedAvg(), AdaBest(beta=0.3)], seeds=(1, 2), rounds=1)
        assert list(done.entries) == ["fedavg", "adabest,beta=0.3"]
        assert done.runs["adabest,beta=0.3,seed=2"].config.seed == 2

    @pytest.mark.parametrize("seeds", [[0, 0], ["a"], 5, [1.5], [True], "01"])
    def test_what_no_seeds_are(self, seeds: Any, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="seeds should be whole numbers, each once"):
            compare(tmp_path / "all", seeds=seeds)
        assert not (tmp_path / "all").exists()

    def test_a_seed_out_of_range(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="seed = -1: it must be at least 0"):
            compare(tmp_path / "all", seeds=[0, -1])


FIRST = make_run({2: 0.5, 4: 0.8, 6: 0.9}, h_norm=0.1, validation_accuracy=0.7)
SECOND = make_run({2: 0.7, 4: 0.6, 6: 0.8}, h_norm=0.3, validation_accuracy=0.9)
LOST = make_run({2: 0.4}, status="diverged", cloud_norm=1e9, h_norm=1e9)
OPEN = make_run({2: 0.5, 4: 0.6}, status="interrupted")


class TestTablesByHand:
    def cells(self, *runs: adabest.Run, target: float = 0.7) -> tuple[str, ...]:
        return comparison_table({"x": list(runs)}, target=target).rows[0][1:]

    def test_two_seeds(self) -> None:
        # (90 + 80)/2 and 10/√2; rounds 4 and 2; 18 MB each; ‖θ‖ = 12 both.
        assert self.cells(FIRST, SECOND) == ("85.0 ± 7.1", "3.0", "18.0", "12", "0.2")

    def test_one_seed_is_a_run(self) -> None:
        assert comparison_table({"x": [FIRST]}) == comparison_table({"x": FIRST})
        assert self.cells(FIRST)[:2] == ("90.0", "4")

    def test_a_target_that_not_all_reach(self) -> None:
        assert self.cells(FIRST, SECOND, target=0.85)[1] == "6.0 (1 of 2)"
        assert self.cells(FIRST, SECOND, target=0.95)[1] == "never"
        stopped = [dataclasses.replace(one, reason="enough") for one in (FIRST, SECOND)]
        assert self.cells(FIRST, stopped[1], target=0.95)[1] == "> 6"

    def test_the_default_target_is_one_that_all_seeds_reach(self) -> None:
        assert comparison_table({"x": [FIRST, SECOND]}).head[2] == "rounds to 80 %"

    def test_a_seed_that_diverged_has_no_accuracy(self) -> None:
        assert self.cells(FIRST, LOST) == ("90.0 (1 of 2 diverged)", "4.0 (1 of 2)", "18.0", "12", "0.1")
        assert self.cells(FIRST, SECOND, LOST)[0] == "85.0 ± 7.1 (1 of 3 diverged)"
        assert self.cells(LOST, LOST)[:2] == ("– (2 of 2 diverged)", "never")

    def test_other_ends(self) -> None:
        early = dataclasses.replace(SECOND, reason="enough")
        assert self.cells(FIRST, early, OPEN)[0] == "76.7 ± 15.3 (1 of 3 unfinished, 1 of 3 ended early)"

    def test_the_averaged_model(self) -> None:
        runs = [make_run({2: 0.5}, averaged_accuracy=value) for value in (0.5, 0.7)]
        assert comparison_table({"x": runs}).rows[0][2] == "60.0 ± 14.1"

    def test_a_sweep_is_ordered_by_validation_never_by_test(self) -> None:
        entries = {"lost": [FIRST, LOST], "better on test": [FIRST, FIRST], "better on validation": [SECOND, FIRST]}
        assert list(by_validation(entries)) == ["better on validation", "better on test", "lost"]
        table = sweep_table(entries, target=0.7)
        assert table.head[:3] == ("algorithm", "validation %", "accuracy %")
        assert table.rows[0] == ("better on validation", "80.0 ± 14.1", "85.0 ± 7.1", "3.0", "18.0", "12", "0.2")
        assert [row[0] for row in table.rows] == list(by_validation(entries))

    def test_curves_of_unequal_length(self) -> None:
        figure = comparison_figure({"x": [FIRST, make_run({2: 0.9}, status="diverged")]})
        line = figure.axes[0].lines[0]
        assert np.asarray(line.get_xydata()).tolist() == [[2, 0.7], [4, 0.8], [6, 0.9]]

    def test_what_diverged_or_ended_early_is_marked(self) -> None:
        lost = dataclasses.replace(LOST, reason="lost")
        early = dataclasses.replace(SECOND, reason="enough")
        lines = comparison_figure({"x": [FIRST, lost, early]}).axes[0].lines
        assert [line.get_marker() for line in lines] == ["None", "x", "o"]
        assert [np.asarray(line.get_xydata()).tolist() for line in lines[1:]] == [[[2, 0.4]], [[6, 0.8]]]

    def test_a_sweeps_figure_names_the_best(self) -> None:
        figure = sweep_figure({str(number): [SECOND, FIRST] for number in range(12)})
        legend = figure.axes[0].get_legend()
        assert legend is not None
        assert [text.get_text() for text in legend.get_texts()] == ["0", "1", "2", "3", "4"]
        assert len(figure.axes[0].lines) == 12
        assert np.asarray(figure.axes[0].lines[0].get_ydata()).tolist() == [pytest.approx(0.8)]  # validation


@pytest.mark.usefixtures("no_figure")
class TestSweeps:
    def test_every_combination_with_every_seed(self, tmp_path: Path) -> None:
        done = sweep(tmp_path / "all", vary={"beta": [0.5, 0.9], "epochs": [1, 2]}, seeds=[0, 1], rounds=2)
        labels = [f"adabest,beta={beta},epochs={epochs}" for beta in (0.5, 0.9) for epochs in (1, 2)]
        assert sorted(done.entries) == labels
        assert list(done.runs) == [f"{label},seed={seed}" for label in labels for seed in (0, 1)]
        one = done.runs["adabest,beta=0.9,epochs=2,seed=1"].config
        assert (one.hyperparameters["beta"], one.epochs, one.seed) == (0.9, 2, 1)
        alone = run(tmp_path / "alone", beta=0.9, epochs=2, seed=1, rounds=2)
        assert results(done.runs["adabest,beta=0.9,epochs=2,seed=1"].folder) == results(alone.folder)
        validation = [float(row["validation %"].split()[0]) for row in table_of(done.folder)]
        assert validation == sorted(validation, reverse=True)
        assert len(validation) == 4

    def test_on_the_command_line_it_is_the_same(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        given = [*arguments(**tiny(rounds=2, algorithm="feddyn"), out=tmp_path / "cli"), "--vary", "mu=0.01,0.1"]
        assert command("sweep", *given, "learning-rate=0.1,0.2") == 0
        assert "validation" in capsys.readouterr().out
        vary = {"mu": [0.01, 0.1], "learning_rate": [0.1, 0.2]}
        python = sweep(tmp_path / "python", vary=vary, rounds=2, algorithm="feddyn")
        assert next(iter(python.runs)) == "feddyn,mu=0.01,learning_rate=0.1"
        for label in python.runs:
            assert results(tmp_path / "cli" / label) == results(python.folder / label)
        assert (tmp_path / "cli" / "table.md").read_bytes() == (python.folder / "table.md").read_bytes()

    def test_numbers_and_auto_are_swept_together(self, tmp_path: Path) -> None:
        given = [*arguments(**tiny(rounds=2), out=tmp_path / "cli"), "--vary", "beta=0.8,auto"]
        assert command("sweep", *given) == 0
        python = sweep(tmp_path / "python", vary={"beta": [0.8, "auto"]}, rounds=2)
        assert list(python.runs) == ["adabest,beta=0.8", "adabest,beta=auto"]
        alone = run(tmp_path / "alone", beta="auto", rounds=2)
        assert results(python.folder / "adabest,beta=auto") == results(alone.folder)
        assert results(tmp_path / "cli" / "adabest,beta=auto") == results(alone.folder)

    def test_from_a_file(self, tmp_path: Path) -> None:
        text = "algorithm = 'adabest,mu=0.1'\nrounds = 1\n[vary]\nmodel = ['mlp,hidden=4', 'logistic']\n"
        (tmp_path / "all.toml").write_text(text)
        done = adabest.sweep(tmp_path / "all.toml", out=tmp_path / "all", show=False, **tiny(rounds=1))
        assert list(done.runs) == ["adabest,model=mlp,hidden=4", "adabest,model=logistic"]
        assert {one.config.hyperparameters["mu"] for one in done.runs.values()} == {0.1}
        settings = {name: value for name, value in tiny().items() if name != "rounds"}
        given = [tmp_path / "all.toml", *arguments(**settings), "--out", tmp_path / "cli"]
        assert command("sweep", *given) == 0
        assert {path.name for path in (tmp_path / "cli").iterdir() if path.is_dir()} == set(done.runs)

    def test_interrupted_and_resumed(self, tmp_path: Path) -> None:
        vary = {"beta": [0.5, 0.9], "model": ["mlp,hidden=4", "logistic"]}
        with ends_after(150), pytest.raises(Interrupted, match="interrupted; resume with: adabest resume"):
            sweep(tmp_path / "all", vary=vary, seeds=[0, 1])
        done = resume_comparison(tmp_path / "all")
        straight = sweep(tmp_path / "straight", vary=vary, seeds=[0, 1])
        assert list(done.runs) == list(straight.runs)
        for label in straight.runs:
            assert results(done.folder / label) == results(straight.folder / label)
        assert done.table == straight.table
        assert done.table.head[1] == "validation %"

    def test_one_that_diverges_comes_last(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        given = [*arguments(**tiny(algorithm="tiny_runs:Bomb"), out=tmp_path / "all"), "--vary", "fuse=2,9"]
        assert command("sweep", *given) == 3
        assert [row["algorithm"] for row in table_of(tmp_path / "all")] == [
            "tiny_runs.Bomb,fuse=9",
            "tiny_runs.Bomb,fuse=2",
        ]

    def test_by_default_it_goes_where_its_settings_say(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        folders = [
            adabest.sweep(show=False, **given, **tiny(rounds=1)).folder
            for given in (
                {"vary": {"beta": [0.5]}},
                {"vary": ["beta=0.5"], "lanes": 1},
                {"vary": {"beta": [0.6]}},
                {"vary": {"beta": [0.5]}, "seeds": [0]},
            )
        ]
        assert folders[0] == folders[1]
        assert len(set(folders)) == 3
        assert all(folder.name.startswith("sweep-") for folder in folders)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"vary": {"betta": [0.5]}}, "unknown setting 'betta'; did you mean 'beta'"),
            ({"vary": {"beta": ["much"]}}, "beta"),
            ({"vary": {"beta": [0.5, 2.0]}}, "beta = 2.0 is out of range"),
            ({"vary": {"beta": [0.5, 0.5]}}, "a value of beta is named twice"),
            ({"vary": ["beta=0.5", "beta=0.6"]}, "names a setting twice"),
            ({"vary": ["beta"]}, "'beta' should be a setting and the values to try"),
            ({"vary": ["beta="]}, "there must be settings with the values to try"),
            ({"vary": {"beta": 0.5}}, "there must be settings with the values to try"),
            ({"vary": None}, "there must be settings with the values to try"),
            ({"vary": {"seed": [0, 1]}}, "seed can't be varied: pass `seeds`"),
            ({"vary": {"algorithm": ["fedavg"]}}, "algorithm can't be varied"),
            ({"vary": {"precision": ["float32", "float64"]}}, "precision can't be varied: all runs share it"),
            ({"vary": {"threads": [1, 2]}}, "threads can't be varied: no result depends on it"),
            ({"vary": {"device": ["cpu"]}}, "device can't be varied"),
            ({"vary": {"beta": [0.5]}, "validation_clients": 0}, "which needs validation_clients"),
            ({"vary": {"beta": [0.5]}, "algorithm": AdaBest()}, "name it, as in 'adabest'"),
            ({"vary": {"model": [FedAvg()]}}, "the values of model should be numbers or words"),
            ({"vary": {"beta": [0.5]}, "lanes": 0}, "lanes = 0"),
        ],
    )
    def test_mistakes_are_found_before_anything_is_begun(
        self, changes: dict[str, Any], words: str, tmp_path: Path
    ) -> None:
        with pytest.raises(InputError, match=words):
            sweep(tmp_path / "all", **changes)
        assert not (tmp_path / "all").exists()


@pytest.mark.parametrize(
    "axes",
    [
        {"beta": ["0.5", "0.9"], "mu": ["0.1"]},
        {"beta": ["0.5", "auto"]},
        {"model": ["mlp,hidden=4", "logistic"]},
        {"model": ["mlp,hidden=4"]},
    ],
)
def test_values_survive_a_text(axes: dict[str, list[str]]) -> None:
    assert read_vary(write_vary(axes)) == axes


def test_a_bomb_among_seeds(tmp_path: Path) -> None:
    done = compare(tmp_path / "all", algorithms=[FedAvg(), Bomb(fuse=2)], seeds=[0, 1])
    assert [one.status for one in done.runs.values()] == ["finished", "finished", "diverged", "diverged"]
    assert done.table.rows[1][1] == "– (2 of 2 diverged)"
