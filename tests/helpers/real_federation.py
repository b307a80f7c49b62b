"""Real federations on loopback: Flower's processes, with TLS and node authentication, started and ended by tests."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

BIN = Path(sys.executable).parent
PATIENCE = 240.0


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
    return port


def wait_until(holds: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, f"waited {seconds:g} s in vain for {what}"
        time.sleep(0.1)


class Federation:
    """A SuperLink and its SuperNodes, out of the folder of a project that ``adabest new-flower-app`` has written.

    Every process has a log in the folder ``logs``, and its children end with it.
    """

    def __init__(self, project: Path, nodes: int = 3) -> None:
        self.project, self.nodes = project, nodes
        self.port = free_port()
        self.logs = project / "logs"
        self.logs.mkdir()
        subprocess.run(
            ["sh", "keys.sh", str(nodes), "127.0.0.1", str(self.port)], cwd=project, check=True, capture_output=True
        )
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        # HOME: Flower keeps other things there than in FLWR_HOME; one thread: three nodes share the cores.
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(project / "home"),
            "FLWR_HOME": str(project / "flower"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(project),
        }
        (project / "home").mkdir()

    def start(self, name: str, command: Sequence[str]) -> None:
        """Starts a process; one of that name that has ended is replaced."""
        with (self.logs / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                cwd=self.project,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start_superlink(self) -> None:
        keys = "--ssl-ca-certfile keys/ca.crt --ssl-certfile keys/server.pem --ssl-keyfile keys/server.key"
        place = f"--host 127.0.0.1 --port {self.port} --database superlink.db"
        options = f"{keys} {place} --enable-supernode-auth --disable-runtime-dependency-installation"
        self.start("superlink", ["flower-superlink", *options.split()])
        wait_until(self._superlink_answers, "the SuperLink")

    def _superlink_answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def register(self, number: int) -> None:
        self.flwr(["supernode", "register", f"keys/node{number}.pub", "federation"])

    def start_node(self, number: int, *, certificate: str = "keys/ca.crt", key: int | None = None) -> None:
        config = f'partition-id={number} num-partitions={self.nodes} state-dir="{self.project}/states/{number}"'
        self.start(
            f"node{number}",
            [
                *f"flower-supernode --root-certificates {certificate} --superlink 127.0.0.1:{self.port}".split(),
                *f"--port {free_port()} --auth-supernode-private-key keys/node{number if key is None else key}".split(),
                "--node-config",
                config,
            ],
        )

    def start_all(self) -> None:
        self.start_superlink()
        for number in range(self.nodes):
            self.register(number)
            self.start_node(number)

    def flwr(self, words: Sequence[str]) -> str:
        done = subprocess.run(
            [str(BIN / "flwr"), *words],
            cwd=self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, name: str = "run", superlink: str = "federation", **settings: object) -> None:
        """Starts ``flwr run`` in a process called ``name``."""
        pairs = " ".join(f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in settings.items())
        self.start(name, ["flwr", "run", ".", superlink, "--stream", *(["--run-config", pairs] if pairs else [])])

    def log(self, name: str) -> str:
        path = self.logs / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, words: str, name: str = "run", seconds: float = PATIENCE) -> None:
        wait_until(lambda: words in self.log(name), f"{words!r} in the log of {name}", seconds)

    def wait_for_end(self, name: str = "run", seconds: float = PATIENCE) -> int:
        return self.processes[name].wait(seconds)

    def kill(self, name: str) -> None:
        """Kills a process and all that it has started."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end(self) -> None:
        for name in list(self.processes):
            self.kill(name)


@contextlib.contextmanager
def federation(folder: Path, nodes: int = 3) -> Iterator[Federation]:
    """A federation whose processes end with the test."""
    subprocess.run([str(BIN / "adabest"), "new-flower-app", "trial"], cwd=folder, check=True, capture_output=True)
    made = Federation(folder / "trial", nodes)
    try:
        yield made
    finally:
        made.end()
