"""From seconds to what is worth knowing: plain arithmetic on the results of a run."""

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.tasks import Task


def figures(task: Task, seconds: Sequence[float], rounds: int, peak: float) -> dict[str, float]:
    """What measurements of so many rounds each came to; all but the median is of the best.

    Args:
        task: What was trained, with the cohort that it was trained with.
        seconds: The measurements.
        rounds: How many rounds each of them took.
        peak: Floating-point operations a second of a large matrix product.
    """
    best, median = min(seconds) / rounds, statistics.median(seconds) / rounds
    return {
        "seconds_a_round": best,
        "median_seconds_a_round": median,
        "samples_a_second": task.samples_a_round / best,
        "microseconds_a_client_step": best * 1e6 / (task.cohort * task.steps),
        "share_of_peak": task.flops_a_sample * task.samples_a_round / best / peak,
    }


def short(value: float) -> str:
    """A number with three digits that count, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def merge(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Earlier results, with later ones in the place of those of the same arm, task, device and number of clients.

    Runs of which no result is left are dropped.
    """
    shift = len(before["runs"])
    newer = [{**row, "run": row["run"] + shift} for row in after["results"]]
    replaced = {_key(row) for row in newer}
    rows = [row for row in before["results"] if _key(row) not in replaced] + newer
    used = sorted({row["run"] for row in rows})
    number = {old: new for new, old in enumerate(used)}
    runs = [*before["runs"], *after["runs"]]
    others = {name: value for name, value in before.items() if name not in ("runs", "results")}
    return {
        **others,
        "runs": [runs[old] for old in used],
        "results": [{**row, "run": number[row["run"]]} for row in rows],
    }


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["device"], row["task"], row["clients"], row["arm"]
