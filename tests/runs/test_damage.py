"""Damage to any file that a command reads: it is refused and named, or changes nothing. None is silent.

Files of a finished run, of a killed one, of a comparison and of results are changed one at a time, in the ways in which
disks, editors and careless copies change files. Every command that reads such a file must then print and write what it
did before, or say which file is wrong.
"""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tiny_runs import Killed, break_off, command, ends_after, results, run, tiny

import adabest
from adabest.runs.results_file import Choice, Result, Results, write_choices

MUTATIONS_OF_A_FILE = 150  # in the long test; there are sixteen files, so well over 2,000 in all
MUTATIONS_OF_A_FILE_IN_SHORT = 2

Mutation = Callable[[bytes, random.Random], bytes | None]


def flip_a_bit(content: bytes, draw: random.Random) -> bytes | None:
    if not content:
        return None
    place = draw.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << draw.randrange(8))]) + content[place + 1 :]


def change_a_digit(content: bytes, draw: random.Random) -> bytes | None:
    places = [place for place, byte in enumerate(content) if chr(byte).isdigit()]
    if not places:
        return None
    place = draw.choice(places)
    other = draw.choice([digit for digit in b"0123456789" if digit != content[place]])
    return content[:place] + bytes([other]) + content[place + 1 :]


def cut_off(content: bytes, draw: random.Random) -> bytes | None:
    return content[: draw.randrange(len(content))] if content else None


def drop_a_line(content: bytes, draw: random.Random) -> bytes | None:
    lines = content.splitlines(keepends=True)
    if len(lines) < 2:
        return None
    del lines[draw.randrange(len(lines))]
    return b"".join(lines)


def repeat_a_line(content: bytes, draw: random.Random) -> bytes | None:
    lines = content.splitlines(keepends=True)
    if not lines:
        return None
    place = draw.randrange(len(lines))
    return b"".join([*lines[:place], lines[place], *lines[place:]])


def swap_lines(content: bytes, draw: random.Random) -> bytes | None:
    lines = content.splitlines(keepends=True)
    if len(lines) < 2:
        return None
    one, other = draw.sample(range(len(lines)), 2)
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def add_bytes(content: bytes, draw: random.Random) -> bytes | None:
    return content + draw.choice([b"\x00", b"{}\n", b"seed = 9\n", b'{"round": 5}\n', b" "])


def empty(content: bytes, draw: random.Random) -> bytes | None:
    return b""


def lose(content: bytes, draw: random.Random) -> bytes | None:
    return None


WAYS: tuple[Mutation, ...] = (
    *(flip_a_bit, flip_a_bit, change_a_digit, change_a_digit, cut_off, drop_a_line, repeat_a_line, swap_lines),
    *(add_bytes, empty, lose),
)


class Outcome(NamedTuple):
    """What a command did: what it exited with, what it printed, and the bytes of the file that it wrote."""

    code: int
    out: str
    err: str
    written: bytes


