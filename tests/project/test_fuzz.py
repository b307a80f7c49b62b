"""Fuzzing in short, and at length: whatever the bytes, a reader refuses them, in time and without much memory."""

import importlib.util
import random
from pathlib import Path

import pytest

if importlib.util.find_spec("resource") is None:  # Windows
    pytest.skip("the driver asks the system for the size of the process", allow_module_level=True)

from fuzz import driver, targets
from fuzz.driver import Escaped, feed
from fuzz.mutation import damaged
from fuzz.seeds import WORDS, seeds_of
from fuzz.targets import TARGETS

READERS = ("npz", "idx", "cifar", "mat", "leaf", "archive", "configuration", "results_file")
SHORT = 150
COMMANDS = 6
LONG = 150_000  # for each reader, so that all together get over a million
LONG_FOLDERS = 20_000  # a load opens ten files
LONG_COMMANDS = 10_000


def test_every_target_has_seeds_and_words() -> None:
    assert TARGETS.keys() == WORDS.keys()
    assert all(seeds_of(name) for name in TARGETS)


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "command_line"])
def test_seeds_are_taken(name: str) -> None:
    assert all(TARGETS[name](seed) for seed in seeds_of(name))


def test_damage_can_be_made_again() -> None:
    made = [damaged(seeds_of("leaf"), WORDS["leaf"], random.Random(f"{number}")) for number in range(100)]
    again = [damaged(seeds_of("leaf"), WORDS["leaf"], random.Random(f"{number}")) for number in range(100)]
    assert made == again
    assert len(set(made)) > 80


@pytest.mark.parametrize("name", [*READERS, "run_folder"])
def test_damaged_inputs_are_refused_or_taken(name: str) -> None:
    fed = feed(name, SHORT)
    assert 0 < fed.taken < SHORT == fed.inputs


def test_commands_end_with_a_documented_code() -> None:
    assert feed("command_line", COMMANDS).inputs == COMMANDS


class TestDriver:
    """It would see what it is there to see."""

    @pytest.fixture(autouse=True)
    def kept_inputs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fed(self, monkeypatch: pytest.MonkeyPatch, target: object) -> str:
        monkeypatch.setitem(TARGETS, "idx", target)
        with pytest.raises(Escaped) as escaped:
            feed("idx", 20)
        return str(escaped.value)

    def test_an_error_that_escapes_is_told_with_its_input(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def raises(data: bytes) -> None:
            raise ZeroDivisionError("by nothing")

        assert "idx, input -1 (" in self.fed(monkeypatch, raises)
        assert "ZeroDivisionError: by nothing" in self.fed(monkeypatch, raises)

    def test_an_error_that_is_only_printed_is_seen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Broken:
            def __del__(self) -> None:
                raise ZeroDivisionError("in the end")

        assert "it was printed, not raised: ZeroDivisionError" in self.fed(monkeypatch, lambda data: bool(Broken()))

    def test_a_hang_is_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def hangs(data: bytes) -> None:
            while True:
                pass

        monkeypatch.setattr(driver, "_MOST_SECONDS", 0.1)
        assert "TimeoutError: it took over 0.1 s" in self.fed(monkeypatch, hangs)

    def test_memory_is_watched(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sizes = iter(range(0, 10**12, 10**9 // 2))
        monkeypatch.setattr(driver, "_largest_size", lambda: next(sizes))
        assert "the process grew by over 1,000,000,000 bytes" in self.fed(monkeypatch, lambda data: True)

    def test_a_survey_counts_what_escapes(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def raises(data: bytes) -> None:
            raise ZeroDivisionError

        monkeypatch.setitem(TARGETS, "idx", raises)
        driver.run(["idx", "--inputs", "7", "--survey"])
        assert "7 × ZeroDivisionError" in capsys.readouterr().out

    def test_an_undocumented_exit_code_is_seen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(targets, "main", lambda arguments: 1)
        with pytest.raises(AssertionError, match="the exit code is 1"):
            targets.fuzz_command_line(b"run")


@pytest.mark.soak
@pytest.mark.parametrize("name", READERS)
def test_parsers_at_length(name: str) -> None:
    print(feed(name, LONG, key=1))


@pytest.mark.soak
def test_run_folders_at_length() -> None:
    print(feed("run_folder", LONG_FOLDERS, key=1))


@pytest.mark.soak
def test_commands_at_length() -> None:
    print(feed("command_line", LONG_COMMANDS, key=1))
