"""What a round of a real federation costs, beside Flower's own FedAvg: ``python -m benchmarks.federation``.

Each arm is a federation of its own on loopback: a SuperLink, three SuperNodes with one client each, TLS and node
authentication. A round lasts from the moment at which the first node gets its training message to that of the next
round. CPU seconds are those of all processes of a side, and bytes all that goes through the sockets between nodes and
SuperLink, TLS and polling included. Rounds are paired by their number; the first isn't counted. Needs the environment
of ``make federation``.
"""

import argparse
import importlib.metadata
import itertools
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from adabest.models.factory import count_parameters
from adabest.report.table import Table
from benchmarks import files, machine
from benchmarks.loopback import Loopback, Meter, loopback
from benchmarks.measures import short

Row = dict[str, Any]

RESULTS, PAGE = "results/federation.json", "results/federation.md"
FLOWER = "flower"
NODES = 3
# How many vectors of a model's length go down and up.
ARMS: dict[str, tuple[str, int, int]] = {
    FLOWER: ("Flower's FedAvg", 1, 1),
    "fedavg": ("adabest, FedAvg", 1, 1),
    "adabest": ("adabest, AdaBest", 1, 1),
    "scaffold": ("adabest, SCAFFOLD", 2, 2),
}
_TRAINS = "Receiving: train message"
_LOOK = 0.05

_FLOWERS_APP = """from benchmarks.arms.flower_loopback import {side}_app

app = {side}_app()
"""
_PROJECT = """import numpy as np

from adabest.flower.project import ClientData, Project
from benchmarks.arms.flower_loopback import CLASSES, INPUTS, model, samples

project = Project(
    clients=lambda node: {int(node["partition-id"]): ClientData(*samples(int(node["partition-id"])))},
    example=(np.zeros((2, INPUTS), dtype=np.float32), np.array([0, 1])),
    classes=CLASSES,
    model=lambda shape, classes: model(),
    test=lambda: samples(1000),
)
"""


def measure(arm: str, rounds: int, nodes: int = NODES) -> list[Row]:
    """Makes a run and measures its rounds, but for the first and the last.

    Raises:
        TimeoutError: If it doesn't come to its end.
    """
    with tempfile.TemporaryDirectory() as folder, loopback(Path(folder), nodes) as made:
        _prepare(made, arm, rounds)
        meter = Meter(made.port)
        made.node_port = meter.port
        try:
            made.start_all()
            made.submit("run")
            return _rounds(made, meter, rounds)
        finally:
            meter.close()


def _prepare(made: Loopback, arm: str, rounds: int) -> None:
    """Writes the code and the settings of an arm into the project."""
    from benchmarks.arms import flower_loopback as task

    code = made.project / "trial"
    made.add_to_path(machine.ROOT)
    if arm == FLOWER:
        for side in ("server", "client"):
            (code / f"{side}_app.py").write_text(_FLOWERS_APP.format(side=side))
        made.configure(nodes=made.nodes, rounds=rounds)
        return
    (code / "project.py").write_text(_PROJECT)
    made.configure(
        algorithm=arm,
        rounds=rounds,
        participation=1.0,
        epochs=1,
        batch_size=task.BATCH_SIZE,
        learning_rate=task.LEARNING_RATE,
        weight_decay=task.WEIGHT_DECAY,
        clip=task.CLIP,
        evaluate_every=rounds,
        state_commit="confirmed",
        nodes=made.nodes,
        out=str(made.project / "run"),
    )


def _rounds(made: Loopback, meter: Meter, rounds: int) -> list[Row]:
    """What each round takes that lies between two others."""
    marks: list[Row] = []
    nodes = [f"node{number}" for number in range(made.nodes)]
    ends = time.monotonic() + 120 * rounds
    while len(marks) < rounds:
        if time.monotonic() > ends or made.processes["run"].poll() is not None:
            raise TimeoutError(f"{len(marks)} of {rounds} rounds were made:\n{made.log('run')}")
        if sum(made.log(node).count(_TRAINS) for node in nodes) > made.nodes * len(marks):
            marks.append(
                {
                    "seconds": time.monotonic(),
                    "server_cpu": made.cpu_seconds("superlink"),
                    "node_cpu": sum(map(made.cpu_seconds, nodes)) / made.nodes,
                    "down": meter.down / made.nodes,
                    "up": meter.up / made.nodes,
                }
            )
        time.sleep(_LOOK)
    pairs = itertools.pairwise(marks[1:])
    return [{name: late[name] - early[name] for name in early} for early, late in pairs]


def summary(made: Mapping[str, Sequence[Row]]) -> Row:
    """Medians over rounds, and median ratios to Flower's in the same round."""
    found: Row = {}
    for arm, rows in made.items():
        row: Row = {name: statistics.median(one[name] for one in rows) for name in rows[0]}
        for name in list(row):
            ratios = [one[name] / other[name] for one, other in zip(rows, made[FLOWER], strict=True)]
            row[f"{name}_ratio"] = statistics.median(ratios)
        found[arm] = row | {"rounds": [dict(one) for one in rows]}
    return found