class Reader:
    """The commands that read a folder or a file, and what they do with it."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str], *lines: tuple[str, ...]) -> None:
        self._place, self._capsys, self._lines = place, capsys, lines

    def outcomes(self) -> Iterator[tuple[str, Outcome]]:
        written = self._place.parent / "written.html"
        for line in self._lines:
            written.unlink(missing_ok=True)
            self._capsys.readouterr()
            code = command(*(word.format(place=self._place, out=written) for word in line))
            told = self._capsys.readouterr()
            content = written.read_bytes() if written.is_file() else b""
            yield line[0], Outcome(code, told.out, told.err, content)


def is_named(path: Path, outcome: Outcome) -> bool:
    """Whether a command said that something is wrong with a file, or with what belongs to it."""
    told = outcome.out + outcome.err
    return any(str(name) in told for name in (path, path.with_suffix(".json")))


def silent(before: Outcome, after: Outcome, path: Path) -> bool:
    """Whether a command passed over damage that had an effect."""
    if after.code not in (0, 2, 4):
        return True
    if after == before:
        return False
    return not is_named(path, after)


def mutated(path: Path, content: bytes, draw: random.Random) -> bool:
    """Changes a file in some way; returns whether it is another one now."""
    changed = draw.choice(WAYS)(content, draw)
    if changed is None:
        path.unlink()
        return True
    if changed == content:
        return False
    path.write_bytes(changed)
    return True


def count_silent(reader: Reader, paths: list[Path], draw: random.Random, times: int) -> tuple[int, list[str]]:
    """Damages each file so many times; returns how many mutations there were, and what passed in silence."""
    before = dict(reader.outcomes())
    tried, found = 0, []
    for path in paths:
        content = path.read_bytes()
        for _ in range(times):
            if mutated(path, content, draw):
                tried += 1
                for name, after in reader.outcomes():
                    if silent(before[name], after, path):
                        changed = path.read_bytes() if path.is_file() else None
                        found.append(f"{name} after a change of {path.name}: {after} ({changed!r}, was {content!r})")
            path.write_bytes(content)
    assert dict(reader.outcomes()) == before, "everything is as it was"
    return tried, found


READING = (
    ("show", "{place}"),
    ("list", "{place}"),
    ("verify", "{place}"),
    ("report", "{place}", "--html", "{out}"),
    ("export", "{place}", "--format", "safetensors", "--out", "{out}"),
)


def files_of(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]


@pytest.fixture(
    params=[
        pytest.param(MUTATIONS_OF_A_FILE_IN_SHORT, id="short"),
        pytest.param(MUTATIONS_OF_A_FILE, id="long", marks=pytest.mark.soak),
    ]
)
def times(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_no_damage_to_a_finished_run_is_silent(
    times: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], record_property: Any
) -> None:
    done = run(tmp_path / "run", dataset="digits", clients=10, rounds=2, evaluate_every=1, average_from=0.0, epochs=1)
    reader = Reader(done.folder, capsys, *READING)
    tried, found = count_silent(reader, files_of(done.folder), random.Random(f"finished {times}"), times)
    record_property("mutations", tried)
    assert not found, found[:3]
    assert tried >= times * 5


def test_no_damage_to_a_killed_run_is_silent(
    times: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], record_property: Any
) -> None:
    break_off(tmp_path / "run", 60, checkpoint_every=1)
    reader = Reader(tmp_path / "run", capsys, *READING[:4])
    tried, found = count_silent(reader, files_of(tmp_path / "run"), random.Random(f"killed {times}"), times)
    record_property("mutations", tried)
    assert not found, found[:3]
    assert tried >= times * 5


@pytest.mark.filterwarnings("default:.*checkpoint")
@pytest.mark.filterwarnings("default:.* is passed over")
def test_no_damage_is_resumed_from(
    times: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], record_property: Any
) -> None:
    """A killed run that is resumed after damage ends with the bytes of a run that was never killed, or is refused."""
    straight = results(run(tmp_path / "straight", checkpoint_every=2).folder)
    break_off(tmp_path / "killed", 60, checkpoint_every=2)
    draw, tried = random.Random(f"resumed {times}"), 0
    for number, original in enumerate(files_of(tmp_path / "killed")):
        for again in range(max(1, times // 4)):
            folder = tmp_path / f"{number}-{again}"
            shutil.copytree(tmp_path / "killed", folder)
            path = folder / original.relative_to(tmp_path / "killed")
            if mutated(path, path.read_bytes(), draw):
                tried += 1
                code = command("resume", folder)
                told = capsys.readouterr()
                refused = code == 2 and (str(path) in told.err or path.name == "config.toml")
                assert refused or (code == 0 and results(folder) == straight), (path, told)
            shutil.rmtree(folder)
    record_property("mutations", tried)


def test_no_damage_to_a_comparison_is_silent(
    times: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], record_property: Any
) -> None:
    settings = tiny(rounds=2, evaluate_every=1, target=0.5)
    adabest.compare(algorithms=["fedavg", "adabest"], out=tmp_path / "all", show=False, **settings)
    lines = (("report", "{place}", "--html", "{out}"), ("verify", "{place}"), ("list", "{place}"))
    paths = [tmp_path / "all" / "comparison.toml", *files_of(tmp_path / "all" / "fedavg")[:3]]
    tried, found = count_silent(Reader(tmp_path / "all", capsys, *lines), paths, random.Random(times), times)
    record_property("mutations", tried)
    assert not found, found[:3]


def test_a_changed_comparison_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ends_after(10, Killed), pytest.raises(Killed):
        adabest.compare(algorithms=["fedavg", "adabest"], lanes=1, out=tmp_path / "all", show=False, **tiny())
    path, draw = tmp_path / "all" / "comparison.toml", random.Random(0)
    content = path.read_bytes()
    for _ in range(40):
        if mutated(path, content, draw):
            assert command("resume", tmp_path / "all") == 2
            assert str(tmp_path / "all") in capsys.readouterr().err
        path.write_bytes(content)


def test_no_damage_to_files_of_results_is_silent(
    times: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], record_property: Any
) -> None:
    done = run(tmp_path / "run", rounds=2, evaluate_every=1)
    kept = Result.of(done, "cell", "adabest", {"beta": 0.9})
    choice = Choice("*", "adabest", {"beta": 0.9}, [], 2, [0])
    Results("table1", [kept], [choice]).write(tmp_path / "results.json")
    write_choices(tmp_path / "choices.json", [choice])
    tried = 0
    for name, lines in {
        "results.json": (("report", "{place}", "--html", "{out}"), ("verify", "{place}")),
        "choices.json": (("verify", "{place}"),),
    }.items():
        path = tmp_path / name
        more, found = count_silent(Reader(path, capsys, *lines), [path], random.Random(name), 3 * times)
        tried += more
        assert not found, found[:3]
    record_property("mutations", tried)


def test_damage_that_is_not_damage_has_no_effect(tmp_path: Path) -> None:
    """Another layout of the same settings is the same configuration."""
    done = run(tmp_path / "run")
    path = done.folder / "config.toml"
    path.write_text("# mine\n" + path.read_text().replace("seed = 0", "seed   =   0"))
    assert adabest.load(done.folder).metrics == done.metrics
    manifest = done.folder / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text())))
    assert adabest.load(done.folder).metrics == done.metrics
