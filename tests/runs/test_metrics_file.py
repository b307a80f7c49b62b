"""Metrics on disk: the same numbers as ``json`` gives, read only as far as they are asked for, and damage named."""

import json
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from measured import metrics_file

from adabest.errors import InputError
from adabest.runs.files import metrics_file as module
from adabest.runs.files.metrics_file import MetricsFile

Rows = list[dict[str, Any]]

floats = st.floats(allow_nan=False, allow_infinity=False)


def tables(numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Rows]:
    """Rows of the same metrics in the same order, without their rounds."""
    row = st.tuples(numbers, floats, st.integers(0, 9) | st.none())
    return st.lists(row.map(lambda values: dict(zip(("a", "β", "n"), values, strict=True))), min_size=1)


def typical(count: int) -> Rows:
    """Rows as runs write them: numbers of 16 digits, whole numbers, nothing."""
    random = np.random.default_rng(0)
    return [
        {"round": number, "accuracy": random.random(), "norm": 1e-7 * random.random(), "h": None, "bytes": 10 * number}
        for number in range(1, count + 1)
    ]


def curve_of(rows: Rows, name: str) -> tuple[list[int], list[float]]:
    """A curve in the plainest way."""
    points = [(row["round"], row[name]) for row in rows if row.get(name) is not None and "diverged" not in row]
    return [round_number for round_number, _ in points], [value for _, value in points]


def exactly(curve: tuple[Sequence[int], Sequence[float]]) -> str:
    """A curve as text: equal texts are equal in every bit and type."""
    return repr(curve)


def peak_of(work: Callable[[], object]) -> int:
    """How much memory a piece of work has at once."""
    tracemalloc.start()
    try:
        kept = work()
        _, peak = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return peak


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets short files be read in the way of long ones."""
    monkeypatch.setattr(module, "_WORTHWHILE", 0)


@pytest.fixture
def lines_parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All texts that were parsed as JSON since."""
    parsed: list[str] = []
    loads = json.loads

    def recorded(text: Any, **how: Any) -> Any:
        if not how:  # else it is NumPy, which is being imported
            parsed.append(text)
        return loads(text, **how)

    monkeypatch.setattr(json, "loads", recorded)
    return parsed


