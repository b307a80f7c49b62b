"""Real federations on loopback: Flower's processes, with TLS and node authentication, started and ended by tests."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

BIN = Path(sys.executable).parent
PATIENCE = 600.0

_PROJECT = '''"""A project whose nodes share out the clients of a simulation."""

from adabest.flower.project import simulated

project = simulated({data!r})
'''

# What a test writes into the file of a node says what becomes of its replies, and in which round.
_CLIENT_APP = '''"""The ClientApp, with a modifier that spoils replies."""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord

from adabest.flower.apps import client_app
from trial.project import project

HARMS = {{
    "nan": lambda array: array * np.float32(np.nan),
    "huge": lambda array: array * np.float32(1e12),
    "shape": lambda array: array[:, :-1],
    "type": lambda array: array.astype(np.float64),
}}


def spoil(message, context, call_next):
    place = Path({folder!r}, f"harm-{{context.node_config['partition-id']}}.json")
    wanted = json.loads(place.read_text()) if place.exists() else {{}}
    harm = wanted.get(str(json.loads(message.content["facts"]["facts"])["round"]))
    if harm == "silence":
        time.sleep(3600)
    answer = call_next(message, context)
    if harm is not None:
        arrays = answer.content["vectors"].items()
        answer.content["vectors"] = ArrayRecord({{name: Array(HARMS[harm](one.numpy())) for name, one in arrays}})
    return answer


app = client_app(project, mods=[spoil])
'''


_AS_INSTALLED = "--disable-runtime-dependency-installation"


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
    return port


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


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
        self.make_keys(project, nodes)
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

    def make_keys(self, folder: Path, nodes: int) -> None:
        command = ["sh", "keys.sh", str(nodes), "127.0.0.1", str(self.port)]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)

    def share_out(self, data: Mapping[str, Any]) -> None:
        """Has the nodes share out the clients of a simulation, and lets tests harm their replies."""
        code = self.project / "trial"
        (code / "project.py").write_text(_PROJECT.format(data=dict(data)))
        (code / "client_app.py").write_text(_CLIENT_APP.format(folder=str(self.project)))

    def configure(self, **settings: Any) -> None:
        """Puts settings in the place of the project's; ``--run-config`` takes no others."""
        place = self.project / "pyproject.toml"
        content = tomllib.loads(place.read_text())
        content["tool"]["flwr"]["app"]["config"] = {name.replace("_", "-"): own for name, own in settings.items()}
        place.write_text(tomli_w.dumps(content))

    def harm(self, number: int, **by_round: str) -> None:
        """Says what becomes of a node's replies; ``round_2="nan"``."""
        wanted = {name.removeprefix("round_"): how for name, how in by_round.items()}
        (self.project / f"harm-{number}.json").write_text(json.dumps(wanted))

    def start(self, name: str, command: Sequence[str], *, supervised: bool = False) -> None:
        """Starts a process; one of that name that has ended is replaced. A supervisor starts it again when it ends."""
        words = [str(BIN / command[0]), *command[1:]]
        if supervised:
            words = ["sh", "-c", 'while :; do "$@"; sleep 1; done', "sh", *words]
        with (self.logs / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                words,
                cwd=self.project,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start_superlink(self) -> None:
        keys = "--ssl-ca-certfile keys/ca.crt --ssl-certfile keys/server.pem --ssl-keyfile keys/server.key"
        place = f"--host 127.0.0.1 --port {self.port} --database superlink.db"
        options = f"{keys} {place} --enable-supernode-auth {_AS_INSTALLED}"
        self.start("superlink", ["flower-superlink", *options.split()])
        wait_until(lambda: _answers(self.port), "the SuperLink")

    def start_simulation(self) -> None:
        """Starts a SuperLink of Flower's simulation, which ``flwr`` knows as ``simulation``."""
        port = free_port()
        options = f"--insecure --simulation --host 127.0.0.1 --port {port} {_AS_INSTALLED}"
        self.start("simulation", ["flower-superlink", *options.split()])
        wait_until(lambda: _answers(port), "the SuperLink of the simulation")
        known = self.project / "flower" / "config.toml"
        known.write_text(
            f'{known.read_text()}\n[superlink.simulation]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
        )

    def register(self, number: int) -> None:
        self.flwr(["supernode", "register", f"keys/node{number}.pub", "federation"])

    def start_node(self, number: int, *, name: str = "", certificate: str = "keys/ca.crt", key: str = "") -> None:
        """Starts a SuperNode; without a name of its own a supervisor does."""
        config = f'partition-id={number} num-partitions={self.nodes} state-dir="{self.project}/states/{number}"'
        place = f"--superlink 127.0.0.1:{self.port} --port {free_port()}"
        keys = f"--root-certificates {certificate} --auth-supernode-private-key {key or f'keys/node{number}'}"
        words = ["flower-supernode", *place.split(), *keys.split(), "--node-config", config]
        self.start(name or f"node{number}", words, supervised=not name)

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
        command = ["flwr", "run", ".", superlink, "--stream"]
        if superlink == "simulation":
            command += ["--federation-config", f"num-supernodes={self.nodes}"]
        pairs = [f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in settings.items()]
        self.start(name, [*command, *(["--run-config", " ".join(pairs)] if pairs else [])])

    def log(self, name: str) -> str:
        path = self.logs / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, words: str, name: str = "run", seconds: float = PATIENCE, times: int = 1) -> None:
        what = f"{words!r} in the log of {name}"
        wait_until(lambda: self.log(name).count(words) >= times, what, seconds)

    def wait_for_end(self, name: str = "run", seconds: float = PATIENCE) -> int:
        return self.processes[name].wait(seconds)

    def kill(self, name: str) -> None:
        """Kills a process and all that it has started."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def kill_below(self, name: str, program: str = "") -> None:
        """Kills what a process has started, as far as its command names a program; the process itself goes on."""
        leader = self.processes[name].pid
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry.name)
                if pid != leader and os.getsid(pid) == leader and program in (entry / "cmdline").read_text():
                    os.kill(pid, signal.SIGKILL)

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
