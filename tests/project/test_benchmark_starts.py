"""The benchmark of starts on a GPU: what its stages and its table say."""

import json
import time
from pathlib import Path

from benchmarks.gpu_starts import REST, STAGES, TOTAL, Stopwatch, table


def test_a_stage_leaves_out_the_stages_within_it(tmp_path: Path) -> None:
    watch = Stopwatch(tmp_path / "stages")
    watch.time("outer", lambda: watch.time("inner", lambda: time.sleep(0.2)))
    (inner, long, _), (outer, short, _) = (json.loads(line) for line in (tmp_path / "stages").read_text().splitlines())
    assert (inner, outer) == ("inner", "outer")
    assert long >= 0.2 > short


def test_the_table_has_the_medians_and_the_limits() -> None:
    found = {
        "nothing cached": {"compile": [1.0, 5.0, 2.0], REST: [1.0], TOTAL: [9.0]},
        "kernels cached": {REST: [0.5], TOTAL: [4.0]},
    }
    lines = table(found).splitlines()
    assert "| compile | 2.00 s | 0.00 s |" in lines
    assert lines[-2:] == [f"| {TOTAL} | 9.00 s | 4.00 s |", "| limit | 12 s | 5 s |"]


def test_every_stage_is_a_function_that_is_there(tmp_path: Path) -> None:
    for stage, target in STAGES:
        if "kernels" not in target:  # needs Triton
            module, _, path = target.partition(":")
            owner = __import__(module, fromlist=["_"])
            for name in path.split("."):
                owner = getattr(owner, name)
            assert callable(owner), stage