def page(found: Row) -> str:
    """The page, from the results alone."""
    arms, model = found["arms"], found["parameters"] * 4
    rows, traffic = [], []
    for arm, row in arms.items():
        name, down, up = ARMS[arm]
        ratio = {key: f"{row[f'{key}_ratio']:.2f}" for key in ("seconds", "server_cpu", "node_cpu", "down", "up")}
        rows.append(
            (
                name,
                short(row["seconds"]),
                ratio["seconds"],
                short(row["server_cpu"]),
                ratio["server_cpu"],
                short(row["node_cpu"]),
                ratio["node_cpu"],
            )
        )
        traffic.append(
            (
                name,
                _thousands(down * model),
                _thousands(row["down"]),
                f"{row['down'] / (down * model):.3f}",
                _thousands(up * model),
                _thousands(row["up"]),
                f"{row['up'] / (up * model):.3f}",
            )
        )
    count = len(arms[FLOWER]["rounds"])
    time_table = Table(("", "s a round", "ratio", "CPU s, server", "ratio", "CPU s, each node", "ratio"), tuple(rows))
    byte_table = Table(
        ("kB a node and round", "needed down", "down", "ratio", "needed up", "up", "ratio"), tuple(traffic)
    )
    return "\n".join(
        (
            _INTRODUCTION,
            f"{machine.words(found['run'])}. Commit {found['run']['commit']}, {found['run']['date']}:\n",
            f"<!-- not run: it takes minutes, and needs Flower -->\n```sh\n{found['run']['command']}\n```\n",
            _TIMES.format(count=count, parameters=f"{found['parameters']:,}"),
            time_table.markdown(),
            _BYTES,
            byte_table.markdown(),
            _hundred(found),
        )
    )


def _thousands(count: float) -> str:
    return f"{count / 1000:,.0f}"


def _hundred(found: Row) -> str:
    """What to expect of a hundred nodes, by arithmetic."""
    row, alone = found["arms"]["adabest"], found["one_node"]
    nodes = 100
    each = (row["server_cpu"] - alone["server_cpu"]) / (NODES - 1)
    cnn = count_parameters("cnn", (3, 32, 32), 10)
    assert cnn is not None
    sizes = {"this MLP": found["parameters"], "the paper's CNN": cnn, "25 million parameters": 25_000_000}
    rows = tuple(
        (name, f"{nodes * size * 4 / 1e6:,.0f}", f"{nodes * size * 4 / 1e6:,.0f}", short(nodes * size * 4 / 1.25e8))
        for name, size in sizes.items()
    )
    table = Table(("model", "MB down a round", "MB up", "s each way at 1 Gb/s"), rows)
    return _HUNDRED.format(
        nodes=nodes,
        one=short(alone["server_cpu"]),
        three=short(row["server_cpu"]),
        each=short(each),
        total=short(alone["server_cpu"] + (nodes - 1) * each),
        node=short(row["node_cpu"]),
        table=table.markdown(),
    )


def main(words: Sequence[str] | None = None) -> int:
    """Parses, measures, writes the results and the page."""
    given = sys.argv[1:] if words is None else list(words)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.federation", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each run; all but two are measured")
    parser.add_argument("--commit", help="what is measured, where git can't tell")
    parser.add_argument("--out", type=Path, default=machine.ROOT / "docs", help="the docs' folder")
    arguments = parser.parse_args(given)
    if arguments.rounds < 4:
        print(
            f"error: --rounds {arguments.rounds}: take 4 or more, since the first and the last don't count",
            file=sys.stderr,
        )
        return 2
    command = shlex.join(["python", "-m", "benchmarks.federation", *given])
    publish(arguments.out, run(arguments.rounds, command, arguments.commit, _say))
    return 0


def run(rounds: int, command: str, commit: str | None, say: Callable[[str], None]) -> Row:
    """Measures all arms, one after another."""
    from benchmarks.arms import flower_loopback as task

    described = machine.describe("cpu", command, commit)
    described["versions"]["flwr"] = importlib.metadata.version("flwr")
    made = {}
    for arm in ARMS:
        made[arm] = measure(arm, rounds)
        say(f"{arm}: {statistics.median(row['seconds'] for row in made[arm]):.1f} s a round")
    size = sum(one.numel() for one in task.model().parameters())
    one_node = measure("adabest", rounds, nodes=1)
    return {
        "run": described,
        "parameters": size,
        "arms": summary(made),
        "one_node": {name: statistics.median(row[name] for row in one_node) for name in one_node[0]},
    }


def publish(folder: Path, found: Row) -> None:
    """Writes the results and the page into the docs."""
    files.write(folder, {RESULTS: found, PAGE: page(found)})


def _say(words: str) -> None:
    print(words, flush=True)


_INTRODUCTION = """# A real federation

What a round costs when the clients are [real nodes](../how-to/federation.md), beside Flower's own FedAvg on the same
task. The command that measures writes this page.

## Beside Flower's FedAvg
"""

_TIMES = """Each arm is a federation on one machine: a SuperLink, three SuperNodes with one client each, TLS and node
authentication. The clients train an MLP of {parameters} parameters for 24 steps. Medians of {count} rounds; ratios are
medians of those to Flower's FedAvg in the round of the same number. The server's CPU seconds are those of SuperLink and
ServerApp. Most of a round is the start of one process per node, which imports torch, and Flower's polling.
"""

_BYTES = """
What goes through the sockets between a node and the SuperLink, TLS and polling included, beside the bytes of the
vectors that the algorithm declares:
"""

_HUNDRED = """
## A hundred nodes

By arithmetic, from what was measured with AdaBest:

- **Server:** a round takes {one} s of CPU time with one node and {three} s with three, so {each} s a node. With {nodes}
  nodes that is {total} s, if it goes on like this.
- **Node:** {node} s of CPU time, whatever the number of nodes, since each has a machine of its own. Nearly all of it is
  the start of a process. Where training takes minutes, it doesn't matter.
- **Latency:** Flower polls. A SuperNode looks for messages every 3 s, and for processes to start every second.
- **Waiting:** a round lasts as long as its slowest node, or `deadline`.
- **Bytes:** each node gets the message, and sends one reply for each of its clients. With one client a node:

{table}

The server has all replies of a round in its memory at once. SCAFFOLD sends twice as much, both ways.
"""


if __name__ == "__main__":
    raise SystemExit(main())
