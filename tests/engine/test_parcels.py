"""Parcels: tensors of several shapes and types in one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adabest.engine.distributed.parcels import packed, packed_length, spec_of, unpacked

CPU = torch.device("cpu")
TYPES = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.uint8])
SHAPES = st.lists(st.integers(0, 5), max_size=3)


@given(st.lists(st.tuples(SHAPES, TYPES), max_size=6))
def test_tensors_come_out_of_a_parcel_as_they_went_in(kinds: list[tuple[list[int], torch.dtype]]) -> None:
    tensors = [(100 * torch.rand(shape)).to(dtype) for shape, dtype in kinds]
    specs = [spec_of(tensor) for tensor in tensors]
    parcel = packed(tensors, CPU)
    assert len(parcel) == packed_length(specs)
    for before, after in zip(tensors, unpacked(parcel, specs), strict=True):
        assert after.dtype == before.dtype
        assert torch.equal(after, before)


def test_what_comes_out_of_a_parcel_has_memory_of_its_own() -> None:
    parcel = packed([torch.ones(3), torch.full((2, 2), torch.nan).T, torch.tensor(True)], CPU)
    first, second, third = unpacked(parcel, [[[3], "float32"], [[2, 2], "float32"], [[], "bool"]])
    parcel.zero_()
    assert first.tolist() == [1, 1, 1]
    assert second.isnan().all()
    assert third


def test_a_type_that_torch_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="'nn' isn't a type of numbers"):
        packed_length([[[2], "nn"]])
