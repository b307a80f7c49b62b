"""Commands end with one line and a documented exit code, whatever the machine does; only bugs have tracebacks."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO, cast

import pytest
import torch
from tiny_runs import HELPERS, arguments, command, results, resume, run, tiny

import adabest
from adabest.cli import failures, output
from adabest.cli.exit_codes import MEANINGS
from adabest.errors import InputError, how_to_go_on, leave_at_once, naming_file, note_how_to_go_on
from adabest.runs.callbacks.base import RunView
from adabest.runs.callbacks.checkpoints import Checkpoints
from adabest.runs.callbacks.progress import Heedless
from adabest.runs.files.folder import RunFolder

needs_full_device = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no device that is always full")


def shell(line: str, **environment: str) -> tuple[int, str, str]:
    """A line of shell in which ``$A`` is the command; its exit code, and what it printed."""
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        cwd=HELPERS,
        env={**os.environ, "A": f"{sys.executable} -m adabest", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a shell is needed")
class TestStandardOutput:
    @pytest.mark.parametrize("buffered", ["", "1"])
    def test_a_closed_pipe_ends_without_a_word(self, buffered: str) -> None:
        # What is read is nothing: the reader is gone before the first line.
        done = shell("(sleep 0.5; $A --version) | true", PYTHONUNBUFFERED=buffered)
        assert done == (141, "", "")

    def test_tables_end_without_a_word(self, tmp_path: Path) -> None:
        """The console would exit with a code of its own."""
        run(tmp_path / "run", rounds=1)
        assert shell(f"(sleep 0.5; $A list {tmp_path}) | true") == (141, "", "")

    @needs_full_device
    @pytest.mark.parametrize("buffered", ["", "1"])
    def test_a_full_disk_is_told(self, buffered: str) -> None:
        code, _, said = shell("$A --version > /dev/full", PYTHONUNBUFFERED=buffered)
        assert (code, said) == (5, "adabest: standard output: No space left on device\n")

    def test_closed_from_the_beginning_is_no_failure(self) -> None:
        assert shell("$A --version >&-") == (0, "", "")

    def test_standard_error_may_be_closed_or_full(self, tmp_path: Path) -> None:
        """Files that are opened next must not take its place and be printed into."""
        given = " ".join(arguments(**tiny(rounds=2, evaluate_every=1), out=tmp_path / "run"))
        code, out, _ = shell(f"$A run {given} 2>&- <&-")
        assert (code, out.splitlines()[-1]) == (0, f"Written to {tmp_path / 'run'}")
        assert results(tmp_path / "run") == results(run(tmp_path / "again", rounds=2, evaluate_every=1).folder)


class TestTold:
    @pytest.mark.parametrize(
        ("error", "code", "words"),
        [
            (OSError(errno.ENOSPC, "No space left on device", "a/b"), 5, "a/b: No space left on device"),
            (OSError(errno.EIO, "Input/output error"), 5, "Input/output error"),
            (OSError("odd"), 5, "odd"),
            (OSError(errno.EXDEV, "Invalid cross-device link", "a", None, "b"), 5, "a → b: Invalid cross-device link"),
            (OSError(errno.EBADF, "Bad file descriptor", 7), 5, "7: Bad file descriptor"),
            (PermissionError(errno.EACCES, "Permission denied", b"raw"), 5, "raw: Permission denied"),
            (MemoryError(), 5, "out of memory"),
            (MemoryError("Unable to allocate 7 TiB"), 5, "out of memory: Unable to allocate 7 TiB"),
            (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes\nmore"), 5, "out of memory: Default"),
            (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), 5, "out of memory: CUDA out of memory"),
            (KeyboardInterrupt(), 130, "interrupted; a run that was begun can be resumed"),
            (InputError("bad"), 2, "bad"),
        ],
    )
    def test_an_error_is_told_in_one_line(
        self, error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert failures.tell_failure(error) == code
        said = capsys.readouterr().err
        assert said.startswith(f"adabest: {words}")
        assert said.count("\n") == 1

    def test_a_full_disk_is_no_bad_input(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Wherever it is noticed."""
        for number, code in ((errno.ENOSPC, 5), (errno.EACCES, 2)):
            error = InputError("can't write")
            error.__cause__ = OSError(number, "words")
            assert failures.tell_failure(error) == code
        assert capsys.readouterr().err == "adabest: can't write\n" * 2

    @pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyError("a bug"), SystemExit(2)])
    def test_a_bug_has_a_traceback(self, error: BaseException) -> None:
        with pytest.raises(type(error)):
            failures.tell_failure(error)

    def test_a_closed_pipe_has_no_words(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert failures.tell_failure(BrokenPipeError()) == 141
        assert capsys.readouterr().err == ""

    def test_nobody_to_hear_it_is_no_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Broken:
            def write(self, text: str) -> int:
                raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr("sys.stderr", Broken())
        assert failures.tell_failure(InputError("bad")) == 2

    def test_how_to_go_on_is_told(self, capsys: pytest.CaptureFixture[str]) -> None:
        error = OSError(errno.ENOSPC, "No space left on device", "a")
        note_how_to_go_on(error, "first words")
        note_how_to_go_on(error, "better words")
        error.add_note("a note of someone else's")
        assert how_to_go_on(error) == "To go on: better words"
        failures.tell_failure(error)
        assert capsys.readouterr().err == "adabest: a: No space left on device. To go on: better words\n"

    def test_a_file_keeps_its_name(self) -> None:
        with pytest.raises(OSError, match="words: 'mine'"), naming_file("mine"):
            raise OSError(errno.EIO, "words")
        with pytest.raises(OSError, match="words: 'another'"), naming_file("mine"):
            raise OSError(errno.EIO, "words", "another")


def failing(owner: Any, name: str, calls: int, monkeypatch: pytest.MonkeyPatch, number: int = errno.ENOSPC) -> None:
    """Makes a function fail as a full disk does, once it has been called so often."""
    original, left = getattr(owner, name), calls

    def counted(*given: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(number, os.strerror(number))
        return original(*given, **options)

    monkeypatch.setattr(owner, name, counted)


class TestRuns:
    @pytest.mark.parametrize("calls", range(0, 18, 3))
    def test_a_full_disk_is_told_with_the_way_to_resume(
        self, calls: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        settings = tiny(rounds=3, evaluate_every=1, checkpoint_every=1)
        folder = tmp_path / "run"
        with pytest.MonkeyPatch.context() as patch:
            failing(os, "fsync", calls, patch)
            code = command("run", *arguments(**settings, out=folder))
        said = capsys.readouterr().err.splitlines()[-1]
        assert code == 5, said
        assert "No space left on device" in said
        assert str(folder) in said
        begun = RunFolder(folder).holds_run()
        assert said.endswith(f"resume with: adabest resume {folder}" if begun else "begin the run again")
        done = resume(folder) if begun else run(folder, overwrite=True, **settings)
        assert results(done.folder) == results(run(tmp_path / "straight", **settings).folder)

    def test_python_gets_the_error_itself(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        failing(os, "fsync", 11, monkeypatch, errno.EIO)
        with pytest.raises(OSError, match=r"Input/output error: '.*run") as caught:
            run(tmp_path / "run", checkpoint_every=1)
        assert "adabest resume" in how_to_go_on(caught.value)

    def test_other_lanes_save_what_they_have(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        append = RunFolder.append

        def full(self: RunFolder, name: str, row: Any) -> bytes:
            if self.path.name == "fedavg" and row.get("round") == 3:
                raise OSError(errno.EFBIG, "File too large", str(self / name))
            return append(self, name, row)

        given = ["--algorithms", "fedavg", "adabest"]
        settings = tiny(evaluate_every=1, checkpoint_every=0)
        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, "append", full)
            assert command("compare", *given, *arguments(**settings, out=tmp_path / "all")) == 5
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith(f"adabest: {tmp_path / 'all' / 'fedavg' / 'metrics.jsonl'}: File too large. To go on: ")
        assert said.endswith(f"adabest resume {tmp_path / 'all'}")
        assert adabest.load(tmp_path / "all" / "adabest").round >= 2
        assert command("resume", tmp_path / "all") == 0
        assert command("compare", *given, *arguments(**settings, out=tmp_path / "straight")) == 0
        for label in ("fedavg", "adabest"):
            assert results(tmp_path / "all" / label) == results(tmp_path / "straight" / label)

    @pytest.mark.parametrize("loss", [lambda path: path.rename(path.with_name("elsewhere")), shutil.rmtree])
    def test_a_folder_that_is_gone_is_named(
        self,
        loss: Callable[[Path], Any],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        folder, save = tmp_path / "run", Checkpoints.save

        def lose(saving: Checkpoints, run: RunView) -> float:
            seconds = save(saving, run)
            run.files.background.finish()  # else it would put files into the folder while they are removed
            loss(folder)
            return seconds

        monkeypatch.setattr(Checkpoints, "save", lose)
        assert command("run", *arguments(**tiny(checkpoint_every=1), out=folder)) == 5
        said = capsys.readouterr().err.splitlines()[-1]
        assert re.match(rf"adabest: {folder}\S*: No such file or directory\. To go on: put the folder", said), said

    def test_too_little_memory_is_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def greedy(*given: Any, **options: Any) -> Any:
            return torch.empty(10**15)

        monkeypatch.setattr("adabest.engine.simulation.Simulation.round", greedy)
        assert command("run", *arguments(**tiny(), out=tmp_path / "run")) == 5
        said = capsys.readouterr().err.splitlines()[-1]
        assert said.startswith("adabest: out of memory: ")
        assert said.endswith(f"resume with: adabest resume {tmp_path / 'run'}")

    def test_list_goes_on_after_a_run_that_cannot_be_read(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for name in ("a", "b", "c", "d"):
            run(tmp_path / name, rounds=1, evaluate_every=1)
        (tmp_path / "a" / "status.json").write_text('{"status": "finished"}')
        (tmp_path / "b" / "identity.json").write_text('{"partition": 3}')
        (tmp_path / "c" / "metrics.jsonl").write_text('{"round": 1, "scored_accuracy": "high"}\n')
        assert command("list", tmp_path) == 0
        printed = capsys.readouterr()
        assert printed.out.count("finished") == 1
        assert [line.split(" is left out: ")[0] for line in printed.err.splitlines()] == [
            f"adabest: {tmp_path / name}" for name in "abc"
        ]
        for name, words in (
            ("a", "status.json lacks round"),
            ("b", "identity.json isn't the file that this run wrote"),
        ):
            assert command("show", tmp_path / name) == 2
            assert words in capsys.readouterr().err

    def test_a_damaged_model_is_named(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run(tmp_path / "run", rounds=1)
        place = tmp_path / "run" / "model.safetensors"
        place.write_bytes(place.read_bytes()[:100])
        assert (
            command("export", tmp_path / "run", "--format", "safetensors", "--out", tmp_path / "out.safetensors") == 2
        )
        assert f"{place} isn't the file that this run wrote" in capsys.readouterr().err

    def test_a_lost_identity_is_named(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run(tmp_path / "run", rounds=1)
        (tmp_path / "run" / "identity.json").unlink()
        assert (
            command("export", tmp_path / "run", "--format", "safetensors", "--out", tmp_path / "out.safetensors") == 2
        )
        assert "identity.json is missing" in capsys.readouterr().err


class TestStreams:
    def test_progress_that_cannot_be_shown_is_no_failure(self) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        stream = Heedless(open(writer, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        assert stream.write("words\n") == 6
        stream.flush()
        assert stream.encoding == "utf-8"
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, writer)  # or closing it would fail
        for file in (nowhere, writer):
            os.close(file)

    def test_a_broken_stream_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "w", encoding="utf-8") as stream:
            stream.write("words")
            monkeypatch.setattr("sys.stdout", stream)
            failures.close_streams()
            stream.flush()

    def test_closed_standard_streams_are_opened(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("stdin", "stdout", "stderr"):
            monkeypatch.setattr(sys, name, None)
        failures.open_streams()
        opened = [cast(TextIO, getattr(sys, name)) for name in ("stdin", "stdout", "stderr")]
        assert [stream.name for stream in opened] == [os.devnull] * 3
        for stream in opened:
            stream.close()

    def test_the_console_passes_a_closed_pipe_on(self) -> None:
        with pytest.raises(BrokenPipeError):
            output.console().on_broken_pipe()


class TestInterrupts:
    @pytest.fixture
    def left(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        codes: list[int] = []

        def leave(code: int) -> None:
            codes.append(code)
            raise SystemExit(code)

        monkeypatch.setattr(os, "_exit", leave)
        monkeypatch.setattr(failures, "_PATIENCE", 60.0)
        return codes

    def test_an_interrupt_while_importing_ends_the_process_at_once(
        self, left: list[int], capfd: pytest.CaptureFixture[str]
    ) -> None:
        interrupts = failures.Interrupts()
        with pytest.raises(SystemExit):
            interrupts._hear(signal.SIGINT, None)
        assert left == [130]
        assert capfd.readouterr().err == "adabest: interrupted; a run that was begun can be resumed\n"

    def test_an_interrupt_after_importing_is_an_exception(self, left: list[int]) -> None:
        interrupts = failures.Interrupts()
        before = signal.getsignal(signal.SIGINT)
        try:
            interrupts.install()
            interrupts.importing = False
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            interrupts.end()
            assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
            assert interrupts._timer is not None
            assert interrupts._timer.finished.is_set(), "what would end the process is disarmed"
        finally:
            signal.signal(signal.SIGINT, before)
        assert left == []

    def test_an_interrupt_that_cannot_be_raised_ends_the_process(
        self, left: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        others: list[Any] = []
        monkeypatch.setattr(sys, "__unraisablehook__", others.append)
        interrupts = failures.Interrupts()
        interrupts.hear_unraisable(SimpleNamespace(exc_value=ValueError()))
        assert (len(others), left) == (1, [])
        with pytest.raises(SystemExit):
            interrupts.hear_unraisable(SimpleNamespace(exc_value=KeyboardInterrupt()))
        assert left == [130]

    def test_a_hidden_cursor_is_shown_again(
        self, left: list[int], monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        monkeypatch.setattr(os, "isatty", lambda number: True)
        with pytest.raises(SystemExit):
            leave_at_once("words", 130)
        assert capfdbinary.readouterr().err == b"\r\x1b[?25hadabest: words\n"


def test_a_working_directory_that_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    place.rmdir()
    assert command("list") == 2
    assert capsys.readouterr().err == "adabest: there are no runs below runs\n"


def test_a_command_line_of_thousands_of_words_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("run", *["--model", "logistic"] * 10_001, "--rounds", 0) == 2
    assert capsys.readouterr().err == "adabest: rounds = 0: it must be at least 1\n"


def test_every_exit_code_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|", page, flags=re.MULTILINE)
    assert [int(row) for row in rows] == list(MEANINGS)


class TestLazyPackage:
    def test_the_version_needs_no_torch(self) -> None:
        code = "import sys, adabest.cli; adabest.cli.main(['--version']); print('torch' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == [f"adabest {adabest.__version__}", "False"]

    def test_all_public_names_are_there(self) -> None:
        assert set(adabest.__all__) <= set(dir(adabest))
        for name in adabest.__all__:
            assert getattr(adabest, name) is not None

    def test_an_unknown_name_is_refused(self) -> None:
        with pytest.raises(AttributeError, match="module 'adabest' has no attribute 'nothing'"):
            adabest.nothing  # noqa: B018
