"""Ending early: at a target accuracy, or after some rounds without gain; the same however a run gets there."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tiny_runs import Killed, arguments, command, contents, dies_at, in_pieces, log, results, resume, run, tiny

import adabest
from adabest.errors import InputError, Interrupted
from adabest.report.figure import comparison_figure
from adabest.report.table import comparison_table
from adabest.runs.callbacks.early_stopping import reason_to_stop
from adabest.runs.callbacks.progress import LineReporter, LiveReporter
from adabest.runs.callbacks.run_records import Records
from adabest.runs.settings.resolution import resolve

LONG: dict[str, Any] = {"rounds": 30, "evaluate_every": 1, "algorithm": "fedavg"}


def rows(*accuracies: float, every: int = 1, validation: list[float] | None = None) -> list[dict[str, Any]]:
    held_out: list[Any] = list(validation) if validation else [None] * len(accuracies)
    return [
        {"round": every * (place + 1), "scored_accuracy": accuracy, "validation_accuracy": held_out[place]}
        for place, accuracy in enumerate(accuracies)
    ]


class TestDecision:
    def test_by_default_a_run_goes_on(self) -> None:
        assert reason_to_stop(rows(1.0, 1.0, 0.5, 0.5, 0.5)) is None
        assert reason_to_stop([], stop_at=0.1, stop_after=1) is None

    def test_a_target_that_is_reached_is_a_reason(self) -> None:
        assert reason_to_stop(rows(0.5, 0.8999), stop_at=0.9) is None
        reason = reason_to_stop(rows(0.5, 0.9), stop_at=0.9)
        assert reason == "the scored model's accuracy of 0.9000 reaches stop_at = 0.9"

    def test_the_target_is_on_the_test_set(self) -> None:
        assert reason_to_stop(rows(0.5, validation=[1.0]), stop_at=0.9) is None
        assert reason_to_stop(rows(0.9, validation=[0.1]), stop_at=0.9) is not None

    def test_rounds_without_gain_are_a_reason(self) -> None:
        flat = rows(0.5, 0.7, 0.7, 0.6, 0.7)
        assert [reason_to_stop(flat[:end], stop_after=3) is None for end in range(1, 6)] == [True] * 4 + [False]
        reason = reason_to_stop(flat, stop_after=3)
        assert reason == "no gain in 3 rounds: the best test accuracy is 0.7000, of round 2"

    def test_a_gain_starts_the_count_again(self) -> None:
        assert reason_to_stop(rows(0.5, 0.4, 0.51, 0.4, 0.3, 0.52, 0.52, 0.52), stop_after=3) is None

    def test_rounds_are_counted_not_evaluations(self) -> None:
        flat = rows(0.7, 0.6, 0.6, every=10)
        assert reason_to_stop(flat[:2], stop_after=11) is None
        assert str(reason_to_stop(flat, stop_after=11)).startswith("no gain in 20 rounds")
        assert reason_to_stop(flat[:2], stop_after=10) is not None
        assert reason_to_stop(flat[:1], stop_after=1) is None  # the first is a best one by itself

    def test_validation_clients_decide_if_there_are_any(self) -> None:
        better_on_test = rows(0.1, 0.2, 0.3, validation=[0.6, 0.5, 0.6])
        reason = reason_to_stop(better_on_test, stop_after=2)
        assert reason == "no gain in 2 rounds: the best validation accuracy is 0.6000, of round 1"
        assert reason_to_stop(rows(0.3, 0.2, 0.1, validation=[0.1, 0.2, 0.3]), stop_after=1) is None

    def test_an_accuracy_of_zero_counts(self) -> None:
        """A model that gets everything wrong is as good as its first row, not worse than none."""
        assert str(reason_to_stop(rows(0.0, 0.0), stop_after=1)).endswith("is 0.0000, of round 1")

    def test_rows_without_an_accuracy_do_not_count(self) -> None:
        assert reason_to_stop([*rows(0.5), {"round": 9, "diverged": "lost"}], stop_at=0.9, stop_after=1) is None


class TestRanges:
    @pytest.mark.parametrize("value", [0.0, -0.5, 1.01, 95, float("nan")])
    def test_stop_at_out_of_range_is_refused(self, value: float) -> None:
        with pytest.raises(InputError, match=r"stop_at = .*: (an accuracy is above 0 and at most 1|it should be)"):
            resolve(tiny(stop_at=value))

    def test_stop_after_out_of_range_is_refused(self) -> None:
        with pytest.raises(InputError, match="stop_after = 0: it must be at least 1"):
            resolve(tiny(stop_after=0))

    def test_the_ends_of_ranges_are_allowed(self) -> None:
        config, _ = resolve(tiny(stop_at=1, stop_after=1))
        assert (config.stop_at, config.stop_after) == (1.0, 1)

    def test_goals_are_part_of_the_settings_that_count(self) -> None:
        plain, early = resolve(tiny())[0], resolve(tiny(stop_at=0.9))[0]
        assert plain.digest() != early.digest()


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> adabest.Run:
    """A run to its last round, to look at only."""
    return run(tmp_path_factory.mktemp("full") / "run", **LONG)


@pytest.fixture(scope="module")
def goal(full: adabest.Run) -> tuple[float, int]:
    """An accuracy that isn't there at once, and the round in which it is reached."""
    best = max(row["scored_accuracy"] for row in full.metrics)
    first = next(row["round"] for row in full.metrics if row["scored_accuracy"] == best)
    assert 5 < first < 30
    return best, first


