"""Tables and figures out of runs, and how a run shows its progress."""

import dataclasses
import io
import sys
from pathlib import Path

import numpy as np
import pytest
from clock import Clock
from made_runs import make_run
from matplotlib.image import imread
from measured import metrics_file
from rich.console import Console
from small import make_dataset, make_partition

from adabest.report.figure import comparison_figure, partition_figure, save_figure, scenario_figure
from adabest.report.table import (
    Table,
    common_target,
    comparison_table,
    data_words,
    facts_table,
    rounds_to,
    runs_table,
)
from adabest.runs.callbacks.progress import LineReporter, LiveReporter, Reporter, reporter
from adabest.runs.results_file import Result

RISING = make_run({2: 0.5, 4: 0.8, 6: 0.75, 8: 0.9}, h_norm=0.12345)
SLOW = make_run({2: 0.1, 4: 0.2, 6: 0.849})
EMPTY = make_run({}, status="killed")


class TestTable:
    TABLE = Table(("name", "value"), (("a", "1"), ("b, c", "–")), title="things")

    def test_markdown(self) -> None:
        assert self.TABLE.markdown() == "| name | value |\n| --- | ---: |\n| a | 1 |\n| b, c | – |\n"

    def test_a_bar_in_a_cell_is_no_column(self) -> None:
        assert Table(("|S|",), (("|P|n",),)).markdown() == "| \\|S\\| |\n| --- |\n| \\|P\\|n |\n"

    def test_single_stars_are_no_emphasis_in_markdown(self) -> None:
        table = Table(("cells",), (("cifar10/*/* **best**",),))
        assert table.markdown().splitlines()[-1] == "| cifar10/\\*/\\* **best** |"

    def test_csv(self) -> None:
        assert self.TABLE.csv() == 'name,value\na,1\n"b, c",–\n'

    def test_rich(self) -> None:
        text = printed(self.TABLE)
        assert "things" in text
        assert next(line.split() for line in text.splitlines() if "│" in line) == ["│", "a", "│", "1", "│"]
        assert "name" in text

    def test_a_starred_cell_is_bold(self) -> None:
        table = Table(("a", "b"), (("**1** / 2", "**x**"),))
        assert table.markdown().splitlines()[-1] == "| **1** / 2 | **x** |"
        assert table.csv() == "a,b\n1 / 2,x\n"
        assert "1 / 2" in printed(table)
        assert "*" not in printed(table)
        console = Console(file=io.StringIO(), force_terminal=True, color_system="standard")
        console.print(table.rich())
        assert isinstance(console.file, io.StringIO)
        assert "\x1b[1m1\x1b[0m / 2" in console.file.getvalue()

    def test_rich_shows_brackets(self) -> None:
        assert "runs/[best]" in printed(Table(("run",), (("runs/[best]",),)))


def printed(table: Table) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(table.rich())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


class TestNumbers:
    def test_rounds_to(self) -> None:
        assert [rounds_to(RISING, target) for target in (0.1, 0.5, 0.79, 0.8, 0.85, 0.9)] == [2, 2, 4, 4, 8, 8]
        assert rounds_to(RISING, 0.91) is None
        assert rounds_to(EMPTY, 0.1) is None

    def test_the_common_target(self) -> None:
        assert common_target([RISING]) == 0.9
        assert common_target([RISING, SLOW]) == 0.84
        assert common_target([RISING, SLOW, EMPTY]) == 0.0
        assert common_target([]) == 0.0

    def test_a_whole_percentage_is_its_own_target(self) -> None:
        # 0.29 · 100 is 28.999999999999996 in floating point.
        targets = {percent: common_target([make_run({1: percent / 100})]) for percent in range(101)}
        assert {percent: target for percent, target in targets.items() if target != percent / 100} == {}

    def test_a_comparison(self) -> None:
        table = comparison_table({"one": RISING, "two": SLOW}, target=0.8)
        assert table.head == ("algorithm", "accuracy %", "rounds to 80 %", "sent MB", "‖θ‖", "‖h‖")
        assert table.rows == (("one", "90.0", "4", "24.0", "16", "0.123"), ("two", "84.9", "6", "18.0", "12", "–"))
        assert comparison_table({"one": RISING, "two": SLOW}).head[2] == "rounds to 84 %"
        assert comparison_table({"one": RISING}, target=0.955).head[2] == "rounds to 95.5 %"

    def test_runs_that_did_not_finish(self) -> None:
        lost = make_run({2: 0.5}, status="diverged")
        stopped = make_run({2: 0.5, 4: 0.6}, status="interrupted")
        table = comparison_table({"lost": lost, "stopped": stopped, "empty": EMPTY}, target=0.6)
        assert [row[1:3] for row in table.rows] == [
            ("diverged in round 3", "never"),
            ("60.0 (interrupted, round 4)", "4"),
            ("– (killed, round 0)", "never"),
        ]

    def test_a_list_of_runs(self) -> None:
        table = runs_table([RISING, make_run({2: 0.5}, status="diverged"), EMPTY])
        assert [row[1:3] + row[5:] for row in table.rows] == [
            ("finished", "8/9", "90.0"),
            ("diverged", "2/9", "50.0"),
            ("killed", "0/9", "–"),
        ]
        assert table.rows[0][3:5] == ("digits", "adabest")

    def test_facts(self) -> None:
        table = facts_table({"mean_label_entropy": 1.23456, "sizes": [1, 2.5, 3], "name": "x"}, "facts")
        assert table.rows == (("mean label entropy", "1.235"), ("sizes", "1, 2.5, 3"), ("name", "x"))
        assert "┃" not in printed(table)  # no empty head


