"""The page of runs: what is on it, whatever runs are given, and that nothing else can get into it."""

import base64
import hashlib
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import data_of, entries, make_run, page_of, rows_of, section, store
from tiny_runs import command, tiny

import adabest
from adabest.errors import InputError
from adabest.report.entries import Curve, mean_curve
from adabest.report.figure import comparison_figure
from adabest.report.page import curves
from adabest.report.page.page import json_for_script
from adabest.report.page.page_runs import PageRun, page_entries
from adabest.report.palette import LINE_COLOURS
from adabest.report.table import comparison_table
from adabest.runs.build import cut_partition
from adabest.runs.results_file import Result, Results
from adabest.runs.settings.resolution import resolve

BOMB = "tiny_runs:Bomb,fuse=3"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> adabest.Comparison:
    """Three algorithms with two seeds each; all runs of one of them diverge."""
    algorithms = ["fedavg", BOMB, "adabest,beta=0.8"]
    place = tmp_path_factory.mktemp("compared") / "three"
    return adabest.compare(algorithms=algorithms, seeds=[0, 1], out=place, show=False, **tiny())


@pytest.fixture(scope="module")
def page(compared: adabest.Comparison) -> str:
    return adabest.write_report(compared.folder, html=compared.folder.parent / "page.html").read_text(encoding="utf-8")


