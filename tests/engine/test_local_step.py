"""One local step."""

import torch

from adabest.algorithms.base import Correction
from adabest.engine.local_step import LocalTraining, local_step


def test_a_norm_too_large_for_a_number_is_no_step_of_length_zero() -> None:
    huge = torch.full((4,), 1e30)
    stepped = local_step(torch.ones(4), huge, Correction(torch.ones(4)), 0.1, LocalTraining(clip=10.0))
    assert stepped.isnan().all()
