"""What parts of a step cost on a GPU by arithmetic, as the page of speed has it."""

import re
from pathlib import Path

import pytest
import torch

from adabest.models.factory import build_model
from benchmarks import step_parts

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/speed.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## What parts of the step cost, by arithmetic\n")[1].split("\n## ")[0]


def test_the_page_has_the_arithmetic_of_every_part() -> None:
    rows = re.findall(r"^\| ([^|:]+) \| (\d+): .* \| ([\d.]+)( and a pass)? \|$", SECTION, flags=re.MULTILINE)
    told = {title: (int(moved), time, bool(passes)) for title, moved, time, passes in rows}
    assert told == {
        title: (step_parts.moved_bytes(arm), f"{step_parts.arithmetic('CNN', arm):.2f}", "two passes" in title)
        for title, arm in step_parts.ARMS.items()
        if title != "nothing"
    }


def test_a_step_without_parts_moves_nothing_more() -> None:
    assert step_parts.arithmetic("CNN", step_parts.ARMS["nothing"]) == 0.0


@pytest.mark.parametrize("name", ["MLP", "CNN"])
def test_the_models_have_as_many_parameters_as_the_arithmetic_takes(name: str) -> None:
    work = step_parts.WORKS[name]
    module = build_model(work.model, torch.zeros(2, *work.shape), 10, seed=0)
    assert sum(parameter.numel() for parameter in module.parameters()) == step_parts.PARAMETERS[name]


def test_the_page_says_that_it_is_not_measured_and_by_what_it_would_be() -> None:
    assert "**None of this is measured.**" in SECTION
    assert "`python -m benchmarks.step_parts cuda`" in SECTION


def test_a_pass_takes_what_the_table_of_a_client_step_has_between_batch_and_update() -> None:
    table = PAGE.split("## What a client-step is made of\n")[1].split("\n## ")[0]
    times = [float(time) for time in re.findall(r"^\| .* \| ([\d.]+) \|$", table, flags=re.MULTILINE)]
    *_, whole = times
    between = sum(times[1:-2])
    assert f"{between:.1f} µs" in SECTION
    assert between < whole