class TestNumbers:
    @pytest.mark.parametrize("way", ["line by line", "many lines at once"])
    @given(table=tables(floats | st.integers(-(2**63), 2**63 - 1) | st.none()))
    def test_curves_are_those_of_json(self, table: Rows, way: str) -> None:
        rows = [{"round": 2 * number + 1, **row} for number, row in enumerate(table)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_WORTHWHILE", 0 if way == "many lines at once" else 1 << 30)
            file = metrics_file(rows)
            for name in ("round", "β", "n"):
                assert exactly(file.curve(name)) == exactly(curve_of(rows, name))
            assert file.curve("a") == curve_of(rows, "a")  # in which 1 may have become 1.0, beside other fractions
        assert file.rows() == rows
        assert file.last() == rows[-1]

    @given(table=tables(st.floats(-1e15, 1e15) | st.integers(-(2**53), 2**53) | st.none()))
    @example(table=[{"a": -0.0, "β": 1.5, "n": None}, {"a": 0.0, "β": -0.0, "n": None}])
    def test_both_ways_of_reading_agree(self, table: Rows) -> None:
        block = "".join(json.dumps({"round": number + 1, **row}) + "\n" for number, row in enumerate(table)).encode()
        quickly = module._read_quickly(block, 0)
        slowly = module._by_name(MetricsFile(Path())._parsed(1, block, 0))
        assert quickly is not None
        assert quickly.keys() == slowly.keys()
        for name, piece in quickly.items():
            np.testing.assert_array_equal(piece.points.rounds, slowly[name].points.rounds)
            assert piece.points.values.tobytes() == slowly[name].points.values.tobytes()
            assert (piece.whole, piece.exact) == (slowly[name].whole, slowly[name].exact)

    def test_whole_numbers_too_large_for_floats_stay_what_they_are(self, quick: None) -> None:
        rows = [{"round": 1, "bytes": 2**60 + 1}, {"round": 2, "bytes": 2**53 + 1}]
        assert exactly(metrics_file(rows).curve("bytes")) == repr(([1, 2], [2**60 + 1, 2**53 + 1]))

    def test_blocks_are_joined(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_BLOCK", 3000)
        monkeypatch.setattr(module, "_WORTHWHILE", 0)
        rows = [*typical(200), {"round": 201, "accuracy": 1, "new": 0.5}, {"round": 202, "diverged": "lost"}]
        file = metrics_file(rows)
        for name in ("round", "accuracy", "norm", "h", "bytes", "new", "none"):
            assert file.curve(name) == curve_of(rows, name)
            assert file.points(name).rounds.tolist() == curve_of(rows, name)[0]
        assert file.rows() == rows

    def test_line_ends_of_other_systems_are_read(self, tmp_path: Path, quick: None) -> None:
        rows = typical(5)
        path = tmp_path / "metrics.jsonl"
        path.write_bytes("".join(json.dumps(row) + "\r\n" for row in rows).encode())
        file = MetricsFile(path)
        assert (file.rows(), file.last()) == (rows, rows[-1])
        assert file.curve("accuracy") == curve_of(rows, "accuracy")


class TestEnds:
    def test_no_file_has_no_rows(self, tmp_path: Path) -> None:
        file = MetricsFile(tmp_path / "metrics.jsonl")
        assert (file.rows(), file.last(), file.curve("round")) == ([], {}, ([], []))

    def test_the_last_row_is_that_before_the_divergence(self) -> None:
        lost = {"round": 3, "diverged": "the loss is nan"}
        assert metrics_file([{"round": 1}, {"round": 2}, lost]).last() == {"round": 2}
        assert metrics_file([lost]).last() == {}

    @pytest.mark.parametrize("cut", [b'{"round": 3, "accu', b"{", b'"', b"\xe2\x82", b"\0\0\0", b"[" * 100_000])
    def test_a_line_that_was_being_written_is_left_out(self, tmp_path: Path, cut: bytes) -> None:
        path = tmp_path / "metrics.jsonl"
        path.write_bytes(b'{"round": 1}\n{"round": 2}\n' + cut)
        file = MetricsFile(path)
        assert file.rows() == [{"round": 1}, {"round": 2}]
        assert file.last() == {"round": 2}
        assert file.curve("round") == ([1, 2], [1, 2])

    def test_a_whole_line_without_its_end_counts(self, tmp_path: Path) -> None:
        path = tmp_path / "metrics.jsonl"
        path.write_bytes(b'{"round": 1}\n{"round": 2}')
        file = MetricsFile(path)
        assert file.rows() == [{"round": 1}, {"round": 2}]
        assert file.last() == {"round": 2}
        assert file.curve("round")[0] == [1, 2]

    def test_only_the_bytes_that_count_are_read(self, tmp_path: Path) -> None:
        path = tmp_path / "metrics.jsonl"
        path.write_bytes(b'{"round": 1}\n{"round": 2}\n{"round": 3}\nrubbish\n')
        file = MetricsFile(path, length=26)
        assert file.rows() == [{"round": 1}, {"round": 2}]
        assert file.last() == {"round": 2}
        assert file.curve("round")[0] == [1, 2]
        assert MetricsFile(path, length=0).rows() == []


class TestCost:
    def test_the_last_row_is_found_without_the_others(self, lines_parsed: list[str]) -> None:
        rows = typical(20_000)
        file = metrics_file(rows)
        assert file.last() == file.last() == rows[-1]
        assert len(lines_parsed) == 1

    def test_the_end_is_found_across_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_STEP", 7)
        rows = typical(5)
        assert metrics_file(rows).last() == rows[-1]
        assert metrics_file(rows[:1]).last() == rows[0]

    def test_curves_of_a_long_run_parse_no_line_by_itself(self, lines_parsed: list[str]) -> None:
        rows = typical(20_000)
        assert metrics_file(rows).points("accuracy").values.tolist() == [row["accuracy"] for row in rows]
        assert len(lines_parsed) < 100, "the names of the first line of each block"

    def test_curves_of_a_long_run_take_less_memory_than_its_rows(self) -> None:
        file = metrics_file(typical(20_000))
        metrics_file(typical(2_000)).points("accuracy")  # so that what it imports isn't counted
        assert 2 * peak_of(lambda: file.points("accuracy")) < peak_of(file.rows)

    def test_curves_are_read_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        file = metrics_file(typical(10))
        assert file.curve("accuracy")[0]
        monkeypatch.setattr(MetricsFile, "_blocks", None)
        assert file.curve("norm")[0]


DAMAGED = {
    b"[1]": "it isn't an object",
    b"7": "it isn't an object",
    b"": "Expecting value",
    b"{}": "round should be a whole number from 1, not null",
    b'{"round": 2.0}': "round should be a whole number from 1, not 2.0",
    b'{"round": true}': "round should be a whole number from 1, not true",
    b'{"round": 0}': "round should be a whole number from 1, not 0",
    b'{"round": 1}': "round 1 comes after round 1",
    b'{"round": 2, "a": "x"}': '"a" should be a number or null, not "x"',
    b'{"round": 2, "a": true}': '"a" should be a number or null, not true',
    b'{"round": 2, "a": [1]}': r'"a" should be a number or null, not \[1\]',
    b'{"round": 2, "a": NaN}': '"a" should be a number or null, not NaN',
    b'{"round": 2, "a": 1e999}': '"a" should be a number or null, not Infinity',
    b'{"round": 2, "a": 9223372036854775808}': '"a" should be a number or null, not 9223372036854775808',
    b'{"round": 2, "a": ' + b"1" * 5000 + b"}": "4300",
    b'{"round": 2, "a": "' + b"x" * 5000 + b'"}': r'"a" should be a number or null, not "x{39}…',
    b'{"round": 2, "diverged": 1}': "diverged should be text, not 1",
    b'{"round": 2, "a": \xff}': "utf-8",
    b"[" * 100_000: "it is nested too deeply",
    b'{"round": 2, "a": 0.5.3}': "Expecting ',' delimiter",
    b'{"round": 2, "a": 1-2}': "Expecting ',' delimiter",
    b'{"round": 2, "a": 1e5e5}': "Expecting ',' delimiter",
    b'{"round": 2, "a": 1e5.5}': "Expecting ',' delimiter",
    b'{"round": 2, "a": 1e}': "Expecting ',' delimiter",
    b'{"round": 2, "a": 012}': "Expecting ',' delimiter",
    b'{"round": 2, "a": -00.5}': "Expecting ',' delimiter",
    b'{"round": 2, "a": .5}': "Expecting value",
    b'{"round": 2, "a": 5.}': "Expecting ',' delimiter",
    b'{"round": 2, "a": +1}': "Expecting value",
    b'{"round": 2, "a": -}': "Expecting value",
    b'{"round": 2, "a": nul}': "Expecting value",
    b'{"round": 2, "a": }': "Expecting value",
    b'{"round": 2, "a": 1},': "Extra data",
    b'{"round": 2, "a\\x": 1}': "Invalid .*escape",
    b'{"round": 2, "\xed\xa0\x80": 1}': "utf-8",
    b'{"round": 2 "a": 1}': "Expecting ',' delimiter",
}


class TestDamage:
    @pytest.mark.parametrize("way", ["line by line", "many lines at once"])
    @pytest.mark.parametrize("line", DAMAGED, ids=lambda line: line[:24].decode(errors="replace"))
    def test_a_damaged_line_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes, way: str
    ) -> None:
        monkeypatch.setattr(module, "_WORTHWHILE", 0 if way == "many lines at once" else 1 << 30)
        path = tmp_path / "metrics.jsonl"
        path.write_bytes(b'{"round": 1, "a": 0.5}\n' + line + b'\n{"round": 3, "a": 0.5}\n')
        refusal = rf"metrics\.jsonl, line 2 is damaged: .*{DAMAGED[line]}"
        readers: list[Callable[[], Any]] = [MetricsFile(path).rows, lambda: MetricsFile(path).points("a")]
        for read in readers:
            with pytest.raises(InputError, match=refusal):
                read()
        assert MetricsFile(path).last() == {"round": 3, "a": 0.5}

    @pytest.mark.parametrize(
        "line",
        [line for line in DAMAGED if line != b'{"round": 1}'],
        ids=lambda line: line[:24].decode(errors="replace"),
    )
    def test_a_damaged_end_is_named(self, tmp_path: Path, line: bytes) -> None:
        path = tmp_path / "metrics.jsonl"
        path.write_bytes(b'{"round": 1, "a": 0.5}\n' + line + b"\n")
        with pytest.raises(InputError, match=rf"metrics\.jsonl, line 2 is damaged: .*{DAMAGED[line]}"):
            MetricsFile(path).checked()

    def test_lines_that_are_alike_only_together_are_refused(self, tmp_path: Path, quick: None) -> None:
        path = tmp_path / "metrics.jsonl"
        path.write_bytes(b'{"round": 1, "a": 0.5}, {"round": 2, "a": 0.5}\n{"round": 3, "a": 0.5\n}\n')
        with pytest.raises(InputError, match="line 1 is damaged"):
            MetricsFile(path).points("a")

    def test_the_later_of_two_equal_names_wins_as_in_json(self, tmp_path: Path, quick: None) -> None:
        path = tmp_path / "metrics.jsonl"
        path.write_bytes(b'{"round": 1, "a": 0.5, "a": 0.75}\n')
        assert MetricsFile(path).curve("a") == ([1], [0.75])

    def test_rounds_that_go_back_are_refused_across_blocks(self, monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
        monkeypatch.setattr(module, "_BLOCK", 100)
        rows = [{"round": number, "a": 0.5} for number in [*range(1, 41), *range(21, 30)]]
        file = metrics_file(rows)
        for read in (file.rows, lambda: file.points("a")):
            with pytest.raises(InputError, match="line 41 is damaged: round 21 comes after round 40"):
                read()

    def test_a_line_without_end_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "metrics.jsonl"
        path.write_bytes(b'{"round": 1}\n' + b"0" * 3_000_000)
        for read in (MetricsFile(path).rows, MetricsFile(path).last):
            with pytest.raises(InputError, match="line 2 is damaged: it is longer than 1,048,576 bytes"):
                read()

    def test_a_file_that_cannot_be_read_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "metrics.jsonl"
        path.touch()

        def fail(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", fail)
        for read in (MetricsFile(path).rows, MetricsFile(path).last):
            with pytest.raises(InputError, match=r"can't read .*metrics\.jsonl: Permission denied"):
                read()
