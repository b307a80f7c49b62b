"""Whether bfloat16 costs accuracy: the same cell, seeds and rounds in each precision, on a GPU.

python -m benchmarks.precision --data-dir DIR --out results.json

All runs of a precision are lanes of one program. The table gives the scored accuracy of each run, and how long a
client-step took end to end: batches, augmentation, training, server and evaluation included, compiling left out.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import adabest
from adabest.runs.files.folder import TIMINGS

PRECISIONS = ("bf16", "tf32", "float32")


def measure(precision: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """One row a run."""
    settings: dict[str, Any] = {
        "dataset": arguments.dataset,
        "data_dir": arguments.data_dir,
        "device": arguments.device,
        "engine": "batched",
        "precision": precision,
        "rounds": arguments.rounds,
        "evaluate_every": arguments.rounds // 3,
        "checkpoint_every": 0,
        "alpha": arguments.alpha,
    }
    with tempfile.TemporaryDirectory() as folder:
        found = adabest.compare(
            algorithms=arguments.algorithms, seeds=arguments.seeds, out=Path(folder) / precision, **settings
        )
        rows = []
        for label, run in found.runs.items():
            timings = [json.loads(line) for line in (run.folder / TIMINGS).read_text().splitlines()]
            later = [row["seconds_per_round"] for row in timings if "seconds_per_round" in row][1:]
            last = run.metrics[-1]
            steps = last["local_steps"] / last["round"] * len(found.runs)
            rows.append(
                {
                    "run": label,
                    "precision": precision,
                    "accuracy": last["scored_accuracy"],
                    "loss": last["scored_loss"],
                    "microseconds": float(np.mean(later)) / steps * 1e6,
                }
            )
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measures and writes JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--data-dir")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS)
    parser.add_argument("--algorithms", nargs="+", default=["fedavg", "adabest"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for precision in arguments.precisions:
        rows += measure(precision, arguments)
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