class TestFigures:
    def test_curves(self) -> None:
        figure = comparison_figure({"one": RISING, "two": SLOW}, "both of them")
        accuracy, norm = figure.axes
        assert figure.get_suptitle() == "both of them"
        assert np.asarray(accuracy.lines[0].get_xydata()).tolist() == [[2, 0.5], [4, 0.8], [6, 0.75], [8, 0.9]]
        assert np.asarray(norm.lines[1].get_xydata()).tolist() == [[2, 4], [4, 8], [6, 12]]
        assert accuracy.get_ylim()[0] == pytest.approx(0.849 - 0.12)  # so that the end can be told apart

    def test_a_figure_says_what_its_bands_are(self) -> None:
        other = make_run({2: 0.7, 4: 0.8, 6: 0.85, 8: 0.9})
        assert comparison_figure({"one": RISING}).get_supxlabel() == ""
        words = "lines: mean over 2 seeds; bands: ± one standard deviation (n − 1)"
        assert comparison_figure({"one": [RISING, other], "two": SLOW}).get_supxlabel() == words
        mixed = comparison_figure({"one": [RISING, other], "two": [RISING, other, other]})
        assert "mean over 2 to 3 seeds" in mixed.get_supxlabel()
        lost = dataclasses.replace(other, status="diverged", reason="lost")
        assert comparison_figure({"one": lost}).get_supxlabel() == "×: diverged"

    def test_a_long_legend_stands_beside_the_panels(self) -> None:
        figure = comparison_figure({str(number): RISING for number in range(9)})
        assert figure.axes[0].get_legend() is None
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == list("012345678")
        figure.draw_without_rendering()
        box = legend.get_window_extent()
        assert figure.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0
        assert not any(box.overlaps(axes.get_window_extent()) for axes in figure.axes)

    def test_rounds_are_whole_numbers(self) -> None:
        for axes in comparison_figure({"one": make_run({2: 0.5, 4: 0.8})}).axes:
            assert all(float(tick).is_integer() for tick in axes.get_xticks())

    def test_nothing_to_draw(self, tmp_path: Path) -> None:
        assert save_figure(comparison_figure({"empty": EMPTY}), tmp_path / "figure")

    def test_many_runs_look_different(self) -> None:
        figure = comparison_figure({str(number): RISING for number in range(14)})
        looks = {(line.get_color(), str(line.get_linestyle())) for line in figure.axes[0].lines}
        assert len(looks) >= 13  # of 14; two dashes of their own are both called --

    def test_several_settings_side_by_side(self) -> None:
        present = [(2, 10), (4, 7), (6, 8), (8, 5)]
        rows = [{**row, "present": count} for row, (_, count) in zip(RISING.metrics, present, strict=True)]
        changing = dataclasses.replace(RISING, measured=metrics_file(rows))
        figure = scenario_figure({"fixed": {"one": RISING, "two": SLOW}, "changing": {"one": changing, "two": SLOW}})
        assert [axes.get_title() for axes in figure.axes] == ["fixed", "changing", "", "", "", ""]
        accuracy, norm = figure.axes[3], figure.axes[5]
        for axes, metric in ((accuracy, "scored_accuracy"), (norm, "cloud_norm")):
            drawn = [np.asarray(line.get_xydata()).tolist() for line in axes.lines]
            assert drawn == [[list(point) for point in zip(*run.curve(metric), strict=True)] for run in (RISING, SLOW)]
        shaded = figure.axes[1].collections[0].get_paths()[0].vertices
        assert {count for _, count in present} <= {height for _, height in np.asarray(shaded).tolist()}
        assert figure.axes[2].get_ylim() == accuracy.get_ylim()

    def test_seeds_are_means_in_every_setting(self) -> None:
        other = make_run({2: 0.7, 4: 0.8, 6: 0.85, 8: 0.9})
        accuracy = scenario_figure({"fixed": {"one": [RISING, other]}}).axes[1]
        means = [[2, 0.6], [4, 0.8], [6, 0.8], [8, 0.9]]
        assert np.asarray(accuracy.lines[0].get_xydata()).tolist() == [pytest.approx(point) for point in means]
        assert accuracy.collections

    def test_results_are_shown_like_runs(self) -> None:
        kept = Result.of(RISING, "cell", "one", {})
        assert comparison_table({"one": kept}, 0.8).rows == comparison_table({"one": RISING}, 0.8).rows
        first, second = (comparison_figure({"one": [run, run]}).axes[0].lines[0].get_xydata() for run in (kept, RISING))
        assert np.array_equal(np.asarray(first), np.asarray(second))

    def test_the_heat_map_shows_the_partition(self) -> None:
        partition = make_partition(make_dataset())
        (image,) = partition_figure(partition, "a title").axes[0].images
        shown = np.asarray(image.get_array()).T
        assert sorted(map(tuple, shown)) == sorted(map(tuple, partition.label_counts))
        assert np.all(np.diff(shown.argmax(axis=1)) >= 0)
        assert shown.sum() == partition.samples.sum()

    def test_a_figure_is_saved_as_png_and_svg(self, tmp_path: Path) -> None:
        paths = save_figure(partition_figure(make_partition(make_dataset())), tmp_path / "p")
        assert paths == [tmp_path / "p.png", tmp_path / "p.svg"]
        assert np.ptp(imread(paths[0])[..., :3]) > 0.5
        assert "<svg" in paths[1].read_text(encoding="utf-8")


