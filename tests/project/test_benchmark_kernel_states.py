"""Kernels of two states of the package beside each other: whether they are the same code."""

from pathlib import Path

import pytest

from benchmarks import kernel_states

pytest.importorskip("triton", reason="Triton isn't installed")
ROOT = Path(__file__).parents[2]
PTX = """
// Generated
.version 8.0
.visible .entry _fold(
    .param .u64 _fold_param_0,
    .param .u64 _fold_param_{place}
)
{{
    ld.param.b64 %rd1, [_fold_param_{place}];  // the offset
    .loc 1 23 17
$L__tmp1:
    {operation}.f32 %r1, %r2, %r3;
}}
"""


@pytest.mark.parametrize(("place", "operation", "same"), [(7, "add", True), (7, "sub", False)])
def test_instructions_are_compared_and_numbers_of_arguments_are_not(place: int, operation: str, same: bool) -> None:
    one, other = (PTX.format(place=p, operation=o) for p, o in ((4, "add"), (place, operation)))
    assert (kernel_states.without_numbers(one) == kernel_states.without_numbers(other)) is same
    assert len(kernel_states.without_numbers(one)) == 2


def test_two_arguments_are_not_one() -> None:
    one, other = ("st [f_param_1], f_param_2;", "st [f_param_1], f_param_1;")
    assert kernel_states.without_numbers(one) != kernel_states.without_numbers(other)


def test_a_kernel_that_computes_otherwise_is_found(tmp_path: Path) -> None:
    """Beside the package itself: a step without an offset is the same, and one with an offset isn't."""
    for folder in ("src", "benchmarks"):
        for file in (ROOT / folder).rglob("*.py"):
            copy = tmp_path / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    changed = tmp_path / "src/adabest/engine/gpu/kernels/updates.py"
    text = changed.read_text()
    changed.write_text(text.replace("result += tl.load(offset", "result -= tl.load(offset"))
    assert changed.read_text() != text
    without, with_offset = kernel_states.compare(ROOT, tmp_path, 90, ["MLP"])
    assert without[0] == "MLP, no offset"
    assert without[1] == without[2] == without[3] > 8
    assert with_offset[1] == with_offset[2] == without[1]
    assert with_offset[3] < with_offset[1]
