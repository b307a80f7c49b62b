"""Federations on loopback: Flower's processes of a project, with TLS and node authentication, and what they use."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tomli_w

BIN = Path(sys.executable).parent
PATIENCE = 600.0
_AS_INSTALLED = "--disable-runtime-dependency-installation"
_STARTED = "Successfully started run "
_TICKS = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def wait_until(holds: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Waits until something holds.

    Raises:
        TimeoutError: If it doesn't in time.
    """
    ends = time.monotonic() + seconds
    while not holds():
        if time.monotonic() >= ends:
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.1)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _processes() -> dict[int, tuple[int, float]]:
    """All processes: the parent of each, and the CPU seconds of it and of its children that have ended."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            words = (entry / "stat").read_text().rpartition(")")[2].split()
            found[pid] = int(words[1]), sum(map(int, words[11:15])) / _TICKS
    return found


def tree(root: int) -> dict[int, float]:
    """A process and all that come from it, with their CPU seconds."""
    every = _processes()
    found = {root: every[root][1]} if root in every else {}
    size = 0
    while size < len(found):
        size = len(found)
        found |= {pid: seconds for pid, (parent, seconds) in every.items() if parent in found}
    return found


class Loopback:
    """A SuperLink and its SuperNodes, out of the folder of a project that ``adabest new-flower-app`` has written.

    Every process has a log in the folder ``logs``, and its children end with it.

    Attributes:
        project: The folder.
        nodes: How many nodes there are.
        port: The SuperLink's.
        node_port: Where nodes look for it.
        processes: What was started, by name.
    """

    def __init__(self, project: Path, nodes: int) -> None:
        """Makes keys.

        Args:
            project: The folder.
            nodes: How many nodes there are.
        """
        self.project, self.nodes = project, nodes
        self.port = self.node_port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs = project / "logs"
        self._logs.mkdir()
        self.make_keys(project, nodes)
        (project / "home").mkdir()
        # HOME: Flower keeps other things there than in FLWR_HOME; one thread: nodes share the cores.
        self._environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(project / "home"),
            "FLWR_HOME": str(project / "flower"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(project),
        }

    def make_keys(self, folder: Path, nodes: int) -> None:
        """Has the project's script make certificates and keys."""
        command = ["sh", "keys.sh", str(nodes), "127.0.0.1", str(self.port)]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)

    def configure(self, **settings: Any) -> None:
        """Puts settings in the place of the project's; ``--run-config`` takes no others."""
        place = self.project / "pyproject.toml"
        content = tomllib.loads(place.read_text())
        content["tool"]["flwr"]["app"]["config"] = {name.replace("_", "-"): own for name, own in settings.items()}
        place.write_text(tomli_w.dumps(content))

    def add_to_path(self, folder: Path) -> None:
        """Lets the processes import from a folder, too."""
        self._environment["PYTHONPATH"] += f"{os.pathsep}{folder}"

    def start(self, name: str, command: Sequence[str], *, supervised: bool = False) -> None:
        """Starts a process; one of that name that has ended is replaced. A supervisor starts it again when it ends."""
        words = [str(BIN / command[0]), *command[1:]]
        if supervised:
            words = ["sh", "-c", 'while :; do "$@"; sleep 1; done', "sh", *words]
        with (self._logs / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                words,
                cwd=self.project,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start_superlink(self) -> None:
        """Starts the SuperLink, and waits for it."""
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
        link = f'[superlink.simulation]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
        known.write_text(f"{known.read_text()}\n{link}")

    def start_node(self, number: int, *, name: str = "", certificate: str = "keys/ca.crt", key: str = "") -> None:
        """Starts a SuperNode; without a name of its own, a supervisor starts it again when it ends."""
        config = f'partition-id={number} num-partitions={self.nodes} state-dir="{self.project}/states/{number}"'
        place = f"--superlink 127.0.0.1:{self.node_port} --port {free_port()}"
        keys = f"--root-certificates {certificate} --auth-supernode-private-key {key or f'keys/node{number}'}"
        words = ["flower-supernode", *place.split(), *keys.split(), "--node-config", config]
        self.start(name or f"node{number}", words, supervised=not name)

    def start_all(self) -> None:
        """Starts the SuperLink and all nodes."""
        self.start_superlink()
        for number in range(self.nodes):
            self._flwr(["supernode", "register", f"keys/node{number}.pub", "federation"])
            self.start_node(number)

    def _flwr(self, words: Sequence[str]) -> None:
        subprocess.run(
            [str(BIN / "flwr"), *words],
            cwd=self.project,
            env=self._environment,
            capture_output=True,
            timeout=PATIENCE,
            check=True,
        )

    def submit(self, name: str, superlink: str = "federation", **settings: object) -> None:
        """Starts ``flwr run`` in a process called ``name``."""
        command = ["flwr", "run", ".", superlink, "--stream"]
        if superlink == "simulation":
            command += ["--federation-config", f"num-supernodes={self.nodes}"]
        pairs = [f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in settings.items()]
        self.start(name, [*command, *(["--run-config", " ".join(pairs)] if pairs else [])])

    def stop(self, name: str) -> None:
        """Has Flower stop the run that was submitted as ``name``, and waits until its server has ended."""
        self.wait_for(_STARTED, name)
        number = self.log(name).rpartition(_STARTED)[2].split()[0]
        self._flwr(["stop", number, "federation"])
        leader = self.processes["superlink"].pid
        wait_until(lambda: not any("flwr-serverapp" in _command(pid) for pid in tree(leader)), "the end of the server")

    def log(self, name: str) -> str:
        """What a process has printed so far."""
        path = self._logs / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, words: str, name: str, times: int = 1) -> None:
        """Waits until words stand in a log so many times."""
        wait_until(lambda: self.log(name).count(words) >= times, f"{words!r} in the log of {name}")

    def wait_for_end(self, name: str) -> int:
        """The exit code of a process, once it has ended."""
        return self.processes[name].wait(PATIENCE)

    def cpu_seconds(self, name: str) -> float:
        """The CPU seconds of a process and of all that it has started."""
        return sum(tree(self.processes[name].pid).values())

    def kill(self, name: str) -> None:
        """Kills a process and all that it has started."""
        process = self.processes.pop(name)
        _kill_all(tree(process.pid))
        process.wait()

    def kill_below(self, name: str, program: str = "") -> None:
        """Kills what a process has started, as far as a command names a program; the process itself goes on."""
        leader = self.processes[name].pid
        _kill_all(pid for pid in tree(leader) if pid != leader and program in _command(pid))

    def end(self) -> None:
        """Ends all processes."""
        for name in list(self.processes):
            self.kill(name)


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def _kill_all(pids: Any) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def loopback(folder: Path, nodes: int = 3, kind: type[Loopback] = Loopback) -> Iterator[Any]:
    """A federation of a new project called ``trial``, whose processes end with the block."""
    subprocess.run([str(BIN / "adabest"), "new-flower-app", "trial"], cwd=folder, check=True, capture_output=True)
    made = kind(folder / "trial", nodes)
    try:
        yield made
    finally:
        made.end()


class Meter:
    """Carries TCP connections to a port, and counts their bytes.

    Attributes:
        port: Where it listens.
        up: Bytes carried to the port.
        down: Bytes carried back.
    """

    def __init__(self, target: int) -> None:
        """Begins to listen.

        Args:
            target: The port to which connections are carried.
        """
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.up = self.down = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        """Listens no more."""
        self._listener.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                threading.Thread(target=self._carry, args=(near, far, "up"), daemon=True).start()
                threading.Thread(target=self._carry, args=(far, near, "down"), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(1 << 16):
                sink.sendall(content)
                with self._lock:
                    setattr(self, way, getattr(self, way) + len(content))
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
