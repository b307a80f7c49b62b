"""Ranks that a process forks which has imported everything: each takes milliseconds to start in place of seconds.

As a script, it is that process. It reads requests as lines of JSON and answers each with a line.
"""

import atexit
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ranked import Ended, free_port, plain_environment, rank_environment

HELPERS = Path(__file__).parent


class ForkedProcess:
    """A process that the launcher has forked; its methods are those of ``subprocess.Popen``."""

    def __init__(self, launcher: "Launcher", pid: int) -> None:
        self._launcher, self.pid = launcher, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, minus the signal that killed it; None as long as it runs."""
        if self.returncode is None:
            self.returncode = self._launcher.ask(poll=self.pid)
        return self.returncode

    def wait(self, timeout: float) -> int:
        until = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.005)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Launcher:
    """A process that forks ranks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env=plain_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()  # closes its input, which ends it

    def run(
        self,
        size: int,
        *arguments: Any,
        module: str = "adabest",
        limit: float = 90.0,
        environment: Mapping[str, str] | None = None,
        at_rank: Mapping[int, Mapping[str, Any]] | None = None,
        meanwhile: Callable[[list[ForkedProcess]], None] | None = None,
    ) -> list[Ended]:
        """Runs ``python -m module`` with arguments once a rank, and waits for all of them.

        Args:
            size: The number of ranks.
            *arguments: The arguments.
            module: The module.
            limit: Seconds after which those that still run are killed; their exit code is then -9.
            environment: Further environment variables.
            at_rank: What is different at some ranks: ``arguments``, ``environment`` or ``folder``, where it runs.
            meanwhile: Is called with the processes once they are started.
        """
        port, until = free_port(), time.monotonic() + limit
        with tempfile.TemporaryDirectory() as folder:
            processes = []
            for rank in range(size):
                own = (at_rank or {}).get(rank, {})
                variables = plain_environment() | rank_environment(rank, size, port) | dict(environment or {})
                pid = self.ask(
                    module=module,
                    arguments=[str(word) for word in own.get("arguments", arguments)],
                    environment=variables | own.get("environment", {}),
                    folder=str(own.get("folder", HELPERS)),
                    output=[f"{folder}/{rank}.out", f"{folder}/{rank}.err"],
                )
                processes.append(ForkedProcess(self, pid))
            try:
                if meanwhile is not None:
                    meanwhile(processes)
                for process in processes:
                    process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            finally:
                for process in processes:
                    process.kill()
            return [
                Ended(process.wait(10), *(Path(folder, f"{rank}.{end}").read_text() for end in ("out", "err")))
                for rank, process in enumerate(processes)
            ]


def serve() -> None:
    """Forks processes and tells how they end, until its input is closed."""
    for line in sys.stdin:
        request = json.loads(line)
        answer = _exit_code(request["poll"]) if "poll" in request else _fork(request)
        print(json.dumps(answer), flush=True)


def _exit_code(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _fork(request: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _become(request)
            runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return pid


def _become(request: Mapping[str, Any]) -> None:
    """Takes over the environment, the folder, the arguments and the streams of a request."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = [request["module"], *request["arguments"]]
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    for number, path in enumerate(request["output"], start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)


def _import_everything() -> None:
    import tyro  # noqa: F401
    from tiny_runs import stripes

    import adabest
    import adabest.cli.rank_command
    import adabest.runs.rank_worker
    from adabest.data.loading import load_dataset

    for name in adabest.__all__:
        getattr(adabest, name)
    stripes()
    load_dataset("digits")
    pytest.MonkeyPatch().setattr(os, "fsync", os.fstat)  # ranks don't wait for the disk, as tests don't (conftest.py)


if __name__ == "__main__":
    _import_everything()
    serve()
