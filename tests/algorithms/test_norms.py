"""‖h_i‖ of many clients at a time, as on a GPU, is what it is one by one."""

import pytest
from side_by_side import Case, run, simulate
from torch import Tensor

from adabest.engine import client_side
from adabest.engine import estimate_norms as norms
from adabest.engine.interface import Request
from adabest.runs.build import make_batched_engine
from adabest.runs.settings.algorithm_specification import make_algorithm

CASE = Case("mlp,hidden=5", (1, 5, 5))
NAMES = ("fedavg", "fedprox,mu=0.5", "scaffold", "scaffold-m", "feddyn", "adabest,beta=0.5", "adabest,beta=auto")


@pytest.mark.parametrize("at_a_time", [1, 2, 32])
@pytest.mark.parametrize("name", NAMES)
def test_stacked_norms_equal_those_of_one_client_after_another(
    name: str, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def both(request: Request) -> Tensor:
        one_by_one = norms.estimate_norms(request)
        assert norms.stacked_norms(request).tolist() == pytest.approx(one_by_one.tolist(), rel=1e-12)
        seen.append(len(one_by_one))
        return one_by_one

    monkeypatch.setattr(norms, "_STACKED_CLIENTS", at_a_time)
    monkeypatch.setattr(client_side, "estimate_norms", both)
    run(simulate(make_algorithm(name), CASE, make_batched_engine), rounds=3)
    assert len(seen) == 3
    keeps = not name.startswith("fed") or name == "feddyn"
    assert (seen[-1] > 3) == keeps  # more than a cohort
