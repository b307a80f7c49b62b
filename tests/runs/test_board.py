"""How runs that are trained together show their progress."""

import io
import sys

import pytest
from clock import Clock
from rich.console import Console
from tiny_runs import tiny

import adabest
from adabest.engine.metrics import Metrics
from adabest.errors import Diverged, Interrupted
from adabest.runs.callbacks import board
from adabest.runs.callbacks.board import Board, LineBoard, LiveBoard, make_board
from adabest.runs.callbacks.memory_use import memory_used


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "memory_used", lambda: 1_250_000_000)


def metrics(accuracy: float) -> Metrics:
    return {"scored_accuracy": accuracy}


class TestLines:
    def test_a_line_about_all_runs_comes_every_five_seconds(self) -> None:
        stream, clock = io.StringIO(), Clock()
        lines = LineBoard([10, 20, 30], stream, clock)
        with lines.reporter("one", 0, 10) as one, lines.reporter("two", 5, 20) as two:
            clock.now += 3.0
            one.show(1, None, 100.0)
            two.show(6, None, 1000.0)
            assert stream.getvalue() == ""
            clock.now += 3.0
            one.show(2, metrics(0.5), 100.0)
            two.show(7, None, 1000.0)
        # 3 rounds in 6 s; 8 + 14 are left of those at work, and 30 of the one that waits.
        assert stream.getvalue().splitlines() == [
            "0 of 3 runs done, 2 at work, the slowest in round 2/10, 1,100 steps/s, 1.2 GB, 104 s left",
            "two: round 7/20, accuracy –",
            "one: round 2/10, accuracy 50.0 %",
        ]
        clock.now += 6.0
        lines.reporter("three", 0, 30).show(1, None, 9.0)
        assert stream.getvalue().splitlines()[-1] == (
            "2 of 3 runs done, 1 at work, the slowest in round 1/30, 9 steps/s, 1.2 GB, 70 s left"
        )

    def test_an_early_end_and_a_divergence_are_told(self) -> None:
        stream = io.StringIO()
        lines = LineBoard([10, 20], stream, Clock())
        with lines.reporter("one", 0, 10) as one:
            one.ends_at(4)
            one.show(4, metrics(0.25), 1.0)
        two = lines.reporter("two", 0, 20)
        two.show(1, None, 1.0)
        with pytest.raises(Diverged), two:
            raise Diverged("the cloud model isn't finite")
        assert stream.getvalue().splitlines() == [
            "one: round 4/4, accuracy 25.0 %",
            "two: round 1/20, accuracy –, diverged: the cloud model isn't finite",
        ]

    def test_an_interruption_is_told_once_elsewhere(self) -> None:
        stream = io.StringIO()
        with pytest.raises(Interrupted), LineBoard([10], stream, Clock()).reporter("one", 0, 10):
            raise Interrupted("enough")
        assert stream.getvalue() == ""

    def test_the_share_of_a_gpu_is_told_where_there_is_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(board, "memory_used", lambda: None)
        lines = LineBoard([10, 20], io.StringIO(), Clock())
        lines.device_share = lambda: 0.934
        assert lines.words() == "0 of 2 runs done, 0 steps/s, GPU 93 % busy"

    def test_memory_that_is_not_known_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(board, "memory_used", lambda: None)
        lines = LineBoard([10, 20], io.StringIO(), Clock())
        assert lines.words() == "0 of 2 runs done, 0 steps/s"


class TestTerminal:
    def drawn(self, runs: int) -> str:
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=True, width=150)
        with LiveBoard([4] * runs, console, Clock()) as live:
            for number in range(runs):
                with live.reporter(f"[lane {number}]", 0, 4) as one:
                    one.show(2, None, 10.0)
                    one.ends_at(3)
                    one.show(3, metrics(0.987), 2000.0)
        return stream.getvalue()

    def test_few_runs_have_a_bar_each(self) -> None:
        text = self.drawn(3)
        assert all(f"[lane {number}]" in text for number in range(3))
        assert "3/3" in text
        assert "accuracy 98.7 %" in text
        assert "3 of 3 runs done" in text

    def test_many_runs_share_a_line(self) -> None:
        text = self.drawn(40)
        assert "lane" not in text
        assert "40 of 40 runs done" in text


class TestChoice:
    def test_the_board_that_suits_is_chosen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert type(make_board([1, 1], 2, show=False)) is Board
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        assert type(make_board([1, 1], 1, show=True)) is Board  # one after another, each as if it were alone
        assert isinstance(make_board([1, 1], 2, show=True), LineBoard)
        monkeypatch.setenv("FORCE_COLOR", "1")  # which rich takes for a terminal
        assert isinstance(make_board([1, 1], 2, show=True), LiveBoard)

    def test_a_comparison_shows_its_progress(self, tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
        adabest.compare(algorithms=["fedavg", "adabest"], out=str(tmp_path), **tiny(rounds=1))
        out, err = capsys.readouterr()
        assert out == ""
        assert [line.split(",")[0] for line in err.splitlines()] == [
            "fedavg (1/2): round 1/1",
            "adabest (2/2): round 1/1",
        ]

    def test_runs_one_after_another_are_shown_as_single_ones(
        self, tmp_path: object, capsys: pytest.CaptureFixture[str]
    ) -> None:
        adabest.compare(algorithms=["fedavg", "adabest"], out=str(tmp_path), lanes=1, **tiny(rounds=1))
        assert [line.split(" ")[-3:] for line in capsys.readouterr().err.splitlines()] == [["0", "s", "left"]] * 2


def test_memory_is_measured() -> None:
    used = memory_used()
    assert used is None or 1e7 < used < 1e12
