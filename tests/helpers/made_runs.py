"""Runs that never ran: a few accuracies over rounds."""

from pathlib import Path
from typing import Any

from measured import metrics_file

from adabest import Config, Run


def make_run(accuracies: dict[int, float], status: str = "finished", **last: Any) -> Run:
    """A run that was never run."""
    rows: list[dict[str, Any]] = [
        {
            "round": number,
            "scored_accuracy": accuracy,
            "cloud_norm": 2.0 * number,
            "h_norm": None,
            "bytes_up": 1_000_000 * number,
            "bytes_down": 2_000_000 * number,
        }
        for number, accuracy in accuracies.items()
    ]
    if rows:
        rows[-1] |= last
    final = max(accuracies, default=0) + (status == "diverged")
    if status == "diverged":
        rows.append({"round": final, "diverged": "the cloud model isn't finite"})
    return Run(Path("runs/x"), Config(rounds=9), status, final, None, metrics_file(rows), {}, {})
