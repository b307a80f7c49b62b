"""The parent's side of a measurement: an arm as a process that is started, told to go, and ended."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from typing import Any, NamedTuple

from benchmarks.catalog import Arm
from benchmarks.environments import interpreter
from benchmarks.machine import ROOT

PATIENCE = 1200.0  # seconds for a start or a measurement; the slowest take two minutes
_FAREWELL = 20.0


class ArmFailedError(Exception):
    """An arm ended, or said something else than it should have."""


class Measurement(NamedTuple):
    """What an arm says after it has trained."""

    seconds: float
    peak_memory: int


class Process:
    """An arm that runs.

    Attributes:
        startup_seconds: How long it took from the start of its process until it was warm.
        versions: Its Python's and packages' versions.
    """

    def __init__(self, arm: Arm, task: str, clients: int, rounds: int, patience: float = PATIENCE) -> None:
        """Starts it and waits until it is warm.

        Raises:
            ArmFailedError: If it doesn't get so far.
        """
        command = [interpreter(arm.environment), "-m", f"benchmarks.arms.{arm.module}", "--task", task]
        command += ["--device", arm.device, "--clients-in-parallel", str(clients)]
        command += ["--rounds-per-measurement", str(rounds), *arm.options]
        self._patience = patience
        self._errors = tempfile.TemporaryFile(mode="w+", errors="replace")  # noqa: SIM115  (closed in end)
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**_inherited(arm.environment), **arm.variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        try:
            ready = self._hear("ready", "startup_seconds")
        except ArmFailedError:
            self.end()
            raise
        self.startup_seconds: float = ready["startup_seconds"]
        self.versions: dict[str, str] = ready.get("versions", {})

    def measure(self, patience: float | None = None) -> Measurement:
        """Lets it train and waits for what it says, for so many seconds at most.

        Raises:
            ArmFailedError: If it fails.
        """
        try:
            self._say("go")
        except BrokenPipeError:
            raise ArmFailedError(self._last_words()) from None
        self._patience = patience or self._patience
        said = self._hear("seconds", "peak_memory")
        return Measurement(said["seconds"], said["peak_memory"])

    def end(self) -> None:
        """Asks it to end, and ends it and all that it has started if it doesn't."""
        with contextlib.suppress(BrokenPipeError, ValueError):  # it may have ended, and its input been closed
            self._say("quit")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_FAREWELL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self, *keys: str) -> dict[str, Any]:
        """The next line, which must be an object with the given keys."""
        assert self._process.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            os.killpg(self._process.pid, signal.SIGKILL)

        timer = threading.Timer(self._patience, give_up)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if late.is_set():
            raise ArmFailedError(f"it said nothing for {self._patience:g} seconds")
        if not line:
            raise ArmFailedError(self._last_words())
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict) or any(key not in said for key in keys):
            raise ArmFailedError(f"it should have said {', '.join(keys)}, but said {line.strip()[:200]}")
        return said

    def _last_words(self) -> str:
        """The last line of what it wrote to standard error, which is where Python names an exception."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_FAREWELL)
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        return lines[-1][:300] if lines else f"it ended without a word (exit code {self._process.returncode})"


def _inherited(environment: str | None) -> dict[str, str]:
    """This process's environment variables; another Python must not find this one's packages through them."""
    return {name: value for name, value in os.environ.items() if environment is None or name != "PYTHONPATH"}