class TestRealRuns:
    def test_entries_come_in_the_order_of_the_comparison(self, page: str) -> None:
        found = [(entry["label"], entry["runs"], entry["endings"]) for entry in data_of(page)["entries"]]
        assert found == [("fedavg", 2, ""), ("tiny_runs:Bomb", 2, "2 of 2 diverged"), ("adabest", 2, "")]

    def test_curves_are_means_over_seeds(self, page: str, compared: adabest.Comparison) -> None:
        data = data_of(page)
        for metric in ("scored_accuracy", "cloud_loss", "validation_accuracy", "cloud_norm", "cohort", "present"):
            for line, runs in zip(data["lines"][metric], compared.entries.values(), strict=True):
                expected = mean_curve(runs, metric)
                assert data["grids"][line["grid"]] == expected.rounds.tolist()
                assert line["mean"] == pytest.approx(expected.mean, rel=1e-4)
                assert line.get("spread", [0.0] * len(expected.rounds)) == pytest.approx(expected.spread, rel=1e-4)
        assert any("spread" in line for line in data["lines"]["scored_accuracy"])
        assert data["lines"]["h_norm"][0] is None  # FedAvg has none

    def test_measured_metrics_can_be_chosen(self, page: str) -> None:
        families = {one["name"]: [metric for metric, *_ in one["metrics"]] for one in data_of(page)["families"]}
        assert list(families) == ["Accuracy", "Clients", "Loss", "‖θ‖", "‖h‖", "Participation", "More"]
        assert families["Clients"] == ["validation_spread", "validation_worst_tenth"]
        models = ["scored_accuracy", "aggregate_accuracy", "cloud_accuracy"]
        assert families["Accuracy"] == [*models, "validation_accuracy", "train_accuracy"]
        assert families["Participation"] == ["cohort", "present"]
        assert families["More"] == ["h_cosine"]

    def test_the_table_is_that_of_the_report(self, page: str, compared: adabest.Comparison) -> None:
        survivors = [run for runs in compared.entries.values() for run in runs if run.status == "finished"]
        target = adabest.report.table.common_target(survivors)
        expected = comparison_table(compared.entries, target)
        head, *rows = rows_of(page, "results")
        assert tuple(head[2:]) == expected.head[1:]
        assert [row[2:] for row in rows] == [list(row[1:]) for row in expected.rows]
        assert head[1] == "n"
        assert [row[1] for row in rows] == ["2", "2", "2"]

    def test_the_heat_maps_are_the_partitions(self, page: str, compared: adabest.Comparison) -> None:
        maps = data_of(page)["maps"]
        assert len(maps) == 2
        for seed, shown in enumerate(maps):
            config, components = resolve(tiny(seed=seed))
            partition = cut_partition(config, components)
            counts = np.array(shown["counts"])
            assert sorted(map(tuple, counts.T)) == sorted(map(tuple, partition.label_counts))
            assert np.all(np.diff(counts.argmax(axis=0)) >= 0)
            order = np.argsort(partition.label_counts.argmax(axis=1), kind="stable")
            assert [client for client, held in zip(order, shown["heldOut"], strict=True) if held] == sorted(
                partition.validation, key=list(order).index
            )
        text = section(page, "clients")
        assert "partition seed 0" in text
        assert "Runs on it: fedavg, tiny_runs:Bomb, adabest" in text

    def test_settings_and_environment(self, page: str, compared: adabest.Comparison) -> None:
        text = section(page, "settings")
        assert "participation\n0.4" in text
        head, *rows = rows_of(page, "settings")
        assert head[:3] == ["entry", "algorithm", "seed"]
        column = head.index("beta")
        assert [row[column] for row in rows] == ["–", "–", "0.8"]
        assert [row[2] for row in rows] == ["0, 1"] * 3
        environment = compared.runs["fedavg,seed=0"].environment
        text = section(page, "environment")
        assert f"torch\n{environment['torch']}" in text
        assert "command\n" in text
        assert "working directory" not in text
        assert str(compared.folder / "fedavg,seed=0") in text

    def test_where_files_lay_is_not_told(self) -> None:
        words = "/home/me/bin/adabest run --data-dir '/home/me/my data' --out=/home/me/x --rounds 3"
        page = page_of(make_run(environment={"command": words, "working_directory": "/home/me"}))
        assert "adabest run --rounds 3" in section(page, "environment")
        assert "/home/me" not in page

    def test_runs_that_did_not_end_well_are_named(self, page: str) -> None:
        assert "2 of 6 runs didn’t end as planned" in page
        assert "diverged in round 3" in section(page, "environment")
        (line,) = [line for line in data_of(page)["lines"]["scored_accuracy"] if line and "ends" in line]
        assert [end[0::2] for end in line["ends"]] == [[2, "diverged"]] * 2

    def test_nothing_is_loaded_and_only_its_script_runs(self, page: str) -> None:
        (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)
        (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert policy.startswith("default-src 'none';")
        assert f"script-src 'sha256-{digest}'" in policy
        assert re.findall(r'(?:src|href)="([^"#]\S*)"', page) == ["data:,"]  # no icon is asked for
        assert not re.findall(r"@import|url\((?!#inside)|fetch\(|XMLHttpRequest|import\(", page)

    def test_from_the_command_line(
        self, compared: adabest.Comparison, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "deep" / "page.html"
        assert command("report", compared.folder / BOMB.replace("tiny_runs:", "tiny_runs."), "--html", out) == 2
        assert "there are no runs in" in capsys.readouterr().err
        one, two = compared.folder / "fedavg,seed=1", compared.folder / "adabest,beta=0.8,seed=1"
        assert command("report", one, two, one, "--html", out, "--target", "0.4") == 0
        assert capsys.readouterr().out == f"Written: {out}\n"
        page = out.read_text(encoding="utf-8")
        assert [entry["runs"] for entry in data_of(page)["entries"]] == [1, 1]
        assert "rounds to 40 %" in rows_of(page, "results")[0]

    def test_the_target_is_the_comparisons_own(self, tmp_path: Path) -> None:
        adabest.compare(algorithms=["fedavg"], out=tmp_path / "c", target=0.37, show=False, **tiny(rounds=2))
        page = adabest.write_report(tmp_path / "c", html=tmp_path / "p.html").read_text(encoding="utf-8")
        assert "rounds to 37 %" in rows_of(page, "results")[0]

    def test_a_sweep_is_in_the_order_of_validation(self, tmp_path: Path) -> None:
        swept = adabest.sweep(vary={"beta": [0.0, 0.9, "auto"]}, out=tmp_path / "sweep", show=False, **tiny())
        page = adabest.write_report(tmp_path, html=tmp_path / "page.html").read_text(encoding="utf-8")
        head, *rows = rows_of(page, "results")
        assert head[1:3] == ["n", "validation %"]
        assert [row[0] for row in rows] == [label.replace("0.0", "0") for label in swept.entries]
        assert [entry["label"] for entry in data_of(page)["entries"]] == [row[0] for row in rows]


class TestEntries:
    def test_labels_are_as_short_as_they_can_be(self) -> None:
        runs = [
            make_run(algorithm="fedavg", alpha=0.3, batch_size=8),
            make_run(algorithm="fedavg", alpha=0.1, batch_size=9),
            make_run(algorithm="adabest", alpha=0.3, batch_size=8, hyperparameters={"beta": 0.8, "mu": 0.1}),
            make_run(algorithm="adabest", alpha=0.3, batch_size=8, hyperparameters={"beta": 0.9, "mu": 0.1}),
        ]
        labels = ["fedavg,alpha=0.3", "fedavg,alpha=0.1", "adabest,alpha=0.3,beta=0.8", "adabest,alpha=0.3,beta=0.9"]
        assert list(entries(runs)) == labels
        assert list(entries(runs[::2])) == ["fedavg", "adabest"]

    def test_seeds_come_together_however_their_partitions_are_keyed(self) -> None:
        (group,) = entries([make_run(seed=seed, partition_seed=0) for seed in (2, 0, 1)]).values()
        assert [one.settings["seed"] for one in group] == [0, 1, 2]
        assert list(entries([make_run(device="cpu"), make_run(seed=1, device="cuda")])) == ["fedavg"]

    def test_a_run_that_was_repeated_is_no_seed(self) -> None:
        found = entries([make_run(), make_run(seed=1), make_run()])
        assert {label: len(group) for label, group in found.items()} == {"fedavg": 2, "fedavg (2)": 1}

    def test_settings_that_read_the_same_lose_no_run(self) -> None:
        found = entries([make_run(learning_rate=rate) for rate in (0.1, 0.1000001, 0.2)])
        assert list(found) == ["fedavg,learning_rate=0.1", "fedavg,learning_rate=0.1 (2)", "fedavg,learning_rate=0.2"]

    def test_results_that_were_kept(self, tmp_path: Path) -> None:
        runs = [make_run(algorithm=name, seed=seed) for name in ("fedavg", "adabest") for seed in (0, 1)]
        for cells in (["digits/5"], ["digits/5", "digits/10"]):
            kept = [Result.of(run, cell, run.config.algorithm, {}) for cell in cells for run in runs]
            Results("table1", kept).write(tmp_path / "table1.json")
            page = adabest.write_report(tmp_path / "table1.json", html=tmp_path / "p.html").read_text(encoding="utf-8")
            prefixes = [""] if len(cells) == 1 else [f"{cell}: " for cell in cells]
            labels = [f"{prefix}{name}" for prefix in prefixes for name in ("fedavg", "adabest")]
            assert [(entry["label"], entry["runs"]) for entry in data_of(page)["entries"]] == [
                (one, 2) for one in labels
            ]
        assert "<title>table1</title>" in page
        assert data_of(page)["lines"]["scored_accuracy"][0]["mean"] == [0.5, 0.8, 0.75, 0.9]
        assert rows_of(page, "results")[1][:3] == [labels[0], "2", "90.0 ± 0.0"]
        store(runs[0], tmp_path / "run")
        both = adabest.write_report([tmp_path / "run", tmp_path / "table1.json"], html=tmp_path / "p.html")
        found = data_of(both.read_text(encoding="utf-8"))["entries"]
        assert [entry["label"] for entry in found] == ["fedavg", *labels]

    def test_no_two_entries_have_one_label(self) -> None:
        kept = Results("x", [Result.of(make_run(), "cell", "fedavg", {})])
        assert list(page_entries([*PageRun.of_results(kept, "x.json"), PageRun.of(make_run())])) == [
            "fedavg",
            "fedavg (2)",
        ]

    def test_endings(self) -> None:
        runs = [
            make_run(algorithm="a", reason="it stood still"),
            make_run(algorithm="b", status="interrupted"),
            make_run({}, algorithm="c", status="killed"),
            make_run(algorithm="d", status="diverged", reason="the loss is nan"),
            make_run(algorithm="e"),
        ]
        page = page_of(*runs)
        endings = [entry["endings"] for entry in data_of(page)["entries"]]
        assert endings == [
            "ended early, in round 8: it stood still",
            "unfinished (interrupted), round 8",
            "unfinished (killed), round 0",
            "diverged in round 8: the loss is nan",
            "",
        ]
        lines = data_of(page)["lines"]["scored_accuracy"]
        assert [line and line.get("ends") for line in lines] == [
            [[8, 0.9, "early"]],
            [[8, 0.9, "unfinished"]],
            None,
            [[8, 0.9, "diverged"]],
            None,
        ]
        assert "4 of 5 runs didn’t end as planned" in page
        assert "didn’t end as planned" not in page_of(runs[-1])
        assert rows_of(page, "results")[0][3] == "rounds to 90 %"  # what has no result can't lower it

    def test_nothing_measured_at_all(self) -> None:
        page = page_of(make_run({}, status="running"))
        assert data_of(page)["families"] == []
        assert rows_of(page, "results")[1][:3] == ["fedavg", "1", "– (running, round 0)"]
        assert "No run has come far enough to have a partition." in page

    def test_colours_are_those_of_figures(self) -> None:
        names = ["adabest", "mine:Own", "fedavg", "mine:Other", "scaffold-m"]
        runs = [make_run(algorithm=name) for name in names]
        figure = comparison_figure(dict(zip(names, runs, strict=True)))
        looks = [entry["look"] for entry in data_of(page_of(*runs))["entries"]]
        drawn = [LINE_COLOURS[look % len(LINE_COLOURS)].light for look in looks]
        assert [line.get_color() for line in figure.axes[0].lines] == drawn
        assert len(set(drawn)) == 5

    def test_seeds_are_counted_for_each_entry(self, tmp_path: Path) -> None:
        runs = [make_run(algorithm="fedavg", seed=seed) for seed in (0, 1, 2)] + [make_run(algorithm="adabest")]
        folders = [store(run, tmp_path / str(number)) for number, run in enumerate(runs)]
        page = adabest.write_report(folders, html=tmp_path / "page.html").read_text(encoding="utf-8")
        assert [row[:2] for row in rows_of(page, "results")[1:]] == [["fedavg", "3"], ["adabest", "1"]]
        (title,) = re.findall("<title>(.*)</title>", page)
        assert title.endswith(", 1 to 3 seeds")
        page = adabest.write_report(folders[:3], html=tmp_path / "page.html").read_text(encoding="utf-8")
        (title,) = re.findall("<title>(.*)</title>", page)
        assert title.endswith(", seeds 0, 1, 2")

    def test_cells_are_the_settings_in_which_entries_are_compared(self) -> None:
        def cells(*runs: adabest.Run) -> list[str]:
            return [entry["cell"] for entry in data_of(page_of(*runs))["entries"]]

        both = [make_run(algorithm=name, alpha=alpha) for alpha in (0.1, 1.0) for name in ("fedavg", "adabest")]
        assert cells(*both) == ["alpha=0.1", "alpha=0.1", "alpha=1", "alpha=1"]
        assert cells(*both[::2]) == ["", ""]  # each would have one entry
        assert cells(*both[:2]) == ["", ""]  # there is one
        assert cells(*(make_run(algorithm="adabest", hyperparameters={"beta": beta}) for beta in (0.1, 0.2))) == [
            "",
            "",
        ]
        page = page_of(*both)
        assert "<option>alpha=0.1</option><option>alpha=1</option>" in page
        assert '<select id="cell">' not in page_of(*both[:2])
        assert 'id="filters"' not in page_of(both[0])
        first, second, third, fourth = (entry["look"] for entry in data_of(page)["entries"])
        assert [look % 14 for look in (first, second)] == [look % 14 for look in (third, fourth)] == [0, 4]
        assert len({first % 5, third % 5}) == len({second % 5, fourth % 5}) == 2


class TestForeignWords:
    WORDS = "<img src=x onerror=alert(1)>\"'&amp;</script><script>alert(2)</script>$title"

    def test_foreign_words_stay_words_wherever_they_come_from(self) -> None:
        statistics = {"partition": {"fingerprint": "1", self.WORDS: self.WORDS}}
        runs = [
            make_run(
                status="diverged",
                algorithm=f"{self.WORDS}{number}",
                reason=self.WORDS,
                folder=Path(self.WORDS),
                dataset=self.WORDS,
                environment={self.WORDS: self.WORDS, "command": f"{self.WORDS}{number}"},
                identity=statistics,
            )
            for number in range(2)
        ]
        page = page_of(*runs, data_dir=self.WORDS)
        assert "<img" not in page
        assert "alert(2)</script>" not in page
        assert len(re.findall("<script", page)) == len(re.findall("</script>", page)) == 2
        assert self.WORDS in section(page, "environment")
        assert data_of(page)["entries"][0]["label"] == f"{self.WORDS}0"

    def test_titles(self) -> None:
        assert "<title>a &lt;b&gt;</title>" in adabest.report.page.page.page_text(entries([make_run()]), title="a <b>")

    def test_no_word_ends_a_script(self) -> None:
        text = json_for_script(["</script>", "<!--", "\u2028"])
        assert not set("<>&\u2028") & set(text)
        assert data_of(f'<script type="application/json" id="data">{text}</script>') == ["</script>", "<!--", "\u2028"]


class TestThinning:
    def test_a_short_curve_stays_whole(self) -> None:
        curve = Curve(np.arange(1, 4), np.array([0.1, 0.2, 0.3]), np.zeros(3))
        assert curves.thin(curve, 3) is curve

    def test_ends_and_spikes_stay(self) -> None:
        mean = np.arange(5000.0)
        mean[1234], mean[4321] = 1e6, -1e6
        thinned = curves.thin(Curve(np.arange(1, 5001), mean, mean), 60)
        assert len(thinned.rounds) <= 60
        assert len(thinned.rounds) > 50
        assert thinned.rounds[0] == 1
        assert thinned.rounds[-1] == 5000
        assert {1235, 4322} <= set(thinned.rounds.tolist())
        assert (np.diff(thinned.rounds) > 0).all()
        for drawn in (thinned.mean, thinned.spread):
            np.testing.assert_array_equal(drawn, mean[thinned.rounds - 1])

    def test_a_page_of_many_long_runs_stays_small(self) -> None:
        accuracies = {number: number / 3001 for number in range(1, 3001)}
        runs = [make_run(accuracies, algorithm="adabest", alpha=float(number + 1)) for number in range(100)]
        page = page_of(*runs)
        assert len(page.encode()) < 3_000_000
        lines = data_of(page)["lines"]
        assert len(lines["scored_loss"]) == 100
        assert 100_000 < sum(len(line["mean"]) for drawn in lines.values() for line in drawn) <= 150_000

    def test_a_number_that_is_not_finite_becomes_none(self) -> None:
        assert [curves._five_digits(value) for value in (float("inf"), float("nan"), 0.1234567)] == [
            None,
            None,
            0.12346,
        ]


class TestBadInput:
    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        return store(make_run(), tmp_path / "run")

    def test_no_runs(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"there are no runs in .* or below it$"):
            adabest.write_report(tmp_path, html=tmp_path / "page.html")
        with pytest.raises(InputError, match="there is no such folder"):
            adabest.write_report([tmp_path / "nothing"], html=tmp_path / "page.html")
        with pytest.raises(InputError, match="a report needs folders"):
            adabest.write_report([], html=tmp_path / "page.html")
        Results("table1", []).write(tmp_path / "none.json")
        with pytest.raises(InputError, match=r"there are no results in .*none\.json"):
            adabest.write_report(tmp_path / "none.json", html=tmp_path / "page.html")
        assert not (tmp_path / "page.html").exists()

    def test_places_that_no_page_can_be_written_to(self, run: Path, tmp_path: Path) -> None:
        (tmp_path / "folder.html").mkdir()
        (tmp_path / "file").touch()
        for place, words in {
            run / "config.toml": "ends in .html",
            tmp_path / "folder.html": "is a folder",
            tmp_path / "file" / "page.html": "can't write to the folder",
            run / "page.html": "holds a run",
        }.items():
            with pytest.raises(InputError, match=words):
                adabest.write_report(run, html=place)
        assert (run / "config.toml").read_text(encoding="utf-8").startswith("dataset")

    @pytest.mark.parametrize("target", [0, 1.5, "high"])
    def test_targets(self, target: Any, run: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"target = .*: .*an accuracy (is )?above 0 and at most 1"):
            adabest.write_report(run, html=tmp_path / "page.html", target=target)

    def test_a_damaged_run_is_named(self, run: Path, tmp_path: Path) -> None:
        (run / "metrics.jsonl").write_text('{"round": 1}\n[\n{"round": 2}\n', encoding="utf-8")
        with pytest.raises(InputError, match=r"metrics\.jsonl, line 2 is damaged"):
            adabest.write_report(tmp_path, html=tmp_path / "page.html")

    def test_a_run_without_metrics(self, tmp_path: Path) -> None:
        store(make_run({}, status="running"), tmp_path / "run")
        page = adabest.write_report(tmp_path / "run", html=tmp_path / "page.html").read_text(encoding="utf-8")
        assert "unfinished (killed), round 0" in section(page, "environment")

    def test_a_page_is_replaced_whole_or_not_at_all(
        self, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        page = adabest.write_report(run, html=tmp_path / "page.html")
        before = page.read_bytes()
        assert adabest.write_report(run, html=page).read_bytes() == before

        def full(file: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="No space left"):
            adabest.write_report(run, html=page, target=0.1)
        assert page.read_bytes() == before
        assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "run"]
