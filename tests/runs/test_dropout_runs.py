"""Runs with dropout inside a transformer: repeatable, the same in lanes, and resumed to the same bytes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import Killed, break_off, results, resume, run, tiny
from torch import Tensor, nn

import adabest


class Reader(nn.Module):
    """A transformer of the rows of an image, with dropout in all its usual places."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(input_shape[-1], 2, 8, dropout=0.1, batch_first=True)
        self.end = nn.Linear(input_shape[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.end(self.layer(x.flatten(1, 2)).mean(dim=1))
        return scores


def same_model(one: adabest.Run, other: adabest.Run) -> bool:
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return all(torch.equal(mine, theirs) for mine, theirs in pairs)


@pytest.mark.parametrize("engine", ["reference", "batched"])
def test_two_runs_are_equal_and_lanes_equal_single_runs(engine: Any, tmp_path: Path) -> None:
    one, two = (run(tmp_path / name, model=Reader, engine=engine) for name in ("one", "two"))
    assert one.measured.rows() == two.measured.rows()
    assert same_model(one, two)
    torch.manual_seed(5)  # the global generator has no say
    settings = tiny(model=Reader, engine=engine)
    both = adabest.compare(algorithms=["fedavg", "adabest"], out=tmp_path / "both", show=False, lanes=2, **settings)
    assert same_model(both.runs["adabest"], one)


def test_a_run_that_was_killed_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", model=Reader, checkpoint_every=1)
    break_off(tmp_path / "broken", 30, Killed, model=Reader, checkpoint_every=1)
    resume(tmp_path / "broken", model=Reader, trust=True)
    assert results(tmp_path / "broken") == results(whole.folder)
