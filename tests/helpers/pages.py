"""Pages of runs, and what can be read off them."""

import dataclasses
import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measured import metrics_file

from adabest import Config, Run
from adabest.experiments.run_partitions import partition_maps
from adabest.report.page.page import page_text
from adabest.report.page.page_runs import PageRun, page_entries
from adabest.runs.files.folder import RunFolder

CONFIG = Config(
    dataset="stripes",
    algorithm="fedavg",
    model="mlp,hidden=8",
    clients=8,
    validation_clients=1,
    partition="dirichlet",
    partition_seed=0,
    batch_size=8,
    rounds=8,
)
MACHINE = {"python": "3.11", "device": "cpu"}
IDENTITY = {
    "dataset": "made up",
    "classes": 2,
    "mean": 0.0,
    "std": 1.0,
    "input_shape": [1, 8, 8],
    "initial_model": "made up",
    "parameters": 9,
}


def make_run(accuracies: Mapping[int, float] | None = None, status: str = "finished", **changes: Any) -> Run:
    """A run that was never run; ``changes`` are those of its configuration, or of the run itself."""
    own = {name: changes.pop(name) for name in ("folder", "reason", "identity", "environment") if name in changes}
    seed = changes.get("seed", 0)
    rows = [
        {
            "round": number,
            "scored_accuracy": accuracy,
            "validation_accuracy": accuracy**2,
            "scored_loss": 2.0 - accuracy,
            "cloud_norm": 2.0 * number,
            "h_norm": None,
            "present": 8 - number % 3,
            "cohort": 3,
            "bytes_up": 1_000_000 * number,
            "bytes_down": 2_000_000 * number,
        }
        for number, accuracy in ({2: 0.5, 4: 0.8, 6: 0.75, 8: 0.9} if accuracies is None else accuracies).items()
    ]
    config = dataclasses.replace(CONFIG, **{"partition_seed": seed, **changes})
    last = rows[-1]["round"] if rows else 0
    run = Run(Path("runs/x"), config, status, int(last or 0), None, metrics_file(rows), {}, MACHINE)
    return dataclasses.replace(run, **own)


def store(run: Run, folder: Path) -> Path:
    """A run that was never run, as it would lie in a folder."""
    place = RunFolder(folder)
    place.acquire()
    lines = [
        f"{name} = {json.dumps(value)}\n" for name, value in run.config.flat().items() if name not in ("schedule",)
    ]
    (folder / "config.toml").write_text("".join(lines), encoding="utf-8")
    reason = {} if run.reason is None else {"reason": run.reason}
    place.write_json("status.json", {"status": run.status, "round": run.round, **reason})
    if run.identity:
        place.write_json("identity.json", {**IDENTITY, **run.identity})
    place.write_json("environment.json", run.environment)
    for row in run.metrics:
        place.append("metrics.jsonl", row)
    place.release()
    return folder


def entries(runs: Sequence[Run]) -> dict[str, list[PageRun]]:
    return page_entries([PageRun.of(run) for run in runs])


def page_of(*runs: Run, **options: Any) -> str:
    """The page of some runs; ``options`` are those of ``partition_maps``."""
    shown = entries(runs)
    return page_text(shown, title="runs", maps=partition_maps(shown, **options))


def data_of(page: str) -> Any:
    """What the page's script is given."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def section(page: str, name: str) -> str:
    """A section of the page in words: what stands in its elements, one in a line."""
    (text,) = re.findall(rf'<section id="{name}">(.*?)</section>', page, re.DOTALL)
    return "\n".join(html.unescape(word) for word in re.split(r"<[^>]+>", text) if word.strip())


def rows_of(page: str, name: str) -> list[list[str]]:
    """The rows of all tables of a section."""
    (text,) = re.findall(rf'<section id="{name}">(.*?)</section>', page, re.DOTALL)
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", text, re.DOTALL)
    return [[html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]