class TestProgress:
    def test_lines_come_every_five_seconds_and_at_the_end(self) -> None:
        stream, clock = io.StringIO(), Clock()
        lines = LineReporter("mine", 0, 10, stream, clock)
        for number in range(1, 11):
            clock.now += 2.0
            lines.show(number, {"scored_accuracy": 0.5} if number == 4 else None, 1234.5)
        assert stream.getvalue().splitlines() == [
            "mine: round 3/10, accuracy –, 1,234 steps/s, 14 s left",
            "mine: round 6/10, accuracy 50.0 %, 1,234 steps/s, 8 s left",
            "mine: round 9/10, accuracy 50.0 %, 1,234 steps/s, 2 s left",
            "mine: round 10/10, accuracy 50.0 %, 1,234 steps/s, 0 s left",
        ]

    def test_a_resumed_run_counts_its_own_rounds(self) -> None:
        stream, clock = io.StringIO(), Clock()
        lines = LineReporter("mine", 6, 10, stream, clock)
        clock.now += 7.0
        lines.show(7, None, 1.0)
        assert "21 s left" in stream.getvalue()

    def test_an_unknown_accuracy_changes_nothing(self) -> None:
        stream = io.StringIO()
        lines = LineReporter("mine", 0, 2, stream, Clock())
        lines.show(1, {"scored_accuracy": 0.25}, 1.0)
        lines.show(2, {"scored_accuracy": None}, 1.0)
        assert "accuracy 25.0 %" in stream.getvalue()

    def test_the_bar(self) -> None:
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=True, width=120)
        with LiveReporter("mine", 0, 4, console) as bar:
            bar.show(1, None, 10.0)
            bar.show(4, {"scored_accuracy": 0.987}, 2000.0)
        text = stream.getvalue()
        assert "mine" in text
        assert "4/4" in text
        assert "accuracy 98.7 %" in text
        assert "2,000 steps/s" in text

    def test_the_bar_shows_brackets(self) -> None:
        stream = io.StringIO()
        with LiveReporter("[best]", 0, 1, Console(file=stream, force_terminal=True, width=120)) as bar:
            bar.show(1, None, 1.0)
        assert "[best]" in stream.getvalue()

    def test_the_one_that_suits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert type(reporter("x", 0, 1, show=False)) is Reporter
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        assert isinstance(reporter("x", 0, 1, show=True), LineReporter)
        monkeypatch.setenv("FORCE_COLOR", "1")  # which rich takes for a terminal
        assert isinstance(reporter("x", 0, 1, show=True), LiveReporter)

    def test_nothing_is_nothing(self, capsys: pytest.CaptureFixture[str]) -> None:
        with Reporter() as silent:
            silent.show(1, None, 1.0)
        assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("specification", "words"),
    [
        ("cifar10", "cifar10"),
        ("/home/ann/data/mine.npz", "mine.npz"),
        ("table,path=/home/ann/homes.csv,label=price,labels=numbers,test_share=0.2", "table homes.csv"),
        ("huggingface,name=ann/writers,client=writer", "huggingface writers"),
        ("my_sets:half,path=mine.npz", "my_sets:half mine.npz"),
        ("synthetic,samples=1000000,shape=3x32x32", "synthetic"),
        ("python-object:prices", "prices"),
    ],
)
def test_titles_and_lists_name_data_without_folders_and_options(specification: str, words: str) -> None:
    assert data_words(specification) == words
