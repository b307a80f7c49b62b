"""Processes of a torchrun job, started by hand: torchrun itself takes seconds."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import adabest

IMPORTED = (Path(adabest.__file__).parents[1], Path(__file__).parent)


@dataclass(frozen=True)
class Ended:
    """How one process ended: its exit code (minus the signal that killed it), and what it wrote."""

    code: int
    stdout: str
    stderr: str


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def plain_environment() -> dict[str, str]:
    """This process's environment, with one thread a process, our packages, and no job of torchrun."""
    ours = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, IMPORTED)), "PYTHONWARNINGS": "error"}
    theirs = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_")
    return {name: value for name, value in os.environ.items() if not name.startswith(theirs)} | ours


def rank_environment(rank: int, size: int, port: int) -> dict[str, str]:
    """What torchrun would set for one of the processes of a node."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def run_ranks(
    arguments: Sequence[str],
    size: int,
    *,
    limit: float = 90.0,
    environment: Mapping[str, str] | None = None,
    started: Sequence[int] | None = None,
    meanwhile: Callable[[list[subprocess.Popen[str]]], None] | None = None,
) -> list[Ended]:
    """Runs ``python`` with these arguments once a rank, and waits for all of them.

    Args:
        arguments: Such as ``["-c", source]`` or ``["-m", "adabest", "run", …]``.
        size: The number of ranks.
        limit: Seconds after which those that still run are killed; their exit code is then -9.
        environment: Further environment variables.
        started: The ranks that are started; all of them by default.
        meanwhile: Is called with the processes once they are started.

    Returns:
        How each of those started ended.
    """
    port = free_port()
    until = time.monotonic() + limit
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        ranks = [*range(size)] if started is None else [*started]
        for rank in ranks:
            with (
                Path(folder, f"{rank}.out").open("w", encoding="utf-8") as out,
                Path(folder, f"{rank}.err").open("w", encoding="utf-8") as err,
            ):
                variables = plain_environment() | rank_environment(rank, size, port) | dict(environment or {})
                processes.append(
                    subprocess.Popen(
                        [sys.executable, *arguments], env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                        text=True,
                    )
                )  # fmt: skip
        try:
            if meanwhile is not None:
                meanwhile(processes)
            for process in processes:
                process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.wait()
        return [
            Ended(
                process.returncode,
                Path(folder, f"{rank}.out").read_text(encoding="utf-8"),
                Path(folder, f"{rank}.err").read_text(encoding="utf-8"),
            )
            for rank, process in zip(ranks, processes, strict=True)
        ]
