"""One process of a measured job: the command line as it is, with notes of every round.

python -m benchmarks.rank_process NOTES PLACEMENT WORDS...

It writes ``NOTES.RANK.json``: when each round began, how much CPU time the process had used until then, and what this
rank sent, received and waited for in the round. A process that isn't one of a torchrun job notes the times alone.
PLACEMENT is ``balanced``, as it is, or ``home``: every client trains at the rank of its number modulo the ranks.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from adabest.cli import main as adabest
from adabest.engine.batched import BatchedEngine
from adabest.engine.distributed import conductor, ranks
from adabest.engine.distributed.service import RankService

Notes = list[dict[str, Any]]


def mark() -> dict[str, float]:
    """The time, and the CPU time of this process."""
    return {"at": time.perf_counter(), "cpu": time.process_time()}


def note_rounds(notes: Notes) -> None:
    """Has each phase of a round noted; in a job by what serves orders, else by the engine."""
    if "RANK" not in os.environ:
        engine: Any = BatchedEngine
        engine.exchange = _noted(engine.exchange, notes)
        return
    texts = _count_texts()
    service: Any = RankService
    before = service.exchange

    def exchange(self: RankService, order: Any, *rest: Any) -> Any:
        own = self.ranks
        begun = {**mark(), "sent": own.bytes_sent, "received": own.bytes_received, "text": texts[0]}
        waited = own.seconds
        found = before(self, order, *rest)
        ended = {"sent": own.bytes_sent, "received": own.bytes_received, "text": texts[0]}
        (asked,) = order["requests"]
        notes.append(
            {
                **{name: begun[name] for name in ("at", "cpu")},
                **{name: ended[name] - begun[name] for name in ended},
                "exchange": own.seconds - waited,
                "clients": [asked["ranks"].count(rank) for rank in range(own.size)],
                "moves": [[source, target] for _, source, target in asked["moves"]],
            }
        )
        return found

    service.exchange = exchange


def _noted(before: Callable[..., Any], notes: Notes) -> Callable[..., Any]:
    def exchange(*given: Any) -> Any:
        notes.append(mark())
        return before(*given)

    return exchange


def _count_texts() -> list[int]:
    """Counts the bytes of the orders and answers that this process writes as text, in a list of one number."""
    counted, before = [0], ranks._to_bytes

    def to_bytes(value: Any) -> Any:
        text = before(value)
        counted[0] += len(text)
        return text

    ranks._to_bytes = to_bytes
    return counted


def train_at_home() -> None:
    """Has every client train at the rank of its number modulo the ranks."""
    module: Any = conductor
    before = module.Conductor._asked

    def asked(self: conductor.Conductor, requests: Any, runs: Any) -> Any:
        for request, run in zip(requests, runs, strict=True):
            for client in request.clients:
                run.homes.setdefault(client, client % self.ranks.size)
        return before(self, requests, runs)

    module.share_out = lambda steps, homes, ranks: [*homes]
    module.Conductor._asked = asked


def main(words: Sequence[str]) -> int:
    """Runs the command, and writes the notes."""
    file, placement, *command = words
    notes: Notes = []
    note_rounds(notes)
    if placement == "home":
        train_at_home()
    code = adabest(command)
    Path(f"{file}.{os.environ.get('RANK', 'alone')}.json").write_text(json.dumps({"rounds": notes, "end": mark()}))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