class TestRuns:
    def test_a_run_ends_at_its_target(self, goal: tuple[float, int], full: adabest.Run, tmp_path: Path) -> None:
        early = run(tmp_path / "early", stop_at=goal[0], **LONG)
        assert (early.status, early.round) == ("finished", goal[1])
        assert early.metrics == full.metrics[: goal[1]]
        status = json.loads((early.folder / "status.json").read_text())
        assert status == {"status": "finished", "round": goal[1], "reason": early.reason}
        assert log(early.folder).splitlines()[-1].endswith(f"finished after round {goal[1]}: {early.reason}")
        assert not (early.folder / "checkpoints").exists()

    def test_models_are_those_of_the_last_round(self, goal: tuple[float, int], tmp_path: Path) -> None:
        early = run(tmp_path / "early", stop_at=goal[0], **LONG)
        short = run(tmp_path / "short", **{**LONG, "rounds": goal[1]})
        assert results(early.folder) == results(short.folder)
        assert short.reason is None

    def test_only_evaluated_rounds_count(self, goal: tuple[float, int], full: adabest.Run, tmp_path: Path) -> None:
        every = goal[1] - 1
        seen = [row for row in full.metrics if row["round"] % every == 0 and row["scored_accuracy"] >= goal[0]]
        early = run(tmp_path / "early", stop_at=goal[0], **{**LONG, "evaluate_every": every})
        assert early.round == (seen[0]["round"] if seen else 30)

    @pytest.mark.parametrize("held_out", [0, 1])
    def test_a_run_ends_without_gain(self, held_out: int, tmp_path: Path) -> None:
        early = run(tmp_path / "early", stop_after=4, validation_clients=held_out, **LONG)
        column = "validation_accuracy" if held_out else "scored_accuracy"
        accuracies = [row[column] for row in early.metrics]
        assert early.round == len(accuracies) < 30
        assert max(accuracies[:-4]) == max(accuracies)
        assert early.round - accuracies.index(max(accuracies)) - 1 == 4
        assert str(early.reason).startswith("no gain in 4 rounds")

    def test_the_last_round_is_no_early_end(self, goal: tuple[float, int], tmp_path: Path) -> None:
        whole = run(tmp_path / "whole", stop_at=goal[0], **{**LONG, "rounds": goal[1]})
        assert (whole.status, whole.round, whole.reason) == ("finished", goal[1], None)

    def test_resuming_a_run_that_ended_early_changes_nothing(self, goal: tuple[float, int], tmp_path: Path) -> None:
        early = run(tmp_path / "early", stop_at=goal[0], **LONG)
        before = contents(early.folder)
        assert resume(early.folder) == early
        assert contents(early.folder) == before

    @pytest.mark.parametrize("error", [Interrupted, Killed])
    @pytest.mark.parametrize("stop", ["stop_at", "stop_after"])
    def test_a_run_that_is_broken_off_ends_early_all_the_same(
        self, error: type[BaseException], stop: str, goal: tuple[float, int], tmp_path: Path
    ) -> None:
        changes = {**LONG, stop: goal[0] if stop == "stop_at" else 4, "checkpoint_every": 3}
        straight = run(tmp_path / "straight", **changes)
        assert straight.round < 30
        assert in_pieces(tmp_path / "pieces", 56, error, **changes) >= 2
        assert results(tmp_path / "pieces") == results(straight.folder)
        ended = adabest.load(tmp_path / "pieces")
        assert (ended.status, ended.round, ended.reason) == (straight.status, straight.round, straight.reason)

    def test_a_kill_after_the_last_row_changes_nothing(self, goal: tuple[float, int], tmp_path: Path) -> None:
        """The row says stop, but the models aren't there yet: the rounds since the checkpoint are made again."""
        straight = run(tmp_path / "straight", stop_at=goal[0], **LONG)
        with dies_at(Records, "end", 0), pytest.raises(Killed):
            run(tmp_path / "killed", stop_at=goal[0], checkpoint_every=1, **LONG)
        # The last round isn't checkpointed, and the checkpoint before may still have been on its way.
        assert goal[1] - 2 <= adabest.load(tmp_path / "killed").round <= goal[1] - 1
        resume(tmp_path / "killed")
        assert results(tmp_path / "killed") == results(straight.folder)
        assert adabest.load(tmp_path / "killed").reason == straight.reason


