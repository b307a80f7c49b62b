"""The GPU's table: which arms meet on what, how long they are measured, and what becomes of failures and lost time."""

import threading
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch

from adabest.errors import InputError
from benchmarks import machine, waves
from benchmarks.catalog import ARMS, Arm
from benchmarks.process import ArmFailedError, Measurement
from benchmarks.tasks import TASKS
from benchmarks.waves import TRIAL, WAVES, Table, Wave, rounds_of


class FakeProcess:
    """An arm that takes two seconds; ``jax`` doesn't start, ``graph`` fails when it is measured."""

    started: ClassVar[list[tuple[str, str, int, int]]] = []
    running: ClassVar[set[str]] = set()
    lock = threading.Lock()

    def __init__(self, arm: Arm, task: str, clients: int, rounds: int, patience: float) -> None:
        assert patience > 0
        with self.lock:
            self.started.append((arm.name, task, clients, rounds))
        if arm.name == "jax":
            raise ArmFailedError("no room")
        self.name, self.startup_seconds, self.versions = arm.name, 3.0, {"torch": "1"}
        self.running.add(arm.name)

    def measure(self, patience: float) -> Measurement:
        assert self.name in self.running
        if self.name == "graph":
            raise ArmFailedError("broken")
        return Measurement(2.0, 10**6)

    def end(self) -> None:
        self.running.discard(self.name)


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    FakeProcess.started, FakeProcess.running = [], set()
    for name in ("BENCHMARKS_LOCK", "JAX_COMPILATION_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "")
    monkeypatch.setattr(waves, "Process", FakeProcess)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(machine, "peaks", lambda device, precisions: dict.fromkeys(precisions, 1e12))
    yield
    assert not FakeProcess.running


def measured(*chosen: Wave, **settings: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for _, rows in Table(**settings).measure(chosen):
        assert all(row["task"] in TASKS for row in rows)
    return rows


def test_waves_name_arms_and_tasks_that_there_are() -> None:
    for wave in (*WAVES, *TRIAL):
        assert wave.task in TASKS
        assert len({arm.name for arm in wave.chosen()}) == len(wave.chosen())
    assert {arm.name for wave in WAVES for arm in wave.chosen()} == set(ARMS["cuda"])
    assert {wave.clients for wave in WAVES if wave.task == "paper"} == {10, 50, 100, 500}


def test_a_measurement_has_rounds_enough_for_a_clock_and_at_least_one() -> None:
    arms = ARMS["cuda"]
    assert rounds_of(TASKS["paper"].with_cohort(500), arms["vmap-bf16"]) == 1
    assert rounds_of(TASKS["paper"].with_cohort(10), arms["eager"]) == 1
    assert rounds_of(TASKS["paper"].with_cohort(10), arms["adabest"]) == 40  # 10 ms each
    assert rounds_of(TASKS["mlp"].with_cohort(10), arms["adabest"]) == 400


def test_rows_hold_figures_or_why_there_are_none() -> None:
    rows = {row["arm"]: row for row in measured(Wave("mlp", 10, "adabest jax graph eager"))}
    assert rows["eager"]["measurements"] == [2.0, 2.0, 2.0]
    assert rows["eager"]["microseconds_a_client_step"] == pytest.approx(2e6 / 500)
    assert rows["eager"]["startup_seconds"] == 3.0
    assert rows["jax"]["error"] == "no room"
    assert rows["graph"]["error"] == "broken"
    assert "seconds_a_round" not in rows["jax"]
    assert "measurements" not in rows["graph"]


def test_what_compiles_is_started_once_beforehand_and_not_again_if_it_fails() -> None:
    measured(Wave("mlp", 10, "adabest jax-bf16 eager"), Wave("mlp", 100, "adabest jax-bf16 jax im2col-compiled"))
    counts = {
        key: [entry[:3] for entry in FakeProcess.started].count(key) for key in {e[:3] for e in FakeProcess.started}
    }
    assert counts == {
        ("adabest", "mlp", 10): 2,
        ("adabest", "mlp", 100): 1,  # its kernels are there from ten clients
        ("jax-bf16", "mlp", 10): 2,
        ("jax-bf16", "mlp", 100): 2,
        ("eager", "mlp", 10): 1,
        ("jax", "mlp", 100): 1,
        ("im2col-compiled", "mlp", 100): 2,
    }


def test_waves_that_do_not_fit_the_time_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    said: list[str] = []
    table = Table(seconds=100.0, say=said.append)
    for _, rows in table.measure([Wave("mlp", 10, "eager"), Wave("mlp", 100, "vmap")]):
        now[0] = 70.0
        assert [row["arm"] for row in rows] == ["eager"]
    assert "  left out: the time is up" in said
    assert [entry[0] for entry in FakeProcess.started] == ["eager"]


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="cuda"):
        measured(Wave("mlp", 10, "eager"))
    assert FakeProcess.started == []
