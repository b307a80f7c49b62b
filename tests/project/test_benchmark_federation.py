"""What the benchmark of federations makes of its measurements; the measuring itself needs Flower."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import federation
from benchmarks.loopback import Meter, tree

DOCS = Path(__file__).parents[2] / "docs"


def test_ratios_are_of_rounds_of_the_same_number() -> None:
    made = {
        federation.FLOWER: [{"seconds": 1.0}, {"seconds": 2.0}, {"seconds": 8.0}],
        "fedavg": [{"seconds": 3.0}, {"seconds": 2.0}, {"seconds": 16.0}],
    }
    found = federation.summary(made)
    assert found["fedavg"]["seconds"] == 3.0
    assert found["fedavg"]["seconds_ratio"] == 2.0  # of 3, 1 and 2
    assert found[federation.FLOWER]["seconds_ratio"] == 1.0


def test_too_few_rounds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert federation.main(["--rounds", "3"]) == 2
    assert "take 4 or more" in capsys.readouterr().err


def test_a_meter_carries_and_counts_bytes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        meter = Meter(server.getsockname()[1])
        with socket.create_connection(("127.0.0.1", meter.port)) as near:
            far, _ = server.accept()
            near.sendall(b"x" * 1000)
            assert len(far.recv(1000, socket.MSG_WAITALL)) == 1000
            far.sendall(b"y" * 300)
            assert len(near.recv(300, socket.MSG_WAITALL)) == 300
            far.close()
            assert near.recv(1) == b""
        meter.close()
    ends = time.monotonic() + 5
    while (meter.up, meter.down) != (1000, 300):  # the threads may count after they have carried
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_a_tree_of_processes_holds_grandchildren_and_their_time() -> None:
    burn = "import time; ends = time.process_time() + 0.5\nwhile time.process_time() < ends: pass\ninput()"
    command = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        ends = time.monotonic() + 30
        while sum(tree(process.pid).values()) < 0.3:  # less than was burnt: the system counts in ticks
            assert time.monotonic() < ends
            time.sleep(0.05)
        assert len(tree(process.pid)) == 2
        process.communicate(b"\n")


class TestPage:
    @pytest.fixture
    def stored(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((DOCS / federation.RESULTS).read_text(encoding="utf-8"))
        return found

    def test_the_page_says_what_the_results_say(self, stored: dict[str, Any]) -> None:
        assert (DOCS / federation.PAGE).read_text(encoding="utf-8") == federation.page(stored)

    def test_medians_follow_from_the_rounds(self, stored: dict[str, Any]) -> None:
        rounds = {arm: row["rounds"] for arm, row in stored["arms"].items()}
        assert json.loads(json.dumps(federation.summary(rounds))) == stored["arms"]

    def test_at_least_five_rounds_were_measured(self, stored: dict[str, Any]) -> None:
        assert {len(row["rounds"]) for row in stored["arms"].values()} <= set(range(5, 100))
