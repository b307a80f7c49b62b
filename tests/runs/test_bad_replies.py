"""Bad replies in the folder of a run: its metrics, its log, what is shown of it, and what a kill leaves of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import Killed, Quiet, break_off, command, log, results, resume, run

import adabest
from adabest.algorithms.catalog import CORE
from adabest.engine.gate import GateNotes, Rejection
from adabest.errors import InputError
from adabest.experiments.run_list import show
from adabest.runs.callbacks.run_records import _lists
from adabest.runs.files.metrics_file import MetricsFile, ReplyNotes

# Clients with fewer than 20 samples send NaN in rounds 2 and 3; rounds 2, 4 and 5 are evaluated.
SOUR: dict[str, Any] = {"algorithm": "spoiled:Sour", "unbalance": 1.0, "participation": 1.0}
WHOLE: dict[str, Any] = {**SOUR, "below": 10**6, "rounds": 14, "evaluate_every": 14}


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def sour(tmp_path_factory: pytest.TempPathFactory) -> adabest.Run:
    return run(tmp_path_factory.mktemp("sour") / "run", **SOUR)


class TestRecords:
    def test_metrics_tell_each_reply_once(self, sour: adabest.Run) -> None:
        rows = lines(sour.folder)
        assert sour.status == "finished"
        assert [row["round"] for row in rows] == [2, 4, 5]
        told = [[(number, client) for number, client, _ in row.get("rejections", [])] for row in rows]
        small = [client for number, client in told[0]]
        assert len(small) > 1
        assert told == [[(2, client) for client in small], [(3, client) for client in small], []]
        assert [row["rejected"] for row in rows] == [len(small), 2 * len(small), 2 * len(small)]
        assert all("skips" not in row and "unanswered" not in row for row in rows)
        assert {reason for row in rows for *_, reason in row.get("rejections", [])} == {"its field model isn't finite"}

    def test_rows_are_numbers(self, sour: adabest.Run) -> None:
        assert all(isinstance(value, int | float | None) for row in sour.metrics for value in row.values())
        assert sour.curve("rejected")[0] == [2, 4, 5]
        assert sour.final["rejected"] == len(sour.rejections)

    def test_a_run_gives_its_rejections(self, sour: adabest.Run) -> None:
        told = [Rejection(*one) for row in lines(sour.folder) for one in row.get("rejections", [])]
        assert sour.rejections == told
        assert sour.skips == []

    def test_the_log_tells_each(self, sour: adabest.Run) -> None:
        told = log(sour.folder)
        assert all(told.count(rejection.words()) == 1 for rejection in sour.rejections)

    def test_show_lists_them(self, sour: adabest.Run, capsys: pytest.CaptureFixture[str]) -> None:
        tables = show(sour.folder)
        assert [row[:2] for row in tables["rejections"].rows] == [(str(r), str(c)) for r, c, _ in sour.rejections]
        assert ("rejected", str(len(sour.rejections))) in tables["result"].rows
        assert command("show", sour.folder) == 0
        assert "isn't finite" in capsys.readouterr().out

    def test_callbacks_and_trackers_get_numbers(self, tmp_path: Path) -> None:
        Quiet.heard.clear()
        run(tmp_path / "run", **SOUR, callbacks=["tiny_runs:Quiet"])
        rows = [row for what, row in Quiet.heard if what == "log"]
        assert [row["rejected"] > 0 for row in rows] == [True] * 3
        assert not any({"rejections", "skips"} & row.keys() for row in rows)


class TestSkippedRounds:
    def test_they_are_told(self, tmp_path: Path) -> None:
        skipping = run(tmp_path / "run", **WHOLE)
        (row,) = lines(skipping.folder)
        assert (row["unanswered"], row["skips"]) == (2, [2, 3])
        assert len(row["rejections"]) == row["rejected"]
        assert skipping.skips == [2, 3]
        told = log(skipping.folder)
        assert "round 2 is skipped: no reply was accepted" in told
        assert ("unanswered", "2") in show(skipping.folder)["result"].rows

    def test_ten_in_a_row_end_the_run(self, tmp_path: Path) -> None:
        lost = run(tmp_path / "run", **WHOLE, last=12)
        assert (lost.status, lost.round) == ("diverged", 11)
        assert "no reply was accepted in 10 rounds in a row" in str(lost.reason)
        (row,) = lines(lost.folder)
        assert row["skips"] == list(range(2, 12))
        assert (row["unanswered"], row["rejected"]) == (10, len(row["rejections"]))
        assert (row["round"], row["diverged"]) == (11, lost.reason)
        assert len(lost.rejections) == row["rejected"]
        assert lost.final == {}
        tables = show(lost.folder)
        assert ("unanswered", "10") in tables["result"].rows
        assert len(tables["rejections"].rows) == 21
        assert tables["rejections"].rows[-1] == ("…", "…", f"and {row['rejected'] - 20} more")
        told = log(lost.folder)
        assert told.count("is left out: its field") == 21  # twenty, and the last as the reason of the end
        assert f"{row['rejected'] - 20} more replies are left out; metrics.jsonl has them" in told

    def test_a_run_that_a_bad_reply_ends_tells_it(self, tmp_path: Path) -> None:
        lost = run(tmp_path / "run", **SOUR, bad_replies="stop")
        assert (lost.status, lost.round) == ("diverged", 2)
        assert lost.reason == lost.rejections[0].words()
        assert {rejection.round for rejection in lost.rejections} == {2}


class TestKills:
    # A round of eight clients has from 8 to 40 local steps; evaluations and checkpoints of every round are in between.
    @pytest.mark.parametrize("beats", [60, 80, 100, 120, 140])
    @pytest.mark.parametrize("settings", [SOUR | {"evaluate_every": 5}, WHOLE], ids=["some", "all"])
    def test_none_is_lost_between_a_rejection_and_the_next_evaluation(
        self, beats: int, settings: dict[str, Any], tmp_path: Path
    ) -> None:
        whole = run(tmp_path / "whole", **settings)
        assert whole.rejections
        break_off(tmp_path / "killed", beats, Killed, **settings, checkpoint_every=1)
        assert (tmp_path / "killed" / "checkpoints").is_dir()
        done = resume(tmp_path / "killed", allow=["spoiled:Sour"])
        assert results(tmp_path / "killed") == results(tmp_path / "whole")
        assert done.rejections == whole.rejections

    def test_the_running_median_survives(self, tmp_path: Path) -> None:
        settings: dict[str, Any] = {"unbalance": 1.0, "reply_limit": "1.2x", "rounds": 6}
        whole = run(tmp_path / "whole", **settings)
        assert whole.rejections
        assert "; the limit is " in whole.rejections[0].reason
        break_off(tmp_path / "killed", 75, Killed, **settings, checkpoint_every=1)
        assert resume(tmp_path / "killed").rejections == whole.rejections
        assert results(tmp_path / "killed") == results(tmp_path / "whole")


@pytest.mark.parametrize("name", CORE)
def test_runs_without_bad_replies_have_no_trace_of_the_gate(name: str, tmp_path: Path) -> None:
    plain = run(tmp_path / "plain", algorithm=name)
    strict = run(tmp_path / "strict", algorithm=name, bad_replies="stop", reply_limit="1e6")
    assert results(plain.folder) == results(strict.folder)
    assert b"reject" not in (plain.folder / "metrics.jsonl").read_bytes()
    assert not plain.rejections
    assert not plain.skips
    assert "rejections" not in show(plain.folder)
    assert plain.config.essence().keys().isdisjoint({"bad_replies", "reply_limit"})


@pytest.mark.parametrize("limit", ["-1", "abc", "0x", "nan"])
def test_a_limit_that_is_none_is_refused_before_anything_is_written(limit: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"reply_limit = '{limit}' isn't one: it should be none, a norm above 0"):
        run(tmp_path / "run", reply_limit=limit)
    assert not (tmp_path / "run" / "config.toml").exists()


class TestFile:
    def write(self, tmp_path: Path, *more: str) -> MetricsFile:
        path = tmp_path / "metrics.jsonl"
        path.write_text("".join(f'{{"round": {n}, "rejected": 2{text}}}\n' for n, text in enumerate(more, start=1)))
        return MetricsFile(path)

    def test_notes_are_gathered(self, tmp_path: Path) -> None:
        file = self.write(
            tmp_path, ', "rejections": [[1, 0, "odd"]], "skips": [1]', "", ', "rejections": [[3, 7, "x"]]'
        )
        assert file.notes() == ReplyNotes(2, 0, (Rejection(1, 0, "odd"), Rejection(3, 7, "x")), (1,))
        assert file.rows() == [{"round": n, "rejected": 2} for n in (1, 2, 3)]
        assert file.curve("rejected") == ([1, 2, 3], [2, 2, 2])

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ('"rejections": 3', "rejections should be a list of [round, client, reason], not 3"),
            ('"rejections": [[1, 2]]', "rejections should be a list of [round, client, reason]"),
            ('"rejections": [[0, 2, "x"]]', "rejections should be"),
            ('"rejections": [[1, -2, "x"]]', "rejections should be"),
            ('"rejections": [[1, 2, 3]]', "rejections should be"),
            ('"rejections": [[1.5, 2, "x"]]', "rejections should be"),
            ('"rejections": [[1, true, "x"]]', "rejections should be"),
            ('"rejections": [[1, 2, "\\ud800"]]', "rejections should be"),
            ('"skips": "all"', 'skips should be a list of rounds, not "all"'),
            ('"skips": [0]', "skips should be a list of rounds"),
            ('"skips": null', "skips should be a list of rounds"),
        ],
    )
    def test_damage_is_told_with_the_line(self, text: str, problem: str, tmp_path: Path) -> None:
        for read in (MetricsFile.notes, MetricsFile.rows, lambda file: file.points("rejected")):
            file = self.write(tmp_path, "", f", {text}", "")
            with pytest.raises(InputError) as caught:
                read(file)
            assert str(caught.value).startswith(f"{tmp_path / 'metrics.jsonl'}, line 2 is damaged: {problem}")

    def test_a_long_file_with_lists_is_read_alike(self, tmp_path: Path) -> None:
        rare = ', "rejections": [[7, 1, "its \\": 3 is odd"]], "skips": [7]'
        file = self.write(tmp_path, *(rare if number % 1000 == 7 else "" for number in range(20_000)))
        points = file.points("rejected")
        assert points.rounds.tolist() == list(range(1, 20_001))
        assert set(points.values.tolist()) == {2.0}
        assert len(file.notes().rejections) == 20

    def test_very_many_rejections_fit_into_a_line(self, tmp_path: Path) -> None:
        many = tuple(Rejection(number, 1, "its field model isn't finite") for number in range(1, 50_001))
        lists = _lists(GateNotes(rejected=len(many), rejections=many, skips=tuple(range(1, 50_001))))
        path = tmp_path / "metrics.jsonl"
        path.write_text(json.dumps({"round": 50_000, "rejected": len(many), "unanswered": 50_000, **lists}) + "\n")
        notes = MetricsFile(path).notes()
        assert (notes.rejected, notes.unanswered) == (50_000, 50_000)
        assert 10_000 < len(notes.rejections) < 50_000
        assert notes.rejections == many[: len(notes.rejections)]