@pytest.mark.usefixtures("no_figure")
class TestTelling:
    def test_the_command_line_tells_of_an_early_end(
        self, goal: tuple[float, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        given = arguments(**tiny(**LONG, stop_at=goal[0]), out=tmp_path / "early")
        for line in (["run", *given], ["resume", tmp_path / "early"]):
            assert command(*line) == 0
            out, err = capsys.readouterr()
            assert f"Ended early in round {goal[1]}: the scored model's accuracy of {goal[0]:.4f} reaches" in out
            assert f"Round {goal[1]}: accuracy {100 * goal[0]:.2f} % (scored)" in out
            assert line[0] == "resume" or f"early: round {goal[1]}/{goal[1]}, accuracy" in err
        assert command("show", tmp_path / "early") == 0
        out = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert f"status finished round {goal[1]} reason the scored model's accuracy" in out
        assert command("list", tmp_path) == 0
        assert f"{goal[1]}/30" in capsys.readouterr().out

    def test_a_whole_run_gives_no_reason(self, full: adabest.Run, capsys: pytest.CaptureFixture[str]) -> None:
        for name in ("show", "resume"):
            assert command(name, full.folder) == 0
            out = capsys.readouterr().out
            assert "reason" not in out
            assert "Ended early" not in out

    def test_a_comparison_tells_of_early_ends(self, goal: tuple[float, int], full: adabest.Run, tmp_path: Path) -> None:
        early = run(tmp_path / "early", stop_at=goal[0], **LONG)
        both = {"early": early, "full": full}
        cells = [row[1] for row in comparison_table(both).rows]
        assert cells == [f"{100 * goal[0]:.1f} (round {goal[1]})", f"{100 * full.final['scored_accuracy']:.1f}"]
        for axes in comparison_figure(both).axes:
            assert [line.get_marker() for line in axes.lines] == ["None", "o", "None"]
            assert np.asarray(axes.lines[1].get_xdata()).tolist() == [goal[1]]

    def test_a_comparison_read_from_its_file_tells_of_early_ends(self, goal: tuple[float, int], tmp_path: Path) -> None:
        (tmp_path / "all.toml").write_text(f"stop_at = {goal[0]}\nalgorithms = ['fedavg', 'adabest']\n")
        changes = tiny(rounds=30, evaluate_every=1)
        done = adabest.compare(tmp_path / "all.toml", out=tmp_path / "all", show=False, **changes)
        assert done.runs["fedavg"].round == goal[1]
        again = adabest.compare(tmp_path / "all.toml", out=tmp_path / "all", show=False, **changes)
        assert again.runs == done.runs

    def test_progress_lines_end_with_the_run(self) -> None:
        stream = io.StringIO()
        lines = LineReporter("mine", 0, 100, stream, lambda: 0.0)
        lines.show(1, None, 5.0)
        lines.ends_at(2)
        lines.show(2, None, 5.0)
        assert stream.getvalue() == "mine: round 2/2, accuracy –, 5 steps/s, 0 s left\n"

    def test_the_bar_ends_with_the_run(self) -> None:
        stream = io.StringIO()
        with LiveReporter("mine", 0, 100, Console(file=stream, force_terminal=True, width=120)) as bar:
            bar.ends_at(2)
            bar.show(2, None, 5.0)
        assert "2/2" in stream.getvalue()


def test_a_round_without_a_validation_value_is_not_judged_by_the_test_set() -> None:
    validated = [0.6, None, 0.7, 0.7, None]
    rows = [
        {"round": number, "scored_accuracy": 0.9, "validation_accuracy": value}
        for number, value in enumerate(validated, start=1)
    ]
    assert reason_to_stop(rows[:4], stop_after=2) is None
    assert "the best validation accuracy is 0.7000, of round 3" in str(reason_to_stop(rows, stop_after=2))
