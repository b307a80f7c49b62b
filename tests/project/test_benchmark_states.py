"""Two states of the package beside each other: the table, and whether the bits are the same."""

import re
from pathlib import Path

from benchmarks import cpu_states

ROOT = Path(__file__).parents[2]


def test_a_state_has_the_bits_and_the_speed_of_itself() -> None:
    row = cpu_states.compare("logistic", "feddyn", [ROOT, ROOT], repeats=3, threads=1)
    assert row[-1] == "yes"
    middle, low, high = map(float, re.findall(r"\d+\.\d+", row[-2]))
    assert low <= middle <= high
    assert 0.2 < middle < 5  # three rounds of a few milliseconds, whatever else runs


def test_a_state_that_computes_otherwise_has_other_bits(tmp_path: Path) -> None:
    for file in (ROOT / "src").rglob("*.py"):
        copy = tmp_path / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    changed = tmp_path / "src/adabest/algorithms/fedavg.py"
    text = changed.read_text()
    changed.write_text(text.replace("cloud=aggregate", "cloud=0.5 * aggregate"))
    assert changed.read_text() != text
    assert cpu_states.compare("logistic", "fedavg", [ROOT, tmp_path], repeats=2, threads=1)[-1] == "no"
