"""Real federations on loopback whose nodes share out the clients of a simulation, and whose replies tests harm."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.loopback import Loopback, loopback

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


class Federation(Loopback):
    """A federation whose nodes share out the clients of a simulation."""

    def share_out(self, data: Mapping[str, Any]) -> None:
        """Has the nodes share out the clients of a simulation, and lets tests harm their replies."""
        code = self.project / "trial"
        (code / "project.py").write_text(_PROJECT.format(data=dict(data)))
        (code / "client_app.py").write_text(_CLIENT_APP.format(folder=str(self.project)))

    def harm(self, number: int, **by_round: str) -> None:
        """Says what becomes of a node's replies; ``round_2="nan"``."""
        wanted = {name.removeprefix("round_"): how for name, how in by_round.items()}
        (self.project / f"harm-{number}.json").write_text(json.dumps(wanted))


@contextmanager
def federation(folder: Path, nodes: int = 3) -> Iterator[Federation]:
    """A federation whose processes end with the test."""
    with loopback(folder, nodes, Federation) as made:
        yield made
