"""Whole jobs: what they say of lanes, what a failing part leaves, the sum of kernel times, and the docs' section."""

import json
from pathlib import Path
from typing import Any

import pytest

from adabest.errors import InputError
from benchmarks import page, whole_jobs, whole_table
from benchmarks.whole_jobs import Setting
from benchmarks.whole_table import MadeRun

SMALL = Setting("cpu", samples=220, model="mlp,hidden=4", shorter=20)
RUN = {
    "commit": "abc",
    "date": "2026-01-01",
    "command": "x",
    "hardware": {"cores": 2, "processor": "p", "memory_gib": 1},
    "versions": {"torch": "2"},
}


def result(**changes: Any) -> dict[str, Any]:
    row = {"what": "a job", "unit": "µs a client-step", "end_to_end": 20.0, "beside": "kernels alone", "other": 18.0}
    return {**row, "ratio": 20 / 18, "done_at": "≤ 1.2 × kernels", "reached": True, **changes}


class TestJobs:
    def test_a_client_step_is_timed_between_evaluations(self) -> None:
        lanes = [
            {**SMALL.paper(), "participation": 0.1, "partition": "iid", "algorithm": "fedavg", "seed": s}
            for s in (0, 1)
        ]
        found = whole_jobs.timed(lanes, 3, SMALL)
        assert found.steps_a_round == 2 * 10 * 5
        assert found.microseconds == pytest.approx(found.seconds_a_round / 100 * 1e6)

    def test_one_evaluation_is_too_few(self) -> None:
        lane = {**SMALL.paper(), "participation": 0.1, "partition": "iid", "algorithm": "fedavg"}
        with pytest.raises(InputError, match="take more rounds"):
            whole_jobs.timed([lane], 1, SMALL)

    def test_table_1_has_twelve_lanes(self) -> None:
        lanes = whole_jobs._table_lanes(0.1, SMALL)
        assert len({(lane["algorithm"], lane["partition"], lane.get("alpha")) for lane in lanes}) == 12

    def test_a_part_that_fails_leaves_the_others(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(setting: Setting) -> dict[str, Any]:
            raise RuntimeError("no memory")

        monkeypatch.setattr(whole_jobs, "PARTS", {"bad": fails, "good": lambda setting: result()})
        whole_jobs.measure(["bad", "good"], SMALL, RUN, tmp_path / "jobs.json")
        parts = json.loads((tmp_path / "jobs.json").read_text())["parts"]
        assert parts["bad"]["error"] == "RuntimeError: no memory"
        assert parts["good"]["end_to_end"] == 20

    def test_published_parts_are_in_the_page_and_replace_earlier_ones(self, tmp_path: Path) -> None:
        for name, value in (("one", 20.0), ("two", 21.0)):
            parts = {"lanes-10": result(end_to_end=value), "failed": {"what": "w", "error": "e"}}
            (tmp_path / f"{name}.json").write_text(json.dumps({"run": RUN, "parts": parts}))
            whole_jobs.publish([tmp_path / f"{name}.json"], tmp_path / "docs")
        text = (tmp_path / "docs" / "results" / "speed.md").read_text(encoding="utf-8")
        assert "## Whole jobs" in text
        assert "| a job | 21 µs | 18 µs | kernels | 1.11 | ≤ 1.2 × kernels | reached |" in text
        assert "20 µs" not in text

    def test_a_job_beside_something_else_shows_both(self) -> None:
        own = {"beside": "JAX, bf16", "other": 1.3, "kernels": 1.28, "ratio": 1.5, "reached": False}
        table = page.jobs_table({"mlp": result(**own, end_to_end=1.95)})
        assert table.rows[0][1:] == (
            "1.95 µs",
            "1.28 µs",
            "JAX, bf16: 1.3 µs",
            "1.50",
            "≤ 1.2 × kernels",
            "not reached",
        )


class TestWholeTable:
    def test_steps_are_counted_by_the_clients_that_train_at_a_time(self) -> None:
        runs = [MadeRun(rounds=10, clients=1, steps=5), MadeRun(rounds=12, clients=10, steps=50)]
        assert whole_table.widths(runs) == {11: 10 * 55, 10: 2 * 50}

    def test_kernel_times_are_summed_over_groups(self) -> None:
        runs = {"tuning": [MadeRun(4, 1, 5)], "table": [MadeRun(10, 1, 5), MadeRun(12, 10, 50)]}
        seconds = whole_table.kernel_seconds(runs, lambda width: 100.0 / width)
        assert seconds == pytest.approx((20 * 100 + 550 * 100 / 11 + 100 * 10) / 1e6)

    def test_progress_tells_runs_and_steps(self, tmp_path: Path) -> None:
        assert whole_table.progress(tmp_path) == "no run was evaluated yet"
        for name in ("tuning/a", "b"):
            (tmp_path / name).mkdir(parents=True)
            line = json.dumps({"round": 4, "cohort": 2, "local_steps": 40})
            (tmp_path / name / "metrics.jsonl").write_text(line + "\n")
        told = "1 runs, round 4, 40 client-steps"
        assert whole_table.progress(tmp_path) == f"tuning: {told}; table: {told}"
