"""The study of precisions: pairs, their differences and standard errors, and what a stopped call keeps."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import precision


def row(
    name: str, seed: int, scored: list[float], algorithm: str = "fedavg", dataset: str = "digits"
) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "partition": "iid",
        "algorithm": algorithm,
        "seed": seed,
        "precision": name,
        "rounds": [10 * (place + 1) for place in range(len(scored))],
        "scored": scored,
        "aggregate": scored,
        "averaged": [None] * len(scored),
        "microseconds": None,
    }


class TestPairs:
    def test_accuracy_is_the_mean_of_the_last_evaluations(self) -> None:
        assert precision.accuracy(row("bf16", 0, [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]), "scored", 60) == pytest.approx(30)

    def test_accuracy_of_too_few_evaluations_is_none(self) -> None:
        assert precision.accuracy(row("bf16", 0, [0.1] * 6), "scored", 40) is None
        assert precision.accuracy(row("bf16", 0, [0.1] * 6), "averaged", 60) is None

    def test_difference_is_that_of_the_same_algorithm_and_seed(self) -> None:
        rows = [
            row("bf16", 0, [0.50] * 5),
            row("bf16", 1, [0.70] * 5),
            row("bf16", 2, [0.70] * 5),
            row("float32", 1, [0.69] * 5),
            row("float32", 0, [0.52] * 5),
            row("float32", 0, [0.10] * 5, algorithm="adabest"),
        ]
        assert precision.differences(rows, "bf16", "scored", 50) == {"fedavg": pytest.approx([-2.0, 1.0])}

    def test_standard_error_is_of_the_mean(self) -> None:
        found = precision.Difference.of([-2.0, 1.0, 1.0])
        assert found == pytest.approx((0.0, 1.0, 3, 1))

    def test_runs_are_compared_in_the_rounds_that_all_reached(self) -> None:
        rows = [row("bf16", 0, [0.5] * 5 + [0.9] * 5), row("float32", 0, [0.4] * 5)]
        assert precision.reached_by_all(rows) == 50
        assert "| bf16 | scored | +10.00 ± nan (n = 1, 0 lower)" in precision.tables(rows)


class TestMeasured:
    def call(self, monkeypatch: pytest.MonkeyPatch, out: Path, *words: str) -> list[dict[str, Any]]:
        task = ["--dataset", "digits", "--device", "cpu", "--clients", "20", "--algorithms", "fedavg"]
        monkeypatch.setattr(sys, "argv", ["precision", "measure", *task, "--out", str(out), *words])
        precision.main()
        rows: list[dict[str, Any]] = json.loads(out.read_text())
        return rows

    def test_results_of_another_precision_are_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        short = ["--rounds", "5", "--evaluate-every", "1", "--seeds", "0", "1"]
        self.call(monkeypatch, tmp_path / "p.json", *short, "--precisions", "bf16")
        rows = self.call(monkeypatch, tmp_path / "p.json", *short, "--precisions", "float32")
        assert [(r["precision"], r["seed"]) for r in rows] == [(p, s) for p in ("bf16", "float32") for s in (0, 1)]
        assert all(r["rounds"] == [1, 2, 3, 4, 5] and len(r["scored"]) == 5 for r in rows)
        assert all([value is None for value in r["averaged"]] == [True] * 2 + [False] * 3 for r in rows)

    def test_what_was_evaluated_before_the_time_was_up_is_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        endless = ["--rounds", "100000", "--evaluate-every", "1", "--seeds", "0", "--minutes", "0.1"]
        rows = self.call(monkeypatch, tmp_path / "p.json", *endless, "--precisions", "float32")
        assert len(rows) == 1
        assert rows[0]["rounds"] == list(range(1, len(rows[0]["scored"]) + 1))
