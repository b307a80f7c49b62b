"""One local step by hand, for one client or many; the settings of local training."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from adabest.algorithms.base import Correction
from adabest.engine.local_step import LocalTraining, local_step
from adabest.errors import InputError


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a.double(), b.double(), rtol=1e-10, atol=1e-12)


class TestLocalStep:
    W = torch.tensor([1.0, 2.0], dtype=torch.float64)
    GRADIENT = torch.tensor([3.0, 4.0], dtype=torch.float64)
    OFFSET = torch.tensor([-1.0, 0.0], dtype=torch.float64)

    def step(self, training: LocalTraining, eta: float = 0.5, **correction: Any) -> list[float]:
        moved = local_step(self.W, self.GRADIENT, Correction(self.W, **correction), eta, training)
        assert torch.equal(self.W, torch.tensor([1.0, 2.0], dtype=torch.float64))  # the argument is untouched
        return moved.tolist()

    def test_a_local_step_is_that_by_hand(self) -> None:
        free = LocalTraining(clip=0)
        assert self.step(free) == [1 - 1.5, 2 - 2.0]
        assert self.step(free, scale=2.0) == [1 - 3.0, 2 - 4.0]
        assert self.step(free, offset=self.OFFSET) == [1 - 0.5 * 2, 2 - 0.5 * 4]
        assert self.step(free, rho=0.5) == [1 - 0.5 * 3.5, 2 - 0.5 * 5]
        assert self.step(free, rho_prime=0.5) == [1 - 0.5 * 3.5, 2 - 0.5 * 5]
        # 2 (3, 4) + (-1, 0) + .5 (1, 2) + (.25 + .25) (1, 2) = (6, 10)
        all_of_it: dict[str, Any] = {"scale": 2.0, "offset": self.OFFSET, "rho": 0.5, "rho_prime": 0.25}
        assert self.step(LocalTraining(clip=0, weight_decay=0.25), **all_of_it) == [1 - 3.0, 2 - 5.0]

    def test_clipping_covers_the_corrections_but_no_decay(self) -> None:
        # (3, 4) has norm 5 and becomes (1.5, 2); λ and ρ' come on top.
        assert self.step(LocalTraining(clip=2.5)) == pytest.approx([1 - 0.75, 2 - 1.0])
        decayed = self.step(LocalTraining(clip=2.5, weight_decay=2.0), rho_prime=1.0)
        assert decayed == pytest.approx([1 - 0.5 * (1.5 + 3), 2 - 0.5 * (2 + 6)])
        # ρ w and the offset are inside: (3, 4) + (3, 2) + 2 (1, 2) = (8, 10), cut to norm 1.
        inside = self.step(LocalTraining(clip=1.0), offset=torch.tensor([3.0, 2.0]).double(), rho=2.0)
        assert inside == pytest.approx([1 - 4 / math.hypot(8, 10), 2 - 5 / math.hypot(8, 10)])
        # The scale is inside too: half of (3, 4) is short enough.
        assert self.step(LocalTraining(clip=2.5), scale=0.5) == pytest.approx([1 - 0.75, 2 - 1.0])

    def test_clipping_leaves_short_gradients_alone(self) -> None:
        assert self.step(LocalTraining(clip=5.0)) == self.step(LocalTraining(clip=0))
        assert self.step(LocalTraining(clip=1e6)) == self.step(LocalTraining(clip=0))

    def test_a_gradient_of_zero_moves_nothing(self) -> None:
        still = local_step(self.W, torch.zeros_like(self.W), Correction(self.W), 0.5, LocalTraining(clip=1.0))
        assert torch.equal(still, self.W)

    @given(st.integers(0, 1000))
    def test_a_step_of_many_is_that_of_each(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        w, gradient, offset = torch.randn(3, 4, 5, 6, generator=generator, dtype=torch.float64) * 3
        scale, rho, rho_prime = torch.rand(3, 4, 5, 1, generator=generator, dtype=torch.float64)
        training = LocalTraining(clip=4.0, weight_decay=0.1)
        together = local_step(w, gradient, Correction(w, scale, offset, rho, rho_prime), 0.1, training)
        for place in np.ndindex(4, 5):
            numbers = [float(x[place]) for x in (scale, rho, rho_prime)]
            correction = Correction(w[place], numbers[0], offset[place], numbers[1], numbers[2])
            close(local_step(w[place], gradient[place], correction, 0.1, training), together[place])


class TestLocalTraining:
    def test_the_rate_decays_from_round_to_round(self) -> None:
        training = LocalTraining(learning_rate=0.1, learning_rate_decay=0.5)
        assert [training.eta(t) for t in (1, 2, 4)] == [0.1, 0.05, 0.0125]
        assert LocalTraining() == LocalTraining(0.1, 0.998, 0.0, 10.0)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("learning_rate", 0.0),
            ("learning_rate", -1.0),
            ("learning_rate", math.inf),
            ("learning_rate_decay", 0.0),
            ("learning_rate_decay", 1.001),
            ("weight_decay", -1e-9),
            ("weight_decay", math.nan),
            ("clip", -1.0),
            ("clip", math.inf),
        ],
    )
    def test_settings_out_of_range_are_refused(self, name: str, value: float) -> None:
        with pytest.raises(InputError, match=f"{name} = {value}: it must be finite and"):
            LocalTraining(**{name: value})


def test_a_norm_too_large_for_a_number_is_no_step_of_length_zero() -> None:
    huge = torch.full((4,), 1e30)
    stepped = local_step(torch.ones(4), huge, Correction(torch.ones(4)), 0.1, LocalTraining(clip=10.0))
    assert stepped.isnan().all()
