"""How many runs fit the memory with what their clients keep."""

from typing import Any

import pytest
import torch

from adabest.runs import lane_memory
from adabest.runs.lane_memory import fitting_lanes
from adabest.runs.model_source import count_run_parameters
from adabest.runs.settings.resolution import resolve

SETTINGS = {"dataset": "digits", "clients": 10, "participation": 0.5, "rounds": 20}


def fitting(budget: int, *settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(lane_memory, "free_by_default", lambda device: budget)
    return fitting_lanes([resolve({**SETTINGS, **own}) for own in settings])


def model_bytes() -> int:
    return 4 * count_run_parameters(*resolve({**SETTINGS, "algorithm": "fedavg"}))


class TestFitting:
    def test_a_client_keeps_its_latest_model(self, monkeypatch: pytest.MonkeyPatch) -> None:
        runs = [{"algorithm": "fedavg", "seed": seed} for seed in range(4)]
        assert fitting(3 * 10 * model_bytes(), *runs, monkeypatch=monkeypatch) == 3
        assert fitting(3 * 10 * model_bytes() - 1, *runs, monkeypatch=monkeypatch) == 2

    def test_the_state_of_an_algorithm_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        runs = [{"algorithm": "adabest", "seed": seed} for seed in range(4)]
        assert fitting(5 * 10 * model_bytes(), *runs, monkeypatch=monkeypatch) == 2

    def test_clients_that_never_take_part_keep_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        runs = [{"algorithm": "fedavg", "participation": 0.1, "rounds": 2, "seed": seed} for seed in range(9)]
        assert fitting(3 * 4 * model_bytes(), *runs, monkeypatch=monkeypatch) >= 3

    def test_the_largest_runs_are_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        large = {"algorithm": "fedavg", "clients": 40}
        small = {"algorithm": "fedavg", "clients": 4}
        assert fitting(45 * model_bytes(), small, small, large, monkeypatch=monkeypatch) == 2

    def test_there_is_at_least_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert fitting(0, {"algorithm": "fedavg"}, monkeypatch=monkeypatch) == 1

    def test_a_missing_gpu_is_left_to_the_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        runs = [{"algorithm": "fedavg", "device": "cuda", "seed": seed} for seed in range(3)]
        assert fitting_lanes([resolve({**SETTINGS, **own}) for own in runs]) == 3
