"""How kernels are compiled: at the same time, before the first step, and once for any number of clients."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton isn't installed")

PROGRAM = Path(__file__).parents[1] / "helpers" / "compiled_steps.py"


def printed(*words: str) -> Any:
    """What the helper prints in a process of its own: Triton's interpreter, which tests use, compiles nothing."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(PROGRAM), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_kernels_are_the_same_for_any_number_of_clients() -> None:
    first, *others = printed("keys")
    assert len(first) > 10
    assert all(other == first for other in others)


def test_kernels_are_compiled_in_threads_before_the_step() -> None:
    found = printed("together")
    assert len(found["before"]) > 10
    assert found["in the step"] == []
    assert found["in the main thread"] == 0
    assert found["at a time"] > 1
    assert found["error"] == ""


def test_a_kernel_that_cannot_be_compiled_is_told_of_by_its_launch() -> None:
    found = printed("together", "_update")
    assert found["in the step"] == ["_update"]
    assert found["error"] == "_update can't be compiled"
