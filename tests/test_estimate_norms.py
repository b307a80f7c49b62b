"""‖h_i‖ for the metrics: many clients at a time, as on a GPU, give what one after another gives."""

from pathlib import Path
from typing import Any

import pytest

import adabest
from adabest.algorithms import ALGORITHMS
from adabest.engine import exchange, simulation
from adabest.engine.exchange import Exchange, estimate_norms, norms_side_by_side

STATELESS = ("fedavg", "fedprox")


@pytest.mark.parametrize("algorithm", ALGORITHMS.builtin)
def test_side_by_side_or_one_after_another(algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients differ in their size, so each has a scale of its own, and there are several times as many as fit."""
    monkeypatch.setattr(exchange, "_AT_A_TIME", 3)
    found: list[tuple[list[float], list[float]]] = []

    def both(request: Exchange) -> list[float]:
        found.append((norms_side_by_side(request), estimate_norms(request)))
        return found[-1][1]

    monkeypatch.setattr(simulation, "estimate_norms", both)
    settings: dict[str, Any] = {"clients": 8, "validation_clients": 1, "participation": 0.5, "unbalance": 0.5}
    settings |= {"dataset": "tiny_runs:stripes", "partition": "iid", "rounds": 4, "epochs": 1, "evaluate_every": 1}
    adabest.run(algorithm=algorithm, **settings, out=tmp_path / "run", show=False)
    assert len(found) == 4
    for together, alone in found:
        assert together == pytest.approx(alone, rel=1e-6)
    together, _ = found[-1]
    if algorithm in STATELESS:
        assert together == []
    else:
        assert len(together) > 3
        assert len(set(together)) == len(together)
        assert min(together) > 0
